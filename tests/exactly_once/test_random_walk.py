"""Whatever happens to a table, and in whatever order: it holds what a dictionary in memory says, and so does the ledger."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from exactly_once.ground import SINK_ID, Foreign, Ground, Recorded, sqlite_ground
from exactly_once.truth import FOREIGN, OURS, Row, Truth, assert_every_snapshot_readable, rows_of
from frazil.errors import Fenced, Halted

WALKS, STEPS = 15, 14

# The steps of a walk and how often they are taken; the number that goes with each is for what it has to choose.
WEIGHTS = {
    "write": 4, "write_again": 1, "gap_or_overlap": 1, "restart": 2, "second_instance": 1, "foreign_append": 2,
    "expire": 1, "roll_back": 2, "undo_rollback": 2, "make_again": 1,
}  # fmt: skip
kinds = st.sampled_from([kind for kind, times in WEIGHTS.items() for _ in range(times)])
walks = st.lists(st.tuples(kinds, st.integers(0, 99)), min_size=STEPS, max_size=STEPS)


class Walk:
    """One table. The model: the rows of every snapshot, the line of snapshots that is the branch, and the ledger's entry."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.foreign = Foreign(ground)
        self.new_table()

    def new_table(self) -> None:
        """An instance makes the table and claims the sink."""
        self.rows_in: dict[int, Counter[Row]] = {}
        self.branch: list[int] = []
        self.expired: set[int] = set()
        self.epoch, self.batches, self.end = 0, 0, 0
        self.last: tuple[int, int] | None = None
        self.replaced = False
        self.writer = self.claimed()

    @property
    def rows(self) -> Counter[Row]:
        return self.rows_in[self.branch[-1]] if self.branch else Counter()

    @property
    def rolled_back(self) -> bool:
        return self.ledger_at not in self.branch

    @property
    def meddled_with(self) -> str | None:
        """Why nothing more is written, if that is so."""
        return "table-replaced" if self.replaced else "rolled-back" if self.rolled_back else None

    def moved(self, added: Counter[Row]) -> int:
        """The branch has a new head; returns its id."""
        head = self.ground.head()
        self.rows_in[head] = self.rows + added
        self.branch.append(head)
        return head

    def claimed(self) -> Recorded:
        """A new instance."""
        writer = self.ground.writer()
        assert writer.open() == self.end
        self.ledger_at = self.moved(Counter())
        self.epoch += 1
        return writer

    def write(self, number: int) -> None:
        """One to three batches of one to four rows."""
        if self.meddled_with:
            self.halts(self.end, self.end + 1, self.meddled_with)
            return
        for size in range(1, 2 + number % 3):
            first, last = self.end, self.end + 1 + (number + size) % 4
            assert not self.writer.write(first, last).skipped
            self.ledger_at = self.moved(rows_of(OURS, range(first, last)))
            self.batches, self.end, self.last = self.batches + 1, last, (first, last)

    def write_again(self, _number: int) -> None:
        if self.last and not self.meddled_with:
            assert self.writer.write(*self.last).skipped

    def gap_or_overlap(self, number: int) -> None:
        if self.end and not self.meddled_with:
            first = self.end + (1 if number % 2 else -1)
            self.halts(first, self.end + 2, "gap-or-overlap")

    def restart(self, _number: int) -> None:
        """A new instance; a table that was made again is a new one to it."""
        if self.rolled_back:
            with pytest.raises(Halted) as stopped:
                self.ground.writer().open()
            assert stopped.value.code == "rolled-back"
        else:
            self.writer, self.replaced = self.claimed(), False

    def second_instance(self, _number: int) -> None:
        if self.meddled_with:
            return
        older, self.writer = self.writer, self.claimed()
        with pytest.raises(Fenced):
            older.write(self.end, self.end + 1)

    def foreign_append(self, _number: int) -> None:
        self.foreign.append()
        self.moved(rows_of(FOREIGN, self.foreign.ids[-1:]))

    def expire(self, _number: int) -> None:
        if not self.rolled_back or self.can_be_told_after_an_expiry():
            self.ground.expire()
            self.expired = set(self.rows_in) - {self.branch[-1]}

    def can_be_told_after_an_expiry(self) -> bool:
        """Once others took the branch past the ledger's entry, and the oldest of their snapshots is gone, nobody can tell."""
        table = self.ground.table()
        head, ledger = table.current_snapshot(), Truth(table).ledger(SINK_ID)
        return head is not None and ledger is not None and head.sequence_number <= ledger["sequence"] + 1

    def roll_back(self, number: int) -> None:
        there = [snapshot for snapshot in self.branch if snapshot not in self.expired]
        to = there[number % len(there)]
        self.ground.procedure(f"rollback_to_snapshot('{self.ground.name}', {to})")
        self.branch = self.branch[: self.branch.index(to) + 1]

    def undo_rollback(self, _number: int) -> None:
        if self.rolled_back and self.ledger_at not in self.expired:
            self.ground.procedure(f"set_current_snapshot('{self.ground.name}', {self.ledger_at})")
            self.branch = [snapshot.snapshot_id for snapshot in Truth(self.ground.table()).history]

    def make_again(self, _number: int) -> None:
        """Somebody drops the table, and another instance makes it anew; this one goes on with the old one in mind."""
        older = self.writer
        self.ground.direct.drop_table(self.ground.name)
        self.new_table()
        self.writer, self.replaced = older, True

    def halts(self, first: int, last: int, code: str) -> None:
        with pytest.raises(Halted) as stopped:
            self.writer.write(first, last)
        assert stopped.value.code == code

    def check(self) -> None:
        """The table and its ledger are as the model says."""
        truth = Truth(self.ground.table())
        assert truth.rows == self.rows
        ledger = truth.ledger(SINK_ID)
        assert ledger is not None
        end = ledger["end"]["row"] if ledger["end"] else 0
        assert (ledger["epoch"], ledger["batch"], end, ledger["snapshot"]) == (self.epoch, self.batches, self.end, self.ledger_at)


@pytest.mark.slow(seconds=60)
def test_random_walks(spark: SparkSession, tmp_path: Path) -> None:
    @given(walks)
    @settings(max_examples=WALKS, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def walked(steps: list[tuple[str, int]]) -> None:
        walk = Walk(sqlite_ground(spark, tmp_path))
        for kind, number in steps:
            getattr(walk, kind)(number)
            walk.check()
        assert_every_snapshot_readable(Truth(walk.ground.table()))

    walked()
