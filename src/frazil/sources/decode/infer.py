"""Columns found in JSON messages: what a batch has, and how the columns that are known grow by it.

A type that was found once stays, since a table's column keeps its type as well. What comes later and does not fit is a bad
message. Within the batch that shows a column first, types are merged as Spark merges them: integers and fractions are doubles,
anything else that differs becomes text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    NullType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from frazil.model.hidden import HIDDEN

BIG_INTEGER = DecimalType(38, 0)

_OBJECT = re.compile(r"`(?:[^`]|``)*`|OBJECT<")


def parse_found(text: str) -> DataType:
    """The type that Spark tells of variants, which calls a struct an object."""
    return DataType.fromDDL(_OBJECT.sub(lambda match: "STRUCT<" if match[0] == "OBJECT<" else match[0], text))


@dataclass(frozen=True)
class Known:
    """The columns that were found so far, and the keys that cannot become columns."""

    schema: StructType = field(default_factory=StructType)
    refused: tuple[str, ...] = ()

    def grown(self, found: StructType, *, nulls_are_text: bool = False) -> Known:
        """With what a batch has."""
        fields = {one.name: one.dataType for one in self.schema.fields}
        spelled = {name.lower(): name for name in fields}
        refused = []
        for one in found.fields:
            name = one.name
            if not name or name.lower().startswith(HIDDEN) or spelled.get(name.lower(), name) != name:
                refused.append(name)
            elif (kind := _merged(fields.get(name), one.dataType, nulls_are_text=nulls_are_text)) is not None:
                fields[name] = kind
                spelled[name.lower()] = name
        return Known(StructType([StructField(name, kind) for name, kind in fields.items()]), tuple(refused))


def _merged(known: DataType | None, found: DataType, *, nulls_are_text: bool) -> DataType | None:
    match known, found:
        case None, _:
            return _settled(found, nulls_are_text=nulls_are_text)
        case StructType(), StructType():
            if not _distinct([*known.names, *(name for name in found.names if name not in known.names)]):
                return known
            merged = {one.name: one.dataType for one in known.fields}
            for one in found.fields:
                kind = _merged(merged.get(one.name), one.dataType, nulls_are_text=nulls_are_text)
                if kind is not None:
                    merged[one.name] = kind
            return StructType([StructField(name, kind) for name, kind in merged.items()])
        case ArrayType(), ArrayType():
            element = _merged(known.elementType, found.elementType, nulls_are_text=nulls_are_text)
            return ArrayType(element or known.elementType)
        case _:
            return known


def merged_types(known: DataType, found: DataType) -> DataType:
    """A known type with the fields that another has beside."""
    return _merged(known, found, nulls_are_text=False) or known


def _settled(found: DataType, *, nulls_are_text: bool) -> DataType | None:  # noqa: PLR0911 - one for each case
    """The type of a column with such values. None when there was nothing but null, which says nothing."""
    match found:
        case NullType():
            return StringType() if nulls_are_text else None
        case StructType():
            if not _distinct(found.names):
                return StringType()
            fields = {one.name: _settled(one.dataType, nulls_are_text=nulls_are_text) for one in found.fields}
            made = [StructField(name, kind) for name, kind in fields.items() if kind is not None]
            return StructType(made) if made else _settled(NullType(), nulls_are_text=nulls_are_text)
        case ArrayType():
            element = _settled(found.elementType, nulls_are_text=nulls_are_text)
            return None if element is None else ArrayType(element)
        case DecimalType():
            # Fractions have no common scale; as in Spark's own reader they are doubles. Integers stay exact.
            return BIG_INTEGER if found.scale == 0 else DoubleType()
        case VariantType():
            return StringType()
        case _:
            return found


def _distinct(names: list[str]) -> bool:
    """Whether Spark can tell fields of these names apart."""
    return all(names) and len({name.lower() for name in names}) == len(names)


def carrier(known: DataType, found: DataType | None) -> DataType:
    """As what values are read at first. A variant keeps all digits of a number, and what a text was made of."""
    match known, found:
        case StructType(), _:
            inner = {one.name: one.dataType for one in found.fields} if isinstance(found, StructType) else {}
            return StructType([StructField(one.name, carrier(one.dataType, inner.get(one.name))) for one in known.fields])
        case ArrayType(), _:
            return ArrayType(carrier(known.elementType, found.elementType if isinstance(found, ArrayType) else None))
        case DecimalType(), _:
            return VariantType()
        case StringType(), None | StringType() | NullType():
            return known
        case StringType(), _:
            return VariantType()
        case _:
            return known
