"""Several tables of a database through one slot, each into its own: they are equal, also after kills."""

from __future__ import annotations

import itertools
import json
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from frazil.runtime.verify import verify
from helpers.lakes import IMPATIENT, Lake, commits, run, sqlite_lake
from services.processes import wait_until
from sources.postgres.databases import Database
from sources.postgres.following import name_of
from sources.postgres.test_pipeline import await_free_slot, described, ended, following, go_on

TABLES = {
    "accounts": "id int primary key, balance numeric(12,2), note text",
    "movements": "branch int, number bigint, amount numeric(10,2), at timestamptz, primary key (branch, number)",
    "tags": "name text primary key, values_ int[], hidden boolean",
}
ROUTED = {"route": {"source": True, "name": "{value}"}, "commit_mode": "upsert"}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return sqlite_lake(spark, tmp_path)


def filled(database: Database, rows: int = 200) -> None:
    for table, columns in TABLES.items():
        database.run(f"create table {table} ({columns})")
    database.run(
        f"insert into accounts select i, i / 3.0, repeat('note ' || i, 500) from generate_series(1, {rows}) i",
        f"insert into movements select i % 5, i, i / 7.0, '2026-01-01'::timestamptz + i * interval '1 s' "
        f"from generate_series(1, {rows}) i",
        f"insert into tags select 'tag ' || i, array[i, i + 1], i % 2 = 0 from generate_series(1, {rows}) i",
    )


def held(database: Database, table: str) -> list[str]:
    return [row[0] for row in database.rows(f"select {_as_text(table, '::text')} from {table}")]


def _as_text(table: str, cast: str) -> str:
    names = [part.split()[0] for part in TABLES[table].partition(", primary key")[0].split(", ")]
    return "concat_ws('|', " + ", ".join(f"coalesce({_plain(name, cast)}, 'null')" for name in names) + ")"


def _plain(name: str, cast: str) -> str:
    """A text that both sides write alike."""
    postgres = cast == "::text"
    if name == "at":
        return "(extract(epoch from at) * 1000000)::bigint::text" if postgres else "cast(unix_micros(at) as string)"
    if name == "values_":
        return "array_to_string(values_, ',')" if postgres else "array_join(cast(values_ as array<string>), ',')"
    if name == "note":
        return "md5(note)"
    return f"{name}::text" if postgres else f"cast({name} as string)"


def assert_equal(database: Database, lake: Lake) -> None:
    for table in TABLES:
        found = [row[0] for row in lake.table(f"db.public_{table}").selectExpr(_as_text(table, "")).collect()]
        assert sorted(found) == sorted(held(database, table)), table


class Load(threading.Thread):
    """Writes to all tables, in transactions over several of them: new rows, changed ones, deleted ones, changed keys."""

    def __init__(self, database: Database, seed: int) -> None:
        super().__init__()
        self._database, self._random, self._stopped = database, random.Random(seed), threading.Event()
        self._next = seed * 1_000_000
        self.transactions = 0

    def run(self) -> None:
        with self._database.connect() as connection:
            while not self._stopped.wait(0.02):
                with suppress(psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation), connection.transaction():
                    for _ in range(self._random.randrange(1, 5)):
                        self._change(connection)
                    self.transactions += 1

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        self._next += 1
        one = "(select {0} from {1} order by random() limit 1)"
        number = self._next
        statements = [
            f"insert into accounts values ({number}, {number % 1000}, repeat('n{number} ', 600))",
            f"insert into movements values ({number % 5}, {number}, 1.5, now())",
            f"insert into tags values ('new {number}', array[{number}], true)",
            f"update accounts set balance = balance + 1 where id = {one.format('id', 'accounts')}",
            f"update accounts set note = repeat('changed {number} ', 400) where id = {one.format('id', 'accounts')}",
            f"update movements set amount = amount + 0.25 where number = {one.format('number', 'movements')}",
            f"update movements set branch = branch + 10 where number = {one.format('number', 'movements')}",
            f"update tags set name = 'renamed {number}' where name = {one.format('name', 'tags')}",
            f"update tags set values_ = values_ || {number % 100} where name = {one.format('name', 'tags')}",
            f"delete from accounts where id = {one.format('id', 'accounts')}",
            f"delete from tags where name = {one.format('name', 'tags')}",
        ]
        connection.execute(self._random.choice(statements).encode())

    def end(self) -> None:
        self._stopped.set()
        self.join()


@contextmanager
def loaded(database: Database, *seeds: int) -> Iterator[list[Load]]:
    loads = [Load(database, seed) for seed in seeds]
    for load in loads:
        load.start()
    try:
        yield loads
    finally:
        for load in loads:
            load.end()


@pytest.mark.slow(seconds=75)
def test_each_table_follows_its_own(database: Database, lake: Lake) -> None:
    filled(database)
    pipeline = lake.pipeline(described(database, *TABLES), **ROUTED)
    done = commits(run(pipeline, once=True))
    assert_equal(database, lake)
    assert sum(commit.counts.read for commit in done) == 600
    with loaded(database, 1, 2) as loads:
        wait_until(lambda: all(load.transactions > 60 for load in loads), 240, "some transactions")
    run(pipeline, once=True)
    assert_equal(database, lake)
    database.run("create table more (id int primary key)", "insert into more values (1)")
    assert commits(run(pipeline, once=True)) == [], "no table of the pipeline has changed"


@pytest.mark.slow(seconds=60)
def test_a_table_that_is_added_later_is_read_whole_first(database: Database, lake: Lake) -> None:
    filled(database, 20)
    database.run("create publication everything for all tables")
    few = {**described(database, "accounts", "movements"), "publication": "everything"}
    run(lake.pipeline(few, **ROUTED), once=True)
    database.run("update tags set hidden = null where name = 'tag 3'", "delete from accounts where id = 4")
    run(lake.pipeline({**described(database, *TABLES), "publication": "everything"}, **ROUTED), once=True)
    assert_equal(database, lake)


@pytest.mark.slow(seconds=80)
def test_a_table_that_was_left_out_for_a_while_is_read_whole_again(database: Database, lake: Lake) -> None:
    filled(database, 20)
    everything = lake.pipeline(described(database, *TABLES), **ROUTED)
    run(everything, once=True)
    database.run("insert into tags values ('between', null, true)", "update tags set hidden = null where name = 'tag 3'")
    database.run("delete from tags where name = 'tag 5'", "delete from accounts where id = 4")
    run(lake.pipeline(described(database, "accounts", "movements"), **ROUTED), once=True)
    database.run("update tags set values_ = null where name = 'tag 7'")
    run(everything, once=True)
    database.run("create table noise as select * from generate_series(1, 10000)")  # the log grows by what is not followed, too
    verified = {finding.at: finding.problem for finding in verify(everything, IMPATIENT).findings}
    assert verified == {"db.public_tags": "it holds 21 rows, and public.tags has 20"}, "nobody reported the delete"
    database.run("update tags set hidden = false where name = 'tag 9'")
    waiting = verify(everything, IMPATIENT)
    assert (waiting.findings, len(waiting.notes)) == ((), 1)
    assert waiting.notes[0].startswith("There are changes that are not in the table yet")
    run(everything, once=True)
    lake.spark.sql(f"delete from {lake.name}.db.public_tags where name = 'tag 5'")
    assert_equal(database, lake)


MOMENTS = [("applied", 1), ("unsent", 3), ("staged", 3)]


@pytest.mark.slow(seconds=150)
def test_killed_between_tables_while_the_database_is_written_to(database: Database, lake: Lake, tmp_path: Path) -> None:
    filled(database)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"source": described(database, *TABLES), "sink": ROUTED}))
    with loaded(database, 3, 13):
        for moment, nth in MOMENTS:
            child = following(tmp_path, spec, moment, str(nth), "kill-all")
            assert ended(child) == -signal.SIGKILL, child.log_text()[-3000:]
    go_on(database, tmp_path, spec)
    assert_equal(database, Lake(lake.spark, {**lake.catalog, "name": name_of(tmp_path)}, lake.folder).introduced())
    await_free_slot(database)


@contextmanager
def transferring(database: Database) -> Iterator[None]:
    """Transactions that change two tables alike, as long as the block."""
    over = threading.Event()

    def transfer() -> None:
        with database.connect() as connection:
            for number in itertools.count(10):
                with connection.transaction():
                    for table in ("debits", "credits"):
                        connection.execute(f"insert into {table} values ({number}, {number})".encode())
                        connection.execute(f"update {table} set amount = amount + 1 where id = {number - 3}".encode())
                        connection.execute(f"delete from {table} where id = {number - 7}".encode())
                if over.wait(0.02):
                    return

    thread = threading.Thread(target=transfer)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow(seconds=100)
def test_a_transaction_over_two_tables_is_in_both_or_in_none(database: Database, lake: Lake, tmp_path: Path) -> None:
    for table in ("debits", "credits"):
        database.run(f"create table {table} (id int primary key, amount int)", f"insert into {table} values (1, 1)")
    spec, mine = tmp_path / "spec.json", Lake(lake.spark, {**lake.catalog, "name": name_of(tmp_path)}, lake.folder).introduced()
    sink = {"route": {"source": True, "atomic": True}, "commit_mode": "upsert"}
    spec.write_text(json.dumps({"source": described(database, "debits", "credits"), "sink": sink}))
    go_on(database, tmp_path, spec)
    with transferring(database):
        for moment in ("together-applied", "together-unsent", "together-sent"):
            child = following(tmp_path, spec, moment, "1", "kill-all")
            assert ended(child) == -signal.SIGKILL, child.log_text()[-3000:]
            assert mine.rows(table="db.public_debits") == mine.rows(table="db.public_credits")
            assert mine.count("db.public_debits") > 5
    go_on(database, tmp_path, spec)
    expected = sorted((tuple(row) for row in database.rows("select id, amount from credits")), key=repr)
    assert mine.rows("id, amount", "db.public_debits") == mine.rows("id, amount", "db.public_credits") == expected
    await_free_slot(database)


@pytest.mark.slow(seconds=70)
@pytest.mark.parametrize("sink", [{"table": "public_days", "commit_mode": "upsert"}, ROUTED], ids=["one table", "many"])
def test_killed_between_the_letters_of_a_snapshot_and_its_rows(
    database: Database, lake: Lake, tmp_path: Path, sink: dict[str, Any]
) -> None:
    database.run("create table days (id int primary key, day date)")
    database.run(
        "insert into days select i, case when i % 4 = 0 then 'infinity' else '2026-01-01' end::date from generate_series(1, 40) i"
    )
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"source": described(database, "days"), "sink": {**sink, "on_error": "dead_letter"}}))
    child = following(tmp_path, spec, "unsent", "2", "kill-all")
    assert ended(child) == -signal.SIGKILL, child.log_text()[-3000:]
    letters = "db.public_days__dead_letters" if "table" in sink else "db.frazil__dead_letters"
    mine = Lake(lake.spark, {**lake.catalog, "name": name_of(tmp_path)}, lake.folder).introduced()
    assert mine.count(letters) == 10, "they were put away before the rows"
    database.run("delete from days where id in (4, 5)", "insert into days values (41, 'infinity'), (42, '2026-02-02')")
    go_on(database, tmp_path, spec)
    rows = {row[0] for row in mine.rows("id", table="db.public_days")}
    assert rows == {i for i in range(1, 43) if i not in (5, 41) and i % 4}
    raw = {json.loads(row[0])["row"]["id"] for row in mine.rows("cast(raw as string)", table=letters)}
    assert raw == {str(i) for i in range(8, 41, 4)} | {"41"}
    assert mine.count(letters) == 10


@pytest.mark.slow(seconds=40)
def test_verify_compares_the_rows_with_the_database(database: Database, lake: Lake) -> None:
    filled(database, 20)
    pipeline = lake.pipeline(described(database, *TABLES), **ROUTED)
    run(pipeline, once=True)
    database.run("update tags set name = 'other' where name = 'tag 3'", "delete from accounts where id = 4")
    run(pipeline, once=True)
    verified = verify(pipeline, IMPATIENT)
    assert verified.findings == ()
    assert (verified.batches, verified.rows, verified.notes) == (4, 62, ())
    spark = lake.spark
    spark.sql(f"delete from {lake.name}.db.public_accounts where id = 7")
    spark.sql(f"update {lake.name}.db.public_tags set name = 'nobody' where name = 'other'")
    found = {finding.at: finding.problem for finding in verify(pipeline, IMPATIENT).findings}
    assert found == {
        "db.public_accounts": "it holds 18 rows, and public.accounts has 19",
        "db.public_tags": "it holds as many rows as public.tags, but with other keys",
    }
