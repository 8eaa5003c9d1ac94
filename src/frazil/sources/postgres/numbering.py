"""Which columns of the database a table's changes are about: the log tells names, and a name may pass from column to column.

A column has a number that it keeps for good: a new column gets the next one, and that of a dropped column is never given
again. The log lists the columns that a table had at the time of a change in the order of their numbers, without these. The
catalog has the numbers, but as of now: columns may have been renamed, dropped and added since. What is known of the time
before are the columns that the table had when it was last looked at. A number is given where only one column can be meant.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from frazil.sources.postgres.spool import Column, Columns

# A table of which more columns were dropped than leave so many ways to read a list is followed by names alone.
MOST_READINGS = 2_000

Numbers = tuple[int | None, ...]
"""The numbers of some columns; None where it cannot be told."""


@dataclass(frozen=True)
class Attribute:
    """A column of the catalog. ``listed``: the log has it as long as it is there, which it may not be any more."""

    number: int
    name: str
    listed: bool


@dataclass(frozen=True)
class Shape:
    """The columns that a table had when it was last looked at: of which table, their numbers, and a sum of their names.

    The names themselves are known to the process that has seen them.
    """

    oid: int
    numbers: tuple[int, ...]
    digest: str
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, oid: int, numbers: Sequence[int], names: Sequence[str]) -> Shape:
        """Of columns that are known."""
        return cls(oid, tuple(numbers), _digest(numbers, names), tuple(names))

    @classmethod
    def from_text(cls, text: str) -> Shape:
        """Reads what ``to_text`` wrote."""
        oid, ranges, digest = text.split(":")
        numbers: list[int] = []
        for one in filter(None, ranges.split(",")):
            first, _, last = one.partition("-")
            numbers += range(int(first), int(last or first) + 1)
        return cls(int(oid), tuple(numbers), digest)

    def to_text(self) -> str:
        """Short, since it is part of every position: `16385:1-3,5:1c291ca3`."""
        ranges: list[tuple[int, int]] = []
        for number in self.numbers:
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1] = (ranges[-1][0], number)
            else:
                ranges.append((number, number))
        texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
        return f"{self.oid}:{','.join(texts)}:{self.digest}"

    def is_that_of(self, numbers: Sequence[int], names: Sequence[str]) -> bool:
        """Whether these columns are the same, under the same names."""
        return self.numbers == tuple(numbers) and self.digest == _digest(numbers, names)

    def name_of(self, number: int) -> str | None:
        """What a column was called, where that is known."""
        if self.names is None or number not in self.numbers:
            return None
        return self.names[self.numbers.index(number)]

    def may_have(self, number: int) -> bool:
        """Whether a column can have been there since: it was, or is younger."""
        return number in self.numbers or number > max(self.numbers, default=0)


def _digest(numbers: Sequence[int], names: Sequence[str]) -> str:
    text = "\0".join(f"{number} {name}" for number, name in zip(numbers, names, strict=True))
    return f"{zlib.crc32(text.encode()):08x}"


def numbered(
    names: Sequence[str], catalog: Sequence[Attribute], before: Shape | None = None, chosen: Collection[int] | None = None
) -> Numbers:
    """The numbers of a table's columns, which the log lists by these names.

    ``catalog`` has all columns as they are now, dropped ones too, ``before`` what the table had at some time before the change.
    ``chosen``: the publication lets only these columns through.
    """
    if chosen is not None:
        return _of_chosen(names, [one for one in catalog if one.number in chosen], before)
    now = _as_now(names, catalog, before)
    if now is not None:
        # A column that was dropped and one that was added under its name look alike, as long as the log is behind: the one
        # that is there now is meant or will be, and whoever knows the other one finds that it was replaced.
        return now
    readings = list(islice(_readings(len(names), catalog, before), MOST_READINGS + 1))
    if not readings or len(readings) > MOST_READINGS:
        return (None,) * len(names)
    likely = [one for one in readings if before is not None and before.is_that_of(one, names)]
    likely = likely or [one for one in readings if _explained(one, names, catalog, before)] or readings
    return tuple(numbers[0] if len(set(numbers)) == 1 else None for numbers in zip(*likely, strict=True))


def _of_chosen(names: Sequence[str], catalog: Sequence[Attribute], before: Shape | None) -> Numbers:
    """A publication's choice may have been another one: that it was this one must be known, or all names must be right."""
    numbers = [one.number for one in catalog]
    if len(numbers) == len(names) and (
        (before is not None and before.numbers == tuple(numbers)) or list(names) == [one.name for one in catalog]
    ):
        return tuple(numbers)
    return (None,) * len(names)


def _as_now(names: Sequence[str], catalog: Sequence[Attribute], before: Shape | None) -> tuple[int, ...] | None:
    """The numbers if all names are those of now, and only columns are missing that may be younger."""
    by_name = {one.name: one.number for one in catalog if one.name}
    numbers = [by_name.get(name) for name in names]
    found = [number for number in numbers if number is not None]
    if len(found) < len(names) or found != sorted(found):
        return None
    missing = [one.number for one in catalog if one.listed and one.number not in found]
    return tuple(found) if all(number > max(found, default=0) and _may_miss(number, before) for number in missing) else None


def _may_miss(number: int, before: Shape | None) -> bool:
    return before is None or number not in before.numbers


def _readings(count: int, catalog: Sequence[Attribute], before: Shape | None) -> Iterator[tuple[int, ...]]:
    """All sets of so many columns that the table can have had: those of now up to the youngest of then, and some others."""
    listed = [one.number for one in catalog if one.listed]
    others = [one.number for one in catalog if not one.listed and (before is None or before.may_have(one.number))]
    for had in range(min(count, len(listed)) + 1):
        if not all(_may_miss(number, before) for number in listed[had:]):
            continue
        older = [number for number in others if had == len(listed) or number < listed[had]]
        for more in combinations(older, count - had):
            yield tuple(sorted((*listed[:had], *more)))


def _explained(numbers: Sequence[int], names: Sequence[str], catalog: Sequence[Attribute], before: Shape | None) -> bool:
    """Whether each column has a name that it is known to have or to have had."""
    now = {one.number: one.name for one in catalog if one.name}
    return all(
        name in (now.get(number), None if before is None else before.name_of(number))
        for number, name in zip(numbers, names, strict=True)
    )


@dataclass(frozen=True)
class United:
    """Columns of several times of a table's life as one list: each under the last name that it had.

    ``names`` tells for each of these times the names under which its columns are in the list.
    """

    columns: Columns
    names: tuple[tuple[str, ...], ...]


def united(shapes: Sequence[Columns]) -> United | None:
    """The columns of all ``shapes``, of which the newest comes first; None when two different ones would have the same name."""
    by_id: dict[str, str] = {}
    by_name: dict[str, Column] = {}
    names: list[tuple[str, ...]] = []
    for columns in shapes:
        own: list[str] = []
        for column in columns:
            name = by_id.get(column.id or "", column.name)
            held = by_name.get(name)
            if held is not None and _differ(held, column):
                return None
            if held is None:
                by_name[name] = column
            if column.id is not None:
                by_id.setdefault(column.id, name)
            own.append(name)
        if len(set(own)) < len(own):
            return None
        names.append(tuple(own))
    return United(tuple(by_name.values()), tuple(names))


def _differ(one: Column, other: Column) -> bool:
    """Whether two are known to be different columns of one table. A table that was made anew has columns of the same names."""
    if one.id is None or other.id is None or one.id == other.id:
        return False
    return one.id.partition(".")[0] == other.id.partition(".")[0]
