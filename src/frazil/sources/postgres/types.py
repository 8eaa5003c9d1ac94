"""PostgreSQL's types as Arrow's and Spark's, and its texts as their values.

A value that the column's type cannot hold exactly (a date at infinity, a number that is none, a year before Christ) is an
error of its row, never another value. What Iceberg has no type for stays the text that PostgreSQL writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

MAX_PRECISION = 38
_NUMERIC_HEADER = 4

Errors = dict[int, str]
"""What is wrong with some rows, by their number."""


@dataclass(frozen=True)
class ColumnType:
    """A type of a column: Spark's name of it, Arrow's, and of a list its elements'."""

    spark: str
    arrow: pa.DataType
    element: ColumnType | None = None


STRING = ColumnType("string", pa.string())
BOOLEAN = ColumnType("boolean", pa.bool_())
INT = ColumnType("int", pa.int32())
LONG = ColumnType("bigint", pa.int64())
FLOAT = ColumnType("float", pa.float32())
DOUBLE = ColumnType("double", pa.float64())
BINARY = ColumnType("binary", pa.binary())
DATE = ColumnType("date", pa.date32())
TIMESTAMP = ColumnType("timestamp_ntz", pa.timestamp("us"))
TIMESTAMPTZ = ColumnType("timestamp", pa.timestamp("us", "UTC"))


def decimal(precision: int, scale: int) -> ColumnType:
    """A number of so many digits, so many of them behind the point."""
    return ColumnType(f"decimal({precision},{scale})", pa.decimal128(precision, scale))


def array_of(element: ColumnType) -> ColumnType:
    """A list."""
    return ColumnType(f"array<{element.spark}>", pa.list_(element.arrow), element)


_BY_NAME: Mapping[str, ColumnType] = {
    "bool": BOOLEAN,
    "int2": INT,
    "int4": INT,
    "int8": LONG,
    "oid": LONG,
    "xid": LONG,
    "float4": FLOAT,
    "float8": DOUBLE,
    "bytea": BINARY,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMPTZ,
}


@dataclass(frozen=True)
class PgType:
    """A row of `pg_type`: how a type is built."""

    oid: int
    name: str
    kind: str
    base: int = 0
    modifier: int = -1
    element: int = 0


@dataclass
class Types:
    """Knows the types of a database; ``look_up`` is asked once for each that is new."""

    look_up: Callable[[int], PgType | None]
    unbounded_numeric: str = "string"
    _known: dict[int, PgType | None] = field(default_factory=dict)

    def column_type(self, oid: int, modifier: int) -> ColumnType:
        """The type of a column. If the type no longer exists in the database, only the value's text is known."""
        if oid not in self._known:
            self._known[oid] = self.look_up(oid)
        kind = self._known[oid]
        if kind is None:
            return STRING
        if kind.kind == "d":
            return self.column_type(kind.base, kind.modifier)
        if kind.element:
            return array_of(self.column_type(kind.element, modifier))
        if kind.name == "numeric":
            return _numeric(modifier, self.unbounded_numeric)
        return _BY_NAME.get(kind.name, STRING)


def _numeric(modifier: int, unbounded: str) -> ColumnType:
    if modifier >= _NUMERIC_HEADER:
        precision = (modifier - _NUMERIC_HEADER) >> 16 & 0xFFFF
        scale = ((modifier - _NUMERIC_HEADER) & 0x7FF ^ 0x400) - 0x400  # eleven bits with a sign
        # A negative scale has zeros before the point, one above the precision has zeros behind it.
        whole, behind = max(precision, scale, precision - scale), max(scale, 0)
        if whole <= MAX_PRECISION:
            return decimal(whole, behind)
    return unbounded_type(unbounded)


_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


def unbounded_type(text: str) -> ColumnType:
    """The type that users ask for where PostgreSQL's has no bounds: string, double or decimal(p, s)."""
    if match := _DECIMAL.fullmatch(text):
        return decimal(int(match[1]), int(match[2]))
    return DOUBLE if text == "double" else STRING


def widened(one: ColumnType, other: ColumnType) -> ColumnType:
    """A type that holds the values of both; the text where there is none narrower."""
    if one == other:
        return one
    if one.element is not None and other.element is not None:
        return array_of(widened(one.element, other.element))
    names = {one.spark, other.spark}
    if names <= {"int", "bigint"}:
        return LONG
    if names <= {"float", "double", "int"}:
        return DOUBLE
    digits = [_digits(kind) for kind in (one, other)]
    if digits[0] is not None and digits[1] is not None:
        whole = max(digits[0][0], digits[1][0])
        behind = max(digits[0][1], digits[1][1])
        if whole + behind <= MAX_PRECISION:
            return decimal(whole + behind, behind)
    return STRING


def _digits(kind: ColumnType) -> tuple[int, int] | None:
    """How many digits stand before the point and behind it."""
    if pa.types.is_decimal(kind.arrow):
        return kind.arrow.precision - kind.arrow.scale, kind.arrow.scale
    return {"int": (10, 0), "bigint": (19, 0)}.get(kind.spark)


def values(texts: pa.Array, kind: ColumnType) -> tuple[pa.Array, Errors]:
    """The texts as values of the type. Where one is not, the value is null and the error says why."""
    if kind.element is not None:
        return _lists(texts, kind)
    if kind == STRING:
        return texts, {}
    convert = _converters.get(kind.spark) or _cast_to(kind)
    errors: Errors = {}
    parts = list(_converted(texts, convert, kind, 0, errors))
    return (parts[0] if len(parts) == 1 else pa.concat_arrays(parts)), errors


def _converted(
    texts: pa.Array, convert: Callable[[pa.Array], pa.Array], kind: ColumnType, first: int, errors: Errors
) -> Iterator[pa.Array]:
    """All at once, and by halves where that fails, so that few bad values cost little."""
    try:
        yield convert(texts)
    except (pa.ArrowInvalid, ValueError):
        if len(texts) == 1:
            errors[first] = f"{_short(texts[0].as_py())} is not a value that {kind.spark} can hold"
            yield pa.nulls(1, kind.arrow)
            return
        middle = len(texts) // 2
        yield from _converted(texts[:middle], convert, kind, first, errors)
        yield from _converted(texts[middle:], convert, kind, first + middle, errors)


def _short(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "...")


def _cast_to(kind: ColumnType) -> Callable[[pa.Array], pa.Array]:
    return lambda texts: pc.cast(texts, kind.arrow)


def _booleans(texts: pa.Array) -> pa.Array:
    return pc.starts_with(texts, "t")


def _bytes(texts: pa.Array) -> pa.Array:
    return pa.array([None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()], pa.binary())


_converters: Mapping[str, Callable[[pa.Array], pa.Array]] = {"boolean": _booleans, "binary": _bytes}


def _lists(texts: pa.Array, kind: ColumnType) -> tuple[pa.Array, Errors]:
    element = kind.element or STRING
    flat: list[str | None] = []
    owners: list[int] = []
    lists: list[list[int] | None] = []
    errors: Errors = {}
    for row, text in enumerate(texts.to_pylist()):
        if text is None:
            lists.append(None)
            continue
        try:
            items = array_items(text)
        except ValueError as error:
            errors[row] = f"{_short(text)} {error}"
            lists.append(None)
            continue
        lists.append([len(flat), len(flat) + len(items)])
        flat.extend(items)
        owners.extend([row] * len(items))
    elements, wrong = values(pa.array(flat, pa.string()), element)
    for item, what in wrong.items():
        errors.setdefault(owners[item], what)
    offsets: list[int | None] = []
    at = 0
    for span in lists:
        offsets.append(None if span is None else span[0])
        at = at if span is None else span[1]
    return pa.ListArray.from_arrays(pa.array([*offsets, at], pa.int32()), elements), errors


_BOUNDS = re.compile(r"^(?:\[-?\d+:-?\d+\])+=")
_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def array_items(text: str) -> list[str | None]:
    """The elements of an array as PostgreSQL writes it. A ValueError when it has more than one dimension."""
    body = _BOUNDS.sub("", text)[1:-1]
    if body.startswith("{"):
        raise ValueError("is an array of several dimensions, and the column has one")
    items: list[str | None] = []
    for match in _ITEM.finditer(body):
        if match[2] is None:
            items.append(_ESCAPED.sub(r"\1", match[1]))
        else:
            items.append(None if match[2] == "NULL" else match[2])
    return items
