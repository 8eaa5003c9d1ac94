"""Deletes that readers pay for: bounded by the sink, settled between batches, and never at the price of a row."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import frazil
from engine.lakes import Lake, sqlite_lake
from engine.readers import by_duckdb, by_polars, by_pyiceberg, tuples
from frazil.model.events import Event, Settled


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


def test_too_many_files_of_deletes_are_compacted_away(lake: Lake, version: int) -> None:
    upsert(lake, "select id, 'old' v from range(20)", version)
    for turn in range(3):
        settled = upsert(lake, f"select id, 'v{turn}' v from range({turn}, {turn} + 2)", version, max_delete_files=2)
    assert "compact" in {event.kind for event in settled} | set(kinds(lake))
    assert totals(lake)["total-delete-files"] <= 2
    assert lake.count() == 20
    assert lake.rows()[:4] == [(0, "v0"), (1, "v1"), (10, "old"), (11, "old")]


def test_a_settlement_that_is_overtaken_waits_for_the_next_batch(
    lake: Lake, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from frazil.engine import writer

    settle = writer.settle

    def overtaken(table: Any) -> Any:
        prepared = settle(table)
        lake.sink("select 100L id, 'theirs' v").id("other").write()
        return prepared

    upsert(lake, "select id, 'old' v from range(5)", version)
    monkeypatch.setattr(writer, "settle", overtaken)
    assert upsert(lake, "select 1L id, 'new' v", version, max_equality_deletes=0) == []
    assert totals(lake)["total-equality-deletes"] == 1
    monkeypatch.setattr(writer, "settle", settle)
    assert len(upsert(lake, "select 2L id, 'new' v", version, max_equality_deletes=0)) == 1
    assert lake.rows() == [(0, "old"), (1, "new"), (100, "theirs"), (2, "new"), (3, "old"), (4, "old")]


def test_a_settlement_that_would_change_the_rows_is_not_made(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("frazil.engine.write.settle")

    upsert(lake, "select id, 'old' v from range(5)", 3)
    monkeypatch.setattr(module, "bitmap_of", lambda words, bits: module.BitMap64([0, 1, 2]))
    with pytest.raises(frazil.Halted) as caught:
        upsert(lake, "select 1L id, 'new' v", 3, max_equality_deletes=0)
    assert caught.value.code == "audit-failed"
    assert totals(lake)["total-equality-deletes"] == 1
    assert lake.count() == 5


def test_a_compaction_by_others_brings_nothing_back(lake: Lake, version: int) -> None:
    upsert(lake, "select id, 'old' v from range(20)", version)
    upsert(lake, "select id, 'new' v from range(10)", version)
    lake.spark.sql(f"CALL {lake.name}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))")
    upsert(lake, "select id, 'newer' v from range(5)", version, max_equality_deletes=0)
    expected = [(n, "newer" if n < 5 else "new" if n < 10 else "old") for n in range(20)]
    assert lake.rows() == sorted(expected, key=repr)


def test_files_of_the_private_copy_are_not_left_behind(lake: Lake) -> None:
    upsert(lake, "select id, 'old' v from range(5)", 3)
    upsert(lake, "select 1L id, 'new' v", 3, max_equality_deletes=0)
    folder = Path(lake.files()[0]).parents[1] / "metadata"
    known = {Path(row.file.removeprefix("file:")).name for row in lake.meta("metadata_log_entries")}
    assert {path.name for path in folder.glob("*.metadata.json")} == known
