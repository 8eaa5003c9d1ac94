"""What follows from the table's ledger and from Bytewax's state, tried on a table that is only a list."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.doors.bytewax.progress import MOST_UNSTORED, FreshStart, Mark, State, beginning
from frazil.errors import ConfigError, Halted

RUNS = iter(range(1_000_000))


def test_a_mark_is_read_as_it_was_written() -> None:
    for mark in (Mark("a", 1), Mark("a", 0, 3, stored=True), Mark("b", 7, 2, finished=True)):
        assert Mark.read(mark.position) == mark
    assert Mark.read(None) is None
    with pytest.raises(Halted, match="was not written from Bytewax"):
        Mark.read('{"batch":3}')


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(Halted, match="was not written by this sink"):
        State.read({"last_committed_batch": 3}, "part-0", 1)
    with pytest.raises(ConfigError, match="num_partitions: it was 2"):
        State.read(State("part-0", 2, "a", 1, 1).to_bytewax(), "part-0", 3)


@dataclass
class Part:
    """A part on a table that is a list of flushes: the mark and the rows of each."""

    table: list[tuple[Mark, list[int]]] = field(default_factory=list)
    mark: Mark = field(default_factory=lambda: Mark("", 0))

    @property
    def rows(self) -> list[int]:
        return [row for _, rows in self.table for row in rows]

    def start(self, state: State | None, mode: FreshStart = FreshStart.AUTO) -> None:
        begins = beginning(self.table[-1][0] if self.table else None, state, mode, f"run-{next(RUNS)}")
        while not begins.kept(self.table[-1][0].position if self.table else None):
            self.table.pop()
        self.mark = begins.mark

    def flush(self, rows: list[int], *, snapshot: bool = False) -> None:
        self.mark = self.mark.next(snapshot=snapshot)
        self.table.append((self.mark, rows))

    def state(self) -> State:
        return State("part-0", 1, self.mark.run, self.mark.seq, self.mark.snapshots)


STEPS = st.lists(st.sampled_from(["flush", "snapshot", "snapshot and store", "crash"]), max_size=40)


@given(STEPS)
@settings(deadline=None, max_examples=300)
def test_every_row_is_there_once_however_often_it_crashes(steps: list[str]) -> None:
    """The source is set back to what was stored; the part stops only where that cannot be told from a run without recovery."""
    part, stored, source, kept_at = Part(), None, 0, 0
    unstored = 0
    part.start(None)
    for step in steps:
        match step:
            case "flush":
                part.flush([source])
                source += 1
            case "snapshot" | "snapshot and store":
                part.flush([source], snapshot=True)
                source, unstored = source + 1, unstored + 1
                if step == "snapshot and store":
                    stored, kept_at = part.state(), source
            case _:
                if stored is None and unstored > MOST_UNSTORED:
                    with pytest.raises(Halted, match="Bytewax starts without a state"):
                        part.start(None)
                    return
                part.start(stored)
                source = kept_at
                unstored = 0 if stored is None else unstored
        assert part.rows == list(range(source))


@pytest.mark.parametrize(
    ("ledger", "mode", "outcome"),
    [
        (None, FreshStart.AUTO, "kept"),
        (Mark("a", 2, 1), FreshStart.AUTO, "undone"),
        (Mark("a", 2, MOST_UNSTORED + 1), FreshStart.AUTO, "halted"),
        (Mark("a", 2, 1, stored=True), FreshStart.AUTO, "halted"),
        (Mark("a", 2, 99, finished=True), FreshStart.AUTO, "kept"),
        (Mark("a", 2, 1, stored=True, finished=True), FreshStart.AUTO, "halted"),
        (Mark("a", 2, 99, stored=True), FreshStart.UNDO, "undone"),
        (Mark("a", 2, 99, stored=True), FreshStart.APPEND, "kept"),
    ],
)
def test_a_start_without_a_state(ledger: Mark | None, mode: FreshStart, outcome: str) -> None:
    try:
        begins = beginning(ledger, None, mode, "new")
    except Halted:
        assert outcome == "halted"
        return
    assert begins.mark == Mark("new", 0)
    assert begins.kept(ledger.position if ledger is not None else None) is (outcome == "kept")
    assert begins.kept(None)


@pytest.mark.parametrize("ledger", [None, Mark("b", 9), Mark("a", 4)])
def test_a_table_that_is_behind_the_state_stops_the_part(ledger: Mark | None) -> None:
    with pytest.raises(Halted, match="Bytewax resumes part-0 after flush 5, but the table"):
        beginning(ledger, State("part-0", 1, "a", 5, 2), FreshStart.UNDO, "new")
