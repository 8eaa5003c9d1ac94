"""Which columns of the database a table's changes belong to: the log has names, and a name may pass from column to column.

A column has a number that it keeps for good: a new column gets the next one, and that of a dropped column is never given again.
The log lists the columns that a table had at the time of a change in the order of their numbers, without these. The catalog has
the current numbers, but columns may have been renamed, dropped and added since the change. From before, only the columns are
known that the table had when it was last looked up. A column gets a number if only one is possible.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from frazil.sources.postgres.spool import Columns, SpooledColumn

# A table of which more columns were dropped than leave so many ways to read a list is followed by names alone.
MOST_READINGS = 2_000
# Characters for the name of a column.
_SUM = 4


Named = tuple[str, int]
"""A column's name, and the number of its type."""


@dataclass(frozen=True)
class Attribute:
    """A column of the catalog. ``listed``: it is in the log as long as it exists; it may have been dropped."""

    number: int
    name: str
    type_oid: int
    listed: bool
    modifier: int = -1


@dataclass(frozen=True)
class Storage:
    """How the rows of a table are stored: a sum of its files, which are others after it was rewritten, and one of the modifiers
    of its columns' types, such as the digits of a number.
    """

    files: str
    modifiers: str

    @classmethod
    def of(cls, files: str, modifiers: Sequence[int]) -> Storage:
        """Made from the type modifiers of a table's columns."""
        return cls(files, _short_sum(",".join(map(str, modifiers))))


@dataclass(frozen=True)
class Shape:
    """The columns that a table had when it was last looked up: the table's id, the columns' numbers, and checksums of their
    names and types.

    ``last`` is the highest number that is known to have been given by then. ``storage`` describes how its rows are stored, if
    that is known.
    """

    oid: int
    last: int
    sums: Mapping[int, str]
    storage: Storage | None = None

    @classmethod
    def of(cls, oid: int, columns: Mapping[int, Named], last: int = 0) -> Shape:
        """Made from columns by their attribute numbers."""
        return cls(oid, max(last, *columns, 0), {number: _sum(column) for number, column in columns.items()})

    @classmethod
    def from_text(cls, text: str) -> Shape:
        """Reads what ``to_text`` wrote."""
        oid, last, ranges, sums = text.split(":")
        sums, _, stored = sums.partition("=")
        numbers: list[int] = []
        for one in filter(None, ranges.split(",")):
            low, _, high = one.partition("-")
            numbers += range(int(low), int(high or low) + 1)
        by_number = {number: sums[at * _SUM : (at + 1) * _SUM] for at, number in enumerate(numbers)}
        return cls(int(oid), int(last), by_number, Storage(*stored.split(".")) if stored else None)

    def to_text(self) -> str:
        """Short, since it is part of every position: `16385:6:1-3,5:t7-D6Le-0Kt1w2Ry=3f09aa.9xQa`."""
        ranges: list[tuple[int, int]] = []
        for number in self.sums:
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1] = (ranges[-1][0], number)
            else:
                ranges.append((number, number))
        texts = [str(low) if low == high else f"{low}-{high}" for low, high in ranges]
        stored = f"={self.storage.files}.{self.storage.modifiers}" if self.storage is not None else ""
        return f"{self.oid}:{self.last}:{','.join(texts)}:{''.join(self.sums.values())}{stored}"

    def may_have(self, number: int) -> bool:
        """Whether a column can have been there since: it was, or is younger."""
        return number in self.sums or number > self.last


@dataclass(frozen=True)
class NewValues:
    """Columns in which rows may have got values that the log does not carry.

    ``revealed``: those that existed before and were not in the log. ``added``: new ones. ``rewritten``: those that are new, or
    may have another type, if the whole table was rewritten since.
    """

    revealed: frozenset[int]
    added: frozenset[int]
    rewritten: frozenset[int]

    @classmethod
    def between(cls, before: Shape, now: Shape, storage: Storage) -> NewValues:
        """By what a table had, what it has, and how its rows are stored now."""
        new = now.sums.keys() - before.sums.keys()
        known = before.storage
        changed = {number for number, sum_ in now.sums.items() if before.sums.get(number) != sum_}
        if not changed and known is not None and known.modifiers != storage.modifiers:
            changed = set(now.sums)  # one of them has other digits
        return cls(
            frozenset(number for number in new if number <= before.last),
            frozenset(number for number in new if number > before.last),
            frozenset(changed if known is None or known.files != storage.files else ()),
        )


def _sum(column: Named) -> str:
    name, type_oid = column
    return _short_sum(f"{type_oid} {name}")


def _short_sum(text: str) -> str:
    return base64.urlsafe_b64encode(zlib.crc32(text.encode()).to_bytes(4))[:_SUM].decode()


@dataclass(frozen=True)
class Numbered:
    """The numbers of some columns, None for unknown ones. ``shape``: what is known from then on, if all are certain."""

    numbers: tuple[int | None, ...]
    shape: Shape | None = None


def numbered(
    oid: int,
    columns: Sequence[Named],
    catalog: Sequence[Attribute],
    before: Shape | None = None,
    chosen: Collection[int] | None = None,
) -> Numbered:
    """The numbers of a table's columns, which the log lists in this way.

    ``catalog`` has all columns as they are now, dropped ones too, ``before`` what the table had at some time before the change.
    ``chosen``: the publication lets only these columns through.
    """
    before = before if before is not None and before.oid == oid else None
    if chosen is not None:
        readings = _of_chosen(columns, [one for one in catalog if one.number in chosen], before)
    else:
        readings = _likely(columns, catalog, before)
    if not readings:
        return Numbered((None,) * len(columns))
    if len(readings) == 1:
        last = before.last if before is not None else 0
        return Numbered(readings[0], Shape.of(oid, dict(zip(readings[0], columns, strict=True)), last))
    # A column that was dropped and one that was added under its name look alike, as long as the log is behind: the one that is
    # there now is meant or will be, and whoever knows the other one finds that it was replaced.
    now = {one.name: one.number for one in catalog if one.name}
    found = [(name, set(numbers)) for (name, _), numbers in zip(columns, zip(*readings, strict=True), strict=True)]
    return Numbered(tuple(min(may) if len(may) == 1 else now.get(name) if now.get(name) in may else None for name, may in found))


def _of_chosen(columns: Sequence[Named], catalog: Sequence[Attribute], before: Shape | None) -> list[tuple[int, ...]]:
    """A publication's choice may have been another one: that it was this one must be known, or all names must be right."""
    numbers = tuple(one.number for one in catalog)
    known = before is not None and tuple(before.sums) == numbers
    right = [name for name, _ in columns] == [one.name for one in catalog]
    return [numbers] if len(numbers) == len(columns) and (known or right) else []


def _likely(columns: Sequence[Named], catalog: Sequence[Attribute], before: Shape | None) -> list[tuple[int, ...]]:
    """The columns that the names can mean: with names and types that they are known to have or to have had, if there are such."""
    readings = list(islice(_readings(len(columns), catalog, before), MOST_READINGS + 1))
    if len(readings) > MOST_READINGS:
        return _as_now(columns, catalog)
    now = {one.number: (one.name, one.type_oid) for one in catalog if one.name}
    then = before.sums if before is not None else {}

    def is_known(number: int, column: Named) -> bool:
        return now.get(number) == column or then.get(number) == _sum(column)

    return [one for one in readings if all(map(is_known, one, columns))] or readings


def _as_now(columns: Sequence[Named], catalog: Sequence[Attribute]) -> list[tuple[int, ...]]:
    """The current columns, if they have all the names, and only younger ones are missing."""
    by_name = {one.name: one.number for one in catalog if one.name}
    found = tuple(by_name[name] for name, _ in columns if name in by_name)
    missing = [one.number for one in catalog if one.listed and one.number not in found]
    right = len(found) == len(columns) and found == tuple(sorted(found))
    return [found] if right and all(number > max(found, default=0) for number in missing) else []


def _readings(count: int, catalog: Sequence[Attribute], before: Shape | None) -> Iterator[tuple[int, ...]]:
    """All sets of so many columns that the table may have had: current ones up to the youngest at that time, and some dropped
    ones.
    """
    listed = [one.number for one in catalog if one.listed]
    others = [one.number for one in catalog if not one.listed and (before is None or before.may_have(one.number))]
    for had in range(min(count, len(listed)) + 1):
        if before is not None and any(number in before.sums for number in listed[had:]):
            continue
        older = [number for number in others if had == len(listed) or number < listed[had]]
        for more in combinations(older, count - had):
            yield tuple(sorted((*listed[:had], *more)))


@dataclass(frozen=True)
class United:
    """The columns of a table from several periods as one list: each under the last name that it had.

    ``names`` has for each of these periods the names under which its columns are in the list.
    """

    columns: Columns
    names: tuple[tuple[str, ...], ...]


def united(shapes: Sequence[Columns]) -> United | None:
    """The columns of all ``shapes``, of which the newest comes first; None when two different ones would have the same name."""
    by_id: dict[str, str] = {}
    by_name: dict[str, SpooledColumn] = {}
    names: list[tuple[str, ...]] = []
    for columns in shapes:
        own: list[str] = []
        for column in columns:
            name = by_id.get(column.id or "", column.name)
            known = by_name.get(name)
            if known is not None and _differ(known, column):
                return None
            if known is None:
                by_name[name] = column
            if column.id is not None:
                by_id.setdefault(column.id, name)
            own.append(name)
        if len(set(own)) < len(own):
            return None
        names.append(tuple(own))
    return United(tuple(by_name.values()), tuple(names))


def _differ(one: SpooledColumn, other: SpooledColumn) -> bool:
    """Whether two are known to be different columns of one table. The columns of a recreated table are matched by name."""
    if one.id is None or other.id is None or one.id == other.id:
        return False
    return one.id.partition(".")[0] == other.id.partition(".")[0]
