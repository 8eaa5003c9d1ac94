from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from frazil.errors import ConfigError, DataError
from frazil.model.coercion import CoercionOptions, Way, admitted, require_casts, way
from frazil.model.sink import SinkSpec
from frazil.model.types import StructType, parse_type


def struct(text: str) -> StructType:
    kind = parse_type(f"struct<{text}>")
    assert isinstance(kind, StructType)
    return kind


def sink(**options: Any) -> SinkSpec:
    return SinkSpec.model_validate({"catalog": {"type": "memory"}, "namespace": "db", "table": "t", **options})


@pytest.mark.parametrize(
    ("data", "table", "expected"),
    [
        ("int", "int", Way.EXACT),
        ("int", "long", Way.EXACT),
        ("int", "double", Way.EXACT),
        ("int", "float", Way.LOSSY),
        ("long", "double", Way.LOSSY),
        ("long", "int", Way.LOSSY),
        ("float", "double", Way.EXACT),
        ("double", "float", Way.LOSSY),
        ("int", "decimal(12, 2)", Way.EXACT),
        ("int", "decimal(11, 2)", Way.LOSSY),
        ("long", "decimal(19, 0)", Way.EXACT),
        ("decimal(10, 2)", "decimal(12, 3)", Way.EXACT),
        ("decimal(10, 2)", "decimal(10, 3)", Way.LOSSY),
        ("decimal(10, 2)", "decimal(12, 1)", Way.LOSSY),
        ("string", "int", Way.LOSSY),
        ("string", "uuid", Way.CHECKED),
        ("binary", "fixed[4]", Way.CHECKED),
        ("date", "timestamp", Way.EXACT),
        ("timestamp", "timestamptz", Way.ZONED),
        ("timestamptz", "timestamp", Way.ZONED),
        ("timestamptz", "date", Way.LOSSY),
        ("long", "timestamptz", Way.EPOCH),
        ("double", "date", Way.EPOCH),
        ("boolean", "int", Way.NONE),
        ("int", "boolean", Way.NONE),
        ("boolean", "string", Way.EXACT),
        ("list<int>", "string", Way.EXACT),
        ("variant", "string", Way.EXACT),
        ("variant", "int", Way.NONE),
        ("struct<a: int, b: list<string>>", "variant", Way.EXACT),
        ("map<int, int>", "variant", Way.NONE),
        ("struct<a: int, b: long>", "map<string, long>", Way.EXACT),
        ("struct<a: int, b: string>", "map<string, long>", Way.LOSSY),
        ("struct<a: int, b: list<int>>", "map<string, long>", Way.NONE),
        ("struct<a: int>", "map<int, int>", Way.NONE),
        ("struct<k: list<struct<x: int>>>", "map<string, list<struct<x: long, y: int>>>", Way.EXACT),
        ("struct<k: list<struct<x: string>>>", "map<string, list<struct<x: long>>>", Way.LOSSY),
        ("struct<k: list<struct<z: int>>>", "map<string, list<struct<x: long>>>", Way.NONE),
        ("list<int>", "int", Way.NONE),
        ("string", "list<string>", Way.CHECKED),
    ],
)
def test_what_becomes_what(data: str, table: str, expected: Way) -> None:
    assert way(parse_type(data), parse_type(table)) is expected


STRICT = CoercionOptions(strict_casting=True)


@pytest.mark.parametrize(
    ("data", "table"),
    [
        ("timestamptz", "timestamp"),
        ("timestamp", "timestamptz"),
        ("decimal(10, 3)", "decimal(10, 2)"),
        ("decimal(12, 2)", "decimal(10, 2)"),
        ("long", "int"),
        ("string", "date"),
        ("double", "float"),
    ],
)
def test_strict_casting_refuses_what_could_lose_something_wherever_it_is(data: str, table: str) -> None:
    for place in ("{}", "list<{}>", "map<string, {}>", "struct<x: {}>", "list<struct<x: {}>>"):
        with pytest.raises(DataError, match=re.escape(f"is {data} in the data and {table} in the table")) as caught:
            require_casts(struct(f"a: {place.format(table)}"), struct(f"a: {place.format(data)}"), STRICT)
        assert caught.value.code == "strict-casting"
        require_casts(struct(f"a: {place.format(table)}"), struct(f"a: {place.format(data)}"), CoercionOptions())


@pytest.mark.parametrize(
    ("data", "table"),
    [("int", "long"), ("string", "uuid"), ("struct<a: int>", "string"), ("decimal(9, 2)", "decimal(10, 2)"), ("int", "string")],
)
def test_strict_casting_takes_what_loses_nothing(data: str, table: str) -> None:
    require_casts(struct(f"a: {table}"), struct(f"a: {data}"), STRICT)


def test_numbers_are_no_moments_until_it_is_said_what_they_count() -> None:
    table, data = struct("at: timestamptz"), struct("at: long")
    with pytest.raises(DataError, match="column 'at' is long in the data and timestamptz in the table") as caught:
        require_casts(table, data, CoercionOptions())
    assert caught.value.code == "epoch-unit"
    assert "seconds, millis, micros, nanos" in caught.value.fix
    require_casts(table, data, CoercionOptions.model_validate({"epoch_unit": "millis", "strict_casting": True}))


TABLE = struct("id: int, item: struct<a: int>, many: list<struct<a: int>>")
DATA = struct("id: int, item: struct<a: int, b: int>, many: list<struct<a: int, c: int>>, extra: string")


def test_extra_columns_are_left_to_the_evolution_or_left_out_or_refused() -> None:
    assert admitted(TABLE, DATA, CoercionOptions()) == DATA
    assert admitted(TABLE, DATA, CoercionOptions.model_validate({"extra_columns": "ignore"})) == TABLE
    with pytest.raises(DataError, match=r"does not have: item\.b, many\.element\.c, extra") as caught:
        admitted(TABLE, DATA, CoercionOptions.model_validate({"extra_columns": "refuse"}))
    assert caught.value.code == "extra-column"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("ID: int", r"ID \(the table has id\)"),
        ("id: int, item: struct<A: int>", r"item\.A \(the table has a\)"),
        ("many: list<struct<A: int>>, extra: int", r"many\.element\.A \(the table has a\)"),
    ],
)
def test_a_column_that_differs_from_the_tables_by_case_alone_is_not_left_out(data: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        admitted(TABLE, struct(data), CoercionOptions.model_validate({"extra_columns": "ignore"}))
    assert caught.value.code == "columns-differ-by-case"


def test_the_columns_for_errors_come_with_the_data_unless_it_has_such_columns_itself() -> None:
    options = CoercionOptions(error_column="error", raw_column="raw")
    assert [column.name for column in admitted(TABLE, TABLE, options).fields] == ["id", "item", "many", "error", "raw"]
    with pytest.raises(ConfigError, match="has a column 'raw' of its own"):
        admitted(TABLE, struct("raw: int"), options)


def test_declared_columns_get_those_for_errors() -> None:
    declared = sink(schema={"id": "long"}, error_column="error", raw_column="raw").declared_schema
    assert declared == struct("id: long, error: string, raw: string")
    declared = sink(schema={"error": "string", "id": "long"}, error_column="error").declared_schema
    assert declared == struct("error: string, id: long")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"raw_column": "raw"}, "raw_column has no meaning without error_column"),
        ({"raw_column": "e", "error_column": "e"}, "error_column and raw_column must be two columns"),
        ({"error_column": "e", "schema": {"e": "int"}}, "the column 'e' is declared as int; it must be an optional string"),
        ({"error_column": "id", "commit_mode": "upsert", "key_fields": ["id"]}, "'id' cannot be used by key_fields as well"),
        ({"error_column": "e", "partition_by": ["e"]}, "'e' cannot be used by partition_by as well"),
        ({"error_column": "e", "op_field": "e"}, "'e' cannot be used by op_field as well"),
        ({"epoch_unit": "minutes"}, "'seconds', 'millis', 'micros' or 'nanos'"),
        ({"extra_columns": "drop"}, "'evolve', 'ignore' or 'refuse'"),
        ({"schema": {"at": "time"}}, "column 'at': Spark cannot write Iceberg's type time. Declare it as string"),
        ({"schema": {"at": "list<timestamp_ns>"}, "format_version": 3}, "column 'at.element': Spark cannot write"),
        ({"schema": {"v": "struct<x: variant>"}}, "column 'v.x': the type variant needs version 3 of the table format, not 2"),
        (
            {"error_column": "e", "commit_mode": "upsert", "key_fields": ["id"], "partial_updates": True},
            "error_column has no meaning with partial_updates",
        ),
    ],
)
def test_what_does_not_fit_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        sink(**options)
    assert message in str(caught.value)


def test_a_variant_may_be_declared_for_a_table_of_version_3() -> None:
    assert sink(schema={"v": "variant"}, format_version=3).declared_schema == struct("v: variant")
