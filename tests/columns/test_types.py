"""Iceberg's types and Spark's, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from frazil.columns.types import iceberg_schema, iceberg_type, spark_schema, spark_type
from frazil.errors import ConfigError, DataError
from frazil.model.types import Column, Decimal, Fixed, ListType, MapType, Primitive, StructType, Type, parse_type

FAITHFUL = ("boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string", "binary", "variant")

primitives: st.SearchStrategy[Type] = st.sampled_from(FAITHFUL).map(Primitive) | st.builds(
    lambda precision, scale: Decimal(precision, min(scale, precision)), st.integers(1, 38), st.integers(0, 38)
)
names = st.text("abcdefghij_", min_size=1, max_size=6)


def structs(of: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    columns = st.builds(Column, names, of, st.booleans(), st.none() | st.text("xyz ", min_size=1, max_size=5))
    return st.lists(columns, max_size=4, unique_by=lambda c: c.name).map(lambda fields: StructType(tuple(fields)))


types = st.recursive(
    primitives,
    lambda of: st.builds(ListType, of, st.booleans()) | st.builds(MapType, of, of, st.booleans()) | structs(of),
    max_leaves=8,
)


@given(types)
def test_what_both_have_survives_the_round_trip(kind: Type) -> None:
    assert iceberg_type(spark_type(kind)) == kind


@given(structs(types))
def test_schemas_keep_order_requirement_and_comments(schema: Type) -> None:
    assert isinstance(schema, StructType)
    assert iceberg_schema(spark_schema(schema)) == schema


@pytest.mark.parametrize(
    ("written", "read"),
    [("uuid", "string"), ("fixed[16]", "binary"), ("list<uuid>", "list<string>"), ("struct<a: fixed[4]>", "struct<a: binary>")],
)
def test_types_that_spark_lacks_come_back_as_what_carries_them(written: str, read: str) -> None:
    assert iceberg_type(spark_type(parse_type(written))) == parse_type(read)


@pytest.mark.parametrize("kind", [spark.ByteType(), spark.ShortType()])
def test_narrow_integers_become_int(kind: spark.DataType) -> None:
    assert iceberg_type(kind) == Primitive("int")


@pytest.mark.parametrize("kind", [spark.CharType(3), spark.VarcharType(9)])
def test_bounded_strings_become_string(kind: spark.DataType) -> None:
    assert iceberg_type(kind) == Primitive("string")


def test_fixed_is_binary_in_spark() -> None:
    assert spark_type(Fixed(16)) == spark.BinaryType()


@pytest.mark.parametrize("name", ["time", "timestamp_ns", "timestamptz_ns"])
def test_a_declared_type_that_spark_cannot_write_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        spark_type(parse_type(f"struct<a: list<{name}>>"))
    assert caught.value.code == "type-not-in-spark"


def test_a_column_that_iceberg_cannot_hold_is_named_with_its_path() -> None:
    inner = spark.StructType([spark.StructField("gap", spark.ArrayType(spark.DayTimeIntervalType()))])
    schema = spark.StructType([spark.StructField("a", inner)])
    with pytest.raises(DataError, match=r"'a\.gap\.element'.*interval") as caught:
        iceberg_schema(schema)
    assert caught.value.code == "type-not-in-iceberg"


def test_a_column_of_nulls_only_has_no_type() -> None:
    with pytest.raises(DataError, match="'nothing' has Spark's type void"):
        iceberg_schema(spark.StructType([spark.StructField("nothing", spark.NullType())]))
