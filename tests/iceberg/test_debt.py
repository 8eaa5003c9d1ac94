"""Deletes that readers pay for: bounded by the sink, settled between batches, and never at the price of a row."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

import frazil
from frazil.iceberg import DeadRows, WorkingCopy
from frazil.model.events import Event, Settled
from frazil.write import maintenance
from frazil.write.modes.lookup import Search
from helpers.lakes import Lake, sqlite_lake
from helpers.readers import by_duckdb, by_polars, by_pyiceberg, tuples
from write.test_evolution import meddle


@pytest.fixture(params=[2, 3], ids=lambda version: f"v{version}")
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def upsert(lake: Lake, query: str, version: int, **options: Any) -> list[Settled]:
    """Upserts by deletes of keys; what was settled after it."""
    events: list[Event] = []
    given = {"key_fields": ["id"], "upsert_strategy": "equality_delete", "format_version": version} | options
    lake.sink(query, commit_mode="upsert", **given).listen(events.append).write()
    return [event for event in events if isinstance(event, Settled)]


def totals(lake: Lake) -> dict[str, int]:
    newest = lake.spark.table(f"{lake.name}.db.t.snapshots").orderBy("committed_at").collect()[-1].summary
    return {key: int(value) for key, value in newest.items() if key.startswith("total-")}


def kinds(lake: Lake) -> list[str]:
    found = lake.spark.table(f"{lake.name}.db.t.snapshots").orderBy("committed_at").collect()
    return [row.summary.get("frazil.kind") for row in found]


@pytest.mark.parametrize("partition", [[], ["bucket(2, id)"], ["p"]], ids=["whole", "by-key", "by-another-column"])
def test_deletes_by_key_become_positions_when_there_are_too_many(lake: Lake, version: int, partition: list[str]) -> None:
    upsert(lake, "select id, 'old' v, id % 2 p from range(20)", version, partition_by=partition)
    assert upsert(lake, "select id, 'new' v, id % 3 p from range(5)", version, max_equality_deletes=5) == []
    assert totals(lake)["total-equality-deletes"] == 5
    (settled,) = upsert(lake, "select id, 'newer' v, id % 3 p from range(3, 9)", version, max_equality_deletes=5)
    assert (settled.kind, settled.deletes, settled.rows) == ("settle", 11, 11)
    assert totals(lake)["total-equality-deletes"] == 0
    expected = [(n, "new" if n < 3 else "newer" if n < 9 else "old") for n in range(20)]
    assert lake.rows("id, v") == sorted(expected, key=repr)


@pytest.mark.slow
def test_what_was_settled_once_is_not_forgotten_the_next_time(lake: Lake, version: int) -> None:
    none = {"max_equality_deletes": 0}
    upsert(lake, "select id, 'v0' v from range(10)", version, **none)
    for turn in range(1, 4):
        upsert(lake, f"select id, 'v{turn}' v from range({turn}, 10, {turn + 1})", version, **none)
    assert totals(lake)["total-equality-deletes"] == 0
    expected = dict.fromkeys(range(10), 0)
    for turn in range(1, 4):
        expected |= dict.fromkeys(range(turn, 10, turn + 1), turn)
    assert lake.rows() == sorted([(n, f"v{turn}") for n, turn in expected.items()], key=repr)


def test_other_readers_see_the_same_rows(lake: Lake, tmp_path: Path, version: int) -> None:
    # DuckDB 1.5 and Polars 2 read no addresses with a blank in them.
    lake = sqlite_lake(lake.spark, tmp_path)
    upsert(lake, "select id, 'old' v from range(20)", version)
    upsert(lake, "select id, 'new' v from range(10)", version, max_equality_deletes=0)
    expected = sorted([(n, "new" if n < 10 else "old") for n in range(20)], key=repr)
    for read in (by_duckdb, by_pyiceberg, by_polars):
        assert tuples(read(lake)) == expected


@pytest.mark.slow
def test_debt_is_counted_where_another_writer_has_kept_no_totals(lake: Lake, version: int) -> None:
    """Some writers leave the totals out, and once they are gone nobody brings them back."""
    upsert(lake, "select id, 'old' v from range(20)", version)
    upsert(lake, "select id, 'new' v from range(10)", version)
    log = lake.spark.sql(f"SELECT file FROM {lake.name}.db.t.metadata_log_entries ORDER BY timestamp DESC")
    newest = Path(log.collect()[0].file.removeprefix("file:"))
    metadata = json.loads(newest.read_text())
    for snapshot in metadata["snapshots"]:
        # Spark cannot register a table without the others.
        for what in ("equality-deletes", "position-deletes", "delete-files", "files-size"):
            snapshot["summary"].pop(f"total-{what}", None)
    without = newest.with_name("without-totals.metadata.json")
    without.write_text(json.dumps(metadata))
    lake.spark.sql(f"CALL {lake.name}.system.register_table('db.u', '{without}')").collect()
    options = {"commit_mode": "upsert", "key_fields": ["id"], "upsert_strategy": "equality_delete"}
    events: list[Event] = []
    for limit in (15, 11):
        rows = f"select {limit}L id, 'newest' v"
        lake.sink(rows, "db.u", max_equality_deletes=limit, **options).listen(events.append).write()
    (settled,) = [event for event in events if isinstance(event, Settled)]
    assert settled.deletes == 12
    assert len(lake.rows("id", "db.u")) == 20


@pytest.mark.slow
def test_too_many_files_of_deletes_are_compacted_away(lake: Lake, version: int) -> None:
    upsert(lake, "select id, 'old' v from range(20)", version)
    for turn in range(3):
        settled = upsert(lake, f"select id, 'v{turn}' v from range({turn}, {turn} + 2)", version, max_delete_files=0)
    assert [event.kind for event in settled] == ["settle", "compact"]
    assert totals(lake)["total-delete-files"] == 0
    assert lake.count() == 20
    assert lake.rows()[:4] == [(0, "v0"), (1, "v1"), (10, "old"), (11, "old")]


def test_a_settlement_that_is_overtaken_waits_for_the_next_batch(
    lake: Lake, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = maintenance.settle

    def overtaken(table: Any) -> Any:
        prepared = settle(table)
        theirs = {"commit_mode": "upsert", "key_fields": ["id"], "upsert_strategy": "equality_delete"}
        lake.sink("select 100L id, 'theirs' v", **theirs).id("other").write()
        return prepared

    upsert(lake, "select id, 'old' v from range(5)", version)
    monkeypatch.setattr(maintenance, "settle", overtaken)
    assert upsert(lake, "select 1L id, 'new' v", version, max_equality_deletes=0) == []
    assert totals(lake)["total-equality-deletes"] == 2
    monkeypatch.setattr(maintenance, "settle", settle)
    assert len(upsert(lake, "select 2L id, 'new' v", version, max_equality_deletes=0)) == 1
    assert lake.rows() == [(0, "old"), (1, "new"), (100, "theirs"), (2, "new"), (3, "old"), (4, "old")]


def test_rows_that_come_meanwhile_are_no_reason_to_put_a_settlement_off(
    lake: Lake, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = maintenance.settle

    def beside_others(table: Any) -> Any:
        prepared = settle(table)
        for number in range(2):
            lake.sink(f"select 1L id, 'theirs {number}' v").id("other").write()
        return prepared

    upsert(lake, "select id, 'old' v from range(3)", version)
    monkeypatch.setattr(maintenance, "settle", beside_others)
    assert len(upsert(lake, "select 1L id, 'new' v", version, max_equality_deletes=0)) == 1
    assert totals(lake)["total-equality-deletes"] == 0
    assert lake.rows() == [(0, "old"), (1, "new"), (1, "theirs 0"), (1, "theirs 1"), (2, "old")]


def test_a_settlement_that_would_change_the_rows_is_not_made(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Search.found

    def wrong(*asked: Any) -> DeadRows:
        right = found(*asked)
        return replace(right, dead=dict.fromkeys(right.dead, BitMap64([0, 1, 2])))

    upsert(lake, "select id, 'old' v from range(5)", 3)
    monkeypatch.setattr(Search, "found", wrong)
    with pytest.raises(frazil.Halted) as caught:
        upsert(lake, "select 1L id, 'new' v", 3, max_equality_deletes=0)
    assert caught.value.code == "audit-failed"
    assert totals(lake)["total-equality-deletes"] == 1
    assert lake.count() == 5


def test_a_compaction_that_would_change_the_rows_is_not_made(lake: Lake, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows are not the same rows."""

    def wrong(copy: WorkingCopy) -> None:
        lake.spark.sql(f"INSERT OVERWRITE {copy.name} SELECT id + 100, v FROM {copy.name}")

    upsert(lake, "select id, 'old' v from range(5)", version)
    monkeypatch.setattr(WorkingCopy, "compact_files_with_deletes", wrong)
    with pytest.raises(frazil.Halted) as caught:
        upsert(lake, "select 1L id, 'new' v", version, max_delete_files=0)
    assert caught.value.code == "audit-failed"
    assert lake.rows() == [(0, "old"), (1, "new"), (2, "old"), (3, "old"), (4, "old")]


@pytest.mark.slow
def test_values_of_all_types_are_compacted(lake: Lake, version: int) -> None:
    query = (
        "select id, map('a', id) m, array(named_struct('b', map(id, 'c'))) l, named_struct('d', X'00') s, 1.5F f from range(5)"
    )
    upsert(lake, query, version)
    (_, compacted) = upsert(lake, f"{query} where id < 2", version, max_delete_files=0)
    assert (compacted.kind, lake.count(), totals(lake)["total-delete-files"]) == ("compact", 5, 0)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["equality_delete", "merge"])
def test_a_compaction_by_others_while_a_batch_is_written_brings_nothing_back(
    lake: Lake, version: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = "table => 'db.t', options => map('rewrite-all', 'true')"
    upsert(lake, "select id, 'old' v from range(20)", version)
    upsert(lake, "select id, 'new' v from range(10)", version)
    meddle(monkeypatch, lambda: lake.spark.sql(f"CALL {lake.name}.system.rewrite_data_files({whole})").collect())
    upsert(lake, "select id, 'newer' v from range(5)", version, upsert_strategy=way)
    expected = sorted([(n, "newer" if n < 5 else "new" if n < 10 else "old") for n in range(20)], key=repr)
    assert lake.rows() == expected
    assert "replace" in [row.operation for row in lake.meta("snapshots")]
    upsert(lake, "select 0L id, 'newer' v", version, max_equality_deletes=0)
    assert lake.rows() == expected


@pytest.mark.parametrize("first", [0, 100], ids=["known keys", "new keys"])
def test_readers_that_cannot_read_deletes_by_key_find_none_that_were_there_before(lake: Lake, version: int, first: int) -> None:
    upsert(lake, "select id, 'old' v from range(5)", version)
    upsert(lake, "select id, 'new' v from range(2)", version)
    assert totals(lake)["total-equality-deletes"] == 2
    options = {"upsert_strategy": "auto", "readers": ["duckdb", "pyiceberg"], "max_equality_deletes": None}
    (settled,) = upsert(lake, f"select {first}L id, 'newer' v", version, **options)
    assert (settled.kind, settled.deletes) == ("settle", 2)
    expected = {0: "new", 1: "new", 2: "old", 3: "old", 4: "old"} | {first: "newer"}
    assert tuples(by_pyiceberg(lake)) == lake.rows() == sorted(expected.items(), key=repr)


@pytest.mark.slow
def test_deletes_that_compare_different_columns_are_all_settled(lake: Lake, version: int) -> None:
    def replace_by(query: str, **options: Any) -> list[int]:
        events: list[Event] = []
        given = {"commit_mode": "delete_insert", "replace_by": [["a"], ["b"]], "format_version": version} | options
        lake.sink(query, **given).listen(events.append).write()
        return [event.rows for event in events if isinstance(event, Settled)]

    replace_by("select id a, id b, 'old' v from range(10)")
    assert replace_by("select id a, id + 1 b, 'new' v from range(2)") == []
    assert sorted(replace_by("select 7L a, 8L b, 'new' v", max_equality_deletes=3)) == [2, 3]
    assert totals(lake)["total-equality-deletes"] == 0
    kept = [(n, n, "old") for n in (3, 4, 5, 6, 9)]
    assert lake.rows() == sorted([(0, 1, "new"), (1, 2, "new"), (7, 8, "new"), *kept], key=repr)
    assert replace_by("select 7L a, 9L b, 'newer' v", max_equality_deletes=0) == [1, 1]
    assert (lake.count(), totals(lake)["total-equality-deletes"]) == (7, 0)


def test_a_compaction_by_others_brings_nothing_back(lake: Lake, version: int) -> None:
    upsert(lake, "select id, 'old' v from range(20)", version)
    upsert(lake, "select id, 'new' v from range(10)", version)
    lake.spark.sql(f"CALL {lake.name}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))")
    upsert(lake, "select id, 'newer' v from range(5)", version, max_equality_deletes=0)
    expected = [(n, "newer" if n < 5 else "new" if n < 10 else "old") for n in range(20)]
    assert lake.rows() == sorted(expected, key=repr)


@pytest.mark.slow
def test_files_of_the_private_copy_are_not_left_behind(lake: Lake) -> None:
    upsert(lake, "select id, 'old' v from range(5)", 3)
    upsert(lake, "select 1L id, 'new' v", 3, max_equality_deletes=0)
    folder = Path(lake.files()[0]).parents[1] / "metadata"
    known = {Path(row.file.removeprefix("file:")).name for row in lake.meta("metadata_log_entries")}
    assert {path.name for path in folder.glob("*.metadata.json")} == known


@pytest.mark.slow
def test_a_session_does_not_get_another_catalog_with_every_copy(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def merge(v: str) -> set[str]:
        """Spark keeps every catalog for good, with all that it knows."""
        upsert(lake, f"select 1L id, '{v}' v", 3, upsert_strategy="merge")
        return {key for key in lake.spark.conf.getAll if key.startswith("spark.sql.catalog.frazil_")}

    upsert(lake, "select id, 'old' v from range(5)", 3)
    known = merge("a")
    assert (merge("b"), merge("c")) == (known, known)
    with monkeypatch.context() as patched:
        patched.setattr(WorkingCopy, "changes", lambda *_, **__: 1 / 0)
        with pytest.raises(frazil.FrazilError):
            merge("d")
    assert merge("e") == known, "what failed has given its catalog back"
    assert (1, "e") in lake.rows()


def files(lake: Lake, content: int) -> int:
    return lake.spark.table(f"{lake.name}.db.t.files").where(f"content = {content}").count()


def upsert_often(lake: Lake, version: int, **options: Any) -> list[tuple[Any, ...]]:
    """Many small upserts, the last of which is settled; what the rows must be."""
    upsert(lake, "select id, 'old' v from range(20)", version, partition_by=["bucket(2, id)"])
    for turn in range(4):
        upsert(lake, f"select id, 'v{turn}' v from range({2 * turn}, {2 * turn} + 6)", version)
    upsert(lake, "select id, 'last' v from range(3, 5)", version, max_equality_deletes=0, **options)
    last = {n: f"v{turn}" for turn in range(4) for n in range(2 * turn, 2 * turn + 6)} | dict.fromkeys((3, 4), "last")
    return sorted([(n, last.get(n, "old")) for n in range(20)], key=repr)


@pytest.mark.slow
def test_small_files_that_upserts_left_become_few_when_they_are_settled(lake: Lake, version: int) -> None:
    expected = upsert_often(lake, version)
    assert lake.rows() == expected
    # Two of the first batch, and two for all others together; only the first have rows that were deleted.
    assert (files(lake, 0), files(lake, 1), files(lake, 2)) == (4, 2, 0)
    newest = lake.spark.table(f"{lake.name}.db.t.snapshots").orderBy("committed_at").collect()[-1].summary
    assert (newest["frazil.merged-files"], newest["added-records"]) == ("10", "12")
    assert all(path.is_file() for path in map(Path, lake.files()))


@pytest.mark.slow
def test_dead_rows_anywhere_in_small_files_are_left_out(lake: Lake, version: int) -> None:
    upsert(lake, "select id, 'old' v from range(1000)", version)
    upsert(lake, "select id, 'new' v from range(500)", version)
    upsert(lake, "select id, 'newer' v from range(500) where id % 3 = 0 or id > 450", version, max_equality_deletes=0)
    written = {n: "newer" if n % 3 == 0 or n > 450 else "new" for n in range(500)}
    assert lake.rows() == sorted([(n, written.get(n, "old")) for n in range(1000)], key=repr)
    newest = lake.spark.table(f"{lake.name}.db.t.snapshots").orderBy("committed_at").collect()[-1].summary
    assert (newest["frazil.merged-files"], newest["added-records"]) == ("2", "500")


def test_no_file_is_left_that_nobody_names(lake: Lake, version: int) -> None:
    upsert_often(lake, version)
    kinds_of_files = ("all_data_files", "all_delete_files")
    named = {row.file_path.removeprefix("file:") for kind in kinds_of_files for row in lake.meta(kind)}
    data = Path(lake.files()[0]).parents[1]
    written = {str(path) for path in data.rglob("*") if path.suffix in (".parquet", ".puffin")}
    assert written == named


@pytest.mark.slow
def test_rows_of_merged_files_keep_their_identity(lake: Lake) -> None:
    upsert(lake, "select id, 'old' v from range(6)", 3)
    upsert(lake, "select id, 'new' v from range(3)", 3)
    upsert(lake, "select id, 'newer' v from range(2)", 3)
    identities = "id, _row_id, _last_updated_sequence_number"
    before = [row for row in lake.rows(identities) if row[0] != 5]
    upsert(lake, "select 5L id, 'newest' v", 3, max_equality_deletes=0)
    assert files(lake, 0) == 2
    assert [row for row in lake.rows(identities) if row[0] != 5] == before


@pytest.mark.slow
def test_files_of_a_sorted_table_are_not_merged(lake: Lake) -> None:
    upsert(lake, "select id, 'old' v from range(6)", 3)
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t WRITE ORDERED BY id")
    for turn in range(2):
        upsert(lake, f"select id, 'v{turn}' v from range(3)", 3, max_equality_deletes=3)
    assert kinds(lake)[-1] == "settle"
    assert files(lake, 0) == 3
