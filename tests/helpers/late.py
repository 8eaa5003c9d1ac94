"""Histories of keys that come late, shuffled and twice; and what a table has after them, without any table."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Order = tuple[int | None, ...]
KEYS = 4


@dataclass(frozen=True)
class Change:
    """A row with its place in the order; without a value it deletes its key."""

    key: int
    order: Order
    value: str | None

    @property
    def place(self) -> tuple[tuple[bool, int], ...]:
        """What is compared: part by part, and null is below everything."""
        return tuple((part is not None, part or 0) for part in self.order)


@dataclass(frozen=True)
class Case:
    """A history, and how it comes: ``batches`` of some of its changes. Those in ``cut_off`` are written twice.

    A batch that is cut off has its deletes remembered, and is not committed. It comes again as it was, or, in ``torn``, its first
    half comes as a batch of its own.
    """

    history: tuple[Change, ...]
    batches: tuple[tuple[Change, ...], ...]
    cut_off: frozenset[int] = frozenset()
    torn: frozenset[int] = frozenset()


def case(seed: int, batches: int | None = None) -> Case:
    """Inserts, updates and deletes of a few keys, shuffled or delayed, some of them twice, in so many batches of any length."""
    chance = random.Random(seed)
    places = _places(chance)
    history = tuple(
        Change(chance.randrange(KEYS), place, None if chance.random() < 0.35 and place != (None,) else f"v{number}")
        for number, place in enumerate(places)
    )
    coming = [*history, *chance.choices(history, k=chance.randint(0, len(history)))]
    furthest = chance.choice((0.0, 2.0, 5.0, 100.0))
    came = {n: chance.uniform(0, furthest) for n in range(len(coming))}
    coming = [coming[n] for n in sorted(came, key=lambda n: coming[n].place[0][1] + came[n])]
    cuts = sorted(chance.randint(0, len(coming)) for _ in range((batches or chance.randint(1, len(coming))) - 1))
    cut = tuple(tuple(coming[start:end]) for start, end in pairwise([0, *cuts, len(coming)]))
    often = chance.choice((0.0, 0.3))
    cut_off = frozenset(n for n in range(len(cut)) if chance.random() < often)
    torn = frozenset(n for n in cut_off if chance.random() < 0.5)
    return Case(history, cut, cut_off, torn)


def _places(chance: random.Random) -> list[Order]:
    """Places in the order, from the lowest on, by one or two numbers; null is the lowest of all."""
    count = chance.randint(1, 14)
    lowest = None if chance.random() < 0.3 else 0
    if chance.random() < 0.6:
        return [(n or lowest,) for n in range(count)]
    return [(n // 3, n % 3 or lowest) for n in range(count)]


def in_order(history: Iterable[Change]) -> dict[int, str]:
    """What the history leads to when it comes in its order."""
    rows: dict[int, str] = {}
    for change in sorted(history, key=lambda one: one.place):
        rows.pop(change.key, None)
        if change.value is not None:
            rows[change.key] = change.value
    return rows


def last_of_each(batch: Iterable[Change]) -> list[Change]:
    """The last change of each key in a batch."""
    last: dict[int, Change] = {}
    for change in batch:
        if change.key not in last or change.place > last[change.key].place:
            last[change.key] = change
    return list(last.values())


@dataclass
class Model:
    """A table and its tombstones as `late: ignore` keeps them."""

    rows: dict[int, Change] = field(default_factory=dict)
    tombstones: list[tuple[int, Change]] = field(default_factory=list)
    batch: int = 0

    def write(self, changes: Sequence[Change], *, cut_off: bool = False) -> int:
        """Writes a batch, or as much of it as is written when it is cut off; how many changes were superseded."""
        number = self.batch + 1
        self.tombstones = [one for one in self.tombstones if one[0] < number]
        last = last_of_each(changes)
        winners = [change for change in last if not self.is_late(change)]
        self.tombstones += [(number, change) for change in last if change.value is None]
        if cut_off:
            return 0
        for change in winners:
            self.rows.pop(change.key, None)
            if change.value is not None:
                self.rows[change.key] = change
        self.batch = number
        return len(changes) - len(winners)

    def is_late(self, change: Change) -> bool:
        """Whether the table, or a delete, has a higher place in the order for the key."""
        held = [one.place for _, one in self.tombstones if one.key == change.key]
        held += [self.rows[change.key].place] if change.key in self.rows else []
        return any(change.place < place for place in held)

    def write_all(self, one: Case) -> None:
        """Writes the batches of a case, with what is cut off in between."""
        for number, batch in enumerate(one.batches):
            if number in one.cut_off:
                self.write(batch, cut_off=True)
            if number in one.torn:
                half = len(batch) // 2
                self.write(batch[:half])
                self.write(batch[half:])
            else:
                self.write(batch)

    @property
    def values(self) -> dict[int, str | None]:
        """The rows as a reader sees them."""
        return {key: change.value for key, change in self.rows.items()}
