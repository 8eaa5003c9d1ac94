"""Columns of several files put together: the narrowest type that holds what each of them has."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from frazil.errors import DataError

_INTEGERS = ("byte", "short", "integer", "long")
_FLOATS = ("float", "double")


def merged_schema(schemas: Iterable[StructType], *, or_text: bool = False) -> StructType:
    """The columns of several files, in the order in which they appear.

    When a column has types with nothing in common it becomes text, where ``or_text`` says that this is what was in the
    file; otherwise that is a DataError.
    """
    found: dict[str, DataType] = {}
    for field in (field for schema in schemas for field in schema.fields):
        before = found.get(field.name, field.dataType)
        common = common_type(before, field.dataType) or (StringType() if or_text else None)
        if common is None:
            types = f"{before.simpleString()} in one and {field.dataType.simpleString()} in another"
            raise conflicting_files(f"the column {field.name!r} is {types}")
        found[field.name] = common
    return StructType([StructField(name, kind) for name, kind in found.items()])


def conflicting_files(what: str) -> DataError:
    """The error for files whose columns do not fit together."""
    return DataError(
        "file-schemas-conflict",
        f"The new files do not fit together: {what}.",
        fix="Declare the columns under the source's `schema`, or put the files into folders of their own.",
    )


def common_type(one: DataType, other: DataType) -> DataType | None:
    """The narrowest type that holds the values of both, or None. Integers and floats meet in double, but for longs."""
    match one, other:
        case _ if one == other:
            return one
        case StructType(), StructType():
            return _common_struct(one, other)
        case ArrayType(), ArrayType():
            element = common_type(one.elementType, other.elementType)
            return element and ArrayType(element)
        case MapType(), MapType():
            key, value = common_type(one.keyType, other.keyType), common_type(one.valueType, other.valueType)
            return MapType(key, value) if key and value else None
        case DecimalType(), DecimalType() if one.scale == other.scale:
            return max(one, other, key=lambda kind: kind.precision)
        case _:
            return _common_number(one, other)


def _common_number(one: DataType, other: DataType) -> DataType | None:
    for family in (_INTEGERS, _FLOATS):
        if one.typeName() in family and other.typeName() in family:
            return max(one, other, key=lambda kind: family.index(kind.typeName()))
    both = _INTEGERS[:-1] + _FLOATS
    return DoubleType() if one.typeName() in both and other.typeName() in both else None


def _common_struct(one: StructType, other: StructType) -> StructType | None:
    found = {field.name: field.dataType for field in one.fields}
    for field in other.fields:
        common = common_type(found.get(field.name, field.dataType), field.dataType)
        if common is None:
            return None
        found[field.name] = common
    return StructType([StructField(name, kind) for name, kind in found.items()])
