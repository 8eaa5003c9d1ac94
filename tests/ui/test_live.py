"""What the events of a run tell of its pipelines."""

from __future__ import annotations

from frazil.model.commit import RowCounts
from frazil.model.events import Committed, Event, Lagged, Maintained, Restarting, SourceFailed, Waiting
from frazil.observe.health import State
from frazil.ui.live import MOST_COMMITS, MOST_NOTES, Live, LiveFacts
from observe.samples import committed, failed, fenced, staged, started, stopped
from ui.made import watched

HOME = "shop.orders"


def after(*events: Event, **options: object) -> LiveFacts:
    live = Live([watched(**options).spec], clock=lambda: 1_000.0)
    for event in events:
        live(event)
    return live.facts()["orders"]


def test_before_the_first_event_nothing_is_known() -> None:
    found = after()
    assert (found.health.state, found.pending, found.lag, found.commits, found.notes) == (State.STARTING, None, None, (), ())


def test_commits_are_kept_with_their_times() -> None:
    found = after(started(table=HOME), staged(rows=100), committed(table=HOME, dead_lettered=2, seconds=0.3))
    [commit] = found.commits
    assert (commit.batch, commit.counts.written, commit.bytes, commit.seconds) == (1, 100, 4096, 0.3)
    assert (found.dead_lettered, found.pending, found.health.state) == (2, 0, State.RUNNING)


def test_a_batch_that_the_table_had_already_is_no_commit_of_this_process() -> None:
    assert after(started(table=HOME), committed(table=HOME, skipped=True)).commits == ()


def test_failures_fences_and_restarts_are_counted_and_told() -> None:
    found = after(
        failed("conflict"), failed("conflict"), failed("unreachable"), SourceFailed("orders", "no broker", 1, will_retry=True),
        Restarting("orders", "it died", 1, 5.0), fenced(),
    )  # fmt: skip
    assert (found.failures, found.source_failures, found.restarts, found.fenced) == ({"conflict": 2, "unreachable": 1}, 1, 1, 1)
    assert found.health.state is State.FENCED
    assert [note.what for note in found.notes if note.bad] == [
        "commit failed", "commit failed", "commit failed", "source failed", "restarting", "fenced",
    ]  # fmt: skip
    assert "the catalog said no" in found.notes[0].text


def test_what_is_pending_is_unknown_where_the_source_does_not_say_it() -> None:
    assert after(Waiting("orders", 7)).pending == 7
    assert after(Waiting("orders", 7), Waiting("orders", None)).pending is None
    lag = after(Lagged("orders", rows=12)).lag
    assert lag is not None
    assert (lag.rows, lag.seconds) == (12, None)


def test_the_tables_of_a_route_make_one_commit_with_their_home() -> None:
    home = watched(route={"field": "country"}).spec.sink.full_name

    def of(table: str, rows: int, letters: int = 0) -> Committed:
        return Committed("orders", table, 1, 1, RowCounts(rows + letters, rows, letters), 1, 100, 0.1, 1, 1)

    letters = ".".join(watched(route={"field": "country"}).spec.sink.letters_name)
    found = after(of("shop.de", 10), of("shop.fr", 5), of(letters, 1), of(home, 0, letters=1), route={"field": "country"})
    [commit] = found.commits
    assert (commit.counts.written, commit.counts.dead_lettered) == (15, 1)


def test_it_does_not_grow_without_end() -> None:
    events = [committed(table=HOME, batch=number) for number in range(MOST_COMMITS + 5)]
    found = after(*events, *[failed()] * (MOST_NOTES + 5))
    assert (len(found.commits), found.commits[-1].batch, len(found.notes)) == (MOST_COMMITS, MOST_COMMITS + 4, MOST_NOTES)
    assert found.failures == {"unreachable": MOST_NOTES + 5}


def test_how_it_ended() -> None:
    assert after(started(), stopped()).health.state is State.FINISHED
    ended = after(started(), stopped(error="no such table"))
    assert (ended.health.state, ended.notes[-1].text) == (State.FAILED, "no such table")


def test_what_maintenance_did_is_told() -> None:
    found = after(Maintained("orders", HOME, "merge_files", 16, 1000, 1.25))
    assert found.notes[-1].text == "shop.orders: 16 small files were merged (1.2 s)"


def test_pipelines_that_are_not_shown_are_left_out() -> None:
    live = Live([watched().spec])
    live(started("another"))
    assert set(live.facts()) == {"orders"}
