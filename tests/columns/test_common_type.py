"""The type that holds the values of two."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ByteType, DataType, IntegerType, ShortType, StringType

from frazil.columns.common_type import common_decimal, common_type
from frazil.columns.types import spark_type
from frazil.model.types import parse_type


def kind(text: str) -> DataType:
    return spark_type(parse_type(text))


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
        ("map<int,int>", "map<long,int>", "map<bigint,int>"),
        ("map<int,int>", "map<string,int>", None),
        ("struct<a:int>", "struct<b:string,a:long>", "struct<a:bigint,b:string>"),
        ("struct<a:int>", "struct<a:string>", None),
        ("struct<a:int>", "int", None),
    ],
)
def test_the_narrowest_type_that_holds_both(one: str, other: str, common: str | None) -> None:
    for left, right in ((one, other), (other, one)):
        found = common_type(kind(left), kind(right))
        fields = None if found is None else sorted(found.simpleString())
        assert fields == (None if common is None else sorted(common))


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("decimal(10,2)", "decimal(20,5)", "decimal(20,5)"),
        ("decimal(10,0)", "decimal(10,8)", "decimal(18,8)"),
        ("long", "decimal(20,0)", "decimal(20,0)"),
        ("long", "decimal(10,2)", "decimal(21,2)"),
        ("decimal(38,0)", "decimal(10,2)", None),
        ("long", "double", None),
        ("long", "string", None),
        ("struct<a:decimal(10,2)>", "struct<a:decimal(20,5)>", "struct<a:decimal(20,5)>"),
        ("map<string,long>", "map<string,decimal(20,0)>", "map<string,decimal(20,0)>"),
    ],
)
def test_decimals_have_room_for_others_and_for_integers(one: str, other: str, both: str | None) -> None:
    for left, right in ((one, other), (other, one)):
        found = common_type(kind(left), kind(right), common_decimal)
        assert (None if found is None else found.simpleString()) == both


def test_small_integers_and_what_others_decide() -> None:
    assert common_type(ByteType(), ShortType()) == ShortType()
    assert common_type(IntegerType(), ByteType()) == IntegerType()
    text = common_type(kind("struct<a:int, b:list<date>>"), kind("struct<a:string, b:list<int>>"), lambda *_: StringType())
    assert text == kind("struct<a:string, b:list<string>>")
    assert common_type(kind("map<int,int>"), kind("map<string,int>"), lambda *_: StringType()) == StringType()
