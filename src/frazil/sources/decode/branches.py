"""Messages of several schemas in one frame: each read by its own, put together by name, in one pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from frazil.columns.common_type import common_decimal, common_type
from frazil.sources.decode.parts import column, fault, field, fields_of, first_fault, name_trouble, packed

_EXACT = 2**53
"""Up to here every integer is a double of its own."""


@dataclass(frozen=True)
class Branch:
    """The messages for which ``when`` holds: their struct in the column ``name``, and their fault."""

    when: Column
    name: str
    fault: Column


def merged_branches(
    frame: DataFrame, branches: Sequence[Branch], into: str, expected: StructType | None = None
) -> tuple[DataFrame, list[Branch]]:
    """The frame with a struct of all branches' fields. If types differ, the wider one is used, or text.

    A value that does not fit the wider type is a fault of its message, which is returned with the branches. So is a field that
    is spelled differently than in the table, ``expected``, or in an earlier branch, or that has nested fields where the table's
    has none.
    """
    merged: dict[str, DataType] = {}
    wanted = {one.name: one.dataType for one in expected.fields} if expected is not None else {}
    spelled = {name.lower(): name for name in wanted}
    odd: dict[str, list[str]] = {}
    for branch in branches:
        for one in fields_of(frame, branch.name):
            common = _common(merged[one.name], one.dataType) if one.name in merged else one.dataType
            other_name = spelled.setdefault(one.name.lower(), one.name) != one.name
            if other_name or not _alike(wanted.get(one.name), one.dataType) or name_trouble(common, top=False):
                odd.setdefault(branch.name, []).append(one.name)
            else:
                merged[one.name] = common
    if not merged:
        return frame.withColumn(into, sf.when(sf.lit(False), packed([]))), list(branches)
    whole = sf.lit(None).cast(StructType([StructField(name, kind) for name, kind in merged.items()]))
    faults = []
    for branch in reversed(branches):
        strange = odd.get(branch.name, [])
        own = {one.name: one.dataType for one in fields_of(frame, branch.name) if one.name not in strange}
        value = column(branch.name)
        parts = [
            (as_type(field(value, name), own[name], kind) if name in own else sf.lit(None).cast(kind)).alias(name)
            for name, kind in merged.items()
        ]
        wide = {name: lost for name in own if (lost := _too_wide(field(value, name), own[name], merged[name])) is not None}
        present = {name: field(value, name).isNotNull() for name in strange}
        fits = reduce(Column.__and__, [~lost for lost in (*wide.values(), *present.values())], value.isNotNull())
        whole = sf.when(branch.when, sf.when(fits, sf.struct(*parts))).otherwise(whole)
        faults.append(
            replace(branch, fault=first_fault([(branch.fault.isNotNull(), branch.fault), *_faults(wide), *_strange(present)]))
        )
    return frame.withColumn(into, whole), faults[::-1]


def _faults(wide: Mapping[str, Column]) -> list[tuple[Column, Column]]:
    words = "has an integer beyond 2^53, and other messages of the batch have it as a double, which would round it"
    return [(lost, fault("number-rounded", f"the field {name!r} {words}")) for name, lost in wide.items()]


def _alike(wanted: DataType | None, own: DataType) -> bool:
    """Whether values of a type can go where the table has another; a struct, a list or a map goes into a text as well."""
    match wanted:
        case StructType() | MapType():
            return isinstance(own, StructType | MapType)
        case ArrayType():
            return isinstance(own, ArrayType)
        case _:
            return True


def _strange(present: Mapping[str, Column]) -> list[tuple[Column, Column]]:
    words = "is spelled otherwise, or has other parts, than the table or other messages have it"
    return [(there, fault("field-differs", f"the field {name!r} {words}")) for name, there in present.items()]


def _too_wide(value: Column, own: DataType, kind: DataType) -> Column | None:
    """Whether there is a long in it which would be rounded; None where none can be."""
    match own, kind:
        case LongType(), DoubleType():
            return sf.coalesce(~value.between(-_EXACT, _EXACT), sf.lit(False))
        case StructType(), StructType():
            theirs = {one.name: one.dataType for one in kind.fields}
            each = [_too_wide(field(value, one.name), one.dataType, theirs[one.name]) for one in own.fields]
            found = [lost for lost in each if lost is not None]
            return reduce(Column.__or__, found) if found else None
        case ArrayType(), ArrayType():
            return _any_too_wide(value, own.elementType, kind.elementType)
        case MapType(), MapType():
            return _any_too_wide(sf.map_values(value), own.valueType, kind.valueType)
        case _:
            return None


def _any_too_wide(values: Column, own: DataType, kind: DataType) -> Column | None:
    if _too_wide(sf.lit(None), own, kind) is None:
        return None
    lost = cast("Callable[[Column], Column]", lambda one: _too_wide(one, own, kind))
    return sf.coalesce(sf.exists(values, lost), sf.lit(False))


def _common(one: DataType, other: DataType) -> DataType:
    common = common_type(one, other, _common_without_structure)
    assert common is not None, "everything has a form as text"
    return common


def _common_without_structure(one: DataType, other: DataType) -> DataType:
    """The type of decimals is one with room for both, that of longs and floats is double; text is that of all others."""
    match one, other:
        case (LongType(), FloatType() | DoubleType()) | (FloatType() | DoubleType(), LongType()):
            return DoubleType()
        case _:
            return common_decimal(one, other) or StringType()


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
            values = sf.transform_values(value, lambda _, item: as_type(item, own.valueType, kind.valueType))
            return sf.transform_keys(values, lambda key, _: as_type(key, own.keyType, kind.keyType))
        case ((StructType() | ArrayType() | MapType()), StringType()):
            return sf.to_json(value)
        case _:
            return value.cast(kind)


def _null(one: StructField) -> Column:
    return sf.lit(None).cast(one.dataType)
