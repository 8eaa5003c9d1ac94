"""What the commit loop relies on in a port, as tests that run on every port alike.

A port's own test module makes a class of :class:`PortContract` and a fixture ``bench`` that hands out a :class:`Bench`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any, Protocol

import pytest

from frazil.commit.protocol import AttemptFailed, Intent, NewSnapshot, TablePort, TableView, next_state
from frazil.model.commit import Batch, CommitResult, RowCounts, SinkState, position
from frazil.model.ledger import Lineage

SINK = "contract/sink"


class Bench(Protocol):
    """One table in one catalog, and the others who may change it."""

    def make_table(self) -> None:
        """Makes the table empty; one of that name is dropped first."""

    def port(self, sink_id: str) -> TablePort:
        """The commit loop's side of the table as it is now."""

    def change(self, rows: int) -> Any:
        """What an intent carries to add so many new rows."""

    def rows(self) -> Counter[Hashable]:
        """What a reader sees."""

    def foreign_append(self) -> None:
        """Another writer commits one row."""

    def rollback(self, to: int) -> None:
        """Somebody sets the branch back to an older snapshot."""

    def expire(self) -> None:
        """Every snapshot but the head is removed."""

    def expire_abandoned(self) -> None:
        """Every snapshot that is not part of the branch is removed."""


class Attempt:
    """Steps 1, 6 and 7 of one attempt, taken one by one."""

    def __init__(self, bench: Bench, instance: str, sink_id: str = SINK) -> None:
        self.bench = bench
        self.instance = instance
        self.sink_id = sink_id
        self.port = bench.port(sink_id)

    def refreshed(self) -> TableView:
        return self.port.refresh()

    def applied(self, view: TableView, rows: int) -> tuple[NewSnapshot, Intent, SinkState]:
        batch = Batch("source", view.state.end if view.state else None, position(rows), RowCounts(rows, rows)) if rows else None
        intent = Intent(self.sink_id, self.instance, 1, batch=batch, change=self.bench.change(rows) if rows else None)
        state = next_state(view, intent)
        snapshot = self.port.apply(view, intent, state)
        return snapshot, intent, state.in_snapshot(snapshot.snapshot, snapshot.sequence)

    def swapped(self, view: TableView, built: tuple[NewSnapshot, Intent, SinkState]) -> CommitResult:
        snapshot, intent, state = built
        self.port.swap(view, snapshot, intent, state)
        return CommitResult(state)

    def committed(self, rows: int) -> CommitResult:
        view = self.refreshed()
        return self.swapped(view, self.applied(view, rows))


class PortContract:
    """The contract."""

    def test_a_new_table_has_no_head_and_no_ledger(self, bench: Bench) -> None:
        view = Attempt(bench, "one").refreshed()
        assert (view.head, view.head_sequence, view.state) == (None, 0, None)

    def test_the_next_sequence_number_is_the_one_that_a_snapshot_gets(self, bench: Bench) -> None:
        attempt = Attempt(bench, "one")
        attempt.committed(1)
        bench.foreign_append()
        view = attempt.refreshed()
        snapshot, _, _ = attempt.applied(view, 1)
        assert (snapshot.sequence, snapshot.parent) == (view.next_sequence, view.head)
        assert view.next_sequence == view.head_sequence + 1

    def test_what_was_swapped_in_is_seen_by_the_next_refresh_of_any_port(self, bench: Bench) -> None:
        result = Attempt(bench, "one").committed(3)
        view = Attempt(bench, "two").refreshed()
        assert view.state == result.state
        assert (view.head, view.head_sequence, view.lineage) == (result.state.snapshot, result.state.sequence, Lineage.CURRENT)
        assert bench.rows().total() == 3

    def test_a_claim_moves_the_head_and_adds_no_rows(self, bench: Bench) -> None:
        before = Attempt(bench, "one").committed(2)
        claim = Attempt(bench, "two").committed(0)
        view = Attempt(bench, "two").refreshed()
        assert view.head == claim.state.snapshot != before.state.snapshot
        assert view.state is not None
        assert (view.state.epoch, view.state.instance, view.state.end) == (2, "two", before.state.end)
        assert bench.rows().total() == 2

    def test_building_a_snapshot_changes_nothing(self, bench: Bench) -> None:
        attempt = Attempt(bench, "one")
        attempt.committed(1)
        before = attempt.refreshed()
        attempt.applied(before, 5)
        after = attempt.refreshed()
        assert (after.head, after.next_sequence, after.state) == (before.head, before.next_sequence, before.state)
        assert bench.rows().total() == 1

    def test_a_swap_from_an_old_base_is_refused_and_leaves_no_trace(self, bench: Bench) -> None:
        slow, fast = Attempt(bench, "slow"), Attempt(bench, "fast")
        old = slow.refreshed()
        built = slow.applied(old, 5)
        fast.committed(1)
        before = fast.refreshed()
        with pytest.raises(AttemptFailed) as failed:
            slow.swapped(old, built)
        assert not failed.value.outcome.final, "the loop must try again"
        after = fast.refreshed()
        assert (after.head, after.next_sequence, after.state) == (before.head, before.next_sequence, before.state)
        assert bench.rows().total() == 1

    def test_a_swap_after_a_foreign_commit_is_refused(self, bench: Bench) -> None:
        attempt = Attempt(bench, "one")
        attempt.committed(1)
        old = attempt.refreshed()
        built = attempt.applied(old, 5)
        bench.foreign_append()
        with pytest.raises(AttemptFailed):
            attempt.swapped(old, built)
        assert bench.rows().total() == 2

    def test_a_swap_after_a_commit_that_was_rolled_back_is_refused(self, bench: Bench) -> None:
        """The head is what it was; the sequence number, or the version of the metadata, is not."""
        attempt = Attempt(bench, "one")
        first = attempt.committed(1)
        old = attempt.refreshed()
        built = attempt.applied(old, 5)
        bench.foreign_append()
        bench.rollback(first.state.snapshot)
        with pytest.raises(AttemptFailed) as failed:
            attempt.swapped(old, built)
        assert not failed.value.outcome.final, "the loop must try again"
        assert bench.rows().total() == 1

    def test_ledgers_of_two_sinks_do_not_touch(self, bench: Bench) -> None:
        first = Attempt(bench, "one", "contract/first").committed(1)
        second = Attempt(bench, "two", "contract/second").committed(2)
        assert bench.port("contract/first").refresh().state == first.state
        assert bench.port("contract/second").refresh().state == second.state

    def test_a_table_that_was_made_again_is_another(self, bench: Bench) -> None:
        Attempt(bench, "one").committed(1)
        before = Attempt(bench, "one").refreshed()
        bench.make_table()
        after = Attempt(bench, "one").refreshed()
        assert after.table_uuid != before.table_uuid
        assert after.state is None

    def test_the_ledger_outlives_the_expiry_of_its_snapshot(self, bench: Bench) -> None:
        attempt = Attempt(bench, "one")
        attempt.committed(1)
        state = attempt.committed(1).state
        for _ in range(2):
            bench.foreign_append()
        assert attempt.refreshed().lineage is Lineage.CURRENT
        bench.expire()
        view = attempt.refreshed()
        assert (view.state, view.lineage) == (state, Lineage.EXPIRED)

    def test_a_rollback_behind_the_ledger_shows(self, bench: Bench) -> None:
        attempt = Attempt(bench, "one")
        first = attempt.committed(1)
        second = attempt.committed(1)
        bench.rollback(first.state.snapshot)
        view = attempt.refreshed()
        assert (view.state, view.lineage) == (second.state, Lineage.ABANDONED)
        assert view.head_sequence < second.state.sequence

    def test_a_rollback_shows_when_others_have_committed_since(self, bench: Bench) -> None:
        attempt = Attempt(bench, "one")
        first = attempt.committed(1)
        second = attempt.committed(1)
        bench.rollback(first.state.snapshot)
        bench.foreign_append()
        view = attempt.refreshed()
        assert view.head_sequence > second.state.sequence
        assert view.lineage is Lineage.ABANDONED

    @pytest.mark.parametrize("expiry", ["expire", "expire_abandoned"])
    def test_a_rollback_shows_when_the_ledgers_snapshot_has_expired(self, bench: Bench, expiry: str) -> None:
        attempt = Attempt(bench, "one")
        first = attempt.committed(1)
        attempt.committed(1)
        bench.rollback(first.state.snapshot)
        bench.foreign_append()
        getattr(bench, expiry)()
        assert attempt.refreshed().lineage is Lineage.ABANDONED

    def test_a_rollback_that_spares_the_ledgers_snapshot_is_none(self, bench: Bench) -> None:
        attempt = Attempt(bench, "one")
        state = attempt.committed(1).state
        bench.foreign_append()
        bench.rollback(state.snapshot)
        assert attempt.refreshed().lineage is Lineage.CURRENT
        attempt.committed(1)
        assert bench.rows().total() == 2
