"""Columns of several files put together."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from frazil.engine.types import spark_type
from frazil.errors import DataError
from frazil.model.types import parse_type
from frazil.sources.merge import common_type, merged_schema


def schema(text: str) -> StructType:
    kind = spark_type(parse_type(f"struct<{text}>"))
    assert isinstance(kind, StructType)
    return kind


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("int", "long", "bigint"),
        ("float", "double", "double"),
        ("int", "double", "double"),
        ("int", "float", "double"),
        ("long", "double", None),
        ("long", "float", None),
        ("decimal(5,2)", "decimal(9,2)", "decimal(9,2)"),
        ("decimal(5,2)", "decimal(5,3)", None),
        ("string", "int", None),
        ("date", "timestamptz", None),
        ("array<int>", "array<long>", "array<bigint>"),
        ("array<int>", "array<string>", None),
        ("map<string,int>", "map<string,double>", "map<string,double>"),
        ("struct<a:int>", "struct<b:string,a:long>", "struct<a:bigint,b:string>"),
        ("struct<a:int>", "struct<a:string>", None),
        ("struct<a:int>", "int", None),
    ],
)
def test_the_narrowest_type_that_holds_both(one: str, other: str, common: str | None) -> None:
    for left, right in ((one, other), (other, one)):
        found = common_type(spark_type(parse_type(left)), spark_type(parse_type(right)))
        fields = None if found is None else sorted(found.simpleString())
        assert fields == (None if common is None else sorted(common))


def test_columns_come_in_the_order_of_the_files() -> None:
    merged = merged_schema([schema("a: int, b: string"), schema("c: date, a: long")])
    assert merged.simpleString() == "struct<a:bigint,b:string,c:date>"


def test_types_that_do_not_meet_are_an_error_or_text() -> None:
    schemas = [schema("a: int"), schema("a: date")]
    assert merged_schema(schemas, or_text=True).simpleString() == "struct<a:string>"
    with pytest.raises(DataError, match="'a' is int in one and date in another") as caught:
        merged_schema(schemas)
    assert caught.value.code == "file-schemas-conflict"
