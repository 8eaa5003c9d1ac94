"""One state for all those that differ in nothing that matters.

Four things make states equal that are not the same, and none of them loses anything:

- *Labels*: ids, names, and where the numbers began (see ``labels``).
- *Places*: two instances that exchange their places.
- *What plays no part any more*: snapshots that nobody will look at, rows that cannot come back, requests that the catalog can
  never apply (see ``Canon._relevant``, ``Canon._remembered``).
- *Answers that are certain*: the answer to a swap that can never be applied is 409 whenever it is given, and it changes
  nothing. So it is given at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from commit.instances import NEWCOMER, SINK, Ended, Opening, Running
from commit.labels import FRESH, Christening, Faceless, Labels, Relabeller, Renaming, Shift, labels_of, renamed
from commit.memory_table import Compare, Metadata, Request, Snapshot
from commit.world import World
from frazil.commit.protocol import Apply, Swap
from frazil.model.commit import SinkState

TABLE, INSTANCE, REQUEST = range(3)


class Core(NamedTuple):
    """Where everybody is; the numbers stand for values that the world keeps."""

    table: int
    instances: tuple[int, ...]
    in_flight: frozenset[int]


class Canon:
    """Finds the state that stands for others. What was worked out for a part of a state is kept."""

    def __init__(self, world: World, *, exchange: bool) -> None:
        self.world = world
        self.exchange = exchange
        self._found: dict[tuple[Core, bool], Core] = {}
        self._labels: dict[tuple[int, int], Labels] = {}
        self._renamed: dict[Any, int] = {}
        self._kept: dict[Any, int] = {}
        self._faces: dict[tuple[int, int, Shift], int] = {}
        self._order: dict[Any, int] = {}

    def of(self, core: Core, *, may_roll_back: bool) -> Core:
        """The state that stands for this one. ``may_roll_back``: whether the branch can still be set back."""
        key = core, may_roll_back
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._work_out(core, may_roll_back)
        return found

    def _work_out(self, core: Core, may_roll_back: bool) -> Core:
        world = self.world
        flying = [which for which in core.in_flight if world.may_land(core.table, which)]
        instances = [world.answered(core.table, number) for number in core.instances]
        fixed = any(self._labels_of(INSTANCE, number).fixed for number in instances)
        shift = Shift.of(world.tables.values[core.table].metadata, fixed=fixed)
        if self.exchange:
            instances.sort(key=lambda number: self._face(INSTANCE, number, shift))
        occupants = [getattr(world.instances.values[number], "name", None) for number in instances]
        if len(flying) > 1:
            known = [*occupants, *self._labels_of(TABLE, core.table).names]
            flying.sort(key=lambda number: (self._face(REQUEST, number, shift), self._rank(number, known)))
        if may_roll_back:
            table = self._relevant(core.table, self._bases(instances, flying))
        else:
            table = self._remembered(self._relevant(core.table, None), instances, flying)
        labels = [self._labels_of(TABLE, table)]
        labels += [self._labels_of(INSTANCE, number) for number in instances]
        labels += [self._labels_of(REQUEST, number) for number in flying]
        renaming = Renaming.of(shift, occupants, labels)
        return Core(
            self._rename(TABLE, table, renaming),
            tuple([self._rename(INSTANCE, number, renaming) for number in instances]),
            frozenset([self._rename(REQUEST, number, renaming) for number in flying]),
        )

    def christened(self, core: Core) -> Core:
        """A state with labels for what is new, and nothing else changed."""
        labels = [self._labels_of(TABLE, core.table)]
        labels += [self._labels_of(INSTANCE, number) for number in core.instances]
        labels += [self._labels_of(REQUEST, number) for number in core.in_flight]
        change = Relabeller(self.world.scenario.compare, Christening.among(labels))
        if not any(FRESH in met.ids or NEWCOMER in met.names for met in labels):
            return core
        return Core(
            self._number(TABLE, core.table, change),
            tuple(self._number(INSTANCE, number, change) for number in core.instances),
            frozenset(self._number(REQUEST, number, change) for number in core.in_flight),
        )

    # ---- what plays no part any more

    def _bases(self, instances: list[int], flying: list[int]) -> tuple[int | None, ...]:
        """The heads on which somebody builds or has built, in the order of the builders."""
        heads: list[int | None] = [effect.view.head for effect in self._effects(instances)]
        for which in flying:
            request = self.world.requests.values[which]
            heads.append(request.snapshot.parent if request.snapshot else None)
            if self.world.scenario.compare is not Compare.METADATA:
                heads.append(request.base[1])
        return tuple(dict.fromkeys(heads))

    def _effects(self, instances: list[int]) -> Iterator[Apply | Swap]:
        for number in instances:
            instance = self.world.instances.values[number]
            if isinstance(instance, Running) and isinstance(instance.effect, Apply | Swap):
                yield instance.effect

    def _relevant(self, number: int, bases: tuple[int | None, ...] | None) -> int:
        """The table without snapshots that play no part any more.

        A refresh looks at the branch from the head down to the ledger's snapshot, and to the next older one if it is not
        there. What is still older can only be rolled back to (``bases``: unless that cannot happen any more). Of such snapshots
        with the same rows, on which nobody builds, one stands for all.
        """
        key = number, bases
        if key not in self._kept:
            table = self.world.tables.values[number]
            ledger = table.metadata.ledger(SINK)
            if ledger is not None:
                kept = _seen_by_a_refresh(table.metadata, ledger)
                if bases is not None:
                    kept += _worth_rolling_back_to(table.metadata, kept, bases)
                faded = frozenset(_faded(snapshot, ledger, bases or ()) for snapshot in kept)
                table = replace(table, metadata=replace(table.metadata, snapshots=faded))
            self._kept[key] = self.world.table(table)
        return self._kept[key]

    def _remembered(self, number: int, instances: list[int], flying: list[int]) -> int:
        """The table without the memory of foreign rows that were rolled back and that no snapshot to come can hold."""
        table = self.world.tables.values[number]
        gone = table.foreign & table.rolled_back
        if not gone:
            return number
        pending = [effect.snapshot.handle for effect in self._effects(instances) if isinstance(effect, Swap)]
        pending += [snapshot for which in flying if (snapshot := self.world.requests.values[which].snapshot)]
        gone -= {row for snapshot in pending for row in snapshot.rows}
        return self.world.table(replace(table, foreign=table.foreign - gone, rolled_back=table.rolled_back - gone))

    # ---- labels

    def _face(self, kind: int, number: int, shift: Shift) -> int:
        """A number for what an instance or a request is, ids and names aside."""
        key = kind, number, shift
        if key not in self._faces:
            blank = Relabeller(self.world.scenario.compare, Faceless({}, {}, shift))
            face: Any = self._value(kind, number)
            match face:
                case Running():
                    face = blank.intent(face.intent), blank.frame(face.frame)
                case Request():
                    face = blank.request(face)
                case Opening() | Ended():
                    face = replace(face, name="")
            self._faces[key] = self._order.setdefault(face, len(self._order))
        return self._faces[key]

    def _rank(self, request: int, known: list[str | None]) -> int:
        """Where the writer of a request stands among those who are known."""
        writer = self.world.requests.values[request].state.instance
        return known.index(writer) if writer in known else len(known)

    def _labels_of(self, kind: int, number: int) -> Labels:
        key = kind, number
        found = self._labels.get(key)
        if found is None:
            value = self._value(kind, number)
            found = self._labels[key] = labels_of(value, self.world.scenario.compare)
        return found

    def _value(self, kind: int, number: int) -> Any:
        if kind == TABLE:
            return self.world.tables.values[number].metadata
        return (self.world.instances if kind == INSTANCE else self.world.requests).values[number]

    def _rename(self, kind: int, number: int, renaming: Renaming) -> int:
        labels = self._labels_of(kind, number)
        ids = tuple(map(renaming.ids.__getitem__, labels.ids))
        names = tuple(map(renaming.names.__getitem__, labels.names))
        key = kind, number, ids, names, renaming.shift
        found = self._renamed.get(key)
        if found is None:
            change = Relabeller(self.world.scenario.compare, renaming)
            found = self._renamed[key] = self._number(kind, number, change)
        return found

    def _number(self, kind: int, number: int, change: Relabeller) -> int:
        value = self._value(kind, number)
        match value:
            case Metadata():
                return self.world.table(replace(self.world.tables.values[number], metadata=change.metadata(value)))
            case Request():
                return self.world.request(change.request(value))
            case _:
                return self.world.instance(renamed(self.world.program, value, change))


def _seen_by_a_refresh(metadata: Metadata, ledger: SinkState) -> list[Snapshot]:
    """From the head down to where the search for the ledger's snapshot ends."""
    seen = []
    for snapshot in metadata.branch():
        seen.append(snapshot)
        if snapshot.id == ledger.snapshot or snapshot.sequence < ledger.sequence:
            break
    return seen


def _worth_rolling_back_to(metadata: Metadata, seen: list[Snapshot], bases: tuple[int | None, ...]) -> list[Snapshot]:
    """The older snapshots on which somebody builds, and of the others one of each content."""
    newer = {snapshot.id for snapshot in seen}
    older = sorted((snapshot for snapshot in metadata.snapshots if snapshot.id not in newer), key=lambda each: each.id)
    others = {snapshot.rows: snapshot for snapshot in older if snapshot.id not in bases}
    return [*(snapshot for snapshot in older if snapshot.id in bases), *others.values()]


def _faded(snapshot: Snapshot, ledger: SinkState, bases: tuple[int | None, ...]) -> Snapshot:
    """The snapshot without what nobody asks: the parent of the ledger's and of older ones, and how much older those are.

    Their sequence numbers become such that equal states have them in the same order: by who builds on them.
    """
    if snapshot.id == ledger.snapshot:
        return replace(snapshot, parent=None)
    if snapshot.sequence < ledger.sequence:
        rank = bases.index(snapshot.id) if snapshot.id in bases else 9
        return replace(snapshot, parent=None, sequence=ledger.sequence - 1 - rank)
    return snapshot
