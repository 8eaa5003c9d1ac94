"""Values that rows get without being written: the log lacks them, and the target must not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.model.commit import unfilled_columns
from frazil.model.events import Event, SourceNoticed
from frazil.sources.base import Slice
from helpers.lakes import Lake, run, sqlite_lake
from sources.postgres.databases import ArrowReader, Database
from sources.postgres.test_pipeline import described

Watch = Callable[..., ArrowReader]

TABLE = ("create table t (id int primary key, a text)", "insert into t values (1, 'a1'), (2, 'a2'), (3, 'a3')")


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return sqlite_lake(spark, tmp_path)


def notices(events: list[Event]) -> list[SourceNoticed]:
    return [event for event in events if isinstance(event, SourceNoticed)]


def test_existing_rows_have_the_default_of_an_added_column(database: Database, lake: Lake) -> None:
    database.run(*TABLE)
    pipeline = lake.pipeline(described(database, "t"), commit_mode="upsert", schema_evolution="full")
    run(pipeline, once=True)
    # The values of c are in the catalog of PostgreSQL, the others in files that it has rewritten. None is in the log.
    database.run(
        "create sequence s",
        "alter table t add c int default 7, add d bigint default nextval('s'), alter a type text using upper(a)",
        "insert into t values (4, 'a4', null, 1)",
        "delete from t where id = 1",
    )
    [notice] = notices(run(pipeline, once=True))
    assert (notice.code, notice.gap) == ("table-read-again", False)
    assert lake.rows("id, a, c, d") == database.rows("select id, a, c, d from t order by id")


def test_an_append_reports_what_it_lacks(database: Database, lake: Lake) -> None:
    database.run(*TABLE)
    pipeline = lake.pipeline(described(database, "t"), commit_mode="append")
    run(pipeline, once=True)
    database.run("alter table t add c int default 7", "insert into t values (4, 'a4', 8)")
    [notice] = notices(run(pipeline, once=True))
    assert (notice.code, notice.gap) == ("values-not-in-log", True)
    assert "public.t have values in c" in notice.message
    assert lake.rows("id, c") == [(1, None), (2, None), (3, None), (4, 8)]


def read_again(reader: ArrowReader, part: Slice | None) -> list[str]:
    """The tables that a slice leaves to be read again."""
    assert part is not None
    reader.commit(part)
    return list(json.loads(part.end).get("again", []))


def upserting(watch: Watch, *tables: str, ledger: str | None = None, **options: Any) -> ArrowReader:
    reader = watch(*tables, ledger=ledger, **options)
    reader.source.read_again_where(lambda _: True)
    return reader


UNLOGGED = [
    "alter table {t} add c int default 7",
    "alter table {t} add c int default 7; alter table {t} alter c drop default",
    "alter table {t} add c int default 7; vacuum full {t}",
    "alter table {t} add c timestamptz default now()",
    "alter table {t} add c uuid default gen_random_uuid()",
    "alter table {t} add c uuid default gen_random_uuid(); alter table {t} alter c drop default",
    "alter table {t} add c serial",
    "alter table {t} add c int generated always as identity",
    "alter table {t} add c seven",
    "alter table {t} alter n type numeric(8, 1)",
    "alter table {t} alter n type bigint",
    "alter table {t} alter g drop expression",
]
LOGGED = [
    "alter table {t} add c int",
    "alter table {t} add c int; alter table {t} alter c set default 7",
    "alter table {t} add c int default null",
    "alter table {t} rename a to b",
    "vacuum full {t}",
    "alter table {t} alter n type numeric(12, 2)",
    "alter table {t} alter a type varchar(200)",
    "alter table {t} add c int default 7; alter table {t} drop c",
]


def test_a_table_is_read_again_when_values_are_not_in_the_log(database: Database, watch: Watch) -> None:
    cases = {f"t{number:02}": statements for number, statements in enumerate([*UNLOGGED, *LOGGED])}
    database.run("create domain seven as int default 7")
    for t in cases:
        database.run(
            f"create table {t} (id int primary key, a varchar(100), n numeric(8, 2), g int generated always as (id * 2) stored)",
            f"insert into {t} values (1, 'a1', 1.25), (2, 'a2', 2.25)",
        )
    reader = upserting(watch, *cases)
    for _ in cases:
        assert len(reader.changes() or ()) == 2
    for t, statements in cases.items():
        database.run(*statements.format(t=t).split("; "), f"delete from {t} where id = 1")
    unlogged = [f"public.{t}" for t, statements in cases.items() if statements in UNLOGGED]
    assert read_again(reader, reader.plan()) == unlogged
    # Another process finds in the ledger what is to be done.
    reader.source.close()
    reader = upserting(watch, *cases, ledger=reader.ledger)
    for table in unlogged:
        part = reader.plan()
        assert part is not None
        assert reader.source.tables(part) == (table,)
        assert [row[:2] for row in reader.table_rows(part, table)] == [("insert", 2)]
        reader.commit(part)
    # Then the log goes on where it was, and nothing is read twice.
    for t in cases:
        database.run(f"insert into {t} (id) values (9)")
    assert read_again(reader, reader.plan()) == []
    assert reader.plan() is None


def test_what_changed_while_a_table_was_read_again_is_applied_to_it(database: Database, watch: Watch) -> None:
    """A delete that came between the log's place and the second reading must not be taken for one that this has seen."""
    database.run(*TABLE)
    reader = upserting(watch, "t")
    assert reader.changes() is not None
    database.run("alter table t add c int default 7", "update t set a = 'new' where id = 3")
    assert read_again(reader, reader.plan()) == ["public.t"]
    database.run("delete from t where id = 1", "update t set a = 'newer' where id = 2")
    assert sorted(reader.changes() or []) == [("insert", 2, "newer", 7), ("insert", 3, "new", 7)]
    assert reader.changes() == [("delete", 1, None, None), ("update", 2, "newer", 7)]


def test_a_partitioned_table_is_read_again(database: Database, watch: Watch) -> None:
    database.run(
        "create table t (id int primary key, a text) partition by range (id)",
        "create table t_low partition of t for values from (0) to (10)",
        "create table t_high partition of t for values from (10) to (20)",
        "insert into t values (1, 'a1'), (11, 'a11')",
    )
    reader = upserting(watch, "t")
    assert reader.changes() is not None
    database.run("alter table t add c int default 7", "insert into t values (2, 'a2', 8)")
    assert read_again(reader, reader.plan()) == ["public.t"]
    assert sorted(reader.changes() or []) == [("insert", 1, "a1", 7), ("insert", 2, "a2", 8), ("insert", 11, "a11", 7)]


def test_a_column_that_the_publication_begins_to_let_through(database: Database, watch: Watch) -> None:
    database.run(*TABLE, "create publication p for table t (id)")
    reader = upserting(watch, "t", publication="p")
    assert sorted(reader.changes() or []) == [("insert", 1), ("insert", 2), ("insert", 3)]
    database.run("alter publication p set table t (id, a)", "insert into t values (4, 'a4')")
    assert read_again(reader, reader.plan()) == ["public.t"]
    assert sorted(reader.changes() or [])[0] == ("insert", 1, "a1")


@pytest.mark.parametrize("options", [{}, {"snapshot": "never"}])
def test_what_is_not_read_again_is_kept_in_the_position(database: Database, watch: Watch, options: dict[str, Any]) -> None:
    database.run(*TABLE)
    reader = watch("t", **options) if not options else upserting(watch, "t", **options)
    reader.changes()
    database.run("insert into t values (4, 'a4')")
    reader.changes()
    database.run("alter table t add c int default 7", "delete from t where id = 1")
    part = reader.plan()
    assert part is not None
    assert [notice.code for notice in part.notices] == ["values-not-in-log"]
    reader.commit(part)
    assert unfilled_columns(reader.ledger) == {"public.t": ["c"]}
    database.run("alter table t add d int default 7", "delete from t where id = 2")
    reader.changes()
    assert unfilled_columns(reader.ledger) == {"public.t": ["c", "d"]}
