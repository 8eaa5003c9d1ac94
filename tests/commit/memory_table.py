"""A table and its catalog in memory: immutable metadata, one compare-and-swap, and the ways in which a catalog misleads.

The values are shared by the search over all interleavings and by :class:`MemoryPort`, which lets the real ``commit()`` run on
them. As with Iceberg's own operations, a snapshot is built on the table's head *at the time of apply*, which need not be the
head that the refresh saw.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NoReturn

from frazil.commit.protocol import (
    AttemptFailed,
    Failed,
    FailureKind,
    Intent,
    NewSnapshot,
    TableView,
)
from frazil.errors import Retryable
from frazil.model.commit import SinkState
from frazil.model.ledger import Ancestor, Lineage, lineage_of

Row = tuple[str, int]
"""Who wrote it, and which of the writer's rows it is."""

Base = tuple[str, int | None]
"""What a swap compares with: the table's UUID, and the version or the head."""


class Compare(StrEnum):
    """What a catalog compares before it swaps."""

    METADATA = "metadata"
    """The whole metadata, by its version: SQL, Hive, Glue and Hadoop catalogs."""
    BRANCH = "branch"
    """The UUID, the branch's head, and that the sequence number is a new one: REST catalogs."""
    HEAD_ONLY = "head-only"
    """The UUID and the branch's head: REST catalogs with a table of format version 1, which has no sequence numbers."""


class Fault(StrEnum):
    """How the answer to a swap misleads. All but the last two were applied."""

    LOST_REPLY = "applied, the reply is lost"
    APPLIED_409 = "applied, answered 409"
    APPLIED_5XX = "applied, answered 503"
    REFUSED = "refused, not applied"
    DELAYED = "applied later, answered with a timeout"


def _failure(kind: FailureKind, text: str) -> Failed:
    return Failed(kind, Retryable(kind.value, text))


CONFLICT = _failure(FailureKind.CONFLICT, "409")
REPLIES = {
    Fault.LOST_REPLY: _failure(FailureKind.UNKNOWN, "no reply"),
    Fault.APPLIED_409: CONFLICT,
    Fault.APPLIED_5XX: _failure(FailureKind.UNREACHABLE, "503"),
    Fault.REFUSED: _failure(FailureKind.REFUSED, "500"),
    Fault.DELAYED: _failure(FailureKind.UNKNOWN, "timeout"),
}
APPLIED = (Fault.LOST_REPLY, Fault.APPLIED_409, Fault.APPLIED_5XX)


@dataclass(frozen=True)
class Snapshot:
    """A state of the table: all rows, not only those that it adds."""

    id: int
    parent: int | None
    sequence: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Request:
    """A compare-and-swap on its way. Without a snapshot it changes the ledger only."""

    base: Base
    snapshot: Snapshot | None
    sink_id: str
    state: SinkState


@dataclass(frozen=True)
class Metadata:
    """One version of the table's metadata."""

    uuid: str = "table-1"
    version: int = 0
    last_sequence: int = 0
    head: int | None = None
    snapshots: frozenset[Snapshot] = frozenset()
    ledgers: frozenset[tuple[str, SinkState]] = frozenset()

    def snapshot(self, snapshot_id: int | None) -> Snapshot | None:
        """The snapshot, unless it has expired."""
        return next((snapshot for snapshot in self.snapshots if snapshot.id == snapshot_id), None)

    def branch(self) -> Iterator[Snapshot]:
        """The head and its ancestors, as far as they have not expired."""
        at = self.snapshot(self.head)
        while at is not None:
            yield at
            at = self.snapshot(at.parent)

    @property
    def rows(self) -> tuple[Row, ...]:
        """What a reader sees."""
        head = self.snapshot(self.head)
        return head.rows if head else ()

    def ledger(self, sink_id: str) -> SinkState | None:
        """The property of this sink."""
        return dict(self.ledgers).get(sink_id)

    def view(self, sink_id: str, compare: Compare) -> TableView:
        """What a refresh sees."""
        head, state = self.snapshot(self.head), self.ledger(sink_id)
        branch = (Ancestor(snapshot.id, snapshot.sequence, snapshot.parent) for snapshot in self.branch())
        return TableView(
            table_uuid=self.uuid,
            head=self.head,
            head_sequence=head.sequence if head else 0,
            state=state,
            lineage=Lineage.CURRENT if state is None else lineage_of(state, branch),
            base=self.base(compare),
            next_sequence=self.last_sequence + 1,
        )

    def base(self, compare: Compare) -> Base:
        """What a swap that begins here will compare with."""
        return self.uuid, self.version if compare is Compare.METADATA else self.head

    def child(self, snapshot_id: int, added: Iterable[Row]) -> Snapshot:
        """A new snapshot on the head; nothing is part of the table yet."""
        return Snapshot(snapshot_id, self.head, self.last_sequence + 1, tuple(sorted((*self.rows, *added))))

    def accepts(self, request: Request, compare: Compare) -> bool:
        """Whether the compare-and-swap would be applied now."""
        if request.snapshot is None and compare is not Compare.METADATA:
            return request.base[0] == self.uuid  # a REST catalog guards the branch only where the branch is moved
        return request.base == self.base(compare) and not self._outdated(request, compare)

    def never_accepts(self, request: Request, compare: Compare) -> bool:
        """Whether the request can be forgotten: versions and sequence numbers never go back."""
        if request.base[0] != self.uuid:
            return True
        if compare is Compare.METADATA:
            return request.base != self.base(compare)
        return self._outdated(request, compare)

    def _outdated(self, request: Request, compare: Compare) -> bool:
        return compare is Compare.BRANCH and request.snapshot is not None and request.snapshot.sequence <= self.last_sequence

    def swapped(self, request: Request) -> Metadata:
        """The metadata after an accepted request: snapshot and ledger together."""
        ledgers = dict(self.ledgers) | {request.sink_id: request.state}
        changed = replace(self, version=self.version + 1, ledgers=frozenset(ledgers.items()))
        return changed if request.snapshot is None else changed.on(request.snapshot)

    def on(self, snapshot: Snapshot) -> Metadata:
        """This metadata with the branch at a new snapshot."""
        return replace(self, head=snapshot.id, last_sequence=snapshot.sequence, snapshots=self.snapshots | {snapshot})

    def appended(self, snapshot_id: int, row: Row) -> Metadata:
        """After a foreign writer's append."""
        return replace(self.on(self.child(snapshot_id, [row])), version=self.version + 1)

    def rolled_back(self, to: int) -> Metadata:
        """After somebody has set the branch back; properties and sequence numbers stay as they are."""
        return replace(self, head=to, version=self.version + 1)

    def expired(self, gone: frozenset[Snapshot]) -> Metadata:
        """After an expiry."""
        return replace(self, snapshots=self.snapshots - gone, version=self.version + 1)

    def abandoned(self) -> frozenset[Snapshot]:
        """The snapshots that are not part of the branch."""
        return self.snapshots - frozenset(self.branch())

    def all_but_the_head(self) -> frozenset[Snapshot]:
        """The snapshots that an expiry may take at most."""
        return frozenset(snapshot for snapshot in self.snapshots if snapshot.id != self.head)


@dataclass
class MemoryCatalog:
    """The one place where the metadata changes. ``faults`` are used up by the swaps that follow, None for an honest answer."""

    compare: Compare = Compare.BRANCH
    metadata: Metadata = field(default_factory=Metadata)
    faults: deque[Fault | None] = field(default_factory=deque)
    in_flight: list[Request] = field(default_factory=list)
    ids: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000_000)))
    tables: int = 1

    def recreate(self) -> None:
        """Drops the table and makes an empty one of the same name."""
        self.tables += 1
        self.metadata = Metadata(uuid=f"table-{self.tables}")

    def append(self, row: Row) -> None:
        """A foreign writer's append."""
        self.metadata = self.metadata.appended(next(self.ids), row)

    def rollback(self, to: int) -> None:
        """Somebody sets the branch back."""
        self.metadata = self.metadata.rolled_back(to)

    def expire(self) -> None:
        """Removes every snapshot but the head."""
        self.metadata = self.metadata.expired(self.metadata.all_but_the_head())

    def expire_abandoned(self) -> None:
        """Removes the snapshots that are not part of the branch."""
        self.metadata = self.metadata.expired(self.metadata.abandoned())

    def receive(self, request: Request) -> bool:
        """Applies a request if its base still holds."""
        if not self.metadata.accepts(request, self.compare):
            return False
        self.metadata = self.metadata.swapped(request)
        return True

    def settle(self, which: int) -> bool:
        """A delayed request arrives after all."""
        return self.receive(self.in_flight.pop(which))

    def port(self, sink_id: str) -> MemoryPort:
        """The commit loop's side of the table."""
        return MemoryPort(self, sink_id)


@dataclass
class MemoryPort:
    """:class:`frazil.commit.protocol.TablePort` over the memory catalog. An intent's change is a tuple of rows."""

    catalog: MemoryCatalog
    sink_id: str

    def refresh(self) -> TableView:
        """Step 1."""
        return self.catalog.metadata.view(self.sink_id, self.catalog.compare)

    def apply(self, view: TableView, intent: Intent, state: SinkState) -> NewSnapshot:
        """Step 6."""
        snapshot = self.catalog.metadata.child(next(self.catalog.ids), intent.change or ())
        return NewSnapshot(snapshot.id, snapshot.sequence, snapshot.parent, snapshot)

    def swap(self, view: TableView, snapshot: NewSnapshot, intent: Intent, state: SinkState) -> None:
        """Step 7."""
        request = Request(view.base, snapshot.handle, self.sink_id, state)
        fault = self.catalog.faults.popleft() if self.catalog.faults else None
        if fault is Fault.DELAYED:
            self.catalog.in_flight.append(request)
        elif fault is not Fault.REFUSED and not self.catalog.receive(request):
            raise_failed(CONFLICT)
        if fault is not None:
            raise_failed(REPLIES[fault])


def raise_failed(failed: Failed) -> NoReturn:
    """The outcome as a port tells it."""
    raise AttemptFailed(failed.kind, failed.error, final=failed.final)
