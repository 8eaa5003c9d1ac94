"""Columns of several files put together."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from frazil.columns.types import spark_type
from frazil.errors import DataError
from frazil.model.types import parse_type
from frazil.sources.merge import merged_schema


def schema(text: str) -> StructType:
    kind = spark_type(parse_type(f"struct<{text}>"))
    assert isinstance(kind, StructType)
    return kind


def test_columns_come_in_the_order_of_the_files() -> None:
    merged = merged_schema([schema("a: int, b: string"), schema("c: date, a: long")])
    assert merged.simpleString() == "struct<a:bigint,b:string,c:date>"


def test_types_that_do_not_meet_are_an_error_or_text() -> None:
    schemas = [schema("a: int"), schema("a: date")]
    assert merged_schema(schemas, or_text=True).simpleString() == "struct<a:string>"
    with pytest.raises(DataError, match="'a' is int in one and date in another") as caught:
        merged_schema(schemas)
    assert caught.value.code == "file-schemas-conflict"
