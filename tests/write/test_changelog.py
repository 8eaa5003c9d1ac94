"""Changes that are appended: the table keeps what came, and, when asked, what went and when."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

import frazil
from helpers.lakes import Lake

CHANGES = "select * from values (1L, 'a', 'c'), (1L, 'b', 'u'), (1L, 'b', 'd'), (2L, 'x', 'm') t(id, v, op)"


def appended(lake: Lake, query: str = CHANGES, **options: Any) -> Any:
    return lake.sink(query, **({"op_field": "op"} | options)).write().counts


def test_deletes_do_nothing_and_updates_insert(lake: Lake) -> None:
    counts = appended(lake)
    assert lake.rows() == [(1, "a"), (1, "b")]
    assert (counts.read, counts.written, counts.filtered) == (4, 2, 2)


def test_what_each_row_did_can_be_kept(lake: Lake) -> None:
    counts = appended(lake, op_column="what", diff_column="diff")
    assert lake.rows() == [(1, "a", "insert", 1), (1, "b", "delete", -1), (1, "b", "update", 1)]
    assert (counts.written, counts.filtered) == (3, 1)


def test_rows_of_before_an_update_are_taken_off_the_sum(lake: Lake) -> None:
    changes = "select * from values (1L, 'a', '+I'), (1L, 'a', '-U'), (1L, 'b', '+U'), (2L, 'x', '-D') t(id, v, op)"
    appended(lake, changes, diff_column="diff")
    assert lake.rows() == [(1, "a", -1), (1, "a", 1), (1, "b", 1), (2, "x", -1)]


def test_when_the_batch_was_read_can_be_kept(lake: Lake) -> None:
    appended(lake, "select id from range(2)", op_field=None, time_column="read_at")
    times = lake.rows("read_at")
    assert len(set(times)) == 1
    assert lake.table().schema["read_at"].dataType.typeName() == "timestamp"


def test_with_both_images_what_came_and_went_adds_up(lake: Lake) -> None:
    image = "named_struct('id', 1L, 'v', '{}')"
    before, after = image.format("a"), image.format("b")
    envelope = f"select 'u' op, {before} before, {after} after"
    counts = appended(lake, envelope, op_field=None, change_format="debezium", diff_column="diff")
    assert lake.rows() == [(1, "a", -1), (1, "b", 1)]
    assert (counts.read, counts.extra, counts.written) == (1, 1, 2)


@pytest.mark.slow
def test_what_went_is_not_counted_when_what_came_is_wrong(lake: Lake) -> None:
    options = {"op_field": None, "change_format": "debezium", "diff_column": "diff", "on_error": "dead_letter"}
    image = "named_struct('id', 1L, 'v', '{}')"
    envelopes = f"""select 'c' op, null before, {image.format(1)} after union all
        select 'u', {image.format(1)}, {image.format("x")} union all select 'u', null, {image.format(2)}"""
    counts = appended(lake, envelopes, schema={"id": "long", "v": "int"}, **options)
    assert lake.rows() == [(1, 1, 1)]
    assert (counts.read, counts.written, counts.dead_lettered) == (3, 1, 2)


def test_a_column_that_the_data_has_already_is_not_overwritten(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match="'v', which the sink adds"):
        appended(lake, op_column="v")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op_field": None, "op_column": "what"}, "op_column has no meaning without op_field"),
        ({"op_field": None, "change_format": "tombstones", "diff_column": "d"}, "diff_column would not add up"),
        (
            {"commit_mode": "upsert", "key_fields": ["id"], "diff_column": "d"},
            "diff_column has no meaning with commit_mode: upsert",
        ),
    ],
)
def test_columns_without_a_meaning_are_refused(lake: Lake, options: dict[str, Any], message: str) -> None:
    with pytest.raises(frazil.ConfigError, match=message):
        appended(lake, **options)


def json_changes(lake: Lake, *lines: str) -> DataFrame:
    file = lake.folder / "changes.json"
    file.write_text("\n".join(lines))
    return lake.spark.read.json(str(file))


IMAGES = {"change_format": "debezium", "diff_column": "diff"}


def test_images_of_different_types_keep_their_values(lake: Lake) -> None:
    frame = json_changes(
        lake,
        '{"op": "u", "before": {"id": 1, "price": 1.5}, "after": {"id": 1, "price": 2}}',
        '{"op": "d", "before": {"id": 2, "price": 7.25}, "after": null}',
    )
    lake.sink(frame, **IMAGES).write()
    assert lake.rows() == [(1, 1.5, -1), (1, 2.0, 1), (2, 7.25, -1)]


@pytest.mark.slow
def test_a_value_that_the_wider_type_would_round_is_a_fault_of_its_row(lake: Lake) -> None:
    frame = json_changes(
        lake,
        '{"op": "u", "before": {"id": 1, "n": 1.5}, "after": {"id": 1, "n": 9007199254740993}}',
        '{"op": "u", "before": {"id": 2, "n": 2.5}, "after": {"id": 2, "n": 3}}',
    )
    with pytest.raises(frazil.DataError, match=r"column 'after\.n' cannot hold this value as double: 9007199254740993"):
        lake.sink(frame, **IMAGES).write()
    counts = lake.sink(frame, **IMAGES, on_error="dead_letter").write().counts
    assert lake.rows() == [(2, 2.5, -1), (2, 3.0, 1)]
    assert (counts.read, counts.written, counts.dead_lettered) == (2, 2, 1)


def test_an_image_without_any_value_in_a_column_has_the_type_of_the_other(lake: Lake) -> None:
    line = '{"op": "u", "before": {"id": 1, "n": null, "at": null}, "after": {"id": 1, "n": 2, "at": {"x": 1}}}'
    lake.sink(json_changes(lake, line), **IMAGES).write()
    assert lake.rows("id, n, at.x, diff") == [(1, 2, 1, 1), (1, None, None, -1)]


def test_parts_of_images_meet_by_name(lake: Lake) -> None:
    line = '{"op": "u", "before": {"id": 1, "at": {"x": 1, "y": 2}}, "after": {"id": 1, "at": {"y": 2.5}}}'
    lake.sink(json_changes(lake, line), **IMAGES).write()
    assert lake.rows("at.x, at.y, diff") == [(1, 2.0, -1), (None, 2.5, 1)]


def test_images_whose_types_have_nothing_in_common_are_refused(lake: Lake) -> None:
    line = '{"op": "u", "before": {"id": 1, "n": true}, "after": {"id": 1, "n": 2}}'
    with pytest.raises(frazil.DataError, match="'n' is long in `after` and boolean in `before`"):
        lake.sink(json_changes(lake, line), **IMAGES).write()


def test_keys_of_tombstones_are_not_cut_to_the_type_of_the_value(lake: Lake) -> None:
    rows = """select '5' key, named_struct('id', 1L, 'v', 'a') value union all select '6', null"""
    options = {"change_format": "tombstones", "key_fields": ["id"], "op_column": "op"}
    lake.sink(rows, **options).write()
    assert lake.rows() == [(1, "a", "update"), (6, None, "delete")]
    rows = """select 2L key, named_struct('id', 1, 'v', 'a') value union all select 3000000000L, null"""
    lake.sink(rows, table="db.wide", **options).write()
    assert lake.rows(table="db.wide") == [(1, "a", "update"), (3_000_000_000, None, "delete")]
    rows = """select 'x' key, named_struct('id', 1L, 'v', 'a') value union all select 'y', null"""
    with pytest.raises(frazil.DataError, match=r"column 'key\.id' cannot hold this value as long: y"):
        lake.sink(rows, table="db.bad", **options).write()


@pytest.mark.parametrize("option", [{"extra_columns": "ignore"}, {"extra_columns": "refuse"}, {"schema_evolution": "strict"}])
def test_what_each_row_did_is_no_surplus_of_a_declared_schema(lake: Lake, option: dict[str, Any]) -> None:
    added = {"op_column": "what", "diff_column": "diff", "time_column": "at"}
    appended(lake, schema={"id": "long", "v": "string"}, partition_by=["day(at)"], **added, **option)
    assert lake.rows("id, v, what, diff, at is null") == [
        (1, "a", "insert", 1, False), (1, "b", "delete", -1, False), (1, "b", "update", 1, False)
    ]  # fmt: skip


def test_a_word_of_the_users_own_is_not_ignored_by_default(lake: Lake) -> None:
    rows = "select * from values (1L, 'A'), (2L, 'M'), (3L, 'X') t(id, op)"
    counts = appended(lake, rows, op_values={"insert": ["A"], "update": ["M"], "delete": ["X"]})
    assert lake.rows() == [(1,), (2,)]
    assert (counts.written, counts.filtered) == (2, 1)
