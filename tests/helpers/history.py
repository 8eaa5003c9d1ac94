"""Changes that come late, twice and in any batches, and the versions that a history table has of them: without a table."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

KEYS = 4
NOTHING = (None, None)

Values = tuple[str | None, str | None]
Version = tuple[int, str | None, str | None, int, int | None, bool, str]
"""A row of the table: the key, two values, since when and until when it is valid, whether it is current, and the operation."""


Row = TypeVar("Row", bound=tuple[Any, ...])


@dataclass(frozen=True)
class Change:
    """A row as it is from a time on; without values it went. ``unsent``: the second value did not change, and is not told.

    ``place`` is where the change is in the log: of two at the same time in one batch, the one with the higher place counts.
    """

    key: int
    at: int
    place: int
    values: Values | None
    unsent: bool = False


@dataclass(frozen=True)
class Case:
    """A history, and how it comes: in batches, each of some of its changes."""

    history: tuple[Change, ...]
    batches: tuple[tuple[Change, ...], ...]


def in_time(seed: int, batches: int | None = None) -> Case:
    """Changes that come in their order, some of them at the same time, and some without a value that did not change.

    What came last comes once more now and then, as a reader sends it that has forgotten how far it was.
    """
    chance = random.Random(seed)
    history = _history(chance, same_times=True)
    cut = _cut(chance, history, batches)
    again = chance.choice((0.0, 0.5))
    coming, ended = [], 0
    for batch in cut:
        begins = max(0, ended - chance.randint(1, 4)) if chance.random() < again else ended
        ended += len(batch)
        coming.append(history[begins:ended])
    return Case(history, tuple(coming))


def late(seed: int, batches: int | None = None) -> Case:
    """Changes that come shuffled or delayed, some of them twice. Each tells the whole row."""
    chance = random.Random(seed)
    history = tuple(Change(one.key, one.at, one.place, one.values) for one in _history(chance, same_times=False))
    coming = [*history, *chance.choices(history, k=chance.randint(0, len(history)))]
    furthest = chance.choice((0.0, 3.0, 10.0, 100.0))
    came = [one.at + chance.uniform(0, furthest) for one in coming]
    in_order = tuple(coming[number] for number in sorted(range(len(coming)), key=came.__getitem__))
    return Case(history, _cut(chance, in_order, batches))


def wild(seed: int, batches: int | None = None) -> Case:
    """Changes as they should not come: late, at the same time as others, and without values that never came.

    What a table has of them depends on the batches, and on what it has when they come.
    """
    chance = random.Random(seed)
    times = chance.choice((3, 8, 20))
    history = []
    for place in range(chance.randint(1, 16)):
        values = None if chance.random() < 0.3 else (f"v{place}", f"w{place}")
        unsent = values is not None and chance.random() < 0.4
        history.append(Change(chance.randrange(KEYS), chance.randrange(times), place, values, unsent))
    coming = [*history, *chance.choices(history, k=chance.randint(0, 4))]
    chance.shuffle(coming)
    return Case(tuple(history), _cut(chance, coming, batches))


def _history(chance: random.Random, *, same_times: bool) -> tuple[Change, ...]:
    """Inserts, updates and deletes of a few keys in their order. A delete has a time of its own."""
    rows: dict[int, Values] = {}
    history: list[Change] = []
    at = 0
    for place in range(chance.randint(1, 16)):
        key = chance.randrange(KEYS)
        if key in rows and chance.random() < 0.3:
            values = None
        else:
            kept = key in rows and chance.random() < 0.5
            values = (f"v{place}", rows[key][1] if kept else chance.choice((None, f"w{place}")))
        alone = values is None or not history or history[-1].values is None
        at += chance.randint(0 if same_times and not alone else 1, 3)
        history.append(Change(key, at, place, values, unsent=values is not None and key in rows and values[1] == rows[key][1]))
        if values is None:
            del rows[key]
        else:
            rows[key] = values
    return tuple(history)


def _cut(chance: random.Random, coming: Sequence[Change], batches: int | None) -> tuple[tuple[Change, ...], ...]:
    count = batches or chance.randint(1, len(coming))
    cuts = sorted(chance.randint(0, len(coming)) for _ in range(count - 1))
    return tuple(tuple(coming[start:end]) for start, end in pairwise([0, *cuts, len(coming)]))


def in_order(history: Iterable[Change]) -> list[Version]:
    """The versions of changes that came in their order, one by one: what the table is to have, however they came."""
    last: dict[tuple[int, int], Change] = {}
    for one in sorted(history, key=lambda one: one.place):
        last[one.key, one.at] = one
    found: list[Version] = []
    for key in {one.key for one in last.values()}:
        mine = sorted((one for one in last.values() if one.key == key), key=lambda one: one.at)
        values: Values = NOTHING
        there = False
        for one, following in zip(mine, [*mine[1:], None], strict=True):
            if one.values is None:
                found.append((key, *values, one.at, one.at, False, "delete"))
            else:
                values = one.values
                until = None if following is None else following.at
                found.append((key, *values, one.at, until, until is None, "update" if there else "insert"))
            there = one.values is not None
    return in_rows(found)


def in_rows(found: Iterable[Row]) -> list[Row]:
    """Versions by their keys and times."""
    return sorted(found, key=lambda one: (one[0], one[3]))


@dataclass(frozen=True)
class _Held:
    """A version that the table has, as far as it does not follow from those beside it."""

    values: Values
    gone: bool


@dataclass
class Model:
    """A history table, written batch by batch: what was there before is all that it knows of earlier changes."""

    held: dict[int, dict[int, _Held]] = field(default_factory=dict)

    def write(self, batch: Iterable[Change]) -> None:
        """Puts the changes of a batch to the versions that there are."""
        changes = sorted(batch, key=lambda one: one.place)
        for key in {one.key for one in changes}:
            new: dict[int, Change] = {}
            for one in changes:
                if one.key == key:
                    new[one.at] = _with_sent(one, new.get(one.at))
            self.held[key] = _merged(self.held.get(key, {}), new)

    @property
    def versions(self) -> list[Version]:
        """The rows of the table."""
        found: list[Version] = []
        for key, held in self.held.items():
            times = sorted(held)
            there = False
            for at, following in zip(times, [*times[1:], None], strict=True):
                one = held[at]
                operation = "delete" if one.gone else "update" if there else "insert"
                found.append((key, *one.values, at, at if one.gone else following, not one.gone and following is None, operation))
                there = not one.gone
        return in_rows(found)


def _with_sent(one: Change, before: Change | None) -> Change:
    """A change with what an earlier one at the same time has sent, which it takes the place of."""
    if not one.unsent or one.values is None or before is None or before.values is None or before.unsent:
        return one
    return Change(one.key, one.at, one.place, (one.values[0], before.values[1]))


def _merged(held: dict[int, _Held], new: dict[int, Change]) -> dict[int, _Held]:
    made: dict[int, _Held] = {}
    known: _Held | None = None  # what the versions so far say of the second value
    row, row_is_new = None, False  # the last version that is no delete
    for at in sorted({*held, *new}):
        was, change = held.get(at), new.get(at)
        if change is None:
            assert was is not None, "one of both has the time"
            one = was
        elif change.values is None:
            one = _Held(NOTHING, gone=True)
        else:
            one = _Held(change.values, gone=False)
            if change.unsent:
                told = was or known
                one = _Held((change.values[0], None if told is None or told.gone else told.values[1]), gone=False)
        if one.gone and (change is not None or row_is_new):
            went = (
                was if change is not None and was is not None and not was.gone else row or (was if change is not None else None)
            )
            one = _Held(went.values if went is not None else one.values, gone=True)
        if change is None or not change.unsent:
            known = one
        elif was is not None:
            known = was
        if not one.gone:
            row, row_is_new = one, change is not None
        made[at] = one
    return made
