"""Trino and frazil write into one table: each goes on from what the other has left, and nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalogs.beside import Both, both_at
from catalogs.test_trino_modes import KEYS, UPSERTS, VERSIONS
from frazil.iceberg import IcebergPort
from frazil.model.events import CommitFailed, Committed, Event
from helpers.lakes import StopAfter, run, sqlite_lake

pytestmark = pytest.mark.slow(seconds=7)

STRATEGIES = ("equality_delete", "position", "merge")
# How young may be what Trino's upkeep takes away: by default a week.
AT_ONCE = {"iceberg.expire-snapshots.min-retention": "0s", "iceberg.remove-orphan-files.min-retention": "0s"}


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    with both_at("SQLite, local files", sqlite_lake(spark, tmp_path), request.getfixturevalue, **AT_ONCE) as found:
        yield found


@VERSIONS
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_table_of_trino_is_a_sink(both: Both, strategy: str, version: int) -> None:
    both.trino.run("create schema db")
    partitions = "partitioning = array['bucket(id, 2)']"
    both.trino.run(f"create table db.t (id bigint, v varchar) with (format_version = {version}, {partitions})")
    both.trino.run("insert into db.t values (0, 'trino'), (1, 'trino')")
    both.lake.sink("select 2L id, 'a' v").write()
    for batch in UPSERTS:
        both.lake.sink(batch, **KEYS, upsert_strategy=strategy, id="upserts").write()
    assert both.rows() == [(1, "a"), (2, "b"), (3, "c"), (4, "c"), (5, "c"), (6, "c"), (7, "c"), (9, "b")]


@VERSIONS
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_upserts_replace_what_trino_wrote_between_them(both: Both, strategy: str, version: int) -> None:
    def upsert(batch: str) -> None:
        both.lake.sink(batch, **KEYS, upsert_strategy=strategy, format_version=version).write()

    def holds(rows: dict[int, str]) -> bool:
        return both.rows() == sorted(rows.items(), key=repr)

    upsert("select id, 'a' v, 'insert' op from range(8)")
    both.trino.run("insert into db.t values (20, 'trino'), (21, 'trino')")
    both.trino.run("update db.t set v = 'trino' where id in (1, 2)")
    both.trino.run("delete from db.t where id = 7")
    rows = {0: "a", 1: "trino", 2: "trino", 3: "a", 4: "a", 5: "a", 6: "a", 20: "trino", 21: "trino"}
    assert holds(rows)
    upsert("select explode(array(2L, 3L, 7L, 20L)) id, 'b' v, 'update' op")
    rows |= dict.fromkeys((2, 3, 7, 20), "b")
    assert holds(rows)
    both.trino.run(
        "merge into db.t using (values (3, 'merged'), (30, 'merged')) as s(id, v) on t.id = s.id "
        "when matched then update set v = s.v when not matched then insert values (s.id, s.v)"
    )
    upsert("select 30L id, 'c' v, 'update' op union all select 4L, null, 'delete'")
    rows |= {3: "merged", 30: "c"}
    del rows[4]
    assert holds(rows)
    both.trino.run("alter table db.t execute optimize")
    upsert("select 0L id, 'd' v, 'update' op")
    assert holds(rows | {0: "d"})


def test_a_pipeline_goes_on_exactly_once_while_trino_writes(both: Both) -> None:
    """After each commit Trino adds a row, and takes away one of those that came."""

    def beside(event: Event) -> None:
        if isinstance(event, Committed):
            last = event.batch * 10 - 1
            both.trino.run(f"insert into db.t (event_number, event_type) values ({1000 + event.batch}, 'trino')")
            both.trino.run(f"delete from db.t where event_number = {last}")

    pipeline = both.lake.pipeline({"connector": "generator", "rows": 60}, batch_size=10)
    run(pipeline, once=True, listeners=[beside], stop=StopAfter(2))
    run(pipeline, once=True, listeners=[beside])
    expected = ({*range(60)} - {9, 19, 29, 39, 49, 59}) | {1000 + batch for batch in range(1, 7)}
    assert both.lake.rows("event_number") == sorted([(number,) for number in expected], key=repr)
    assert sorted(both.trino.run("select event_number from db.t")) == sorted((number,) for number in expected)


def test_a_commit_that_trino_overtakes_is_made_anew(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.lake.sink("select 1 id").write()
    swap = IcebergPort.swap

    def swap_after_trino(*arguments: Any) -> None:
        monkeypatch.setattr(IcebergPort, "swap", swap)
        both.trino.run("insert into db.t values 2")
        swap(*arguments)

    monkeypatch.setattr(IcebergPort, "swap", swap_after_trino)
    heard: list[Event] = []
    both.lake.sink("select 3 id").listen(heard.append).write()
    assert [event.kind for event in heard if isinstance(event, CommitFailed)] == ["conflict"]
    assert both.rows() == [(1,), (2,), (3,)]


@VERSIONS
def test_a_pipeline_goes_on_after_the_upkeep_of_trino(both: Both, version: int) -> None:
    pipeline = both.lake.pipeline({"connector": "generator", "rows": 60}, batch_size=10, format_version=version)
    run(pipeline, once=True, stop=StopAfter(3))
    for upkeep in (
        "optimize",
        "expire_snapshots(retention_threshold => '0s')",
        "remove_orphan_files(retention_threshold => '0s')",
    ):
        both.trino.run(f"alter table db.t execute {upkeep}")
    both.trino.run("analyze db.t")
    assert (len(both.lake.meta("snapshots")), len(both.lake.files())) == (1, 1)
    run(pipeline, once=True)
    assert sorted(both.trino.run("select event_number from db.t")) == [(number,) for number in range(60)]
    assert both.lake.count() == 60
