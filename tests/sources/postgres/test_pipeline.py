"""From the database into an Iceberg table: they are equal, also when the process is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from frazil.errors import ConfigError, DataError, Retryable
from frazil.model.commit import RowCounts
from frazil.model.events import CommitFailed, Event, Restarting, SourceFailed
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import RestartSettings
from frazil.sources.base import Slice
from frazil.sources.postgres.source import PostgresCdc
from helpers.lakes import IMPATIENT, Lake, StopAfter, commits, run, sqlite_lake
from services.processes import Child, start, wait_until
from sources.postgres.databases import Database
from sources.postgres.following import name_of, pipeline_of
from sources.postgres.test_snapshot import Writer

TESTS = Path(__file__).parents[2]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return sqlite_lake(spark, tmp_path)


def described(database: Database, *tables: str) -> dict[str, Any]:
    spec = database.spec(*tables).model_dump(mode="json", exclude_defaults=True)
    return {**spec, "connector": "postgres-cdc", "password": database.server.password}


def test_the_table_follows_the_database(database: Database, lake: Lake) -> None:
    database.run(
        "create table orders (id int primary key, item text, price numeric(8, 2), at timestamptz, tags text[])",
        "insert into orders select i, 'item ' || i, i / 3.0, '2024-01-01'::timestamptz + i * interval '1 hour', "
        "array['a', i::text] from generate_series(1, 100) i",
    )
    pipeline = lake.pipeline(described(database, "orders"), commit_mode="upsert")
    columns = "id, item, price, cast(unix_micros(at) as bigint), cast(tags as string)"
    tags = "'[' || array_to_string(tags, ', ') || ']'"
    sql = f"select id, item, price, (extract(epoch from at) * 1000000)::bigint, {tags} from orders"
    run(pipeline, once=True)
    assert lake.rows(columns) == sorted(database.rows(sql), key=repr)
    database.run(
        "update orders set item = 'changed' where id % 3 = 0",
        "delete from orders where id % 5 = 0",
        "update orders set id = id + 1000 where id < 20",
        "insert into orders values (5000, 'new', null, null, null)",
    )
    done = commits(run(pipeline, once=True))
    assert lake.rows(columns) == sorted(database.rows(sql), key=repr)
    assert sum(commit.counts.read for commit in done) > 0
    assert lake.table().columns == ["id", "item", "price", "at", "tags"]


@pytest.mark.parametrize("tail", [("applied", 1), ("staged", 2)])
def test_killed_at_any_moment_nothing_is_lost_or_doubled(
    database: Database, lake: Lake, tmp_path: Path, tail: tuple[str, int]
) -> None:
    moment, nth = tail
    database.run("create table t (id int primary key, n int)", "insert into t select i, 0 from generate_series(1, 300) i")
    spec = tmp_path / "source.json"
    spec.write_text(json.dumps({"source": described(database, "t"), "sink": {"table": "t", "commit_mode": "upsert"}}))
    writer = Writer(database, 9, pause=0.05)
    writer.start()
    try:
        child = following(tmp_path, spec, moment, str(nth), "kill-all")
        assert ended(child) == -signal.SIGKILL
    finally:
        writer.end()
    database.run("insert into t values (-1, 0)")
    go_on(database, tmp_path, spec)
    held = Lake(lake.spark, {**lake.catalog, "name": name_of(tmp_path)}, lake.folder).introduced()
    assert dict(held.rows("id, n")) == dict(database.rows("select id, n from t"))
    assert held.count() == database.value("select count(*) from t")


def with_large_values(database: Database, lake: Lake) -> PipelineSpec:
    """A pipeline that has read a table whose values are large enough to be left out of the log when they do not change."""
    database.run(
        "create table docs (id int primary key, title text, body text)",
        "alter table docs alter body set storage external",
        "insert into docs select i, 'title', repeat(i::text, 4000) from generate_series(1, 9) i",
    )
    pipeline = lake.pipeline(described(database, "docs"), commit_mode="upsert")
    run(pipeline, once=True)
    return pipeline


@pytest.mark.slow
def test_large_values_that_did_not_change_are_kept(database: Database, lake: Lake) -> None:
    pipeline = with_large_values(database, lake)
    database.run(
        "update docs set title = 'changed' where id <= 2",
        "update docs set body = repeat('new', 2000) where id in (2, 3)",
        "update docs set title = 'again' where id <= 3",
        "insert into docs values (10, 'title', repeat('ten', 2000))",
        "update docs set title = 'ten' where id = 10",
    )
    run(pipeline, once=True)
    assert lake.rows("id, title, body") == sorted(database.rows("select * from docs"), key=repr)


@pytest.mark.slow
def test_large_values_of_rows_whose_keys_change(database: Database, lake: Lake) -> None:
    pipeline = with_large_values(database, lake)
    database.run(
        "update docs set id = 100, title = 'moved' where id = 1",
        "update docs set body = repeat('new', 2000) where id = 2", "update docs set id = 20 where id = 2",
        "update docs set id = 30 where id = 3", "update docs set title = 'after' where id = 30",
        "update docs set body = repeat('gone', 2000) where id = 5", "delete from docs where id = 5",
        "update docs set id = 5 where id = 4",
        "update docs set id = 60 where id = 6", "update docs set body = repeat('sent', 2000) where id = 60",
    )  # fmt: skip
    run(pipeline, once=True)
    assert lake.rows("id, title, body") == sorted(database.rows("select * from docs"), key=repr)
    database.run("update docs set id = 70 where id = 7", "update docs set id = 71 where id = 70")
    with pytest.raises(DataError, match=r"A row \(id = 71\) came without the values of body"):
        run(pipeline, once=True)


def test_a_table_without_a_primary_key_has_no_upserts(database: Database, lake: Lake) -> None:
    database.run("create table t (a int, b int)", "alter table t replica identity full", "insert into t values (1, 2)")
    with pytest.raises(ConfigError, match="the source has no primary key to take"):
        run(lake.pipeline(described(database, "t"), commit_mode="upsert"), once=True)
    database.run("create table k (a int primary key, b int)", "insert into k values (1, 2)")
    with pytest.raises(ConfigError, match="rows are known by b here, and by other columns in the source"):
        run(lake.pipeline({**described(database, "k"), "publication": "k"}, commit_mode="upsert", key_fields=["b"]), once=True)


@pytest.mark.slow
def test_a_stream_that_the_server_ends_is_begun_anew_without_a_restart(database: Database, lake: Lake) -> None:
    database.run("create table t (id int primary key, n int)", "insert into t values (0, 0)")
    pipeline = lake.introduced().pipeline(
        {**described(database, "t"), "poll_interval_secs": 0.1}, commit_mode="upsert", flush_interval_secs=1
    )
    events, stop = list[Event](), StopAfter(1000)

    def arrived() -> int:
        return sum(commit.counts.read for commit in commits(events))

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, pipeline, stop=stop, events=events)
        try:
            for number in range(1, 3):
                wait_until(lambda: running.done() or arrived() == number, 240, "the row before")  # noqa: B023
                database.run(f"insert into t values ({number}, 0)")
                mine = "from pg_replication_slots where active and database = current_database()"
                end = f"select pg_terminate_backend(active_pid, 10000) {mine}"
                wait_until(lambda: running.done() or database.rows(end), 60, "a stream to end")  # noqa: B023
            wait_until(lambda: running.done() or arrived() == 3, 240, "the last row")
        finally:
            stop.event.set()
        running.result()
    assert lake.rows("id, n") == [(0, 0), (1, 0), (2, 0)]
    assert [event for event in events if isinstance(event, Restarting)] == []


@pytest.mark.slow
@pytest.mark.parametrize("sink", [{}, {"route": {"source": True}}], ids=["one table", "by source"])
def test_a_snapshot_that_breaks_is_taken_anew_within_the_same_run(
    database: Database, lake: Lake, monkeypatch: pytest.MonkeyPatch, sink: dict[str, Any]
) -> None:
    database.run("create table t (id int primary key)", "insert into t values (1)")
    plan, plans = PostgresCdc.plan, list[Slice | None]()

    def plan_and_break(source: PostgresCdc, start: str | None, limit: int) -> Slice | None:
        plans.append(plan(source, start, limit))
        if len(plans) == 1:
            database.run("select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'frazil'")
            database.run("insert into t values (2)")
        return plans[-1]

    monkeypatch.setattr(PostgresCdc, "plan", plan_and_break)
    events = run(lake.pipeline(described(database, "t"), **sink), once=True)
    assert lake.rows("id", "db.public_t" if sink else "db.t") == [(1,), (2,)]
    (failed,) = [event for event in events if isinstance(event, SourceFailed | CommitFailed)]
    assert isinstance(failed, SourceFailed), "the same snapshot was not asked for again"
    assert "The snapshot could not be read to its end" in failed.message


@pytest.mark.slow
def test_tables_that_are_read_whole_are_read_once_by_a_run_that_restarts_itself(
    database: Database, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("create table a (id int)", "insert into a values (1)", "create table b (id int)", "insert into b values (2)")
    streams = [{"name": name, "sync_mode": "full_refresh"} for name in ("a", "b")]
    pipeline = lake.pipeline({**described(database), "streams": streams}, route={"source": True})
    read_each, failures = PostgresCdc.read_each, [Retryable("away-for-long", "It does not answer.")]

    def read_or_fail(source: PostgresCdc, part: Slice) -> list[DataFrame]:
        if source.tables(part) == ("public.b",) and failures:
            raise failures.pop()
        return read_each(source, part)

    monkeypatch.setattr(PostgresCdc, "read_each", read_or_fail)
    settings = IMPATIENT.model_copy(update={"restart": RestartSettings(initial_backoff_secs=0.01)})
    events = run(pipeline, settings=settings)
    assert [event for event in events if isinstance(event, Restarting)] != []
    assert (lake.rows("id", "db.public_a"), lake.rows("id", "db.public_b")) == ([(1,)], [(2,)])


def following(folder: Path, spec: Path, *when: str) -> Child:
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "sources.postgres.following", *when, str(folder), str(spec)]
    return start("following", command, folder / "log", env={"PYTHONPATH": path})


def await_free_slot(database: Database) -> None:
    """Until the server has noticed that whoever read has gone."""
    wait_until(lambda: database.value("select count(*) from pg_replication_slots where active") == 0, 30, "the slot to be free")


def go_on(database: Database, folder: Path, spec: Path) -> None:
    """The same pipeline without a fault, once the server has noticed that the one before is gone."""
    await_free_slot(database)
    run(pipeline_of(folder, spec), once=True)


def ended(child: Child) -> int:
    wait_until(lambda: not child.running, 240, "its end")
    return int(child.process.returncode)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        ({"commit_mode": "upsert"}, RowCounts(read=6, written=3, filtered=1, deleted=6, extra=4)),
        ({"commit_mode": "upsert", "route": {"source": True}}, RowCounts(read=6, written=3, filtered=1, deleted=6, extra=4)),
        ({"commit_mode": "append"}, RowCounts(read=6, written=3, filtered=3)),
    ],
    ids=["upsert", "routed", "append"],
)
def test_a_key_that_moves_is_one_record_of_a_filter(
    database: Database, lake: Lake, sink: dict[str, Any], expected: RowCounts
) -> None:
    database.run("create table orders (id int primary key, item text)")
    database.run("insert into orders select i, 'old' from unnest(array[1, 3, 104, 105]) i")
    below = [{"type": "where", "condition": "id < 100"}]
    pipeline = lake.introduced().pipeline(described(database, "orders"), transforms=below, **sink)
    run(pipeline, once=True)
    with database.connect() as connection, connection.transaction():
        for old, new in ((1, 2), (3, 103), (104, 4), (105, 106)):
            connection.execute("update orders set id = %s where id = %s", (new, old))
        connection.execute("insert into orders values (7, 'new'), (107, 'new')")
    done = sum((commit.counts for commit in commits(run(pipeline, once=True))), RowCounts(0, 0))
    assert done == expected
    table = "db.public_orders" if "route" in sink else "db.t"
    assert [row[0] for row in lake.rows("id", table)] == ([2, 4, 7] if "upsert" in sink.values() else [1, 2, 3, 4, 7])
    summary = lake.data_snapshots("db.frazil__ledger" if "route" in sink else "db.t")[-1].summary
    counted = {name: int(summary[f"frazil.rows-{name}"]) for name in ("in", "out", "filtered", "dead-lettered")}
    assert counted == {"in": 6, "out": 3, "filtered": expected.filtered, "dead-lettered": 0}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["equality_delete", "merge"])
def test_rows_that_leave_a_filter_leave_the_table(database: Database, lake: Lake, strategy: str) -> None:
    database.run(
        "create table orders (id int primary key, status text, amount int)",
        "insert into orders select i, case when i % 2 = 0 then 'paid' else 'open' end, i from generate_series(1, 40) i",
    )
    paid = [{"type": "where", "condition": "status = 'paid'"}, {"type": "select", "expressions": ["id", "amount * 2 as twice"]}]
    pipeline = lake.introduced().pipeline(
        described(database, "orders"), transforms=paid, commit_mode="upsert", upsert_strategy=strategy
    )
    wanted = "select id, amount * 2 from orders where status = 'paid'"

    def follow() -> None:
        run(pipeline, once=True)
        assert lake.rows("id, twice") == sorted(database.rows(wanted), key=repr)

    follow()
    database.run(
        "delete from orders where id <= 4",
        "update orders set status = 'refunded' where id in (10, 12)",
        "update orders set status = 'paid' where id in (11, 13)",
        "update orders set amount = 0 where id > 36",
        "update orders set status = null where id = 20",
    )
    follow()
    with database.connect() as connection, connection.transaction():
        for status in ("open", "paid", "refunded"):
            connection.execute("update orders set status = %s where id in (14, 15)", (status,))
        for status in ("open", "paid"):
            connection.execute("update orders set status = %s, amount = 7 where id in (16, 17)", (status,))
        connection.execute("delete from orders where id = 18")
        connection.execute("insert into orders values (18, 'open', 1), (60, 'open', 1), (61, 'paid', 1)")
        connection.execute("update orders set id = 118 where id = 22")
    follow()


@pytest.mark.slow
def test_a_large_value_that_was_not_sent_comes_back_with_its_row(database: Database, lake: Lake) -> None:
    database.run(
        "create table docs (id int primary key, status text, body text)",
        "alter table docs alter body set storage external",
        "insert into docs select i, 'paid', repeat(i::text, 3000) from generate_series(1, 3) i",
    )
    paid = [{"type": "where", "condition": "status = 'paid'"}]
    pipeline = lake.introduced().pipeline(described(database, "docs"), transforms=paid, commit_mode="upsert")
    run(pipeline, once=True)
    with database.connect() as connection, connection.transaction():
        for status in ("open", "paid"):
            connection.execute("update docs set status = %s where id = 1", (status,))
        connection.execute("update docs set status = 'open', body = repeat('new', 3000) where id = 2")
        connection.execute("update docs set status = 'paid' where id = 2")
        connection.execute("update docs set status = 'open' where id = 3")
    run(pipeline, once=True)
    assert lake.rows("id, body") == sorted(database.rows("select id, body from docs where status = 'paid'"), key=repr)
    # A row that comes in with a value which was sent before it did is not written without it.
    database.run("update docs set status = 'paid' where id = 3")
    with pytest.raises(DataError, match="came without the values of body"):
        run(pipeline, once=True)


@pytest.mark.slow
def test_lists_of_rows_that_change_are_not_unnested_into_upserts(database: Database, lake: Lake) -> None:
    database.run("create table orders (id int primary key, items text[])")
    transforms = [{"type": "unnest", "field": "items", "as": "item"}]
    pipeline = lake.introduced().pipeline(
        described(database, "orders"), transforms=transforms, commit_mode="upsert", key_fields=["id", "item"]
    )
    database.run("insert into orders values (1, array['a', 'b'])")
    with pytest.raises(ConfigError, match="a delete has no list") as refused:
        run(pipeline, once=True)
    assert refused.value.code == "transform-changes"
