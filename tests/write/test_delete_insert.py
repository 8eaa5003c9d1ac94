"""Delete and insert: all rows of a batch take the place of those with the same values in some columns."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import functions

import frazil
from helpers.lakes import Lake

WAYS = {"equality deletes": {}, "a look at the rows": {"readers": ["pyiceberg"]}}


def replacing(lake: Lake, query: str, *replace_by: Any, **options: Any) -> frazil.Sink:
    return lake.sink(query, commit_mode="delete_insert", replace_by=list(replace_by), **options)


def filled(lake: Lake, **options: Any) -> None:
    """Two rows of each of three days, and one without a day."""
    query = "select id, cast(id div 2 as int) day from range(6) union all select 6L, null"
    replacing(lake, query, "day", **options).write()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_rows_with_the_batch_s_values_go_and_all_of_the_batch_come(lake: Lake, way: str, partitioned: bool) -> None:
    options = WAYS[way] | ({"partition_by": ["day"]} if partitioned else {})
    filled(lake, **options)
    batch = "select id, 1 day from range(10, 13) union all select 20L, 7 union all select 21L, null"
    counts = replacing(lake, batch, "day", **options).write().counts
    assert (counts.read, counts.written) == (5, 5)
    assert lake.rows() == [(0, 0), (1, 0), (10, 1), (11, 1), (12, 1), (20, 7), (21, None), (4, 2), (5, 2), (6, None)]
    assert (lake.data_snapshots()[-1].summary["total-equality-deletes"] != "0") == (way == "equality deletes")


@pytest.mark.parametrize("way", WAYS)
def test_either_of_several_lists_of_columns_is_enough(lake: Lake, way: str) -> None:
    filled(lake)
    replacing(lake, "select 0L id, 2 day", ["day"], ["id"], **WAYS[way]).write()
    assert lake.rows() == [(0, 2), (1, 0), (2, 1), (3, 1), (6, None)]


@pytest.mark.parametrize("way", WAYS)
def test_a_delete_takes_away_and_adds_nothing(lake: Lake, way: str) -> None:
    filled(lake)
    batch = "select 50L id, 0 day, 'i' op union all select null, 1, 'd'"
    done = replacing(lake, batch, "day", op_field="op", **WAYS[way]).write()
    assert (done.counts.written, done.counts.deleted) == (1, 1)
    assert lake.rows() == [(4, 2), (5, 2), (50, 0), (6, None)]


def test_a_row_without_a_value_that_is_compared_and_required_is_a_letter_but_a_delete_need_not_have_one(lake: Lake) -> None:
    needed = {"schema": {"id": "long", "day": {"type": "int", "required": True}}, "op_field": "op", "on_error": "dead_letter"}
    replacing(lake, "select id, cast(id as int) day, 'i' op from range(3)", ["day"], ["id"], **needed).write()
    batch = "select * from values (7L, null, 'i'), (1L, null, 'd'), (8L, 2, 'i') t(id, day, op)"
    done = replacing(lake, batch, ["day"], ["id"], **needed).write()
    assert lake.rows() == [(0, 0), (8, 2)]
    assert (done.counts.written, done.counts.deleted, done.counts.dead_lettered) == (1, 1, 1)


def test_an_image_from_before_adds_nothing(lake: Lake) -> None:
    options = {"commit_mode": "delete_insert", "replace_by": ["id"], "op_field": "op"}
    lake.sink("select 1L id, 'old' v, '+i' op", **options).write()
    done = lake.sink("select * from values (1L, 'old', '-u'), (1L, 'new', '+u') t(id, v, op)", **options).write()
    assert lake.rows("id, v") == [(1, "new")]
    assert (done.counts.read, done.counts.written, done.counts.filtered) == (2, 1, 1)


def test_a_batch_is_written_once(lake: Lake) -> None:
    filled(lake)
    sink = replacing(lake, "select 9L id, 0 day", "day")
    assert [sink.write(batch="a").skipped, sink.write(batch="a").skipped] == [False, True]
    assert lake.count() == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"commit_mode": "delete_insert"}, "needs replace_by"),
        ({"commit_mode": "append", "replace_by": ["day"]}, "replace_by has no meaning with commit_mode: append"),
        ({"commit_mode": "delete_insert", "replace_by": ["day"], "order_by": ["id"]}, "order_by has no meaning"),
        ({"commit_mode": "delete_insert", "replace_by": ["dya"]}, "replace_by: there is no column 'dya'"),
        ({"commit_mode": "delete_insert", "replace_by": ["size"]}, "replace_by: column size has type double"),
    ],
)
def test_mistakes_are_reported(lake: Lake, options: dict[str, Any], message: str) -> None:
    with pytest.raises(frazil.ConfigError, match=message):
        lake.sink("select 1L id, 1 day, 1.5D size", **options).write()


def test_files_are_sorted_as_the_sink_asks(lake: Lake) -> None:
    query = "select id, 10 - id down from range(10)"
    lake.sink(query, sort_by=["down desc"]).write()
    assert [row.sort_order_id for row in lake.meta("files")] == [1] * len(lake.files())
    assert lake.metadata()["sort-orders"][-1]["fields"][0]["direction"] == "desc"
    with pytest.raises(frazil.Halted, match="sorted down desc nulls last, but the sink asks for id asc nulls first"):
        lake.sink(query, sort_by="id").write()
    with pytest.raises(frazil.ConfigError, match="sort_by: there is no column 'dwon'"):
        lake.sink(query, table="db.u", sort_by=["dwon"]).write()


@pytest.mark.parametrize("way", WAYS)
def test_columns_with_dots_in_their_names_are_compared(lake: Lake, way: str) -> None:
    for value in ("old", "new"):
        replacing(lake, f"select id `a.b`, '{value}' v from range(2)", "a.b", **WAYS[way]).write()
    assert lake.rows("`a.b`, v") == [(0, "new"), (1, "new")]


@pytest.mark.parametrize("way", WAYS)
def test_a_frame_that_is_another_each_time_is_read_once(lake: Lake, way: str) -> None:
    replacing(lake, "select id k, 'old' v from range(1000)", "k", **WAYS[way]).write()
    anywhere = functions.udf(lambda: random.randrange(1000), "long").asNondeterministic()
    frame = lake.spark.range(8).select(anywhere().alias("k"), functions.lit("new").alias("v"))
    lake.sink(frame, commit_mode="delete_insert", replace_by=["k"], **WAYS[way]).write()
    assert {k for (k,) in lake.rows("k")} == set(range(1000))
    new, old = ({k for k, v in lake.rows("k, v") if v == which} for which in ("new", "old"))
    assert not new & old
