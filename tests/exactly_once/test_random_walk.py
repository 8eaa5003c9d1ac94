"""Whatever happens to a table, and in whatever order: it holds what a dictionary in memory says, and so does the ledger."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from pyspark.sql import SparkSession

from exactly_once.ground import SINK_ID, Foreign, Ground, Recorded, sqlite_ground
from exactly_once.truth import OURS, Row, Truth, assert_every_snapshot_readable, rows_of
from frazil.errors import Fenced, Halted

WALKS, STEPS = 15, 12


class Walk(RuleBasedStateMachine):
    """One table. The model: the rows of every snapshot, the line of snapshots that is the branch, and the ledger's entry."""

    spark: SparkSession
    folder: Path

    @initialize()
    def begin(self) -> None:
        self.ground: Ground = sqlite_ground(self.spark, self.folder)
        self.foreign = Foreign(self.ground)
        self.new_table()

    def new_table(self) -> None:
        """An instance makes the table and claims the sink."""
        self.writer: Recorded = self.ground.writer()
        self.replaced = False
        self.rows_in: dict[int, Counter[Row]] = {}
        self.branch: list[int] = []
        self.expired: set[int] = set()
        self.epoch, self.batches, self.end = 0, 0, 0
        self.last: tuple[int, int] | None = None
        self.claims(self.writer)

    @property
    def rows(self) -> Counter[Row]:
        return self.rows_in[self.branch[-1]] if self.branch else Counter()

    @property
    def rolled_back(self) -> bool:
        return self.ledger_at not in self.branch

    def moved(self, added: Counter[Row]) -> int:
        """The branch has a new head; returns its id."""
        head = self.ground.head()
        self.rows_in[head] = self.rows + added
        self.branch.append(head)
        return head

    def claims(self, writer: Recorded) -> None:
        assert writer.open() == self.end
        self.ledger_at = self.moved(Counter())
        self.epoch += 1

    def halts(self, writer: Recorded, first: int, last: int, code: str) -> None:
        with pytest.raises(Halted) as stopped:
            writer.write(first, last)
        assert stopped.value.code == code

    @rule(size=st.integers(1, 4))
    def write(self, size: int) -> None:
        """The next batch; or, where somebody meddled with the table, none."""
        first, last = self.end, self.end + size
        if self.replaced:
            self.halts(self.writer, first, last, "table-replaced")
        elif self.rolled_back:
            self.halts(self.writer, first, last, "rolled-back")
        else:
            assert not self.writer.write(first, last).skipped
            self.ledger_at = self.moved(rows_of(OURS, range(first, last)))
            self.batches, self.end, self.last = self.batches + 1, last, (first, last)

    @precondition(lambda self: self.last and not self.replaced and not self.rolled_back)
    @rule()
    def write_the_last_batch_again(self) -> None:
        assert self.last is not None
        assert self.writer.write(*self.last).skipped

    @precondition(lambda self: self.end and not self.replaced and not self.rolled_back)
    @rule(ahead=st.booleans())
    def write_with_a_gap_or_an_overlap(self, ahead: bool) -> None:
        first, last = (self.end + 1, self.end + 2) if ahead else (self.end - 1, self.end + 1)
        self.halts(self.writer, first, last, "gap-or-overlap")

    @rule()
    def restart(self) -> None:
        """A new instance; a table that was made again is a new one to it."""
        writer = self.ground.writer()
        if self.rolled_back:
            with pytest.raises(Halted) as stopped:
                writer.open()
            assert stopped.value.code == "rolled-back"
        else:
            self.claims(writer)
            self.writer, self.replaced = writer, False

    @precondition(lambda self: not self.replaced and not self.rolled_back)
    @rule()
    def second_instance(self) -> None:
        older, self.writer = self.writer, self.ground.writer()
        self.claims(self.writer)
        with pytest.raises(Fenced):
            older.write(self.end, self.end + 1)

    @rule()
    def foreign_append(self) -> None:
        self.foreign.append()
        self.moved(rows_of("foreign", self.foreign.ids[-1:]))

    @precondition(lambda self: self.an_expiry_hides_no_rollback())
    @rule()
    def expire(self) -> None:
        self.ground.expire()
        self.expired = set(self.rows_in) - {self.branch[-1]}

    def an_expiry_hides_no_rollback(self) -> bool:
        """Once others took the branch past the ledger's entry, and the oldest of their snapshots is gone, nobody can tell."""
        if not self.rolled_back:
            return True
        table = self.ground.table()
        head, ledger = table.current_snapshot(), Truth(table).ledger(SINK_ID)
        return head is not None and ledger is not None and head.sequence_number <= ledger["sequence"] + 1

    @rule(choice=st.integers(0, 100))
    def roll_back(self, choice: int) -> None:
        there = [snapshot for snapshot in self.branch if snapshot not in self.expired]
        to = there[choice % len(there)]
        self.ground.procedure(f"rollback_to_snapshot('{self.ground.name}', {to})")
        self.branch = self.branch[: self.branch.index(to) + 1]

    @precondition(lambda self: self.rolled_back and self.ledger_at not in self.expired)
    @rule()
    def undo_the_rollback(self) -> None:
        self.ground.procedure(f"set_current_snapshot('{self.ground.name}', {self.ledger_at})")
        self.branch = self.line_to(self.ledger_at)

    def line_to(self, snapshot: int) -> list[int]:
        """The ancestors of a snapshot and itself; those behind an expired one are only of the model's past."""
        line, table = [snapshot], self.ground.table()
        while (found := table.snapshot_by_id(line[0])) is not None and found.parent_snapshot_id is not None:
            line.insert(0, found.parent_snapshot_id)
        return line

    @rule()
    def drop_and_make_again(self) -> None:
        older = self.writer
        self.ground.direct.drop_table(self.ground.name)
        self.new_table()
        self.writer, self.replaced = older, True

    @invariant()
    def table_and_ledger_are_as_the_model_says(self) -> None:
        truth = Truth(self.ground.table())
        assert truth.rows == self.rows
        ledger = truth.ledger(SINK_ID)
        assert ledger is not None
        end = ledger["end"]["row"] if ledger["end"] else 0
        assert (ledger["epoch"], ledger["batch"], end, ledger["snapshot"]) == (self.epoch, self.batches, self.end, self.ledger_at)

    def teardown(self) -> None:
        assert_every_snapshot_readable(Truth(self.ground.table()))


def test_random_walks(spark: SparkSession, tmp_path: Path) -> None:
    machine = type("Machine", (Walk,), {"spark": spark, "folder": tmp_path})
    walks = settings(
        max_examples=WALKS,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=walks)
