"""What a hash of rows is made from, so that rows that differ have different hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from frazil.columns.coerce import JSON_OPTIONS
from frazil.columns.schema import quoted


def distinguishing(frame: DataFrame, names: Iterable[str]) -> list[Column]:
    """What a hash of a row is made from, so that rows that differ in these columns have different ones.

    Spark's hash ignores nulls, so their positions are hashed, too.
    """
    values = [(functions.col(quoted(name)), frame.schema[name].dataType) for name in names]
    nulls = [mark for value, kind in values for mark in _nulls(value, kind)]
    return [*nulls, *[hashable(value, kind) for value, kind in values]]


def _nulls(value: Column, kind: DataType) -> list[Column]:
    """Whether a value is null, and what is in it; and how long a list is."""
    match kind:
        case StructType() if not _holds_unhashable(kind):
            return [value.isNull(), *(mark for one in kind.fields for mark in _nulls(value.getField(one.name), one.dataType))]
        case ArrayType() if not _holds_unhashable(kind):
            within = functions.transform(value, lambda item: functions.xxhash64(*_nulls(item, kind.elementType)))
            return [value.isNull(), functions.size(value), within]
        case _:
            return [value.isNull()]


def hashable(value: Column, kind: DataType) -> Column:
    """Spark does not hash maps and variants, whose text it can make. The text of a variant has 1 for 1.0, too."""
    if not _holds_unhashable(kind):
        return value
    text = functions.to_json(functions.struct(value), {**JSON_OPTIONS, "ignoreNullFields": "false"})
    return functions.concat_ws(" ", text, functions.schema_of_variant(value)) if isinstance(kind, VariantType) else text


def _holds_unhashable(kind: DataType) -> bool:
    match kind:
        case MapType() | VariantType():
            return True
        case ArrayType():
            return _holds_unhashable(kind.elementType)
        case StructType():
            return any(_holds_unhashable(field.dataType) for field in kind.fields)
        case _:
            return False


def key_digest(frame: DataFrame, keys: Sequence[str]) -> tuple[int, int]:
    """The number of rows, and a digest of their keys: the first 60 bits of the md5 of each key's text, summed up."""
    text = functions.concat_ws("|", *[functions.col(quoted(key)).cast("string") for key in keys])
    hashed = functions.conv(functions.substring(functions.md5(text.cast("binary")), 1, 15), 16, 10).cast("decimal(38, 0)")
    row = frame.agg(functions.count(functions.lit(1)).alias("rows"), functions.sum(hashed).alias("keys")).first()
    assert row is not None, "an aggregate has one row"
    return int(row["rows"]), int(row["keys"] or 0)
