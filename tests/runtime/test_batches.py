"""When a commit is made: so many rows, or so much time, whichever comes first; and when a run ends."""

from __future__ import annotations

from itertools import pairwise

import pytest

from frazil.model.events import Committed, Staged, Started, Stopped, Waiting
from helpers.lakes import Lake, StopAfter, commits, run


def generator(**options: int) -> dict[str, object]:
    return {"connector": "generator", **options}


def test_a_batch_is_as_large_as_asked_for_and_the_last_one_what_is_left(lake: Lake) -> None:
    events = run(lake.pipeline(generator(rows=25), batch_size=10))
    assert [event.counts.written for event in commits(events)] == [10, 10, 5]
    assert [snapshot.summary["frazil.rows-out"] for snapshot in lake.data_snapshots()] == ["10", "10", "5"]
    assert lake.rows("count(distinct event_number), max(event_number)") == [(25, 24)]
    assert events[-1] == Stopped("p", batches=3, rows=25)


def test_rows_are_pending_from_when_they_are_seen_until_they_are_committed(lake: Lake) -> None:
    events = run(lake.pipeline(generator(rows=25), batch_size=10))
    kinds = (Waiting, Staged, Committed)
    kinds_seen = [type(event) for event in events if isinstance(event, kinds)]
    assert kinds_seen == [*kinds, *kinds, *kinds], "health counts the time from the first of them, also before the first commit"
    assert [event.pending_rows for event in events if isinstance(event, Waiting)] == [10, 10, 5]


def test_a_backlog_is_taken_in_larger_batches(lake: Lake) -> None:
    events = run(lake.pipeline(generator(rows=100), batch_size=10, max_batch_size=40))
    assert [event.counts.written for event in commits(events)] == [40, 40, 20]


def test_rows_that_are_there_are_committed_before_the_interval_is_over(lake: Lake) -> None:
    stop = StopAfter(2)
    events = run(lake.pipeline(generator(rows_per_second=2000), batch_size=500, flush_interval_secs=3600), stop=stop)
    assert [event.counts.written for event in commits(events)][:2] == [500, 500]


def test_fewer_rows_are_committed_when_the_interval_is_over(lake: Lake) -> None:
    stop = StopAfter(3)
    events = run(lake.pipeline(generator(rows_per_second=20), batch_size=100_000, flush_interval_secs=1), stop=stop)
    done = commits(events)
    assert all(0 < event.counts.written < 1000 for event in done)
    apart = [(after.at_ms - before.at_ms) / 1000 for before, after in pairwise(done)]
    assert min(apart) >= 0.9, "no commit before its interval is over"
    numbers = [row[0] for row in lake.table().select("event_number").collect()]
    assert sorted(numbers) == list(range(len(numbers)))


def test_the_rate_is_kept_under_its_limit(lake: Lake) -> None:
    done = commits(run(lake.pipeline(generator(rows=30), batch_size=10, rate_limit=10)))
    assert (done[-1].at_ms - done[0].at_ms) / 1000 >= 1.9
    assert lake.count() == 30


def test_once_takes_what_is_there_and_ends(lake: Lake) -> None:
    events = run(lake.pipeline(generator(rows_per_second=50), batch_size=100_000, flush_interval_secs=3600), once=True)
    assert len(commits(events)) >= 1
    assert lake.count() == sum(event.counts.written for event in commits(events)) >= 50


def test_a_finite_source_that_was_read_adds_nothing_when_it_is_run_again(lake: Lake) -> None:
    run(lake.pipeline(generator(rows=10)))
    again = run(lake.pipeline(generator(rows=10)))
    assert commits(again) == []
    assert [(event.epoch, event.start is not None) for event in again if isinstance(event, Started)] == [(2, True)]
    assert lake.count() == 10


def test_an_empty_source_makes_no_table(lake: Lake) -> None:
    run(lake.pipeline(generator(rows=0)))
    assert lake.nothing_written()


@pytest.mark.parametrize("kept", [True, False])
def test_every_row_is_accounted_for_when_some_are_filtered(lake: Lake, kept: bool) -> None:
    transforms = [
        {"type": "filter", "field": "event_type", "equals": "page_view" if kept else "nothing like it"},
        {"type": "rename_field", "from": "user_agent", "to": "agent"},
        {"type": "remove_field", "field": "tags"},
        {"type": "add_field", "field": "origin", "value": "shop"},
    ]
    (done,) = commits(run(lake.pipeline(generator(rows=200), transforms=transforms)))
    assert done.counts.read == 200
    assert done.counts.written + done.counts.filtered == 200
    assert (done.counts.written > 0) == kept
    summary = lake.data_snapshots()[0].summary
    assert [summary[f"frazil.rows-{kind}"] for kind in ("in", "out", "filtered", "dead-lettered")] == [
        "200", str(done.counts.written), str(done.counts.filtered), "0",
    ]  # fmt: skip
    assert {"agent", "origin"} <= set(lake.table().columns)
    assert not {"user_agent", "tags"} & set(lake.table().columns)
    assert set(lake.rows("event_type, origin")) == ({("page_view", "shop")} if kept else set())


def test_a_batch_of_filtered_rows_moves_on_all_the_same(lake: Lake) -> None:
    nothing = [{"type": "filter", "field": "event_type", "equals": "nothing like it"}]
    run(lake.pipeline(generator(rows=20), batch_size=10, transforms=nothing))
    (done,) = commits(run(lake.pipeline(generator(rows=30), batch_size=10)))
    assert (done.counts.written, lake.rows("min(event_number)")) == (10, [(20,)])
