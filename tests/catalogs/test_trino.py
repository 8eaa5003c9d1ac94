"""Trino reads what frazil writes: every mode, every snapshot, every type. And the two write into one table.

Through which catalogs is shown by `test_trino_catalogs.py`; here it is a SQL catalog in SQLite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalogs.beside import Both, both_at
from columns.test_type_matrix import COLUMNS, ROWS, in_order, typed_frame
from frazil.iceberg import IcebergPort
from frazil.model.events import CommitFailed, Committed, Event
from helpers.lakes import StopAfter, run, sqlite_lake
from services.trino import Trino

pytestmark = pytest.mark.slow

KEYS: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["id"], "op_field": "op"}
UPSERTS = (
    "select id, 'a' v, 'insert' op from range(8)",
    "select id, 'b' v, 'update' op from range(2, 5) union all select 6L, null, 'delete' union all select 9L, 'b', 'insert'",
    "select id, 'c' v, 'update' op from range(3, 8) union all select 0L, null, 'delete'",
)
DAYS = (
    "select id, cast(id div 3 as int) day, 'a' v from range(9)",
    "select id + 10 id, 1 day, 'b' v from range(2)",
    "select id + 30 id, 1 day, 'c' v from range(1)",
)
VERSIONED = (
    "select id, 'a' v, timestamp'2026-11-15T10:00:00Z' at, 'insert' op from range(4)",
    "select id, 'b' v, timestamp'2026-11-15T12:00:00Z' at, 'update' op from range(2) "
    "union all select 3L, null, timestamp'2026-11-15T11:00:00Z', 'delete'",
    "select 0L id, 'late' v, timestamp'2026-11-15T11:30:00Z' at, 'update' op",
)


@dataclass(frozen=True)
class Mode:
    """A way of writing, its batches, and how many rows the table has after each of them."""

    options: dict[str, Any]
    batches: tuple[str, ...]
    counts: tuple[int, ...]


def upserts(**options: Any) -> Mode:
    return Mode(KEYS | options, UPSERTS, (8, 8, 8))


MODES = {
    "append": Mode({}, DAYS, (9, 11, 12)),
    "overwrite": Mode({"commit_mode": "overwrite", "partition_by": ["day"]}, DAYS, (9, 8, 7)),
    "overwrite_where": Mode({"commit_mode": "overwrite", "overwrite_where": "day = 1"}, DAYS[1:], (2, 1)),
    "equality_delete": upserts(upsert_strategy="equality_delete"),
    "equality_delete, partitioned": upserts(upsert_strategy="equality_delete", partition_by=["bucket(2, id)"]),
    "equality_delete, settled": upserts(upsert_strategy="equality_delete", max_equality_deletes=0),
    "position": upserts(upsert_strategy="position"),
    "merge": upserts(upsert_strategy="merge"),
    "copy-on-write": upserts(upsert_strategy="merge", merge_mode="copy-on-write"),
    "delete_insert": Mode({"commit_mode": "delete_insert", "replace_by": ["day"]}, DAYS, (9, 8, 7)),
    "history": Mode(KEYS | {"order_by": ["at"], "history": "scd2"}, VERSIONED, (4, 7, 8)),
}
STRATEGIES = ("equality_delete", "position", "merge")
VERSIONS = pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path, trino: Trino, request: pytest.FixtureRequest) -> Iterator[Both]:
    with both_at("SQLite, local files", sqlite_lake(spark, tmp_path), trino, request.getfixturevalue) as found:
        yield found


@VERSIONS
@pytest.mark.parametrize("mode", MODES)
def test_each_batch_of_each_mode_is_read_row_for_row_now_and_later(both: Both, mode: str, version: int) -> None:
    found = []
    for batch in MODES[mode].batches:
        both.lake.sink(batch, format_version=version, **MODES[mode].options).write()
        found.append(both.rows())
    assert tuple(len(rows) for rows in found) == MODES[mode].counts
    at_snapshots = [both.rows(at=row.snapshot_id) for row in both.lake.meta("snapshots")]
    assert all(rows in at_snapshots for rows in found)


@VERSIONS
@pytest.mark.parametrize("strategy", ["equality_delete", "position"])
@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_deletes_are_read_beside_files_of_each_format(both: Both, file_format: str, strategy: str, version: int) -> None:
    for batch in UPSERTS:
        both.lake.sink(batch, **KEYS, upsert_strategy=strategy, file_format=file_format, format_version=version).write()
    assert {row.file_format.lower() for row in both.lake.meta("data_files")} == {file_format}
    assert len(both.rows()) == 8


@VERSIONS
def test_every_type_comes_back_as_it_was(both: Both, version: int) -> None:
    both.lake.sink(typed_frame(both.lake.spark), schema=COLUMNS, format_version=version).write()
    found = [dict(zip(COLUMNS, row, strict=True)) for row in both.trino.run("select * from db.t")]
    for row, wanted in zip(in_order(found), in_order(ROWS), strict=True):
        for name in COLUMNS:
            assert row[name] == wanted[name], f"{name} of row {wanted['n']}"


def test_a_table_is_read_at_each_snapshot_with_the_columns_that_it_had(both: Both) -> None:
    full: dict[str, Any] = {"schema_evolution": "full", "aliases": {"full_name": "name"}}
    both.lake.sink("select 1 id, 'a' name, 1 n", partition_by=["id"], **full).write()
    both.lake.sink("select 2 id, 'b' full_name, 2L n", partition_by=["id"], **full).write()
    both.lake.sink("select 3 id, 'c' full_name, 3L n, true new", partition_by=["bucket(2, n)"], **full).write()
    assert both.rows() == [(1, "a", 1, None), (2, "b", 2, None), (3, "c", 3, True)]
    assert [len(both.rows(at=row.snapshot_id)) for row in both.lake.data_snapshots()] == [1, 2, 3]


def test_branches_tags_and_times_are_read(both: Both) -> None:
    first = both.lake.sink("select 1 id", id="main").write()
    both.lake.spark.sql(f"alter table {both.lake.name}.db.t create tag early")
    both.lake.sink("select 2 id", id="audit", branch="audit").write()
    both.lake.sink("select 3 id", id="main").write()
    assert both.rows() == [(1,), (3,)]
    assert both.trino.rows(at="audit") == [(1,), (2,)]
    assert both.trino.rows(at="early") == [(1,)]
    (committed,) = (row.committed_at for row in both.lake.meta("snapshots") if row.snapshot_id == first.snapshot)
    time = committed.astimezone().isoformat(sep=" ")
    assert both.trino.run(f"select * from db.t for timestamp as of timestamp '{time}'") == [(1,)]


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

    def events(rows: int) -> Any:
        return both.lake.pipeline({"connector": "generator", "rows": rows}, batch_size=10)

    run(events(60), once=True, listeners=[beside], stop=StopAfter(2))
    run(events(60), once=True, listeners=[beside])
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
