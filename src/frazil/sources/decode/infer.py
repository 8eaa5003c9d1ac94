"""Columns found in JSON messages: what a batch has, and how the columns that are known grow by it.

What the table has comes first: its spelling of a name is the right one, and its types say as what a value is best read. Of names
that are new the first spelling counts. A type that was found once stays. What comes later and does not fit is a bad message.
Within the batch that shows a column first, types are merged as Spark merges them: integers and fractions are doubles, anything
else that differs becomes text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from frazil.model.hidden import HIDDEN
from frazil.model.names import MOST_COLUMNS, NAME_LENGTH

Path = tuple[str | None, ...]
"""The path of names to a key; None means the elements of a list."""

BIG_INTEGER = DecimalType(38, 0)
EXACT_NUMBER = DecimalType(38, 18)
"""The type that fits every long, and also fractions. A double would lose digits of a large integer."""
DEEPEST = 30
"""How many levels of objects and lists become structs and lists. What is below stays JSON, as text."""

_PART = re.compile(r"`(?:[^`]|``)*`|OBJECT<|ARRAY<|>|[^`<>OA]+|.", re.DOTALL)
_NESTED = (StructType, ArrayType, MapType)
_IN_JSON = (BooleanType, LongType, DoubleType, StringType)
_MOMENTS = (DateType, TimestampType, TimestampNTZType)


def parse_found(text: str) -> DataType:
    """The type that Spark tells of variants, which calls a struct an object. Below the deepest level all is a variant."""
    made, depth = [], 0
    for match in _PART.finditer(text):
        part = match[0]
        opens = part in ("OBJECT<", "ARRAY<")
        if opens and depth == DEEPEST:
            made.append("VARIANT")
        elif depth < DEEPEST or (depth == DEEPEST and not opens):
            made.append("STRUCT<" if part == "OBJECT<" else part)
        depth += 1 if opens else -1 if part == ">" else 0
    return DataType.fromDDL("".join(made))


def _first_by_name(names: Sequence[str]) -> str:
    return min(names)


@dataclass(frozen=True)
class Known:
    """The columns that were found so far, and the keys that cannot become columns."""

    schema: StructType = field(default_factory=StructType)
    refused: tuple[Path, ...] = ()

    def grown(
        self,
        found: StructType,
        expected: StructType | None = None,
        *,
        first: Callable[[Sequence[str]], str] = _first_by_name,
        exactly: bool = False,
        nulls_are_text: bool = False,
    ) -> Known:
        """With what a batch has. ``expected`` are the table's columns; ``first`` tells which of several spellings came first.

        ``exactly``: a value must be of the table's type, where JSON has such values.
        """
        growth = _Growth(MOST_COLUMNS - _count(self.schema), first, exactly=exactly, nulls_are_text=nulls_are_text)
        schema = growth.struct(self.schema, expected, found, ())
        return Known(schema, tuple(growth.refused))


class _Growth:
    """Puts what is known, what the table has and what a batch has together; ``refused`` are the keys that find no place."""

    def __init__(
        self, room: int, first: Callable[[Sequence[str]], str], *, exactly: bool = False, nulls_are_text: bool = False
    ) -> None:
        self.refused: list[Path] = []
        self._room = room
        self._first = first
        self._exactly = exactly
        self._nulls_are_text = nulls_are_text

    def struct(self, known: StructType | None, expected: StructType | None, found: StructType, path: Path) -> StructType:
        """The fields that are known, and those that are found."""
        fields = {one.name: one.dataType for one in known.fields} if known is not None else {}
        wanted = {one.name: one.dataType for one in expected.fields} if expected is not None else {}
        spelled = {name.lower(): name for name in (*fields, *wanted)}
        spellings: dict[str, list[StructField]] = {}
        for one in found.fields:
            spellings.setdefault(one.name.lower(), []).append(one)
        for lower, same in spellings.items():
            names = [one.name for one in same]
            right = spelled.get(lower) or (names[0] if len(names) == 1 else self._first(names))
            for one in same:
                new = one.name not in fields and one.name not in wanted
                if one.name != right or not _may_be_a_name(one.name, path) or (new and self._room <= 0):
                    self.refused.append((*path, one.name))
                    continue
                kind = self._kind(fields.get(one.name), wanted.get(one.name), one.dataType, (*path, one.name))
                if kind is not None:
                    self._room -= new
                    fields[one.name] = kind
        return StructType([StructField(name, kind) for name, kind in fields.items()])

    def _kind(self, known: DataType | None, expected: DataType | None, found: DataType, path: Path) -> DataType | None:
        if expected is not None:
            return self._toward(known, expected, found, path)
        match known, found:
            case None, _:
                return self._settled(found)
            case StructType(), StructType():
                return self.struct(known, None, found, path)
            case ArrayType(), ArrayType():
                element = self._kind(known.elementType, None, found.elementType, (*path, None))
                return ArrayType(element or known.elementType)
            case _:
                return known

    def _toward(  # noqa: PLR0911 - one for each case
        self, known: DataType | None, expected: DataType, found: DataType, path: Path
    ) -> DataType | None:
        """The type as which values for a column of this type are read: each value is then checked separately.

        A value that is unlike the others of its column must not decide how these are read.
        """
        match expected, found:
            case _, NullType():
                return known or self._settled(found)
            case StructType(), StructType():
                return self.struct(known if isinstance(known, StructType) else None, expected, found, path)
            case MapType(), StructType():
                entries = StructType([StructField(name, expected.valueType) for name in found.names])
                return self.struct(known if isinstance(known, StructType) else None, entries, found, path)
            case ArrayType(), ArrayType():
                before = known.elementType if isinstance(known, ArrayType) else None
                element = self._kind(before, expected.elementType, found.elementType, (*path, None))
                return None if element is None else ArrayType(element)
            case _ if self._exactly and isinstance(expected, _IN_JSON):
                return expected
            case _, VariantType() if isinstance(expected, _MOMENTS) and known is not None:
                return known  # numbers and texts both may tell a moment, and which of them do was seen before
            case ((IntegerType() | LongType()), (DoubleType() | DecimalType())) if found != BIG_INTEGER:
                return EXACT_NUMBER
            case DecimalType(), DoubleType() | DecimalType():
                return StringType()
            case _:
                return self._settled(found)

    def _settled(self, found: DataType) -> DataType | None:  # noqa: PLR0911 - one for each case
        """The type of a column with such values. None when there was nothing but null, which says nothing."""
        match found:
            case NullType():
                return StringType() if self._nulls_are_text else None
            case StructType():
                if not _distinct(found.names) or _count(found) > self._room:
                    return StringType()
                fields = {one.name: self._settled(one.dataType) for one in found.fields}
                made = [StructField(name, kind) for name, kind in fields.items() if kind is not None]
                self._room -= len(made)
                return StructType(made) if made else self._settled(NullType())
            case ArrayType():
                element = self._settled(found.elementType)
                return None if element is None else ArrayType(element)
            case DecimalType():
                # Fractions have no common scale; as in Spark's own reader they are doubles. Integers stay exact.
                return BIG_INTEGER if found.scale == 0 else DoubleType()
            case VariantType():
                return StringType()
            case _:
                return found


def _may_be_a_name(name: str, path: Path) -> bool:
    return 0 < len(name) <= NAME_LENGTH and (bool(path) or not name.lower().startswith(HIDDEN))


def _count(kind: DataType) -> int:
    """How many columns there are, the fields of structs among them."""
    match kind:
        case StructType():
            return sum(1 + _count(one.dataType) for one in kind.fields)
        case ArrayType():
            return _count(kind.elementType)
        case _:
            return 0


def merged_types(known: DataType, found: DataType) -> DataType:
    """A known type with the fields that another has beside."""
    return _Growth(MOST_COLUMNS, _first_by_name)._kind(known, None, found, ()) or known


def likeness(known: DataType | None, expected: DataType | None) -> DataType | None:
    """What values of a batch are to be like: the table's type, or the one that is known. A map is an object, as JSON has it."""
    match expected, known:
        case StructType(), StructType():
            kinds = {one.name: one.dataType for one in known.fields}
            wanted = {one.name: one.dataType for one in expected.fields}
            both = {name: likeness(kinds.get(name), wanted.get(name)) for name in {**kinds, **wanted}}
            return StructType([StructField(name, kind) for name, kind in both.items() if kind is not None])
        case MapType(), _:
            return StructType([])
        case None, _:
            return known
        case _:
            return expected


def _distinct(names: list[str]) -> bool:
    """Whether Spark can distinguish fields of these names, and all names are allowed."""
    return all(0 < len(name) <= NAME_LENGTH for name in names) and len({name.lower() for name in names}) == len(names)


def carrier(known: DataType, found: DataType | None) -> DataType:
    """The type as which values are read at first. A variant keeps all digits of a number, and the original text."""
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
