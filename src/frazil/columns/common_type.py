"""The type that values of two have in common: those of a column in several files, messages or images of a row."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

_INTEGER_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_FLOATS = (FloatType, DoubleType)
_MOST_DIGITS = 38

Otherwise = Callable[[DataType, DataType], DataType | None]


def common_type(one: DataType, other: DataType, otherwise: Otherwise = lambda _one, _other: None) -> DataType | None:
    """The narrowest type that holds the values of both, which readers of files convert by themselves; None: there is none.

    ``otherwise`` is asked about types that have no such type in common, also inside of structs, lists and maps.
    """
    if one == other:
        return one
    match one, other:
        case StructType(), StructType():
            return _common_struct(one, other, otherwise)
        case ArrayType(), ArrayType():
            element = common_type(one.elementType, other.elementType, otherwise)
            return None if element is None else ArrayType(element, one.containsNull or other.containsNull)
        # A key never becomes another one.
        case MapType(), MapType() if (key := common_type(one.keyType, other.keyType)) is not None:
            value = common_type(one.valueType, other.valueType, otherwise)
            return None if value is None else MapType(key, value, one.valueContainsNull or other.valueContainsNull)
    found = _common_number(one, other)
    return found if found is not None else otherwise(one, other)


def common_decimal(one: DataType, other: DataType) -> DataType | None:
    """The decimal that has room for two numbers of a fixed point, of which one may be an integer; None: there is none."""
    needed = [_digits(one), _digits(other)]
    if needed[0] is None or needed[1] is None:
        return None
    before, after = map(max, zip(*needed, strict=True))
    return DecimalType(before + after, after) if before + after <= _MOST_DIGITS else None


def _common_struct(one: StructType, other: StructType, otherwise: Otherwise) -> StructType | None:
    found = {field.name: field for field in one.fields}
    theirs = {field.name: field for field in other.fields}
    for name in {**found, **theirs}:
        if name not in found or name not in theirs:
            only = found.get(name) or theirs[name]
            found[name] = StructField(name, only.dataType, metadata=only.metadata)
            continue
        mine, its = found[name], theirs[name]
        kind = common_type(mine.dataType, its.dataType, otherwise)
        if kind is None:
            return None
        found[name] = StructField(name, kind, mine.nullable or its.nullable, mine.metadata)
    return StructType([*found.values()])


def _common_number(one: DataType, other: DataType) -> DataType | None:
    """Integers and floats meet in double, but for longs; decimals of one scale in that of more digits."""
    kinds = (type(one), type(other))
    if all(kind in _INTEGER_DIGITS for kind in kinds):
        return max(one, other, key=lambda kind: _INTEGER_DIGITS[type(kind)])
    if all(kind in _FLOATS or (kind in _INTEGER_DIGITS and kind is not LongType) for kind in kinds):
        return DoubleType()
    if isinstance(one, DecimalType) and isinstance(other, DecimalType) and one.scale == other.scale:
        return max(one, other, key=lambda kind: kind.precision)
    return None


def _digits(kind: DataType) -> tuple[int, int] | None:
    """How many digits a number has before and after the point; None for types without a fixed number of digits."""
    if isinstance(kind, DecimalType):
        return kind.precision - kind.scale, kind.scale
    whole = _INTEGER_DIGITS.get(type(kind))
    return None if whole is None else (whole, 0)
