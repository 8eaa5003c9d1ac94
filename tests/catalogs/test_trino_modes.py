"""Trino reads tables of every commit mode row for row: after each batch, and at each snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalogs.beside import Both, both_at
from helpers.lakes import sqlite_lake

pytestmark = pytest.mark.slow(seconds=5)

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
VERSIONS = pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    with both_at("SQLite, local files", sqlite_lake(spark, tmp_path), request.getfixturevalue) as found:
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
