"""The commit loop: one snapshot a batch, with the ledger in it, whatever the catalog answers.

The protocol is a generator that yields *effects* and receives their outcomes, so that the same code runs against Iceberg and
under a model checker that tries every interleaving and every fault. One attempt:

1. refresh the metadata; another table than the pinned one: stop.
2. the ledger's epoch is above this instance's, or equal with another instance: fenced, stop, delete nothing.
3. the ledger already holds the batch: done.
4. the ledger's end is not the batch's start: stop, a gap or an overlap.
5. the ledger's snapshot is no longer part of the branch: stop, somebody rolled the table back. (An expired one is fine.)
6. build a fresh snapshot on that metadata; its parent must be the head of step 1, and its sequence number the next of step 1.
7. one compare-and-swap of the metadata: the snapshot and the ledger together.
8. any failure, a conflict too, leaves the outcome unknown: wait, and go to 1. Nothing is deleted.

Assumptions: the catalog's compare-and-swap is atomic, and compares either the whole metadata or the branch's head and the
sequence number (as REST catalogs do for tables of format version 2 and later); an instance id is never used twice; a position
identifies the rows before it. Clocks play no part. ``docs/exactly-once.md`` explains what follows from the assumptions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from frazil.commit.retry import pause_seconds
from frazil.errors import Fenced, FrazilError, Halted, OutcomeUnknown, OutOfOrder, Retryable, SparkDied
from frazil.model.commit import Batch, CommitResult, Position, SinkState
from frazil.model.ledger import Lineage
from frazil.model.settings import RetrySettings


@dataclass(frozen=True)
class TableView:
    """What one refresh saw. ``base`` is the adapter's own handle to exactly that metadata.

    ``next_sequence`` is the sequence number that the table gives to its next snapshot, on whatever branch. ``beside``: the same
    of other tables that are committed together with this one.
    """

    table_uuid: str
    head: int | None
    head_sequence: int
    next_sequence: int
    state: SinkState | None
    lineage: Lineage = Lineage.CURRENT
    base: Any = None
    beside: tuple[Hashable, ...] = ()

    @property
    def place(self) -> tuple[Hashable, ...]:
        """What differs when somebody else has committed."""
        return (self.head, self.next_sequence, *self.beside)


@dataclass(frozen=True)
class Moved:
    """Another place of a source to read on from, None: the beginning. ``home_batch``: the batch that a follower has then."""

    source: str
    end: Position | None
    home_batch: int | None = None


@dataclass(frozen=True)
class Intent:
    """What an instance wants to be in the table.

    Without a batch and without an epoch it is a claim: the next epoch, taken by an empty snapshot that moves the branch, so that
    an older instance fails its compare-and-swap and then finds itself fenced. With a batch and no epoch it is both at once.
    With an epoch and no batch it is upkeep: a change that leaves the table's rows as they are, and only fits the head that it
    was made from, so that it cannot be applied twice. ``followers``: the other tables of the sink from now on, None: as before.
    ``moved``: somebody decided that the sink is to go on elsewhere.
    """

    sink_id: str
    instance: str
    at_ms: int
    epoch: int | None = None
    batch: Batch | None = None
    table_uuid: str | None = None
    change: Any = None
    followers: tuple[str, ...] | None = None
    moved: Moved | None = None


@dataclass(frozen=True)
class NewSnapshot:
    """A snapshot that is written but not part of the table yet. ``handle`` is the adapter's own."""

    snapshot: int
    sequence: int
    parent: int | None
    handle: Any = None


class FailureKind(StrEnum):
    """What is known of a failed call."""

    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"


@dataclass(frozen=True)
class Failed:
    """The outcome of an effect that did not succeed. ``final``: trying again cannot help."""

    kind: FailureKind
    error: FrazilError
    final: bool = False


@dataclass(frozen=True)
class Refresh:
    """Asks for a :class:`TableView`."""


@dataclass(frozen=True)
class Apply:
    """Asks for a :class:`NewSnapshot` on top of the view."""

    view: TableView
    intent: Intent
    state: SinkState


@dataclass(frozen=True)
class Swap:
    """Asks for one compare-and-swap; the outcome is None when it was applied for sure."""

    view: TableView
    snapshot: NewSnapshot
    intent: Intent
    state: SinkState


@dataclass(frozen=True)
class Pause:
    """Asks to wait before the next attempt."""

    failures: int
    after: Failed


Effect = Refresh | Apply | Swap | Pause
CommitProtocol = Generator[Effect, Any, CommitResult]

T = TypeVar("T")

CONFLICT_MESSAGE = "Commit conflict - table was modified concurrently"


class Done(Exception):
    """The ledger already holds what the intent wants."""


Guard = Callable[[TableView, Intent], None]


def same_table(view: TableView, intent: Intent) -> None:
    """Step 1."""
    if intent.table_uuid is not None and view.table_uuid != intent.table_uuid:
        raise Halted(
            "table-replaced",
            f"The table was dropped and made again while {intent.sink_id!r} was writing (another table UUID).",
            fix="Start the pipeline again if the new table is the one to write to.",
        )


def not_fenced(view: TableView, intent: Intent) -> None:
    """Step 2."""
    if intent.epoch is None:
        return
    if view.state is None or view.state.epoch < intent.epoch:
        raise Halted(
            "ledger-lost",
            f"The ledger of {intent.sink_id!r} was removed from the table's properties, or set back, while it was writing.",
            fix="Find out who changed the property, then start the pipeline again.",
        )
    if (view.state.epoch, view.state.instance) != (intent.epoch, intent.instance):
        raise Fenced(
            "fenced",
            f"Another instance ({view.state.instance}, epoch {view.state.epoch}) took over {intent.sink_id!r}; "
            f"this one ({intent.instance}, epoch {intent.epoch}) stops.",
            fix="Only one instance of a sink can run. Nothing is lost: the other one continues from the table.",
        )


def not_done(view: TableView, intent: Intent) -> None:
    """Step 3."""
    if view.state is None:
        return
    if intent.batch is None:
        if intent.epoch is None and view.state.instance == intent.instance:
            raise Done
    elif ledger_holds(view.state, intent.batch):
        raise Done


def contiguous(view: TableView, intent: Intent) -> None:
    """Step 4."""
    state, batch = view.state, intent.batch
    if batch is None:
        return
    end = state.end if state is not None else None
    if state is not None and end is not None:
        require_same_source(state, batch.source, intent.sink_id)
    if batch.home_batch is not None:
        _require_behind(state, batch, intent.sink_id)
    elif end != batch.start:
        raise OutOfOrder(
            "gap-or-overlap",
            f"The table ends at {end or 'the beginning'} for {intent.sink_id!r}, but the batch begins at "
            f"{batch.start or 'the beginning'}: rows would be lost or doubled.",
            fix="An old checkpoint, a second writer with the same id, or a recreated source does this. "
            "Restart the pipeline so that it continues from the table.",
        )


def _require_behind(state: SinkState | None, batch: Batch, sink_id: str) -> None:
    """A table that follows misses the batches that have no rows for it; only the order of those that it has is sure."""
    assert batch.home_batch is not None, "asked of followers only"
    if state is not None and state.home_batch >= batch.home_batch:
        raise Halted(
            "batch-differs",
            f"A table of {sink_id!r} holds batch {state.home_batch} with other rows than batch {batch.home_batch}, "
            f"which is to be written: it ends at {state.end}.",
            fix="The sink's home table was set back, or two writers use one id. Give the sink another id to begin anew.",
        )


def require_same_source(state: SinkState, source: str, sink_id: str) -> None:
    """Positions of one source mean nothing in another."""
    if state.source != source:
        raise Halted(
            "source-changed",
            f"The ledger of {sink_id!r} was written from another source ({state.source}) than this one ({source}).",
            fix="Give the sink another id to begin anew, or restore the old source.",
        )


def not_rolled_back(view: TableView, intent: Intent) -> None:
    """Step 5."""
    if view.state is not None:
        require_lineage(view.state, view.lineage, intent.sink_id)


def require_lineage(state: SinkState, lineage: Lineage, sink_id: str) -> None:
    """What the ledger says was written must be in the table."""
    if lineage is Lineage.ABANDONED:
        raise Halted(
            "rolled-back",
            f"The table was rolled back behind the last commit of {sink_id!r} (snapshot {state.snapshot}).",
            fix="Decide what the table should hold: set the branch back to that snapshot, "
            "or give the sink another id to begin anew.",
        )


def parent_is_head(view: TableView, snapshot: NewSnapshot) -> bool:
    """Step 6. The sequence number reveals a commit that was made and rolled back since: the head alone would not."""
    return snapshot.parent == view.head and snapshot.sequence == view.next_sequence


@dataclass(frozen=True)
class Guards:
    """What stands between an attempt and a wrong commit, in the order of the steps."""

    before: tuple[Guard, ...] = (same_table, not_fenced, not_done, contiguous, not_rolled_back)
    fits: Callable[[TableView, NewSnapshot], bool] = parent_is_head

    def without(self, guard: Guard) -> Guards:
        """All but one, to show what each is for."""
        return replace(self, before=tuple(kept for kept in self.before if kept is not guard))


def ledger_holds(state: SinkState, batch: Batch) -> bool:
    """Whether the ledger's last entry is this batch. A table that follows has it under the number that it has at home:

    the same part under another number was read again after the sink was moved.
    """
    same_number = batch.home_batch is None or state.home_batch == batch.home_batch
    return same_number and state.is_of(batch.source, batch.start, batch.end)


def next_state(view: TableView, intent: Intent) -> SinkState:
    """The ledger's entry after the intent; the snapshot is filled in when it is known."""
    old = view.state
    epoch = intent.epoch if intent.epoch is not None else (old.epoch if old else 0) + 1
    claimed = replace(old or SinkState(0, ""), epoch=epoch, instance=intent.instance, at_ms=intent.at_ms)
    if intent.followers is not None:
        claimed = replace(claimed, followers=intent.followers)
    if intent.moved is not None:
        # What is read once more is not to be taken for what was there.
        moved = replace(claimed, source=intent.moved.source, start=claimed.end, end=intent.moved.end, names=())
        return moved if intent.moved.home_batch is None else replace(moved, home_batch=intent.moved.home_batch, rows=0)
    if intent.batch is None:
        return claimed
    batch = intent.batch
    claimed = replace(claimed, batch=claimed.batch + 1, source=batch.source, start=batch.start, end=batch.end)
    if batch.named:
        claimed = claimed.remembering(batch.end)
    return claimed if batch.home_batch is None else replace(claimed, home_batch=batch.home_batch, rows=batch.counts.written)


def commit_protocol(intent: Intent, max_retries: int, guards: Guards | None = None) -> CommitProtocol:
    """The eight steps as a generator of effects; returns the result, or raises what stops the sink."""
    guards = guards or Guards()
    attempts = failures = 0
    swap_sent = False
    last: Failed | None = None
    seen: tuple[Hashable, ...] | None = None
    while True:
        view = yield Refresh()  # 1
        if isinstance(view, Failed):
            if view.final and last is not None and last.final and last.kind is FailureKind.REFUSED:
                raise last.error  # the catalog does not even let itself be looked at: it has refused the swap as well
            last, failures = view, failures + 1
            if _hopeless(last, failures, max_retries):
                raise _unknown(last, attempts) if swap_sent else last.error
            yield Pause(failures, last)
            continue
        try:
            for guard in guards.before:  # 1 to 5
                guard(view, intent)
        except Done:
            # A swap of this very call that was answered with an error is this call's success, not a replay.
            own = swap_sent and view.state.instance == intent.instance
            return CommitResult(view.state, skipped=not own, attempts=attempts)
        if seen is not None and seen != view.place:
            failures = 0  # somebody else's commit won: contention is not a failing catalog
        if last is not None and _hopeless(last, failures, max_retries):
            raise last.error if last.final or not swap_sent else _unknown(last, attempts)
        attempts, seen = attempts + 1, view.place
        state = next_state(view, intent)
        snapshot = yield Apply(view, intent, state)  # 6
        if isinstance(snapshot, Failed):
            last = snapshot
        elif not guards.fits(view, snapshot):
            last = Failed(FailureKind.CONFLICT, Retryable("moved", CONFLICT_MESSAGE))
        else:
            state = state.in_snapshot(snapshot.snapshot, snapshot.sequence)
            last = yield Swap(view, snapshot, intent, state)  # 7
            if last is None:
                return CommitResult(state, attempts=attempts)
            swap_sent = True
        failures += 1
        yield Pause(failures, last)  # 8


def _hopeless(last: Failed, failures: int, max_retries: int) -> bool:
    return last.final or failures > max_retries


def _unknown(last: Failed, attempts: int) -> OutcomeUnknown:
    return OutcomeUnknown(
        "outcome-unknown",
        f"After {attempts} attempts it is not known whether the batch was committed: {last.error.message}",
        fix="Start the pipeline again: it continues from what the table says.",
    )


class TablePort(Protocol):
    """The catalog's side of the loop.

    Failures are raised: an :class:`AttemptFailed` where something is known of them. A :class:`FrazilError` is taken for final
    unless it is :class:`Retryable`; :class:`Halted` and :class:`SparkDied` stop at once; anything else is unknown.
    """

    def refresh(self) -> TableView:
        """Step 1: the metadata as it is now."""

    def apply(self, view: TableView, intent: Intent, state: SinkState) -> NewSnapshot:
        """Step 6: writes the snapshot's files; nothing is part of the table yet."""

    def swap(self, view: TableView, snapshot: NewSnapshot, intent: Intent, state: SinkState) -> None:
        """Step 7: one compare-and-swap from the view's metadata, without any retry of its own."""


class AttemptFailed(Exception):
    """One call of the port did not succeed."""

    def __init__(self, kind: FailureKind, error: FrazilError, *, final: bool = False) -> None:
        super().__init__(error.message)
        self.outcome = Failed(kind, error, final)


def commit(
    port: TablePort,
    intent: Intent,
    retry: RetrySettings,
    *,
    on_failure: Callable[[Failed, int], None] = lambda _failed, _attempt: None,
    sleep: Callable[[float], object] = time.sleep,
) -> CommitResult:
    """Runs the protocol against a table until the intent is in it, or raises why it must not be."""
    protocol = commit_protocol(intent, retry.max_retries)
    effect = next(protocol)
    while True:
        reply = None
        if isinstance(effect, Pause):
            on_failure(effect.after, effect.failures)
            if not effect.after.final:
                sleep(pause_seconds(effect.after.error, retry, effect.failures))
        else:
            reply = _perform(effect, port)
        try:
            effect = protocol.send(reply)
        except StopIteration as stop:
            result: CommitResult = stop.value
            return result


def _perform(effect: Refresh | Apply | Swap, port: TablePort) -> TableView | NewSnapshot | Failed | None:
    match effect:
        case Refresh():
            return outcome_of(port.refresh)
        case Apply():
            return outcome_of(lambda: port.apply(effect.view, effect.intent, effect.state))
        case Swap():
            return outcome_of(lambda: port.swap(effect.view, effect.snapshot, effect.intent, effect.state))


def outcome_of(call: Callable[[], T]) -> T | Failed:
    """What a call of a port returns, or what is known of its failure; what stops at once is raised."""
    try:
        return call()
    except AttemptFailed as failure:
        return failure.outcome
    except (Halted, SparkDied):
        raise
    except FrazilError as error:
        return Failed(FailureKind.UNKNOWN, error, final=not isinstance(error, Retryable))
    except Exception as error:  # noqa: BLE001 - whatever it is, the outcome of the call is unknown and is looked up next
        return Failed(FailureKind.UNKNOWN, Retryable("call-failed", f"{type(error).__name__}: {error}"))
