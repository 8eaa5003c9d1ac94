"""What can happen next: the steps of the instances, of the catalog, and of everybody else.

A step of an instance depends on the instance and the table alone, so that each is worked out once and then looked up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from commit.instances import SINK, Down, Instance, Opening, Outcome, Program, Running, index_of, opened, rows_of, started, told
from commit.labels import FRESH
from commit.memory_table import APPLIED, CONFLICT, REPLIES, Compare, Fault, Metadata, Request, Snapshot
from commit.promises import Table, wrong_verdict, wrong_with_request
from frazil.commit.protocol import Apply, Failed, NewSnapshot, Refresh, Swap

FOREIGN = "foreign"
T = TypeVar("T")


@dataclass(frozen=True)
class Scenario:
    """What takes part in a search, and how often each thing may happen."""

    program: Program = field(default_factory=Program)
    compare: Compare = Compare.BRANCH
    instances: int = 2
    faults: int = 2
    kinds: frozenset[Fault] = frozenset(Fault)
    crashes: bool = True
    appends: int = 1
    rollbacks: int = 1
    expiries: int = 1
    recreations: int = 0
    claim_moves_the_branch: bool = True
    empty: bool = False


class Step(NamedTuple):
    """What one instance may do: where it leads, what it sends on its way, what it costs, and what is wrong with it."""

    label: str
    table: int
    instance: int
    sent: int | None = None
    faults: int = 0
    breach: str | None = None


class Change(NamedTuple):
    """What somebody else may do to the table; ``kind`` is the place in the budget."""

    kind: str
    label: str
    table: int


@dataclass
class Kept(Generic[T]):
    """Values that are kept once and stand for numbers."""

    values: list[T] = field(default_factory=list)
    numbers: dict[Hashable, int] = field(default_factory=dict)

    def number(self, value: T, key: Hashable) -> int:
        """The number of a value, or of one with the same key that came before."""
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.values)
            self.values.append(value)
        return found


class World:
    """The tables, instances and requests of one scenario, and the steps between them."""

    def __init__(self, scenario: Scenario, *, exact: bool = False) -> None:
        self.scenario = scenario
        self.program = scenario.program
        self.exact = exact
        self.tables, self.instances, self.requests = Kept[Table](), Kept[Instance](), Kept[Request]()
        self._steps: dict[tuple[int, int], list[Step]] = {}
        self._answered: dict[tuple[int, int], int] = {}
        self._changes: dict[int, list[Change]] = {}
        self._landed: dict[tuple[int, int], tuple[int, str | None] | None] = {}

    def first_table(self) -> int:
        """The table before anything happens: with one foreign row, or empty."""
        if self.scenario.empty:
            return self.table(Table(Metadata(), frozenset()))
        return self.table(Table(Metadata().appended(1, (FOREIGN, 0)), frozenset({(FOREIGN, 0)})))

    def table(self, table: Table) -> int:
        """The number of a table."""
        return self.tables.number(table, table)

    def instance(self, instance: Instance) -> int:
        """The number of an instance."""
        if not isinstance(instance, Running):
            return self.instances.number(instance, instance)
        return self.instances.number(instance, (instance.intent, instance.replies) if self.exact else instance.key)

    def request(self, request: Request) -> int:
        """The number of a request."""
        return self.requests.number(request, request)

    # ---- the instances

    def steps(self, table: int, instance: int) -> list[Step]:
        """All that an instance may do at a table."""
        found = self._steps.get((table, instance))
        if found is None:
            found = self._steps[table, instance] = list(self._work_out(table, self.instances.values[instance]))
        return found

    def _work_out(self, at: int, instance: Instance) -> Iterator[Step]:
        metadata = self.tables.values[at].metadata
        match instance:
            case Down():
                yield Step("starts", at, self.instance(started(self.program, metadata.uuid)))
            case Opening():
                for after in opened(self.program, instance, metadata.view(SINK, self.scenario.compare)):
                    yield Step("loads the table", at, self.instance(after))
                yield from self._crash(at)
            case Running():
                match instance.effect:
                    case Refresh():
                        yield from self._steps_after("refreshes", instance, at, metadata.view(SINK, self.scenario.compare))
                    case Apply():
                        snapshot = metadata.child(FRESH, rows_of(instance.intent.batch))
                        built = NewSnapshot(snapshot.id, snapshot.sequence, snapshot.parent, snapshot)
                        yield from self._steps_after("builds a snapshot", instance, at, built)
                    case Swap():
                        yield from self._swap(at, instance, instance.effect)
                yield from self._crash(at)

    def _swap(self, at: int, instance: Running, swap: Swap) -> Iterator[Step]:
        kinds, down = self.scenario.kinds, self.instance(Down(begun=True))
        request = self.request(self._requested(swap))
        what = f"swaps in {_name(instance)}"
        landed = self.landed(at, request)
        if instance.intent.table_uuid != swap.view.table_uuid:
            yield Step(what, at, down, breach=f"{instance.name} writes to a table that it did not open")
            return
        if landed is None:
            yield from self._steps_after(f"{what}: answered 409", instance, at, CONFLICT)
        else:
            after, breach = landed
            yield from self._steps_after(f"{what}: applied", instance, after, None, breach)
            for fault in APPLIED:
                if fault in kinds:
                    yield from self._steps_after(f"{what}: {fault}", instance, after, REPLIES[fault], breach, faults=1)
            if Fault.REFUSED in kinds:
                yield from self._steps_after(f"{what}: {Fault.REFUSED}", instance, at, REPLIES[Fault.REFUSED], faults=1)
            if self.scenario.crashes:
                yield Step(f"{what}: applied, and crashes", after, down, None, 1, breach)
        if self.may_land(at, request):
            if Fault.DELAYED in kinds:
                reply = REPLIES[Fault.DELAYED]
                yield from self._steps_after(f"{what}: {Fault.DELAYED}", instance, at, reply, sent=request, faults=1)
            if self.scenario.crashes:
                yield Step(f"{what}: on its way, and crashes", at, down, request, 1)

    def answered(self, at: int, number: int) -> int:
        """The instance itself, or the one that it becomes by an answer that is certain and changes nothing."""
        found = self._answered.get((at, number))
        if found is None:
            instance, found = self.instances.values[number], number
            if isinstance(instance, Running) and (certain := self._certain(at, instance)) is not None:
                (outcome,) = told(self.program, instance, certain)
                found = self.instance(outcome.instance)
            self._answered[at, number] = found
        return found

    def _certain(self, at: int, instance: Running) -> Failed | NewSnapshot | None:
        """The answer that an instance gets whatever happens until then.

        A swap that can never be applied is answered with 409. A snapshot that is built after others came and went has a later
        sequence number than the view says; if such a snapshot does not fit, be its parent the view's head or not, none will.
        """
        match instance.effect:
            case Swap():
                request = self.request(self._requested(instance.effect))
                return None if self.may_land(at, request) else CONFLICT
            case Apply(view=view):
                later = self.tables.values[at].metadata.last_sequence + 1
                if later <= view.next_sequence:
                    return None
                built = [
                    NewSnapshot(FRESH, later, parent, Snapshot(FRESH, parent, later, ())) for parent in (view.head, FRESH + 1)
                ]
                return None if any(self.program.guards.fits(view, snapshot) for snapshot in built) else built[1]
        return None

    def _crash(self, at: int) -> Iterator[Step]:
        if self.scenario.crashes:
            yield Step("crashes", at, self.instance(Down(begun=True)), faults=1)

    def _steps_after(
        self,
        label: str,
        instance: Running,
        at: int,
        reply: Any,
        breach: str | None = None,
        sent: int | None = None,
        faults: int = 0,
    ) -> Iterator[Step]:
        for outcome in told(self.program, instance, reply):
            wrong = breach or wrong_verdict(self.program, self.tables.values[at], instance, outcome)
            yield Step(label + _ending(outcome), at, self.instance(outcome.instance), sent, faults, wrong)

    # ---- the catalog

    def _requested(self, swap: Swap) -> Request:
        if swap.intent.batch is None and not self.scenario.claim_moves_the_branch:
            state = swap.state.in_snapshot(swap.view.head or 0, swap.view.head_sequence)
            return Request(swap.view.base, None, SINK, state)
        return Request(swap.view.base, swap.snapshot.handle, SINK, swap.state)

    def landed(self, at: int, which: int) -> tuple[int, str | None] | None:
        """The table after a request, and what is wrong with that; None if the catalog refuses it."""
        if (at, which) not in self._landed:
            table, request = self.tables.values[at], self.requests.values[which]
            if table.metadata.accepts(request, self.scenario.compare):
                after = self.table(replace(table, metadata=table.metadata.swapped(request)))
                self._landed[at, which] = after, wrong_with_request(table.metadata, request)
            else:
                self._landed[at, which] = None
        return self._landed[at, which]

    def may_land(self, at: int, which: int) -> bool:
        """Whether the catalog could still apply the request some day."""
        return not self.tables.values[at].metadata.never_accepts(self.requests.values[which], self.scenario.compare)

    # ---- everybody else

    def changes(self, at: int) -> list[Change]:
        """All that others may do to a table."""
        found = self._changes.get(at)
        if found is None:
            found = self._changes[at] = list(self._others(self.tables.values[at]))
        return found

    def _others(self, table: Table) -> Iterator[Change]:
        metadata = table.metadata
        row = (FOREIGN, len(table.foreign))
        appended = replace(table, metadata=metadata.appended(FRESH, row), foreign=table.foreign | {row})
        yield Change("appends", "the foreign writer appends", self.table(appended))
        for older in sorted(metadata.all_but_the_head(), key=lambda snapshot: snapshot.id):
            head = metadata.snapshot(metadata.head)
            if head is not None and older.sequence < head.sequence:
                lost = table.rolled_back | (set(metadata.rows) - set(older.rows))
                back = replace(table, metadata=metadata.rolled_back(older.id), rolled_back=lost, was_rolled_back=True)
                yield Change("rollbacks", f"somebody rolls the table back to rows {list(older.rows)}", self.table(back))
        expiries = {"all but the head": metadata.all_but_the_head()}
        if table.was_rolled_back:
            expiries["what is abandoned"] = metadata.abandoned()
        for what, gone in expiries.items():
            if gone or self.scenario.compare is Compare.METADATA:  # there, even what removes nothing makes a new version
                expired = replace(table, metadata=metadata.expired(gone))
                yield Change("expiries", f"an expiry removes {what}", self.table(expired))
        fresh = Table(Metadata(uuid=f"{metadata.uuid}'"), frozenset(), was_recreated=True)
        yield Change("recreations", "somebody drops the table and makes it again", self.table(fresh))


def _name(instance: Running) -> str:
    batch = instance.intent.batch
    return "its claim" if batch is None else f"rows {index_of(batch.start)} to {index_of(batch.end) - 1}"


def _ending(outcome: Outcome) -> str:
    if outcome.error is not None:
        return f", and it stops: {outcome.error.code}"
    if outcome.result is not None:
        return ", and skips what is there" if outcome.result.skipped else ", and it is done"
    return ""
