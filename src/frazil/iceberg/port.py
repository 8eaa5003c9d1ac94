"""The commit loop's side of one table for one sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from frazil.commit.protocol import AttemptFailed, FailureKind, Intent, NewSnapshot, TableView
from frazil.commit.retry import takes_too_long
from frazil.iceberg.branches import head_of, seen_from, with_branch
from frazil.iceberg.changes import Append, Change, Restage, base_of
from frazil.iceberg.evolve import evolve
from frazil.iceberg.expiry import Expired, expired_in
from frazil.iceberg.faults import ICEBERG, too_early
from frazil.iceberg.jvm import Jvm, attempt_errors, fault_of
from frazil.iceberg.statistics import moved
from frazil.model.commit import SinkState, short_range, state_property, summary_of
from frazil.model.ledger import Ancestor, Lineage, ledger_entry, lineage_of
from frazil.model.maintenance import STATISTICS_ROWS, Retention, TableFigures
from frazil.model.publishing import MAIN
from frazil.version import __version__

Unreferenced = Callable[[], list[str]]


@dataclass(frozen=True)
class NextMetadata:
    """The metadata that a table is to have, and what it is compared with. ``applied`` is called when the table has it."""

    operations: Any
    base: Any
    after: Any
    applied: Callable[[], None]


class IcebergPort:
    """See :class:`frazil.commit.protocol.TablePort`.

    Each refresh opens a transaction, which is never committed: its operations work on exactly the metadata that the refresh
    saw, so that a snapshot built in it has that metadata's head as its parent. The head is that of the sink's branch.
    """

    def __init__(
        self, jvm: Jvm, address: str, table: Any, sink_id: str, *, retention: Retention | None = None, branch: str = MAIN
    ) -> None:
        self._jvm = jvm
        self._address = address
        self._table = table
        self._operations = table.operations()
        self._sink_id = sink_id
        self._property = state_property(sink_id)
        self._retention = retention
        self._branch = branch
        self.expired: Expired | None = None
        """The snapshots that went with the commit, if it is certain that it was made."""
        self.unreferenced: Unreferenced | None = None
        """Finds manifests that were written for the commit and merged into others before it: nothing ever names them."""
        self._committed: Any = None
        self._operation: Any = None

    def refresh(self) -> TableView:
        """Step 1."""
        with attempt_errors(self._address):
            self._jvm.asks("load")
            transaction = self._table.newTransaction()
            metadata = self._operations.current()
            seen = seen_from(self._jvm, with_branch(transaction, self._branch), self._branch)
            head = seen.currentSnapshot()
            text = metadata.properties().get(self._property)
            state = None if text is None else ledger_entry({self._property: str(text)}, self._sink_id)
            return TableView(
                table_uuid=str(metadata.uuid()),
                head=None if head is None else int(head.snapshotId()),
                head_sequence=0 if head is None else int(head.sequenceNumber()),
                state=state,
                lineage=Lineage.CURRENT if state is None else lineage_of(state, self._history(metadata, head)),
                base=(metadata, seen, transaction),
                next_sequence=int(metadata.nextSequenceNumber()),
            )

    def apply(self, view: TableView, intent: Intent, state: SinkState) -> NewSnapshot:
        """Step 6. A claim without a change is an append of nothing."""
        metadata, seen, transaction = view.base
        counts = intent.batch.counts if intent.batch is not None else None
        summary = summary_of(self._sink_id, state, counts, __version__)
        if intent.moved is not None:
            summary |= {"frazil.kind": "rewind", "frazil.start": short_range(state.start), "frazil.end": short_range(state.end)}
        with attempt_errors(self._address):
            if (early := too_early(int(metadata.lastUpdatedMillis()))) is not None:
                raise AttemptFailed(FailureKind.UNREACHABLE, early, final=takes_too_long(early))
            change = intent.change or Change(Append(), base_of(seen))
            self._require_fit(seen, change)
            evolve(self._jvm, transaction, change.evolution)
            snapshot = self._applied(transaction, change, {**summary, **change.summary})
        parent = snapshot.parentId()
        return NewSnapshot(
            int(snapshot.snapshotId()), int(snapshot.sequenceNumber()), None if parent is None else int(parent), snapshot
        )

    def swap(self, view: TableView, snapshot: NewSnapshot, intent: Intent, state: SinkState) -> None:
        """Step 7."""
        with attempt_errors(self._address):
            following = self.following(view, snapshot, intent, state)
            self._jvm.asks("commit")
            self._operations.commit(following.base, following.after)
            following.applied()

    def following(self, view: TableView, snapshot: NewSnapshot, intent: Intent, state: SinkState) -> NextMetadata:
        """The metadata with the snapshot and the ledger, for a swap."""
        metadata, seen, transaction = view.base
        properties = dict(intent.change.properties) if intent.change is not None else {}
        columns = intent.change.columns if intent.change is not None else None
        # The transaction's metadata has the columns and specs that `apply` added to it, if any.
        changed = transaction.table().operations().current()
        if columns is not None:
            properties[columns.property] = columns.to_json(self._jvm.field_ids(changed.schema()))
        builder = self._jvm.build_metadata_from(changed)
        builder = builder.setBranchSnapshot(snapshot.handle, self._branch)
        builder = builder.setProperties(properties | {self._property: state.to_json()})
        old: tuple[int, ...] = ()
        if self._retention is not None:
            old = expired_in(self._jvm, changed, self._retention.before_another, intent.at_ms, self._branch)
        if old:
            builder = builder.removeSnapshots([changed.snapshot(one) for one in old])
        statistics = intent.change.statistics if intent.change is not None else None
        if statistics is not None or (self._retention is not None and changed.properties().containsKey(STATISTICS_ROWS)):
            builder = moved(self._jvm, changed, builder, snapshot.handle, statistics)
        after = builder.build()

        def applied() -> None:
            if old:
                self.expired = Expired(old, seen, seen_from(self._jvm, after, self._branch))
            self._committed = after
            merged = str(snapshot.handle.summary().get("manifests-replaced") or 0)
            if self._retention is not None and merged != "0":
                operation, io = self._operation, self._table.io()
                self.unreferenced = lambda: self._jvm.leavings(transaction, operation, snapshot.handle.allManifests(io))

        return NextMetadata(self._operations, metadata, after, applied)

    def figures(self, *, with_snapshots: bool) -> TableFigures | None:
        """What the metadata of the commit says of the table, if it is certain that it was made.

        All snapshots are only counted where they are at hand: a catalog may hand them out with a request of their own.
        """
        if self._committed is None:
            return None
        snapshots = int(self._committed.snapshots().size()) if with_snapshots else None
        head = self._committed.snapshot(head_of(self._committed, self._branch))
        return TableFigures.of_summary(self._jvm.texts(head.summary()), snapshots)

    def _applied(self, transaction: Any, change: Change, summary: dict[str, str]) -> Any:
        try:
            operation = change.operation.on(transaction, change.base)
        except Restage as again:
            raise AttemptFailed(FailureKind.CONFLICT, again, final=True) from again
        if self._branch != MAIN:
            operation = operation.toBranch(self._branch)
        for key, value in summary.items():
            operation.set(key, value)
        self._operation = operation
        try:
            return operation.apply()
        except Exception as error:
            refusal = fault_of(error).find(f"{ICEBERG}ValidationException")
            if refusal is None:
                raise
            raise AttemptFailed(FailureKind.CONFLICT, change.operation.overtaken(refusal.line), final=True) from error

    def _require_fit(self, seen: Any, change: Change) -> None:
        """The ids in the staged files are those of the table only if nobody else has changed its columns or specs meanwhile."""
        if not change.base.allows(change.fits, seen):
            fits = change.fits.value
            text = f"The table was changed by somebody else while a batch was being written: its files only fit {fits}."
            raise AttemptFailed(FailureKind.CONFLICT, Restage("table-moved", text), final=True)

    def _history(self, metadata: Any, head: Any) -> Iterator[Ancestor]:
        """The head and its ancestors, as far back as they have not expired."""
        at = head
        while at is not None:
            parent = at.parentId()
            yield Ancestor(int(at.snapshotId()), int(at.sequenceNumber()), None if parent is None else int(parent))
            at = None if parent is None else metadata.snapshot(parent)
