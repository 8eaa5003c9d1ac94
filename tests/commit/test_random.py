"""Whatever happens, and in whatever order: the table holds what dictionaries in memory say, for two sinks at once.

Random walks go further than the search, with many instances, batches and faults, but do not visit everything. They run the
real ``commit()`` on the table in memory.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from commit.memory_table import Compare, Fault, MemoryCatalog, MemoryPort
from frazil.commit.protocol import Intent, NewSnapshot, TableView, commit
from frazil.errors import Halted, Retryable
from frazil.model.commit import Batch, CommitResult, SinkState, position
from frazil.model.settings import RetrySettings
from tiers import examples

SINKS = ("one", "two")
FOREIGN = "foreign"

sinks = st.sampled_from(SINKS)
faults = st.lists(st.none() | st.sampled_from(Fault), max_size=4)
crashes = st.none() | st.integers(0, 8)
choices = st.integers(0, 99)


class Crash(BaseException):
    """The process ends."""


@dataclass
class Mortal(MemoryPort):
    """A port of a process that ends before or after one of its calls."""

    calls_left: int | None = None

    def refresh(self) -> TableView:
        self._live()
        view = super().refresh()
        self._live()
        return view

    def apply(self, view: TableView, intent: Intent, state: SinkState) -> NewSnapshot:
        self._live()
        snapshot = super().apply(view, intent, state)
        self._live()
        return snapshot

    def swap(self, view: TableView, snapshot: NewSnapshot, intent: Intent, state: SinkState) -> None:
        self._live()
        super().swap(view, snapshot, intent, state)
        self._live()

    def _live(self) -> None:
        if self.calls_left is not None:
            if self.calls_left == 0:
                raise Crash
            self.calls_left -= 1


@dataclass
class Instance:
    """A process that owns a sink, or believes so."""

    name: str
    epoch: int
    at: int
    last: Batch | None = None


class Walk(RuleBasedStateMachine):
    """The model: which rows each sink may have written, what was acknowledged, what others wrote, what was rolled back."""

    @initialize(compare=st.sampled_from([Compare.BRANCH, Compare.METADATA]))
    def begin(self, compare: Compare) -> None:
        self.catalog = MemoryCatalog(compare)
        self.catalog.append((FOREIGN, 0))
        self.foreign = {0}
        self.running: dict[str, list[Instance]] = {sink: [] for sink in SINKS}
        self.acknowledged = dict.fromkeys(SINKS, 0)
        self.cut_off: dict[str, int] = {}
        self.parents: dict[int, int | None] = {}
        self.names = iter(range(1_000_000))

    @rule(sink=sinks, faults=faults, crash=crashes)
    def start(self, sink: str, faults: list[Fault | None], crash: int | None) -> None:
        """A new instance claims the sink. Those that run do not know."""
        name = f"{sink}-{next(self.names)}"
        result = self.tried(sink, Intent(sink, name, 0), faults, crash)
        if result is not None:
            at = int(result.state.end or 0)
            assert at >= self.acknowledged[sink]
            self.running[sink].append(Instance(name, result.state.epoch, at))

    @rule(sink=sinks, which=choices, size=st.integers(1, 3), faults=faults, crash=crashes)
    def write(self, sink: str, which: int, size: int, faults: list[Fault | None], crash: int | None) -> None:
        """An instance writes its next batch; one that does not come back from it is gone."""
        if not self.running[sink]:
            return
        instance = self.running[sink].pop(which % len(self.running[sink]))
        start, end = instance.at, instance.at + size
        batch = Batch("source", position(start) if start else None, position(end))
        rows = tuple((sink, row) for row in range(start, end))
        result = self.tried(sink, Intent(sink, instance.name, 0, instance.epoch, batch, change=rows), faults, crash)
        if result is not None:
            assert not result.skipped
            self.acknowledged[sink] = end
            self.running[sink].append(Instance(instance.name, instance.epoch, end, batch))

    @rule(sink=sinks, which=choices)
    def write_again(self, sink: str, which: int) -> None:
        """An instance repeats its last batch, as after a crash of whatever drives it: nothing changes."""
        again = [instance for instance in self.running[sink] if instance.last is not None]
        if not again:
            return
        instance = again[which % len(again)]
        before = self.catalog.metadata
        rows = ((sink, -1),)
        result = self.tried(sink, Intent(sink, instance.name, 0, instance.epoch, instance.last, change=rows), [], None)
        assert result is None or result.skipped
        assert self.catalog.metadata == before

    @precondition(lambda self: self.catalog.in_flight)
    @rule(which=choices)
    def arrive(self, which: int) -> None:
        """A request that was on its way arrives."""
        self.catalog.settle(which % len(self.catalog.in_flight))

    @rule()
    def append(self) -> None:
        """A foreign writer commits."""
        row = max(self.foreign, default=0) + 1
        self.catalog.append((FOREIGN, row))
        self.foreign.add(row)

    @precondition(lambda self: not self.cut_off)
    @rule()
    def expire(self) -> None:
        """Old snapshots go. (After a rollback this could bury it, which is a known limit.)"""
        self.note_parents()
        self.catalog.expire()

    @precondition(lambda self: not self.cut_off)
    @rule(which=choices)
    def roll_back(self, which: int) -> None:
        """Somebody sets the branch back. A sink whose last commit that takes away has to stop for good."""
        older = list(self.catalog.metadata.branch())[1:]
        if which % 7 or not older:  # seldom, since it ends what a sink can do
            return
        self.note_parents()
        self.catalog.rollback(older[which % len(older)].id)
        kept, at = set[int](), self.catalog.metadata.head
        while at is not None:
            kept.add(at)
            at = self.parents[at]
        self.foreign &= {row for writer, row in self.catalog.metadata.rows if writer == FOREIGN}
        for sink in SINKS:
            ledger = self.catalog.metadata.ledger(sink)
            if ledger is not None and ledger.snapshot not in kept:
                self.cut_off[sink] = len(self.rows_of(sink))

    def note_parents(self) -> None:
        """What an expiry takes away is still known here."""
        self.parents |= {snapshot.id: snapshot.parent for snapshot in self.catalog.metadata.snapshots}

    def tried(self, sink: str, intent: Intent, faults: list[Fault | None], crash: int | None) -> CommitResult | None:
        """What came of a commit; None when the instance is gone, for a reason that holds."""
        self.catalog.faults = deque(faults)
        before = self.catalog.metadata.ledger(sink)
        try:
            return commit(Mortal(self.catalog, sink, crash), intent, RetrySettings(max_retries=2), sleep=lambda _: None)
        except (Crash, Retryable):
            return None
        except Halted as halted:
            code = halted.code
        finally:
            self.catalog.faults.clear()
        replaced = before is not None and intent.epoch is not None and before.epoch > intent.epoch
        assert code == ("fenced" if replaced else "rolled-back")
        assert replaced or sink in self.cut_off
        return None

    def rows_of(self, sink: str) -> list[int]:
        """What a reader sees of a sink."""
        return sorted(row for writer, row in self.catalog.metadata.rows if writer == sink)

    @invariant()
    def the_table_holds_what_the_ledger_counts(self) -> None:
        """Each row up to the ledger's end is there once, and no other; and the end is not before what was acknowledged."""
        for sink in SINKS:
            ledger = self.catalog.metadata.ledger(sink)
            end = int(ledger.end or 0) if ledger is not None else 0
            assert end >= self.acknowledged[sink]
            assert self.rows_of(sink) == list(range(self.cut_off.get(sink, end)))

    @invariant()
    def the_rows_of_others_are_there(self) -> None:
        """No foreign row is lost or doubled, and none comes back."""
        held = Counter(row for writer, row in self.catalog.metadata.rows if writer == FOREIGN)
        assert held == Counter(self.foreign)


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None, print_blob=True)
