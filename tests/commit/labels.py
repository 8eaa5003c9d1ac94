"""States that differ in labels only: which snapshot has which id, where sequence numbers and epochs began, who had which name.

The loop and the table compare ids and names for equality, and sequence numbers, epochs and versions by their order and by
adding one. So a renaming of ids and names, and a shift of the numbers, turns every possible future of a state into one of the
renamed state. The search keeps one of each such family. That the loop keeps to this is checked whenever a renamed instance is
made: its loop is run anew on renamed replies, and must arrive where the renaming says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from commit.instances import NEWCOMER, SINK, Ended, Frame, Glance, Instance, Opening, Program, Running, running
from commit.memory_table import Base, Compare, Metadata, Request, Snapshot
from frazil.commit.protocol import Apply, Intent, NewSnapshot, Swap, TableView
from frazil.model.commit import SinkState

PLACES = "abcd"
FRESH = 500_000
"""The id of a snapshot that was just built; nobody else has it."""
UNKNOWN = 1_000_000
"""Added to ids that play no part any more."""
NOW = 100
"""The table's last sequence number, version and epoch in a renamed state."""

V = TypeVar("V", TableView, Glance)


@dataclass
class Labels:
    """The ids and names of a value, in the order in which they were met. ``fixed``: it was made where no ledger was."""

    ids: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    fixed: bool = False

    def id(self, value: int) -> int:
        """Notes an id."""
        self.ids.append(value)
        return value

    def name(self, value: str) -> str:
        """Notes a name."""
        self.names.append(value)
        return value

    def sequence(self, value: int) -> int:
        """Sequence numbers need no notes."""
        return value

    def epoch(self, value: int) -> int:
        """Nor do epochs."""
        return value

    def version(self, value: int) -> int:
        """Nor do versions."""
        return value


class Shift(NamedTuple):
    """How far numbers move so that the table's become ``NOW``.

    Epochs stay while anybody holds a view without a ledger: the epoch that follows such a view is 1, whatever the others are.
    """

    sequences: int
    epochs: int
    versions: int

    @classmethod
    def of(cls, metadata: Metadata, *, fixed: bool) -> Shift:
        """The shift for this table."""
        ledger = metadata.ledger(SINK)
        epochs = 0 if fixed or ledger is None else ledger.epoch - NOW
        return cls(metadata.last_sequence - NOW, epochs, metadata.version - NOW)


@dataclass(frozen=True)
class Renaming:
    """New labels for old ones. It has an answer for every label: replies of long ago may hold some that nobody else does."""

    ids: dict[int, int]
    names: dict[str, str]
    shift: Shift

    @classmethod
    def of(cls, shift: Shift, occupants: Iterable[str | None], labels: Iterable[Labels]) -> Renaming:
        """To the canonical labels: ids in the order of meeting, instances by their place, the dead by number."""
        ids: dict[int, int] = {}
        names = {name: PLACES[place] for place, name in enumerate(occupants) if name is not None}
        dead = 0
        for met in labels:
            for number in met.ids:
                if number not in ids:
                    ids[number] = len(ids) + 1
            for name in met.names:
                if name not in names:
                    dead += 1
                    names[name] = f"dead{dead}"
        return cls(ids, names, shift)

    def id(self, value: int) -> int:
        """The new id."""
        return self.ids.get(value, value + UNKNOWN)

    def name(self, value: str) -> str:
        """The new name."""
        return self.names.get(value, f"{value}?")

    def sequence(self, value: int) -> int:
        """The new sequence number."""
        return value - self.shift.sequences

    def epoch(self, value: int) -> int:
        """The new epoch."""
        return value - self.shift.epochs

    def version(self, value: int) -> int:
        """The new version. One that is not the table's never will be again, and which one it is does not matter."""
        return NOW if value == self.shift.versions + NOW else NOW - 1


NO_SHIFT = Shift(0, 0, 0)


class Faceless(Renaming):
    """Takes ids and names away altogether: what is left tells who comes first where two instances may exchange their places."""

    def id(self, value: int) -> int:
        """No id."""
        return 0

    def name(self, value: str) -> str:
        """No name."""
        return ""


class Christening(Renaming):
    """Gives new ones an id or a name, and leaves all others as they are."""

    @classmethod
    def among(cls, labels: Iterable[Labels]) -> Christening:
        """With an id and a name that nobody has."""
        met = list(labels)
        ids = {value for each in met for value in each.ids}
        names = {value for each in met for value in each.names}
        free = next(number for number in range(1, FRESH) if number not in ids)
        unheard = next(name for number in range(1, FRESH) if (name := f"instance{number}") not in names)
        return cls({FRESH: free}, {NEWCOMER: unheard}, NO_SHIFT)

    def id(self, value: int) -> int:
        """The new id of a new snapshot."""
        return self.ids.get(value, value)

    def name(self, value: str) -> str:
        """The new name of a newcomer."""
        return self.names.get(value, value)

    def version(self, value: int) -> int:
        """The version as it is: versions have no labels."""
        return value


@dataclass(frozen=True)
class Relabeller:
    """Notes or changes the labels of values; ``use`` decides which of the two."""

    compare: Compare
    use: Labels | Renaming

    def metadata(self, metadata: Metadata) -> Metadata:
        """The table."""
        head, ledger = self._id(metadata.head), self.ledger(metadata.ledger(SINK))
        in_order = sorted(metadata.snapshots, key=lambda snapshot: (-snapshot.sequence, snapshot.rows, snapshot.id))
        return Metadata(
            uuid=metadata.uuid,
            version=self.use.version(metadata.version),
            last_sequence=self.use.sequence(metadata.last_sequence),
            head=head,
            snapshots=frozenset([self.snapshot(snapshot) for snapshot in in_order]),
            ledgers=frozenset() if ledger is None else frozenset({(SINK, ledger)}),
        )

    def ledger(self, state: SinkState | None) -> SinkState | None:
        """A ledger's entry; the first has no snapshot until it has one."""
        if state is None:
            return None
        named = replace(state, epoch=self.use.epoch(state.epoch), instance=self.use.name(state.instance))
        if not state.snapshot:
            return named
        return named.in_snapshot(self.use.id(state.snapshot), self.use.sequence(state.sequence))

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot."""
        number, parent = self.use.id(snapshot.id), self._id(snapshot.parent)
        return Snapshot(number, parent, self.use.sequence(snapshot.sequence), snapshot.rows)

    def request(self, request: Request) -> Request:
        """A compare-and-swap on its way."""
        snapshot = None if request.snapshot is None else self.snapshot(request.snapshot)
        state = self.ledger(request.state) or request.state
        return replace(request, base=self._base(request.base), snapshot=snapshot, state=state)

    def intent(self, intent: Intent) -> Intent:
        """What an instance wants."""
        epoch = None if intent.epoch is None else self.use.epoch(intent.epoch)
        return replace(intent, instance=self.use.name(intent.instance), epoch=epoch)

    def frame(self, frame: Frame) -> Frame:
        """The local variables of a loop."""
        effect, variables = frame
        return effect, tuple((name, self._variable(name, value)) for name, value in variables)

    def reply(self, reply: Any) -> Any:
        """What a loop got as replies, or keeps."""
        match reply:
            case TableView():
                number = 0 if reply.head is None else self.use.sequence(reply.head_sequence)
                return replace(self._glance(reply), head_sequence=number, state=self.ledger(reply.state))
            case Glance():
                return self._glance(reply)
            case NewSnapshot():
                handle = self.snapshot(reply.handle)
                return NewSnapshot(handle.id, handle.sequence, handle.parent, handle)
            case SinkState():
                return self.ledger(reply)
            case _:
                return reply

    def _variable(self, name: str, value: Any) -> Any:
        if name == "seen" and value is not None:
            head, next_sequence = value
            return self._id(head), self.use.sequence(next_sequence)
        return self.reply(value)

    def _glance(self, view: V) -> V:
        return replace(
            view,
            head=self._id(view.head),
            next_sequence=self.use.sequence(view.next_sequence),
            base=self._base(view.base),
        )

    def _id(self, value: int | None) -> int | None:
        return None if value is None else self.use.id(value)

    def _base(self, base: Base) -> Base:
        uuid, at = base
        if at is None or self.compare is not Compare.METADATA:
            return uuid, self._id(at)
        return uuid, self.use.version(at)


def labels_of(value: Metadata | Instance | Request, compare: Compare) -> Labels:
    """The labels that a part of a state holds."""
    labels = Labels()
    note = Relabeller(compare, labels)
    match value:
        case Metadata():
            note.metadata(value)
        case Request():
            note.request(value)
        case Running():
            note.intent(value.intent)
            note.frame(value.frame)
            labels.fixed = isinstance(value.effect, Apply | Swap) and value.effect.view.state is None
        case Opening() | Ended():
            labels.name(value.name)
    return labels


def renamed(program: Program, instance: Instance, change: Relabeller) -> Instance:
    """The instance under other labels."""
    match instance:
        case Running():
            again = running(program, change.intent(instance.intent), tuple(change.reply(reply) for reply in instance.replies))
            expected = change.frame(instance.frame)
            assert again.frame == expected, f"the loop depends on labels: {again.frame} is not {expected}"
            return again
        case Opening() | Ended():
            return replace(instance, name=change.use.name(instance.name))
        case _:
            return instance
