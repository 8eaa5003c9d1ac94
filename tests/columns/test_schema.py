"""Columns: inferred or declared, converted loudly, added when the data has more, and refused when they do not fit."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

import frazil
from frazil.iceberg import active
from frazil.runtime.plan import plan_pipeline
from helpers.lakes import IMPATIENT, Lake, commits, run


def columns(lake: Lake) -> dict[str, Any]:
    """The table's columns with their Iceberg types."""
    return {field["name"]: field["type"] for field in current_schema(lake)["fields"]}


def current_schema(lake: Lake) -> dict[str, Any]:
    metadata = lake.metadata()
    found: dict[str, Any] = next(one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
    return found


def json_folder(lake: Lake, *records: dict[str, Any]) -> dict[str, Any]:
    folder = lake.folder / "in"
    folder.mkdir(exist_ok=True)
    name = f"{len(list(folder.iterdir()))}.json"
    (folder / name).write_text("\n".join(json.dumps(record) for record in records))
    return {"connector": "files", "path": str(folder), "format": "json"}


def test_the_columns_are_those_of_the_data(lake: Lake) -> None:
    lake.sink(
        "select 1 i, 2L l, 1.5F f, 2.5D d, 3.25BD n, 'x' s, true b, date'2026-01-02' day, timestamp'2026-01-02 03:04:05' tz,"
        " timestamp_ntz'2026-01-02 03:04:05' ntz, cast('q' as binary) bin"
    ).write()
    assert columns(lake) == {
        "i": "int", "l": "long", "f": "float", "d": "double", "n": "decimal(3, 2)", "s": "string", "b": "boolean", "day": "date",
        "tz": "timestamptz", "ntz": "timestamp", "bin": "binary",
    }  # fmt: skip
    assert not any(field["required"] for field in current_schema(lake)["fields"]), "no null so far is no promise"


DECLARED = {
    "id": {"type": "long", "required": True, "doc": "who"},
    "price": "decimal(10, 2)",
    "at": "timestamptz",
    "day": "date",
    "count": "int",
    "ratio": "double",
    "note": "string",
}


def test_declared_columns_are_made_before_any_data_and_convert_texts(lake: Lake) -> None:
    frame = "select 1 id, '12.50' price, '2026-01-02T03:04:05Z' at, '2026-01-02' day, '7' count, '0.25' ratio, 'hi' note"
    lake.sink(frame, schema=DECLARED).write()
    assert columns(lake)["price"] == "decimal(10, 2)"
    first = current_schema(lake)["fields"][0]
    assert (first["required"], first["doc"]) == (True, "who")
    row = lake.table().selectExpr("id", "price", "unix_seconds(at)", "day", "count", "ratio", "note").collect()[0]
    assert tuple(row) == (1, Decimal("12.50"), 1767323045, datetime.date(2026, 1, 2), 7, 0.25, "hi")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("at", "'yesterday'", "column 'at' cannot hold this value as timestamptz: yesterday"),
        ("price", "'12,50'", "column 'price' cannot hold this value as decimal(10, 2): 12,50"),
        ("count", "'3000000000'", "column 'count' cannot hold this value as int: 3000000000"),
        ("count", "3000000000L", "column 'count' cannot hold this value as int: 3000000000"),
        ("day", "'2026-13-01'", "column 'day' cannot hold this value as date: 2026-13-01"),
        ("id", "cast(null as bigint)", "column 'id' is required, and a row has no value for it"),
    ],
)
def test_a_value_that_cannot_be_converted_stops_the_batch_and_names_the_column(
    lake: Lake, column: str, value: str, message: str
) -> None:
    lake.sink("select 1 id, 'fine' note", schema=DECLARED).write()
    id_column = "" if column == "id" else "2 id, "
    with pytest.raises(frazil.DataError) as caught:
        lake.sink(f"select {id_column}{value} {column} union all select {id_column}null", schema=DECLARED).write()
    assert caught.value.message == message
    assert lake.rows("id") == [(1,)]


def test_a_declared_column_does_not_cut_off_digits_unseen(lake: Lake) -> None:
    with pytest.raises(frazil.DataError, match=r"column 'count' cannot hold this value as int: 2\.7"):
        lake.sink("select 1 id, 2.7D count", schema=DECLARED).write()
    assert lake.count() == 0
    lake.sink("select 1 id, 2.0D count", schema=DECLARED).write()
    assert lake.rows("count") == [(2,)]


def test_a_required_column_that_the_data_lacks_is_reported(lake: Lake) -> None:
    with pytest.raises(frazil.DataError, match="has no column 'id', which the table requires"):
        lake.sink("select 'x' note", schema=DECLARED).write()
    assert lake.count() == 0


def test_optional_columns_that_the_data_lacks_are_null(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' name").write()
    lake.sink("select 2 id").write()
    assert lake.rows() == [(1, "a"), (2, None)]


def test_keys_become_identifier_fields(lake: Lake) -> None:
    lake.sink("select 1 id, 'de' country, 'x' name").keys("country", "id").write()
    schema = current_schema(lake)
    names = {field["id"]: field["name"] for field in schema["fields"]}
    assert {names[one] for one in schema["identifier-field-ids"]} == {"id", "country"}
    assert {field["name"] for field in schema["fields"] if field["required"]} >= {"id", "country"}


def test_a_key_without_a_value_is_reported(lake: Lake) -> None:
    with pytest.raises(frazil.DataError, match="column 'id' is required"):
        lake.sink("select cast(null as int) id, 'x' name").keys("id").write()
    assert lake.count() == 0


@pytest.mark.parametrize(
    ("value", "kind"),
    [("1.5D", "double"), ("1.5F", "float"), ("array(1)", "list"), ("map(1, 2)", "map"), ("named_struct('a', 1)", "struct")],
)
def test_a_key_of_a_type_that_no_delete_can_name_is_refused(lake: Lake, value: str, kind: str) -> None:
    with pytest.raises(
        frazil.ConfigError, match=f"column k has type {kind} which cannot be used as an Iceberg equality delete key"
    ):
        lake.sink(f"select {value} k").keys("k").write()
    assert lake.nothing_written()


def test_a_key_that_is_no_column_is_refused(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match="Key field 'order' is not among the data's columns: id, name"):
        lake.sink("select 1 id, 'x' name").keys("order").write()
    assert lake.nothing_written()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ("select 2 id, 'b' name, 'new' extra", "column 'extra' (string) is not in the table"),
        ("select 2 id, 5 name", "column 'name' is int in the data and string in the table"),
        ("select 2 id, 'b' name, named_struct('a', 1, 'b', 2) item", "column 'item.b' (int) is not in the table"),
    ],
)
def test_strict_refuses_another_shape_and_writes_nothing(lake: Lake, frame: str, message: str) -> None:
    lake.sink("select 1 id, 'a' name, named_struct('a', 1) item").write()
    files = sorted(lake.folder.rglob("*.parquet"))
    with pytest.raises(frazil.DataError) as caught:
        lake.sink(frame, schema_evolution="strict").write()
    assert f"Schema evolution not allowed in strict mode: {message}" in str(caught.value)
    assert "add_columns" in caught.value.fix
    assert (lake.count(), sorted(lake.folder.rglob("*.parquet"))) == (1, files)
    assert list(columns(lake)) == ["id", "name", "item"]


def test_strict_takes_what_fits(lake: Lake) -> None:
    lake.sink("select 1L id, 2.5D ratio").write()
    lake.sink("select 2 id, 1.5F ratio", schema_evolution="strict").write()
    assert lake.rows() == [(1, 2.5), (2, 1.5)]


def test_a_type_that_does_not_fit_is_reported_when_columns_may_be_added_too(lake: Lake) -> None:
    lake.sink("select 1 id").write()
    with pytest.raises(frazil.DataError, match="column 'id' is string in the data and int in the table"):
        lake.sink("select 'one' id, 1 more").write()
    assert lake.rows() == [(1,)]


def test_added_columns_come_with_the_batch_that_brings_them(lake: Lake) -> None:
    before = lake.sink("select 1 id").write()
    after = lake.sink("select 2 id, 'x' name, map('k', named_struct('v', 1)) attributes").write()
    assert [name for name, _ in lake.table(at=before.snapshot).dtypes] == ["id"]
    assert [name for name, _ in lake.table(at=after.snapshot).dtypes] == ["id", "name", "attributes"]
    assert lake.rows("id, name, attributes['k'].v") == [(1, None, None), (2, "x", 1)]


def test_columns_are_added_inside_structs_lists_and_maps(lake: Lake) -> None:
    lake.sink(
        "select 1 id, named_struct('a', 1) s, array(named_struct('a', 1)) l, map('k', named_struct('a', 1)) m,"
        " array(named_struct('deep', named_struct('a', 1))) n"
    ).write()
    lake.sink(
        "select 2 id, named_struct('b', 'B', 'a', 2) s, array(named_struct('b', 'B', 'a', 2)) l,"
        " map('k', named_struct('a', 2, 'b', 'B')) m, array(named_struct('deep', named_struct('a', 2, 'b', 'B'))) n"
    ).write()
    assert lake.rows("id, s.a, s.b, l[0].a, l[0].b, m['k'].a, m['k'].b, n[0].deep.a, n[0].deep.b") == [
        (1, 1, None, 1, None, 1, None, 1, None),
        (2, 2, "B", 2, "B", 2, "B", 2, "B"),
    ]


def test_a_null_struct_stays_null_when_its_shape_differs(lake: Lake) -> None:
    lake.sink("select 1 id, named_struct('a', 1) s").write()
    lake.sink("select 2 id, if(false, named_struct('b', 2), null) s").write()
    assert lake.rows("id, s is null") == [(1, False), (2, True)]


def test_a_new_column_in_the_middle_of_a_run_does_not_stop_it(lake: Lake) -> None:
    source = json_folder(lake, {"id": 1}, {"id": 2})
    first = run(lake.pipeline(source), once=True)
    source = json_folder(lake, {"id": 3, "colour": "red", "item": {"size": 4}})
    second = run(lake.pipeline(source), once=True)
    assert [event.counts.written for event in commits(first) + commits(second)] == [2, 1]
    assert lake.rows("id, colour, item.size") == [(1, None, None), (2, None, None), (3, "red", 4)]
    assert lake.rows(at=commits(first)[0].snapshot) == [(1,), (2,)]


@pytest.mark.parametrize("frame", ["select 1 a, 2 A", "select 1 id, named_struct('x', 1, 'X', 2) s", "select 1 a, 2 a"])
def test_columns_that_differ_only_in_case_are_refused(lake: Lake, frame: str) -> None:
    with pytest.raises(frazil.DataError, match="same name, but for upper and lower case"):
        lake.sink(frame).write()
    assert lake.nothing_written()


def test_a_column_that_differs_from_the_tables_only_in_case_is_refused(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' userId").write()
    with pytest.raises(frazil.DataError, match="upper and lower case: userId, userid"):
        lake.sink("select 2 id, 'b' userid").write()
    assert lake.rows() == [(1, "a")]


def test_names_with_dots_and_blanks_are_columns_like_others(lake: Lake) -> None:
    lake.sink("select 1 `a.b`, 2 `c d`, 3 `tick``s`").write()
    lake.sink("select 4 `a.b`, 5 `c d`, 6 `new.one`").write()
    assert lake.rows("`a.b`, `c d`, `new.one`") == [(1, 2, None), (4, 5, 6)]


def test_a_type_that_iceberg_lacks_is_reported(lake: Lake) -> None:
    with pytest.raises(frazil.DataError, match="column 'gap' has Spark's type interval"):
        lake.sink("select 1 id, interval '1' day gap").write()
    assert lake.nothing_written()


def test_data_without_columns_is_reported(lake: Lake) -> None:
    with pytest.raises(frazil.DataError, match="has no columns"):
        lake.sink(lake.frame("select 1 id").drop("id")).write()


@pytest.mark.parametrize("schema", [{}, {"schema": {"ID": "long", "v": "string"}}], ids=["inferred", "declared"])
def test_a_plan_shows_the_key_of_a_new_table_as_required(lake: Lake, schema: dict[str, Any]) -> None:
    upsert = {"commit_mode": "upsert", "key_fields": ["id"], "case_sensitive": False}
    pipeline = lake.pipeline(json_folder(lake, {"ID": 1, "v": "a"}), **upsert, **schema)
    with active(lake.spark):
        planned = plan_pipeline(pipeline, IMPATIENT)
    assert [(column.name, column.required) for column in planned.columns] == [("ID", True), ("v", False)]
