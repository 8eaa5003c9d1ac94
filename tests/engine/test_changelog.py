"""Changes that are appended: the table keeps what came, and, when asked, what went and when."""

from __future__ import annotations

from typing import Any

import pytest

import frazil
from engine.lakes import Lake

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
    ("options", "told"),
    [
        ({"op_field": None, "op_column": "what"}, "op_column has no meaning without op_field"),
        ({"op_field": None, "change_format": "tombstones", "diff_column": "d"}, "diff_column would not add up"),
        (
            {"commit_mode": "upsert", "key_fields": ["id"], "diff_column": "d"},
            "diff_column has no meaning with commit_mode: upsert",
        ),
    ],
)
def test_columns_without_a_meaning_are_refused(lake: Lake, options: dict[str, Any], told: str) -> None:
    with pytest.raises(frazil.ConfigError, match=told):
        appended(lake, **options)
