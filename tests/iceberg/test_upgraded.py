"""Tables that were upgraded from version 2 of the format: rows that were deleted then stay deleted under deletion vectors."""

from __future__ import annotations

from typing import Any

import pytest

import frazil
from frazil.iceberg import working_copy
from helpers.lakes import Lake
from iceberg.test_debt import kinds, totals, upsert

pytestmark = pytest.mark.slow

WAYS: dict[str, dict[str, Any]] = {
    "settled": {"max_equality_deletes": 0},
    "merged": {"upsert_strategy": "merge"},
    "by position": {"upsert_strategy": "position"},
}


def upgrade(lake: Lake) -> None:
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t SET TBLPROPERTIES ('format-version' = '3')")


def deletes(lake: Lake) -> list[str]:
    """The formats of the delete files: a vector is in a Puffin file."""
    return sorted(file.file_format for file in lake.meta("delete_files"))


@pytest.mark.parametrize("way", WAYS)
def test_what_was_deleted_before_stays_deleted(lake: Lake, way: str) -> None:
    upsert(lake, "select id, 'old' v from range(20)", 2)
    upsert(lake, "select 1L id, 'new' v", 2, max_equality_deletes=0)
    upgrade(lake)
    assert deletes(lake) == ["PARQUET"]
    upsert(lake, "select 10L id, 'new' v", 3, **WAYS[way])
    expected = sorted([(n, "new" if n in (1, 10) else "old") for n in range(20)], key=repr)
    assert lake.rows() == expected
    assert deletes(lake) == ["PUFFIN"], "the positions of before are in the vector"
    upsert(lake, "select 15L id, 'new' v", 3, **WAYS[way])
    assert lake.rows() == sorted([(n, "new" if n in (1, 10, 15) else "old") for n in range(20)], key=repr)


@pytest.mark.parametrize("way", WAYS)
def test_positions_of_several_data_files_in_one(lake: Lake, way: str) -> None:
    for first in (0, 10):
        lake.sink(f"select id, 'old' v from range({first}, {first + 10})", format_version=2).write()
    by_partition = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "partition"}
    settings = ", ".join(f"'{key}' = '{value}'" for key, value in by_partition.items())
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t SET TBLPROPERTIES ({settings})")
    lake.spark.sql(f"DELETE FROM {lake.name}.db.t WHERE id IN (1, 11)")
    upgrade(lake)
    assert deletes(lake) == ["PARQUET"], "of both data files"
    for turn, number in enumerate((2, 12), start=1):
        upsert(lake, f"select {number}L id, 'new' v", 3, **WAYS[way])
        new = (2, 12)[:turn]
        left = [n for n in range(20) if n not in (1, 11)]
        assert lake.rows() == sorted([(n, "new" if n in new else "old") for n in left], key=repr)
        assert deletes(lake).count("PUFFIN") == turn


def test_a_settlement_that_would_bring_rows_back_is_not_made(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    upsert(lake, "select id, 'old' v from range(20)", 2)
    upsert(lake, "select 1L id, 'new' v", 2, max_equality_deletes=0)
    upgrade(lake)
    monkeypatch.setattr(working_copy, "read_positions", lambda *_: {})
    with pytest.raises(frazil.Halted) as caught:
        upsert(lake, "select 10L id, 'new' v", 3, max_equality_deletes=0)
    assert caught.value.code == "audit-failed"
    assert (totals(lake)["total-equality-deletes"], kinds(lake)[-1]) == (1, "data")
    assert lake.count() == 20
