"""Readers that frazil did not write return the same rows, and the same rows of the past."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from helpers.lakes import Lake, commits, run, sqlite_lake
from helpers.readers import Rows, by_duckdb, by_polars, by_pyiceberg, by_spark


def plain(found: Any) -> Rows:
    """The rows in order, with times in UTC: each reader has its own idea of a time zone."""
    rows = [{name: in_utc(value) for name, value in row.items()} for row in found]
    return sorted(rows, key=lambda row: row["event_number"])


def in_utc(value: Any) -> Any:
    return value.astimezone(datetime.UTC) if isinstance(value, datetime.datetime) else value


READERS: dict[str, Callable[[Lake, int | None], Rows]] = {
    "Spark": by_spark,
    "PyIceberg": by_pyiceberg,
    "Polars": by_polars,
    "DuckDB": by_duckdb,
}


@pytest.mark.parametrize("options", [{}, {"partition_by": ["day(event_time)", "bucket(2, user_id)"], "format_version": 3}])
def test_all_readers_return_the_same_rows_now_and_then(lake: Lake, tmp_path: Path, options: dict[str, Any]) -> None:
    # DuckDB 1.5 and Polars 2 read no addresses with a blank in them.
    lake = sqlite_lake(lake.spark, tmp_path)
    done = commits(run(lake.pipeline({"connector": "generator", "rows": 90, "seed": 3}, batch_size=40, **options)))
    assert [commit.counts.written for commit in done] == [40, 40, 10]
    for snapshot, count in [(None, 90), *((commit.snapshot, rows) for commit, rows in zip(done, (40, 80, 90), strict=True))]:
        found = {name: plain(read(lake, snapshot)) for name, read in READERS.items()}
        assert [row["event_number"] for row in found["Spark"]] == list(range(count))
        for name, rows in found.items():
            assert rows == found["Spark"], f"{name} at {snapshot}"
    assert isinstance(found["Spark"][0]["product"], dict | None)
    assert {type(row["amount"]) for row in found["DuckDB"]} == {Decimal, type(None)}


@pytest.mark.slow
def test_duckdb_as_a_reader_finds_no_deletes_that_it_misreads(lake: Lake, tmp_path: Path) -> None:
    lake = sqlite_lake(lake.spark, tmp_path)
    upsert: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["c", "d"], "readers": ["spark", "duckdb"]}
    for n, query in enumerate(("select 'x' c, 1 d, 10 o union all select 'x', 2, 12", "select 'x' c, 1 d, 20 o")):
        lake.sink(query, **upsert, partition_by=["d"]).write()
        assert sorted(row["o"] for row in by_duckdb(lake)) == [[10, 12], [12, 20]][n]
    assert lake.data_snapshots()[-1].summary["frazil.upsert-reason"].startswith("duckdb does not read equality deletes of one")


def test_duckdb_as_a_reader_finds_rows_without_a_key(lake: Lake, tmp_path: Path) -> None:
    lake = sqlite_lake(lake.spark, tmp_path)
    lake.sink("select 1 k, 'old' v union all select null, 'nobody'").write()
    replaced: dict[str, Any] = {"commit_mode": "delete_insert", "replace_by": [["k"]], "readers": ["duckdb"]}
    lake.sink("select 1 k, 'new' v", **replaced).write()
    assert sorted(row["v"] for row in by_duckdb(lake)) == ["new", "nobody"]
