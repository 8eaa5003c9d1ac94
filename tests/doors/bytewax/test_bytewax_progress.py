"""What follows from the table's ledger and from Bytewax's state, tried on tables that are only lists."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from frazil.doors.bytewax.progress import (
    BRANCHES_REMEMBERED,
    MOST_UNSTORED,
    MOST_UNSTORED_SECONDS,
    Family,
    FlowMark,
    FlowState,
    FreshStart,
    beginning,
)
from frazil.errors import ConfigError, Halted
from frazil.model.commit import SUMMARY_RANGE_LIMIT
from tiers import examples

NAMES = count()
NEW = Family("new")


def test_a_mark_is_read_as_it_was_written() -> None:
    long = FlowMark("a", "x", 9, ("w", 8), (("v", -1), ("w", 8)), ("v", 5), cut=True, snapshots=3, seconds=7, stored=True)
    for mark in (FlowMark("a", "x", 1), long, FlowMark("b", "y", 7, snapshots=2, finished=True)):
        assert FlowMark.read(mark.position) == mark
    assert FlowMark.read(None) is None
    with pytest.raises(Halted, match="was not written from Bytewax"):
        FlowMark.read('{"batch":3}')


def test_a_mark_stays_short_enough_to_be_found_in_the_history_of_the_table() -> None:
    """A longer one stands there as a digest, from which nobody can go on."""
    mark = FlowMark("0" * 12, "0" * 8)
    for number in range(1_000_000, 1_000_100):
        flushed = replace(mark, seq=number, snapshots=number, seconds=number, finished=True)
        assert len(flushed.position) <= SUMMARY_RANGE_LIMIT
        state = FlowState("part-0", 1, mark.run, flushed.branch, number)
        mark = beginning(flushed, state, FreshStart.AUTO, NEW, f"{number:08}").mark
    assert len(mark.left) == BRANCHES_REMEMBERED


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(Halted, match="was not written by this sink"):
        FlowState.read({"last_committed_batch": 3}, "part-0", 1)
    with pytest.raises(ConfigError, match="num_partitions: it was 2"):
        FlowState.read(FlowState("part-0", 2, "a", "x", 1).to_bytewax(), "part-0", 3)


@dataclass
class Part:
    """A part on a table that is a list of flushes: the mark and the rows of each."""

    table: list[tuple[FlowMark, list[int]]] = field(default_factory=list)
    mark: FlowMark = field(default_factory=lambda: FlowMark("", ""))
    waiting: list[int] = field(default_factory=list)
    built: bool = False
    awoken: bool = False

    @property
    def ledger(self) -> FlowMark | None:
        return self.table[-1][0] if self.table else None

    @property
    def rows(self) -> list[int]:
        return [row for _, rows in self.table for row in rows]

    def build(self, state: FlowState | None, mode: FreshStart, family: Family) -> None:
        begins = beginning(self.ledger, state, mode, family, f"branch-{next(NAMES)}")
        taken = 0
        while not begins.kept(self.ledger.position if self.ledger is not None else None):
            self.table.pop()
            taken += 1
        if taken or begins.announced:
            self.table.append((begins.mark, []))
        self.mark, self.built = begins.mark, True

    def flush(self, *, snapshot: bool = False) -> None:
        if self.waiting:
            self.mark = self.mark.next(snapshot=snapshot)
            self.table.append((self.mark, self.waiting))
        elif snapshot:
            self.mark = replace(self.mark, snapshots=self.mark.snapshots + 1)
            if self.mark.cut and self.mark.snapshots == 1:
                self.table.append((self.mark, []))
        self.waiting = []

    def snapshot(self) -> FlowState:
        self.flush(snapshot=True)
        self.awoken = False
        return FlowState.at(self.mark, "part-0", 1)


@dataclass
class Bytewax:
    """An execution after another, with a recovery store as Bytewax keeps it.

    Rows are the numbers of a source that is set back to where the epoch began that is resumed from. Parts are snapshotted in
    epochs that bring rows for them, and snapshots are stored one by one. The epoch to resume from follows when all before it
    are; snapshots that were stored beyond it stay, and of each part the last before it is handed over.

    Parts without a state that have rows in the table are built at once here, as if each got a row before its epochs are stored.
    """

    parts: list[Part]
    goes_to: list[int]
    at: int = 0
    epoch: int = 1
    resume: int = 1
    execution: int = 0
    sources: dict[int, int] = field(default_factory=dict)
    unstored: list[tuple[int, int, FlowState]] = field(default_factory=list)
    stored: dict[tuple[int, int], tuple[FlowState, int]] = field(default_factory=dict)
    resumes: list[int] = field(default_factory=list)
    family: Family = NEW

    def start(self, only: int, mode: FreshStart = FreshStart.AUTO) -> None:
        """Builds what is built before the first row comes, or only the first few of that."""
        self.execution += 1
        self.resumes.append(self.resume)
        self.epoch, self.at, self.unstored = self.resume, self.sources.get(self.resume - 1, 0), []
        states = [self.handed_over(number) for number in range(len(self.parts))]
        self.family = Family(f"run-{next(NAMES)}")
        for part in self.parts:
            part.built, part.awoken, part.waiting = False, False, []
        # Those that have a state come first.
        order = sorted(range(len(self.parts)), key=lambda number: states[number] is None)
        for number in order[:only]:
            found, part = states[number], self.parts[number]
            if found is None and not part.rows:
                continue
            try:
                part.build(found[0] if found is not None else None, mode, self.family)
            except Halted as halted:
                raise Stopped(halted.code, number, found) from None
            if found is not None:
                self.family = self.family.with_resumed(part.mark.run)

    def handed_over(self, number: int) -> tuple[FlowState, int, int] | None:
        """The state of a part, with its epoch and its execution."""
        epoch = max((epoch for part, epoch in self.stored if part == number and epoch < self.resume), default=None)
        if epoch is None:
            return None
        state, execution = self.stored[number, epoch]
        return state, epoch, execution

    def is_stale(self, epoch: int, execution: int) -> bool:
        return any(resumed <= epoch for resumed in self.resumes[execution:])

    def expected(self, number: int) -> list[int]:
        return [row for row in range(self.at) if self.goes_to[row] == number]

    def send(self, *, flush: bool) -> None:
        if self.at == len(self.goes_to):
            return
        part = self.parts[self.goes_to[self.at]]
        if not part.built:
            part.build(None, FreshStart.AUTO, self.family)
        part.waiting.append(self.at)
        part.awoken = True
        self.at += 1
        if flush:
            part.flush()

    def end_epoch(self) -> None:
        self.unstored += [(self.epoch, number, part.snapshot()) for number, part in enumerate(self.parts) if part.awoken]
        self.sources[self.epoch] = self.at
        self.epoch += 1

    def store(self, number: int) -> None:
        """The oldest snapshot of a part that is not stored yet."""
        mine = [one for one in self.unstored if one[1] == number]
        if mine:
            epoch, _, state = mine[0]
            self.unstored.remove(mine[0])
            self.stored[number, epoch] = state, self.execution

    def advance(self) -> None:
        self.resume = min([epoch for epoch, _, _ in self.unstored], default=self.epoch)


class Stopped(Exception):
    """A part that was not built, and the state that it was handed."""

    def __init__(self, code: str, number: int, found: tuple[FlowState, int, int] | None) -> None:
        super().__init__(code)
        self.code, self.number, self.found = code, number, found


PARTS = 3


@dataclass(frozen=True)
class Epoch:
    """What happens in an epoch: rows, flushed at once or not, whether it ends, what is stored after it, and whether it crashes:
    before so many parts are built, when it is started again, for a second time."""

    rows: list[bool]
    ends: bool
    stored: set[int]
    advances: bool
    crashes: int | None


EPOCHS = st.builds(
    Epoch,
    rows=st.lists(st.booleans(), max_size=3),
    ends=st.sampled_from([True, True, True, False]),
    stored=st.sets(st.integers(0, PARTS - 1)),
    advances=st.booleans(),
    crashes=st.sampled_from([None, None, None, *range(PARTS + 1)]),
)


@given(st.lists(EPOCHS, max_size=25), st.lists(st.integers(0, PARTS - 1), min_size=30, max_size=30))
@settings(deadline=None, max_examples=examples(1000))
def test_every_row_is_there_once_however_often_it_crashes(epochs: list[Epoch], goes_to: list[int]) -> None:
    """It stops only where what Bytewax has stored cannot be told: after too many snapshots, or by a state that is stale."""
    flow = Bytewax([Part() for _ in range(PARTS)], goes_to)
    flow.start(PARTS)
    for epoch in epochs:
        for flush in epoch.rows:
            flow.send(flush=flush)
        _require_each_once(flow)
        if epoch.ends:
            flow.end_epoch()
        for number in epoch.stored:
            flow.store(number)
        if epoch.advances:
            flow.advance()
        if epoch.crashes is not None:
            try:
                flow.start(epoch.crashes)
                flow.start(PARTS)
            except Stopped as stopped:
                event(stopped.code)
                _require_reason(flow, stopped)
                return
        _require_each_once(flow)


def _require_each_once(flow: Bytewax) -> None:
    for number, part in enumerate(flow.parts):
        assert part.rows + part.waiting == flow.expected(number), f"part-{number}"


def _require_reason(flow: Bytewax, stopped: Stopped) -> None:
    ledger = flow.parts[stopped.number].ledger
    assert ledger is not None
    if stopped.found is None:
        assert (stopped.code, ledger.snapshots > MOST_UNSTORED) == ("state-missing", True)
        return
    _, epoch, execution = stopped.found
    assert stopped.code == "state-stale"
    assert flow.is_stale(epoch, execution)
    assert ledger.snapshots > 0
    # Somebody who knows what was stored can let it go on.
    part, expected = flow.parts[stopped.number], flow.expected(stopped.number)
    mode = FreshStart.APPEND if part.rows == expected else FreshStart.UNDO
    before = len([row for mark, rows in part.table if mark.branch != ledger.branch for row in rows])
    part.build(stopped.found[0], mode, flow.family)
    assert part.rows == (expected if mode is FreshStart.APPEND else expected[:before])


def cut_off(part: Part, *states: FlowState) -> None:
    """Resumed from each of these states, one after another, without a row."""
    for state in states:
        part.build(state, FreshStart.AUTO, Family("a", frozenset("a")))


def written(*flushes: list[int], part: Part | None = None) -> tuple[Part, list[FlowState]]:
    """A part that wrote these rows, each with a snapshot."""
    part = part or Part()
    if not part.built:
        part.build(None, FreshStart.AUTO, Family("a"))
    states = []
    for part.waiting in flushes:
        states.append(part.snapshot())
    return part, states


def test_a_stale_state_is_not_taken_for_a_flush_of_the_same_number() -> None:
    part, (first, second) = written([1], [2])
    cut_off(part, first)
    assert part.rows == [1]
    written([3], part=part)
    with pytest.raises(Halted) as caught:
        cut_off(part, second)
    assert caught.value.code == "state-stale"
    assert "from a state of an execution that was set back (flush 2)" in caught.value.message
    assert "(flushes 2 to 2)" in caught.value.message
    assert part.rows == [1, 3]


@pytest.mark.parametrize(("mode", "rows"), [(FreshStart.UNDO, [1]), (FreshStart.APPEND, [1, 3])])
def test_somebody_can_say_what_becomes_of_rows_after_a_stale_state(mode: FreshStart, rows: list[int]) -> None:
    part, (first, second) = written([1], [2])
    cut_off(part, first)
    _, (third,) = written([3], part=part)
    family = Family("a", frozenset("a"))
    part.build(second, mode, family)
    assert part.rows == rows
    written([4], part=part)
    cut_off(part, second)
    assert part.rows == rows, "the same state again: nothing since was stored"
    written([5], part=part)
    part.build(third, mode, family)
    assert part.rows == (rows if mode is FreshStart.UNDO else [*rows, 5]), "its states say nothing of what came later"


def test_a_stale_state_after_which_the_part_wrote_nothing_takes_nothing() -> None:
    part, (first, second, third) = written([1], [2], [3])
    cut_off(part, first, second, third, second)
    assert part.rows == [1]


def test_a_stale_state_of_a_run_that_was_undone() -> None:
    part, (first, second) = written([1], [2])
    part.build(None, FreshStart.AUTO, Family("b"))
    assert part.rows == []
    cut_off(part, second)
    part.waiting = [3]
    part.flush()
    cut_off(part, first)
    assert part.rows == [], "there was no snapshot that Bytewax could know it by"


def test_an_older_state_cuts_back_exactly_to_it() -> None:
    part, (first, second) = written([1], [2])
    cut_off(part, second)
    _, (third,) = written([3], part=part)
    cut_off(part, third)
    written([4], part=part)
    cut_off(part, first)
    assert part.rows == [1]
    with pytest.raises(Halted) as caught:
        cut_off(part, replace(first, branch="other"))
    assert caught.value.code == "state-ahead"


def test_a_part_that_fails_again_and_again_still_knows_where_it_goes_on() -> None:
    part, (first,) = written([1])
    for number in range(2, 2 * BRANCHES_REMEMBERED):
        cut_off(part, first)
        assert part.rows == [1]
        written([number], part=part)


EARLY = FlowMark("a", "x", 2, snapshots=1)


@pytest.mark.parametrize(
    ("ledger", "mode", "outcome"),
    [
        (None, FreshStart.AUTO, "kept"),
        (EARLY, FreshStart.AUTO, "undone"),
        (replace(EARLY, snapshots=MOST_UNSTORED + 1), FreshStart.AUTO, "halted"),
        (replace(EARLY, seconds=MOST_UNSTORED_SECONDS), FreshStart.AUTO, "undone"),
        (replace(EARLY, seconds=MOST_UNSTORED_SECONDS + 1), FreshStart.AUTO, "halted"),
        (replace(EARLY, seconds=MOST_UNSTORED_SECONDS + 1, snapshots=0), FreshStart.AUTO, "undone"),
        (replace(EARLY, stored=True), FreshStart.AUTO, "halted"),
        (replace(EARLY, snapshots=99, finished=True), FreshStart.AUTO, "kept"),
        (replace(EARLY, stored=True, finished=True), FreshStart.AUTO, "halted"),
        (replace(EARLY, snapshots=99, stored=True), FreshStart.UNDO, "undone"),
        (replace(EARLY, snapshots=99, stored=True), FreshStart.APPEND, "kept"),
        (FlowMark("a", "x", snapshots=99, stored=True), FreshStart.AUTO, "kept"),
    ],
)
def test_a_start_without_a_state(ledger: FlowMark | None, mode: FreshStart, outcome: str) -> None:
    try:
        begins = beginning(ledger, None, mode, NEW, "y")
    except Halted:
        assert outcome == "halted"
        return
    assert (begins.mark.run, begins.mark.branch, begins.mark.seq) == ("new", "y", 0)
    assert begins.kept(ledger.position if ledger is not None else None) is (outcome == "kept")
    assert begins.kept(None)


@pytest.mark.parametrize("ledger", [EARLY, replace(EARLY, finished=True), replace(EARLY, snapshots=99, stored=True)])
def test_a_part_without_a_state_in_a_run_that_others_are_resumed_in_was_never_stored(ledger: FlowMark) -> None:
    assert not beginning(ledger, None, FreshStart.AUTO, Family("a", frozenset("a")), "y").kept(ledger.position)
    assert beginning(ledger, None, FreshStart.APPEND, Family("a", frozenset("a")), "y").kept(ledger.position)


@pytest.mark.parametrize("ledger", [None, FlowMark("b", "y", 9), FlowMark("a", "x", 4)])
def test_a_table_that_is_behind_the_state_stops_the_part(ledger: FlowMark | None) -> None:
    with pytest.raises(Halted, match="Bytewax resumes part-0 after flush 5, but the table"):
        beginning(ledger, FlowState("part-0", 1, "a", "x", 5), FreshStart.UNDO, NEW, "z")
