"""A catalog that takes long for a commit: the next batch is written meanwhile, and everything else is as without that."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from frazil.errors import Fenced
from frazil.model.events import Committed, Event, Staged
from frazil.model.pipeline import PipelineSpec
from helpers.lakes import Lake, StopAfter, commits, fresh_name, run
from services.faults import Cut, Fault, applied_late, applied_then, applied_then_cut_off, refused, slow
from services.faulty_rest import FaultyRest

BATCHES, SIZE = 6, 20
SECONDS = 60
SLOW = slow(0.4)


@pytest.fixture
def slow_lake(lake: Lake, faulty_rest: FaultyRest) -> Lake:
    return lake.with_catalog({"type": "rest", "rest": {"uri": faulty_rest.uri}})


class Held:
    """A commit that is held until so many batches have their files; and whether it had to wait in vain."""

    def __init__(self, batches: int) -> None:
        self._left = batches
        self._written = threading.Event()
        self.saw_the_next_one = False

    def hear(self, event: Event) -> None:
        if isinstance(event, Staged):
            self._left -= 1
            if self._left == 0:
                self._written.set()

    def wait(self) -> None:
        self.saw_the_next_one = self._written.wait(SECONDS)


def events_into(lake: Lake, table: str, **options: Any) -> PipelineSpec:
    return lake.pipeline({"connector": "generator", "rows": BATCHES * SIZE}, table, batch_size=SIZE, **options)


APPEND: dict[str, Any] = {}
UPSERT: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["user_id"], "order_by": ["event_number"]}
POSITION: dict[str, Any] = UPSERT | {"upsert_strategy": "position", "format_version": 3}


def written(lake: Lake, table: str) -> list[int]:
    return sorted(row[0] for row in lake.rows("event_number", table))


def newest_of_each_user(lake: Lake, table: str) -> list[int]:
    """What an upsert leaves of all events: computed from an append of the same events."""
    run(events_into(lake, f"{table}_all"), once=True)
    found = lake.spark.sql(f"select max(event_number) from {lake.name}.{table}_all group by user_id").collect()
    return sorted(row[0] for row in found)


@pytest.mark.parametrize("mode", [APPEND, UPSERT, POSITION], ids=["append", "upsert", "position"])
def test_the_next_batch_is_written_while_one_is_committed(slow_lake: Lake, faulty_rest: FaultyRest, mode: dict[str, Any]) -> None:
    table, held = f"{fresh_name()}.t", Held(batches=4)
    # The claim, two slow commits, and the third one, which is answered when the files of the fourth batch are there.
    faulty_rest.script([None, SLOW, SLOW, Fault("held", meanwhile=held.wait)])
    events = run(events_into(slow_lake, table, **mode), once=True, listeners=[held.hear])
    assert held.saw_the_next_one
    assert [event.batch for event in commits(events)] == [1, 2, 3, 4, 5, 6], "one after the other"
    expected = newest_of_each_user(slow_lake, table) if mode else list(range(BATCHES * SIZE))
    assert written(slow_lake, table) == expected


def test_batches_that_are_compared_with_the_table_wait_for_each_other(slow_lake: Lake, faulty_rest: FaultyRest) -> None:
    table = f"{fresh_name()}.t"
    faulty_rest.script([None, SLOW, SLOW, SLOW])
    events: list[Event] = []
    run(events_into(slow_lake, table, **UPSERT | {"late": "ignore"}), once=True, events=events)
    in_turn = [type(event) for event in events if isinstance(event, Staged | Committed)]
    assert in_turn == [Staged, Committed] * BATCHES
    assert written(slow_lake, table) == newest_of_each_user(slow_lake, table)


LOST: list[Fault] = [applied_then(500), applied_then_cut_off(Cut.RESET), refused(503), refused(409), applied_late(504, after=0.2)]


@pytest.mark.parametrize("fault", LOST, ids=str)
def test_answers_that_are_lost_meanwhile_change_nothing(slow_lake: Lake, faulty_rest: FaultyRest, fault: Fault) -> None:
    table = f"{fresh_name()}.t"
    faulty_rest.script([None, SLOW, SLOW, replace(fault, pause=0.4), None, SLOW, replace(fault, pause=0.4)])
    events = run(events_into(slow_lake, table), once=True)
    assert [event.batch for event in commits(events)] == [1, 2, 3, 4, 5, 6]
    assert written(slow_lake, table) == list(range(BATCHES * SIZE))


@pytest.mark.parametrize("mode", [APPEND, UPSERT], ids=["append", "upsert"])
def test_a_column_that_somebody_adds_meanwhile_is_kept(slow_lake: Lake, faulty_rest: FaultyRest, mode: dict[str, Any]) -> None:
    table, held = f"{fresh_name()}.t", Held(batches=4)
    direct = slow_lake.with_catalog({"type": "rest", "rest": {"uri": faulty_rest.backend_uri}}).introduced()

    def others_turn() -> None:
        held.wait()
        direct.spark.sql(f"alter table {direct.name}.{table} add column note string")

    faulty_rest.script([None, SLOW, SLOW, Fault("held", meanwhile=others_turn)])
    events = run(events_into(slow_lake, table, **mode), once=True, listeners=[held.hear])
    assert held.saw_the_next_one
    assert "note" in slow_lake.table(table).columns
    assert [event.batch for event in commits(events)] == [1, 2, 3, 4, 5, 6]
    assert len(written(slow_lake, table)) == len(set(written(slow_lake, table)))


def test_one_that_is_fenced_meanwhile_commits_nothing_more(slow_lake: Lake, faulty_rest: FaultyRest) -> None:
    table, held = f"{fresh_name()}.t", Held(batches=4)
    direct = slow_lake.with_catalog({"type": "rest", "rest": {"uri": faulty_rest.backend_uri}})

    def others_turn() -> None:
        held.wait()
        run(events_into(direct, table), once=True)

    faulty_rest.script([None, SLOW, SLOW, Fault("held", meanwhile=others_turn)])
    with pytest.raises(Fenced):
        run(events_into(slow_lake, table), once=True, listeners=[held.hear])
    assert held.saw_the_next_one
    assert written(direct, table) == list(range(BATCHES * SIZE))


def test_a_run_that_is_stopped_commits_what_it_has_written(slow_lake: Lake, faulty_rest: FaultyRest) -> None:
    table, stop = f"{fresh_name()}.t", StopAfter(BATCHES)
    held = Held(batches=4)

    def others_turn() -> None:
        held.wait()
        stop.event.set()

    faulty_rest.script([None, SLOW, SLOW, Fault("held", meanwhile=others_turn)])
    events = run(events_into(slow_lake, table), once=True, listeners=[held.hear], stop=stop)
    assert [event.batch for event in commits(events)] == [1, 2, 3, 4]
    assert written(slow_lake, table) == list(range(4 * SIZE))


@pytest.mark.parametrize("mode", [APPEND, UPSERT], ids=["append", "upsert"])
def test_a_batch_costs_one_question_and_one_commit(slow_lake: Lake, faulty_rest: FaultyRest, mode: dict[str, Any]) -> None:
    """As few round trips as the protocol has steps that ask the catalog. Before that, the table is made and the sink claimed."""
    table = f"{fresh_name()}.t"
    run(events_into(slow_lake, table, **mode), once=True)
    made_and_claimed, per_batch = 7 if mode else 6, ["load", "commit"]
    kinds = [exchange.kind for exchange in faulty_rest.log]
    assert kinds[-2 * (BATCHES - 1) :] == per_batch * (BATCHES - 1)
    assert len(kinds) <= made_and_claimed + 2 * (BATCHES - 1)
