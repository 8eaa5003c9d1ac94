"""Upserts: the last row of a key stays, wherever it was before; whatever way it takes, on both versions of the format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import frazil
from helpers.lakes import Lake

EQUALITY, MERGE, COPY = (
    {"upsert_strategy": "equality_delete"},
    {"upsert_strategy": "merge"},
    {"upsert_strategy": "merge", "merge_mode": "copy-on-write"},
)

Upsert = Callable[..., frazil.Sink]


@pytest.fixture(
    params=[(2, EQUALITY), (3, EQUALITY), (2, MERGE), (3, MERGE), (2, COPY)], ids=lambda p: f"v{p[0]}-{list(p[1].values())[-1]}"
)
def upsert(request: pytest.FixtureRequest, lake: Lake) -> Upsert:
    """A sink that upserts by `id`, one way or the other."""
    version, way = request.param

    def sink(query: str, **options: Any) -> frazil.Sink:
        given = {"key_fields": ["id"], "format_version": version} | way | options
        return lake.sink(query, commit_mode="upsert", **given)

    return sink


def strategies(lake: Lake) -> list[str]:
    return [snapshot.summary["frazil.upsert-strategy"] for snapshot in lake.data_snapshots()]


def test_known_keys_are_replaced_and_new_ones_added(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 'old' v from range(5)").write()
    done = upsert("select id, 'new' v from range(3, 7)").write()
    assert (done.counts.read, done.counts.written) == (4, 4)
    assert lake.rows() == [(0, "old"), (1, "old"), (2, "old"), (3, "new"), (4, "new"), (5, "new"), (6, "new")]
    assert len(lake.data_snapshots()) == 2


def test_deletes_take_rows_away_and_a_missing_one_is_fine(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 'old' v from range(5)").write()
    changes = (
        "select * from values (1L, cast(null as string), 'd'), (99L, null, 'D'), (3L, 'new', 'u'), (7L, 'new', 'c') t(id, v, op)"
    )
    done = upsert(changes, op_field="op").write()
    assert lake.rows() == [(0, "old"), (2, "old"), (3, "new"), (4, "old"), (7, "new")]
    assert (done.counts.written, done.counts.deleted) == (2, 2)
    assert lake.table().columns == ["id", "v"]


def test_the_last_row_of_a_key_wins_by_the_declared_order(lake: Lake, upsert: Upsert) -> None:
    first = "(1L, 'third', 3, 'u'), (1L, 'first', 1, 'c'), (2L, 'x', 1, 'c'), (2L, cast(null as string), 2, 'd')"
    rows = f"{first}, (3L, null, 1, 'd'), (3L, 'back', 2, 'c')"
    done = upsert(f"select * from values {rows} t(id, v, at, op)", op_field="op", order_by=["at"]).write()
    assert lake.rows("id, v") == [(1, "third"), (3, "back")]
    counts = done.counts
    assert (counts.read, counts.written, counts.deleted, counts.superseded) == (6, 2, 1, 3)


def test_a_key_that_moves_to_another_partition_leaves_no_stale_row(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, id % 2 p from range(4)", partition_by=["p"]).write()
    upsert("select id, 7L p from range(2)", partitioning="table_default").write()
    assert lake.rows() == [(0, 7), (1, 7), (2, 0), (3, 1)]


def test_a_partition_that_the_key_decides(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 'old' v from range(20)", partition_by=["bucket(4, id)"]).write()
    upsert("select id, 'new' v from range(0, 20, 2)", partitioning="table_default").write()
    assert lake.rows() == sorted([(n, "old" if n % 2 else "new") for n in range(20)], key=repr)


def test_a_key_of_several_columns(lake: Lake, upsert: Upsert) -> None:
    keys = {"key_fields": ["id", "region"]}
    upsert("select id, concat('r', id % 2) region, 1 v from range(4)", **keys).write()
    upsert("select 1L id, 'r1' region, 2 v union all select 1L, 'r0', 3", **keys).write()
    assert lake.rows() == [(0, "r0", 1), (1, "r0", 3), (1, "r1", 2), (2, "r0", 1), (3, "r1", 1)]


def test_rows_of_others_with_the_same_key_are_replaced_too(lake: Lake, upsert: Upsert) -> None:
    upsert("select 1L id, 'mine' v").write()
    lake.sink("select 2L id, 'theirs' v").id("other").write()
    upsert("select 2L id, 'mine' v").write()
    assert lake.rows() == [(1, "mine"), (2, "mine")]


def test_a_key_that_the_table_has_twice_is_there_once_after_an_upsert(lake: Lake, upsert: Upsert) -> None:
    twice = "(1L, 'a', 'u'), (1L, 'b', 'u'), (2L, 'a', 'u'), (2L, 'b', 'u'), (3L, 'a', 'u'), (3L, 'a', 'u')"
    lake.sink(f"select id, v from values {twice} t(id, v, op)").id("other").write()
    rows = "(1L, 'new', 'u'), (2L, cast(null as string), 'd'), (4L, 'new', 'c')"
    done = upsert(f"select * from values {rows} t(id, v, op)", op_field="op").write()
    assert lake.rows() == [(1, "new"), (3, "a"), (3, "a"), (4, "new")]
    counts = done.counts
    assert (counts.read, counts.written, counts.deleted, counts.filtered) == (3, 2, 1, 0)


def test_new_columns_come_in_the_middle_of_a_stream(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 'old' v from range(3)").write()
    upsert("select 1L id, 'new' v, 5 n").write()
    assert lake.rows() == [(0, "old", None), (1, "new", 5), (2, "old", None)]


@pytest.mark.slow
def test_many_inserts_and_some_updates_in_one_batch(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 0 turn, 'before' v from range(50, 60)").write()
    rows = "select id, 0 turn, 'insert' v from range(110000) union all select id, 1, 'update' from range(100)"
    done = upsert(rows, order_by=["turn"]).write()
    assert lake.count() == 110_000
    assert lake.table().where("v = 'update'").count() == 100
    assert done.counts.superseded == 100
    assert strategies(lake)[-1] != "append"


def test_deletes_alone(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 'old' v from range(3)").write()
    upsert("select 1L id, 'd' op", op_field="op").write()
    assert lake.rows() == [(0, "old"), (2, "old")]


def test_required_columns_are_not_asked_of_deletes(lake: Lake, upsert: Upsert) -> None:
    schema = {"id": "long", "v": {"type": "string", "required": True}}
    upsert("select id, 'old' v from range(3)", schema=schema).write()
    upsert("select 1L id, cast(null as string) v, 'd' op", op_field="op", schema=schema).write()
    assert lake.rows() == [(0, "old"), (2, "old")]
    with pytest.raises(frazil.DataError, match="'v' is required"):
        upsert("select 1L id, cast(null as string) v, 'u' op", op_field="op", schema=schema).write()


def test_the_same_batch_again_changes_nothing(lake: Lake, upsert: Upsert) -> None:
    upsert("select 1L id, 'a' v").write(batch="one")
    upsert("select 1L id, 'b' v").write(batch="two")
    assert upsert("select 1L id, 'a' v").write(batch="one").skipped
    assert lake.rows() == [(1, "b")]


def test_a_table_that_is_sorted_by_what_is_no_key(lake: Lake, upsert: Upsert) -> None:
    for value in ("old", "new"):
        upsert(f"select id, '{value}' v, id % 2 p from range(4)", sort_by=["v"], partition_by=["p"]).write()
    assert lake.rows("id, v") == [(n, "new") for n in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["equality_delete", "merge"])
def test_for_each_batch_of_a_users_own_stream(lake: Lake, tmp_path: Path, strategy: str) -> None:
    lake.introduced()
    folder = lake.folder / "stream"
    folder.mkdir()
    for number, text in enumerate(["1,a\n2,a", "2,b\n3,b"]):
        (folder / f"{number}.csv").write_text(text)
    rows = lake.spark.readStream.schema("id int, v string").option("maxFilesPerTrigger", 1).csv(str(folder))
    sink = lake.sink(None, commit_mode="upsert", key_fields=["id"], upsert_strategy=strategy, max_equality_deletes=0)
    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream = query.trigger(availableNow=True).start()
    stream.awaitTermination(120)
    assert stream.exception() is None
    assert len(lake.rows()) == 3
    assert [value for key, value in lake.rows() if key == 2] == ["b"]


# Which way is taken, and why.


def auto(lake: Lake, query: str, **options: Any) -> frazil.Sink:
    return lake.sink(query, commit_mode="upsert", **{"key_fields": ["id"], **options})


def why(lake: Lake) -> tuple[str, str]:
    summary = lake.data_snapshots()[-1].summary
    return summary["frazil.upsert-strategy"], summary["frazil.upsert-reason"]


def test_by_itself_it_deletes_by_key_where_keys_can_be_and_says_so(lake: Lake) -> None:
    auto(lake, "select id, 'old' v from range(10)").write()
    assert why(lake) == ("append", "the table is empty")
    auto(lake, "select id, 'new' v from range(10, 20)").write()
    assert why(lake) == ("append", "no file of the table can hold a key of the batch")
    auto(lake, "select id, 'new' v from range(5, 7)").write()
    reason = "its cost does not grow with the table; version 2 of the table format has no deletion vectors"
    assert why(lake) == ("equality_delete", reason)
    assert lake.count() == 20


def test_readers_that_cannot_read_equality_deletes_get_none(lake: Lake) -> None:
    for value in ("old", "new"):
        auto(lake, f"select id, '{value}' v from range(5)", readers=["duckdb", "pyiceberg"]).write()
    assert why(lake) == ("position", "pyiceberg cannot read equality deletes")
    assert not [file for file in lake.meta("all_files") if file.content == 2]


@pytest.mark.slow
def test_more_keys_than_deletes_are_allowed_are_deleted_by_position(lake: Lake) -> None:
    auto(lake, "select id, 'old' v from range(10)").write()
    auto(lake, "select id, 'new' v from range(3, 7)", max_equality_deletes=3).write()
    assert why(lake) == ("position", "its 4 keys would be more equality deletes than the 3 that are allowed")
    auto(lake, "select id, 'new' v from range(3)", max_equality_deletes=3).write()
    assert why(lake)[0] == "equality_delete"
    assert [value for _, value in lake.rows()] == ["new"] * 7 + ["old"] * 3
