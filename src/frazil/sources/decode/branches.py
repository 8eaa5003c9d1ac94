"""Messages of several schemas in one frame: each read by its own, put together by name, in one pass over the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructField, StructType

from frazil.sources.decode.parts import column, field, fields_of, packed
from frazil.sources.merge import common_type


@dataclass(frozen=True)
class Branch:
    """The messages for which ``when`` holds: their struct in the column ``name``, and their fault."""

    when: Column
    name: str
    fault: Column


def merged_branches(frame: DataFrame, branches: Sequence[Branch], into: str) -> DataFrame:
    """The frame with a struct of all branches' fields. Of a type that differs the wider one counts, or text."""
    merged: dict[str, DataType] = {}
    for branch in branches:
        for one in fields_of(frame, branch.name):
            merged[one.name] = _common(merged[one.name], one.dataType) if one.name in merged else one.dataType
    whole = sf.lit(None).cast(StructType([StructField(name, kind) for name, kind in merged.items()])) if merged else None
    if whole is None:
        return frame.withColumn(into, sf.when(sf.lit(False), packed([])))
    for branch in reversed(branches):
        own = {one.name: one.dataType for one in fields_of(frame, branch.name)}
        value = column(branch.name)
        parts = [
            (as_type(field(value, name), own[name], kind) if name in own else sf.lit(None).cast(kind)).alias(name)
            for name, kind in merged.items()
        ]
        whole = sf.when(branch.when, sf.when(value.isNotNull(), sf.struct(*parts))).otherwise(whole)
    return frame.withColumn(into, whole)


def _common(one: DataType, other: DataType) -> DataType:
    """Decimals of different scales meet where both have room; what has nothing in common meets in text."""
    if isinstance(one, DecimalType) and isinstance(other, DecimalType):
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale) + scale
        return DecimalType(digits, scale) if digits <= 38 else StringType()
    match one, other:
        case StructType(), StructType():
            merged = {field.name: field.dataType for field in one.fields}
            for inner in other.fields:
                merged[inner.name] = _common(merged[inner.name], inner.dataType) if inner.name in merged else inner.dataType
            return StructType([StructField(name, kind) for name, kind in merged.items()])
        case ArrayType(), ArrayType():
            return ArrayType(_common(one.elementType, other.elementType))
        case MapType(), MapType() if one.keyType == other.keyType:
            return MapType(one.keyType, _common(one.valueType, other.valueType))
        case _:
            return common_type(one, other) or StringType()


def as_type(value: Column, own: DataType, kind: DataType) -> Column:
    """A value as the type that all branches share: fields by name, nested values that became text as JSON."""
    match own, kind:
        case _ if own == kind:
            return value
        case StructType(), StructType():
            mine = {one.name: one.dataType for one in own.fields}
            parts = [
                (as_type(field(value, one.name), mine[one.name], one.dataType) if one.name in mine else _null(one)).alias(
                    one.name
                )
                for one in kind.fields
            ]
            return sf.when(value.isNotNull(), sf.struct(*parts))
        case ArrayType(), ArrayType():
            return sf.transform(value, lambda item: as_type(item, own.elementType, kind.elementType))
        case MapType(), MapType():
            return sf.transform_values(value, lambda _, item: as_type(item, own.valueType, kind.valueType))
        case ((StructType() | ArrayType() | MapType()), StringType()):
            return sf.to_json(value)
        case _:
            return value.cast(kind)


def _null(one: StructField) -> Column:
    return sf.lit(None).cast(one.dataType)
