"""Columns that deletes compare and that are dropped, by a sink or by somebody else."""

from __future__ import annotations

from typing import Any

import pytest

import frazil
from helpers.lakes import Lake
from iceberg.test_debt import totals
from write.test_evolution import HARD, refused


def replacing(lake: Lake, query: str, *replace_by: str, **options: Any) -> frazil.Sink:
    """A sink whose deletes compare these columns, each by itself."""
    return lake.sink(query, commit_mode="delete_insert", replace_by=[[name] for name in replace_by], **options)


def filled(lake: Lake) -> None:
    """Rows of which two were replaced: one by `a`, one by `b`."""
    replacing(lake, "select id a, id b, 'old' v from range(6)", "a", "b").write()
    replacing(lake, "select 1L a, 2L b, 'new' v", "a", "b").write()
    assert totals(lake)["total-equality-deletes"] == 2


def test_a_column_that_live_deletes_compare_is_not_dropped_before_they_are_settled(lake: Lake) -> None:
    filled(lake)
    found = refused(replacing(lake, "select 9L b, 'new' v", "b", **HARD), "column-in-use")
    assert "'a'" in found.message
    replacing(lake, "select 8L b, 'new' v", "b", max_equality_deletes=0).write()
    replacing(lake, "select 9L b, 'new' v", "b", **HARD).write()
    assert lake.rows() == [(0, "old"), (2, "new"), (3, "old"), (4, "old"), (5, "old"), (8, "new"), (9, "new")]


def drop(lake: Lake) -> None:
    """What another engine may do, which looks at no deletes; the name is then that of another column."""
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t DROP COLUMN a")
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t ADD COLUMN a int")


@pytest.mark.slow
def test_deletes_by_a_column_that_others_have_dropped_are_settled(lake: Lake) -> None:
    filled(lake)
    drop(lake)
    expected = [(0, "old"), (2, "new"), (3, "old"), (4, "old"), (5, "old")]
    assert lake.rows("b, v") == expected
    replacing(lake, "select 9L b, 'new' v", "b", max_equality_deletes=0).write()
    assert lake.rows("b, v") == [*expected, (9, "new")]
    assert totals(lake)["total-equality-deletes"] == 0
    assert lake.table().columns == ["b", "v", "a"]


@pytest.mark.slow
def test_deletes_by_a_column_that_is_forgotten_stop_the_sink(lake: Lake) -> None:
    filled(lake)
    drop(lake)
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t SET TBLPROPERTIES ('history.expire.min-snapshots-to-keep' = '1')")
    replacing(lake, "select 8L b, 'new' v", "b").write()
    expire = "older_than => timestamp'2100-01-01', retain_last => 1, clean_expired_metadata => true"
    lake.spark.sql(f"CALL {lake.name}.system.expire_snapshots(table => 'db.t', {expire})")
    with pytest.raises(frazil.Halted) as caught:
        replacing(lake, "select 9L b, 'new' v", "b", max_equality_deletes=0).write()
    assert caught.value.code == "deletes-unreadable"
