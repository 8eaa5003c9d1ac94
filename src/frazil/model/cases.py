"""Tests of a pipeline's transforms as a user writes them: rows that go in, and rows that must come out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import Field, model_validator

from frazil.model.base import InconsistencyError, Model, Problem
from frazil.model.types import ListType, MapType, StructType, Type

Row = Mapping[str, Any]
"""A row as JSON has it, without what is null."""

_NUMBERS = ("int", "long", "float", "double", "decimal")


class CaseSpec(Model):
    """A test: rows that go in, rows that must come out."""

    name: str = Field(min_length=1, description="What is tested.")
    given: tuple[dict[str, Any], ...] = Field(min_length=1, description="Rows as the source has them.")
    expect: tuple[dict[str, Any], ...] | None = Field(
        None, description="Rows that must come out, in any order; a column that is left out is null."
    )
    expect_error: str | None = Field(
        None, min_length=1, description="Code of the error with which a row must be refused, or become a dead letter."
    )

    @model_validator(mode="after")
    def _expects_something(self) -> CaseSpec:
        if self.expect is None and self.expect_error is None:
            raise InconsistencyError([Problem("a test expects something: add expect or expect_error")])
        return self


@dataclass(frozen=True)
class Differing:
    """Two rows that are probably meant to be the same: the values of a column, expected and found, where they differ."""

    expected: Row
    found: Row

    @property
    def columns(self) -> dict[str, tuple[Any, Any]]:
        """The columns in which they differ."""
        names = dict.fromkeys((*self.expected, *self.found))
        pairs = {name: (self.expected.get(name), self.found.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@dataclass(frozen=True)
class CaseDifference:
    """How the rows that came out differ from those that were expected."""

    missing: tuple[Row, ...] = ()
    unexpected: tuple[Row, ...] = ()
    differing: tuple[Differing, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.differing)


@dataclass(frozen=True)
class CaseResult:
    """What became of one test. ``error`` is what went wrong beside the rows; ``refused`` the codes of rows that were refused."""

    pipeline: str
    name: str
    given: int
    found: int
    difference: CaseDifference = CaseDifference()
    error: str | None = None
    refused: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all was as expected."""
        return not self.difference and self.error is None


def difference(expected: Sequence[Row], found: Sequence[Row]) -> CaseDifference:
    """The rows that only one side has, in any order. Those that are most alike are reported as pairs."""
    wanted, have = Counter(map(_text, expected)), Counter(map(_text, found))
    missing = [json.loads(text) for text in (wanted - have).elements()]
    unexpected = [json.loads(text) for text in (have - wanted).elements()]
    pairs: list[Differing] = []
    one_each = len(missing) == len(unexpected) == 1
    for row in list(missing):
        near = max(unexpected, key=lambda other: _alike(row, other), default=None)
        if near is not None and (one_each or _alike(row, near) > 0):
            pairs.append(Differing(row, near))
            missing.remove(row)
            unexpected.remove(near)
    return CaseDifference(tuple(missing), tuple(unexpected), tuple(pairs))


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True, ensure_ascii=False)


def _alike(one: Row, other: Row) -> int:
    return sum(name in other and other[name] == value for name, value in one.items())


def plain(row: Row, schema: StructType) -> dict[str, Any]:
    """A row in the form in which rows are compared: numbers without their type, times in UTC, nothing that is null."""
    kinds = {field.name: field.type for field in schema.fields}
    made = {name: _plain(value, kinds.get(name)) for name, value in row.items()}
    return {name: value for name, value in made.items() if value is not None}


def _plain(value: Any, kind: Type | None) -> Any:
    match value:
        case None:
            return None
        case dict() if isinstance(kind, MapType):
            return {str(key): _plain(item, kind.value) for key, item in value.items()}
        case dict():
            return plain(value, kind if isinstance(kind, StructType) else StructType(()))
        case list():
            return [_plain(item, kind.element if isinstance(kind, ListType) else None) for item in value]
        case _:
            return _scalar(value, "" if kind is None else kind.name)


def _scalar(value: Any, kind: str) -> Any:
    """A value as its column's type would have it; one that is none of that type stays as it was written."""
    try:
        if kind.startswith("timestamp"):
            moment = datetime.fromisoformat(str(value))
            return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC).isoformat()
        if kind == "date":
            return date.fromisoformat(str(value)).isoformat()
        if kind.startswith(_NUMBERS) and not isinstance(value, bool):
            return _number(Decimal(str(value)))
    except (ValueError, InvalidOperation):
        return value
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _number(Decimal(str(value)))
    return value


def _number(number: Decimal) -> int | float | str:
    """Without the zeros that do not count."""
    if not number.is_finite():
        return str(number)
    if number == number.to_integral_value():
        return int(number)
    return float(number) if Decimal(str(float(number))) == number else str(number.normalize())
