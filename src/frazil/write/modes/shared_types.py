"""Types for values that come from several places of a record: from two images of a row, or from key and value."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, DoubleType, FloatType, NullType, NumericType, StringType, StructType

from frazil.columns.alignment import aligned_value
from frazil.columns.coerce import Converted
from frazil.columns.common_type import common_decimal, common_type
from frazil.columns.types import iceberg_type
from frazil.errors import DataError
from frazil.model.coercion import Way, way
from frazil.model.sink import SinkSpec


def types_within(frame: DataFrame, column: str) -> dict[str, DataType]:
    """The types of a struct's fields, by their names; none of a column that is no struct."""
    kind = frame.schema[column].dataType
    return {field.name: field.dataType for field in kind.fields} if isinstance(kind, StructType) else {}


def fields_of(frame: DataFrame, column: str) -> list[str]:
    """The names of a struct's fields; none of another column, or of one that is not there."""
    kind = frame.schema[column].dataType if column in frame.columns else None
    return list(kind.names) if isinstance(kind, StructType) else []


def shared_type(name: str, types: Mapping[str, DataType]) -> DataType:
    """The type for values that come from several places, by these: that of the first where none is wider."""
    known = [kind for kind in types.values() if not isinstance(kind, NullType)] or list(types.values())
    first, *others = known
    if all(kind == first for kind in others):
        return first
    common = common_type(first, others[0], _looked_at)
    if common is None:
        listed = " and ".join(f"{iceberg_type(kind, name)} in `{place}`" for place, kind in types.items())
        raise DataError(
            "images-differ",
            f"The column {name!r} is {listed}: no type holds the values of both.",
            fix="Let the source send one type, or say the columns' types where it is read.",
        )
    return common


def _looked_at(first: DataType, second: DataType) -> DataType | None:
    """A type for two types without a common one: the wider one, or else the first. Values must then be checked.

    If one is a text, the first counts: a JSON reader infers text for a column that is null in all rows.
    """
    both = (first, second)
    if all(isinstance(kind, NumericType) for kind in both) and any(isinstance(kind, FloatType | DoubleType) for kind in both):
        return DoubleType()
    if (decimal := common_decimal(first, second)) is not None:
        return decimal
    pairs = ((second, first), (first, second))
    ways = {kind: way(iceberg_type(data), iceberg_type(kind)) for data, kind in pairs}
    able = [kind for kind, how in ways.items() if how not in (Way.NONE, Way.EPOCH)]
    if not able or StringType() in ways:
        return able[0] if able else None
    return next((kind for kind in able if ways[kind] is Way.EXACT), able[0])


def as_type(value: Column, data: DataType, kind: DataType, path: str, sink: SinkSpec) -> Converted:
    """A value as one of another type, and what is wrong where it has no such form."""
    if data == kind or isinstance(data, NullType):
        return Converted(value.cast(kind))
    made = aligned_value(value, data, iceberg_type(kind, path), path, sink)
    # What is the same for Iceberg may still be narrower in Spark.
    return Converted(made.value.cast(kind), made.error)
