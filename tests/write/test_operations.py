"""Upserts: what a row can say that it does, and the keys and orders that are refused."""

from __future__ import annotations

from typing import Any

import pytest

import frazil
from helpers.lakes import Lake
from write.test_upsert import auto


def test_operations_by_the_users_own_words(lake: Lake) -> None:
    words = {
        "op_field": "what",
        "op_values": {"insert": "new", "update": "changed", "delete": ["gone", "purged"], "ignore": "seen"},
    }
    auto(lake, "select id, 'a' v, 'new' what from range(4)", **words).write()
    rows = "(0L, 'x', 'Gone'), (1L, 'x', 'purged'), (2L, 'x', 'seen'), (3L, 'b', 'changed')"
    done = auto(lake, f"select * from values {rows} t(id, v, what)", **words).write()
    assert lake.rows() == [(2, "a"), (3, "b")]
    assert (done.counts.deleted, done.counts.filtered) == (2, 1)


@pytest.mark.parametrize("value", ["'x'", "cast(null as string)"])
def test_an_unknown_operation_stops_the_batch(lake: Lake, value: str) -> None:
    with pytest.raises(frazil.DataError, match="operation is not known"):
        auto(lake, f"select 1L id, {value} op", op_field="op").write()


def test_tombstones(lake: Lake) -> None:
    values = "named_struct('id', id, 'v', 'a')"
    keys = {"change_format": "tombstones"}
    auto(lake, f"select named_struct('id', id) key, {values} value from range(3)", **keys).write()
    auto(lake, f"select named_struct('id', id) key, if(id = 1, null, {values}) value from range(2)", **keys).write()
    assert lake.rows() == [(0, "a"), (2, "a")]


def test_tombstones_with_a_bare_key(lake: Lake) -> None:
    keys = {"change_format": "tombstones"}
    auto(lake, "select id key, named_struct('id', id, 'v', 'a') value from range(2)", **keys).write()
    auto(lake, "select id key, if(id = 1, null, named_struct('id', id, 'v', 'b')) value from range(2)", **keys).write()
    assert lake.rows() == [(0, "b")]


IMAGE = "struct<id: long, v: string>"
ENVELOPE = f"from_json(line, 'before {IMAGE}, after {IMAGE}, op string, source struct<lsn: long>')"


def envelopes(*lines: str) -> str:
    rows = ", ".join(f"('{line}')" for line in lines)
    return f"select e.* from (select {ENVELOPE} e from values {rows} t(line))"


def test_envelopes_of_debezium(lake: Lake) -> None:
    debezium = {"change_format": "debezium", "order_by": ["source.lsn"]}
    snapshot = [f'{{"op": "r", "after": {{"id": {n}, "v": "a"}}, "source": {{"lsn": 1}}}}' for n in range(4)]
    auto(lake, envelopes(*snapshot), **debezium).write()
    done = auto(
        lake,
        envelopes(
            '{"op": "u", "before": {"id": 0, "v": "a"}, "after": {"id": 0, "v": "b"}, "source": {"lsn": 2}}',
            '{"op": "d", "before": {"id": 1, "v": "a"}, "source": {"lsn": 3}}',
            "{}",
            '{"op": "u", "before": {"id": 2, "v": "a"}, "after": {"id": 20, "v": "moved"}, "source": {"lsn": 4}}',
            '{"op": "c", "after": {"id": 2, "v": "again"}, "source": {"lsn": 5}}',
        ),
        **debezium,
    ).write()
    assert lake.rows() == [(0, "b"), (2, "again"), (20, "moved"), (3, "a")]
    counts = done.counts
    assert (counts.read, counts.extra, counts.written, counts.deleted, counts.superseded, counts.filtered) == (5, 1, 3, 1, 1, 1)


# What is refused.


def test_rows_of_one_key_without_an_order_stop_the_batch(lake: Lake) -> None:
    with pytest.raises(frazil.DataError) as caught:
        auto(lake, "select 1L id, id v from range(2)").write()
    assert caught.value.code == "duplicate-keys"
    assert '{"id":1}' in caught.value.message
    assert "order_by" in (caught.value.fix or "")


def test_rows_that_share_the_last_place_stop_the_batch(lake: Lake) -> None:
    with pytest.raises(frazil.DataError, match="the same place in the order"):
        auto(lake, "select 1L id, id v, 5 at from range(2)", order_by="at").write()


@pytest.mark.parametrize(
    ("one", "other", "types"),
    [
        ("null, 5", "5, null", "int, int"),
        ("array(1, null), 1", "array(null, 1), 1", "array<int>, int"),
        ("array(), 1", "null, 1", "array<int>, int"),
        ("array(array(1), array()), 1", "array(array(), array(1)), 1", "array<array<int>>, int"),
        ("named_struct('a', null, 'b', 1), 1", "named_struct('a', 1, 'b', null), 1", "struct<a: int, b: int>, int"),
        ("named_struct('a', null, 'b', null), 1", "null, 1", "struct<a: int, b: int>, int"),
        ("map('a', named_struct('x', null)), 1", "map('a', null), 1", "map<string, struct<x: int>>, int"),
    ],
)
def test_rows_that_differ_in_where_they_have_nulls_are_not_the_same(lake: Lake, one: str, other: str, types: str) -> None:
    kinds = types.rpartition(", ")
    rows = " union all ".join(
        f"select 1L id, cast(s.a as {kinds[0]}) a, cast(s.b as {kinds[2]}) b from (select struct({values}) s) t(s)"
        for values in (one, other)
    )
    rows = rows.replace("s.a", "s.col1").replace("s.b", "s.col2")
    with pytest.raises(frazil.DataError) as caught:
        auto(lake, rows).write()
    assert caught.value.code == "duplicate-keys"


@pytest.mark.parametrize("moment", ["timestamp'0001-01-01T00:00:00Z'", "timestamp'9999-12-31T23:59:59.999999Z'"])
def test_keys_at_the_ends_of_time(lake: Lake, moment: str) -> None:
    for value in "ab":
        lake.sink(f"select {moment} id, '{value}' v", commit_mode="upsert", key_fields=["id"]).write()
    assert lake.rows("v") == [("b",)]


def test_the_very_same_row_twice_is_one(lake: Lake) -> None:
    done = auto(lake, "select 1L id, map('a', 1) m from range(3)").write()
    assert (lake.count(), done.counts.superseded) == (1, 2)


def test_a_key_without_a_value_stops_the_batch(lake: Lake) -> None:
    with pytest.raises(frazil.DataError) as caught:
        auto(lake, "select if(id = 0, null, id) id, 'a' v from range(3)").write()
    assert caught.value.code == "key-null"


@pytest.mark.parametrize("kind", ["float", "double", "map", "list", "struct"])
def test_types_that_cannot_be_keys_are_refused(lake: Lake, kind: str) -> None:
    values = {"float": "1.5f", "double": "1.5d", "map": "map('a', 1)", "list": "array(1)", "struct": "named_struct('a', 1)"}
    with pytest.raises(frazil.ConfigError) as caught:
        auto(lake, f"select {values[kind]} id").write()
    assert f"column id has type {kind} which cannot be used as an Iceberg equality delete key" in str(caught.value)
    assert lake.nothing_written()


def test_a_key_that_is_not_a_column_is_refused(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match="Key field 'nr' is not among the data's columns: id"):
        auto(lake, "select 1L id", key_fields=["nr"]).write()


def test_keys_are_matched_to_columns_by_case_unless_configured_otherwise(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match="Key field 'ID'"):
        auto(lake, "select 1L id, 'a' v", key_fields=["ID"]).write()
    for value in ("a", "b"):
        auto(lake, f"select 1L id, '{value}' v", **ANY_CASE).write()
    assert lake.rows() == [(1, "b")]


ANY_CASE: dict[str, Any] = {"key_fields": ["ID"], "case_sensitive": False}


def test_keys_of_declared_columns_in_any_case(lake: Lake) -> None:
    for value in ("a", "b"):
        auto(lake, f"select 1L id, '{value}' v", schema={"id": "long", "v": "string"}, **ANY_CASE).write()
    assert lake.rows() == [(1, "b")]


def test_keys_of_envelopes_in_any_case(lake: Lake) -> None:
    debezium = {"change_format": "debezium", "order_by": ["source.lsn"], **ANY_CASE}
    auto(lake, envelopes('{"op": "c", "after": {"id": 1, "v": "a"}, "source": {"lsn": 1}}'), **debezium).write()
    moved = '{"op": "u", "before": {"id": 1, "v": "a"}, "after": {"id": 2, "v": "b"}, "source": {"lsn": 2}}'
    auto(lake, envelopes(moved), **debezium).write()
    assert lake.rows() == [(2, "b")]


@pytest.mark.parametrize("key", ["id", "named_struct('Id', id)"], ids=["bare", "struct"])
def test_keys_of_tombstones_in_any_case(lake: Lake, key: str) -> None:
    for value in ("a", "b"):
        rows = (
            f"select {key} key, if(id = 1 and '{value}' = 'b', null, named_struct('id', id, 'v', '{value}')) value from range(2)"
        )
        auto(lake, rows, change_format="tombstones", **ANY_CASE).write()
    assert lake.rows() == [(0, "b")]
    assert lake.table().columns == ["id", "v"]
