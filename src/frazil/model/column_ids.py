"""Which column of the source a table's column is, if the source identifies its columns by ids.

A source gives each column an id that stays when the column is renamed: `relation.number`. The table remembers under which of
its field ids each of them was written, so that a renamed column is recognised, and a column that has only taken over a name is
distinguished from the one that had it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from frazil.model.evolution import RenameColumn

COLUMNS_PREFIX = "frazil.columns."

Known = Mapping[str, tuple[int, ...]]
"""For each column of a source the ids of the fields that hold its values; the last one is where they go now."""


def columns_property(sink_id: str) -> str:
    """The table property that says which columns of its source a sink has written to which fields."""
    return f"{COLUMNS_PREFIX}{sink_id}"


def known_from_json(text: str | None) -> Known:
    """Reads the table's property; nothing is known without one."""
    return {} if text is None else {str(column): tuple(map(int, fields)) for column, fields in json.loads(text).items()}


@dataclass(frozen=True)
class ColumnIds:
    """What the table's property is to say after a batch: ``new`` columns have no field yet, only a name."""

    property: str
    known: Known
    new: Mapping[str, str] = field(default_factory=dict)

    def to_json(self, fields: Mapping[str, int]) -> str:
        """The property's text. ``fields`` are the ids that the table's columns have after the batch."""
        added = {column: (fields[name],) for column, name in self.new.items() if name in fields}
        ids = {column: (*self.known.get(column, ()), *added.get(column, ())) for column in (*self.known, *added)}
        kept = {column: [number for number in numbers if number in fields.values()] for column, numbers in ids.items()}
        return json.dumps({column: numbers for column, numbers in kept.items() if numbers}, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Following:
    """How a table follows the columns of its source.

    ``renames`` bring its columns under the source's names, one after the other. ``known`` and ``new`` are what is known then.
    ``apart`` are columns that are in the table under another name and are not renamed, with that name. ``replaced`` are names
    that another column of the source has taken over.
    """

    known: Known
    new: Mapping[str, str] = field(default_factory=dict)
    renames: tuple[RenameColumn, ...] = ()
    apart: Mapping[str, str] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()


def followed(given: Mapping[str, str], fields: Mapping[str, int], known: Known, *, renames: bool) -> Following:
    """Compares the data's columns, by name with their ids, with the table's, by name with theirs.

    With ``renames`` a column that is in the table under another name is renamed. It is not where its new name is that of a
    column that stays: that one would be mixed with it.
    """
    wanted = _wanted(given, fields, known) if renames else {}
    after = {
        **{name: number for name, number in fields.items() if number not in wanted},
        **{name: number for number, name in wanted.items()},
    }
    names = {number: name for name, number in fields.items()}
    found: dict[str, tuple[int, ...]] = {
        column: tuple(number for number in numbers if number in names) for column, numbers in known.items()
    }
    new: dict[str, str] = {}
    apart: dict[str, str] = {}
    replaced: list[str] = []
    for name, column in given.items():
        number, had = after.get(name), found.get(column, ())
        if number is None:
            new[column] = name
        elif number in had:
            found[column] = (*(one for one in had if one != number), number)
        elif _owners(number, column, known) or (renames and had and not _others(number, column, known)):
            replaced.append(name)
        else:
            found[column] = (*had, number)
        if had and number not in had and name not in replaced:
            apart[name] = names[had[-1]]
    ordered = _in_order({names[number]: name for number, name in wanted.items()}, fields)
    return Following({column: numbers for column, numbers in found.items() if numbers}, new, ordered, apart, tuple(replaced))


def _wanted(given: Mapping[str, str], fields: Mapping[str, int], known: Known) -> dict[int, str]:
    """The fields to rename, with their new names: each is that of one column, and none takes the name of one that stays."""
    stay: set[int] = set()
    wishes: dict[int, list[str]] = {}
    for name, column in given.items():
        had = [number for number in known.get(column, ()) if number in fields.values()]
        if fields.get(name) in had:
            stay.add(fields[name])
        elif had:
            wishes.setdefault(had[-1], []).append(name)
        elif name in fields and _others(fields[name], column, known):
            stay.add(fields[name])  # another relation's rows still come under this name
    wanted = {number: names[0] for number, names in wishes.items() if len(names) == 1 and number not in stay}
    while blocked := [number for number, name in wanted.items() if name in fields and fields[name] not in wanted]:
        for number in blocked:
            del wanted[number]
    return wanted


def _owners(number: int, column: str, known: Known) -> list[str]:
    """The other columns of the same relation that have values in a field."""
    return [one for one, numbers in known.items() if number in numbers and one != column and _relation(one) == _relation(column)]


def _others(number: int, column: str, known: Known) -> list[str]:
    """The columns of other relations that have values in a field."""
    return [one for one, numbers in known.items() if number in numbers and _relation(one) != _relation(column)]


def _relation(column: str) -> str:
    return column.rpartition(".")[0]


def _in_order(wanted: Mapping[str, str], have: Iterable[str]) -> tuple[RenameColumn, ...]:
    """Renames that can be made one after the other: a name is free before it is given again, by a detour where names go round."""
    left, names = dict(wanted), set(have)
    steps: list[RenameColumn] = []
    while left:
        old = next((old for old, new in left.items() if new not in names), None)
        if old is not None:
            new = left.pop(old)
        else:
            old, last = left.popitem()
            taken = {*names, *left.values(), last}
            new = next(name for number in count(1) if (name := f"{old}__{number}") not in taken)
            left[new] = last
        steps.append(RenameColumn(old, new))
        names = names - {old} | {new}
    return tuple(steps)
