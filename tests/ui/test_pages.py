"""What pages say, made from facts alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import CatalogAway
from frazil.model.commit import RowCounts
from frazil.observe.health import PipelineHealth
from frazil.observe.health import State as HealthState
from frazil.observe.letters import Letter, Letters
from frazil.observe.table_health import TableHealth
from frazil.ui.known import Known, lag_of, letters_count, rows_in_table, rows_rate, state_of
from frazil.ui.live import Lag, LiveCommit, LiveFacts, Note
from frazil.ui.overview import overview_of
from frazil.ui.pipeline import MOST_COMMITS, Page, page_of, since_batch
from frazil.ui.readings import Reading
from frazil.ui.values import Tone
from ui.made import NOW_MS, at, facts, known, ledger, snapshot, watched

AWAY = CatalogAway("catalog-unreachable", "The catalog did not answer.", fix="Start it.")
RUNNING = LiveFacts(health=PipelineHealth(HealthState.RUNNING, owned=True))


def committing(**more: Any) -> Known:
    return known(facts(snapshot(1, 30), snapshot(2, 5), state=ledger(2, 5)), **more)


def page(one: Known, letters: Letters | None = None, **more: Any) -> Page:
    return page_of(one, more.get("health", Reading(TableHealth(), 1.0)), Reading(letters, 1.0))


def figures(one: Known) -> dict[str, str]:
    return {figure.label: figure.value.text for figure in page(one).figures}


@pytest.mark.parametrize(
    ("one", "word", "tone"),
    [
        (known(error=AWAY), "unreadable", Tone.BAD),
        (known(read=False), "being read", Tone.WAIT),
        (known(), "no table", Tone.OFF),
        (known(facts(snapshot(1, 5, sink_id="another"))), "never ran", Tone.OFF),
        (committing(), "committing", Tone.GOOD),
        (known(facts(snapshot(1, 7200), state=ledger(1, 7200))), "quiet", Tone.WARN),
        (known(facts(snapshot(1, 9), snapshot(2, 5), state=ledger(2, 5), head=1)), "rolled back", Tone.BAD),
        (committing(pipeline=watched(enabled=False)), "not enabled", Tone.OFF),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_state_that_a_table_tells(one: Known, word: str, tone: Tone) -> None:
    found = state_of(one)
    assert (found.word, found.tone) == (word, tone)
    assert found.why


@pytest.mark.parametrize("state", HealthState)
def test_the_process_that_runs_a_pipeline_knows_better(state: HealthState) -> None:
    found = state_of(known(error=AWAY, live=LiveFacts(health=PipelineHealth(state, last_error="it said no"))))
    assert found.word == state.value
    assert found.tone is {
        HealthState.PAUSED: Tone.OFF,
        HealthState.STARTING: Tone.WAIT, HealthState.RUNNING: Tone.GOOD, HealthState.FAILING: Tone.BAD,
        HealthState.FENCED: Tone.BAD, HealthState.FAILED: Tone.BAD, HealthState.FINISHED: Tone.OFF, HealthState.STALE: Tone.WARN,
    }[state]  # fmt: skip
    assert found.why == "it said no"


def test_what_is_not_known_is_never_zero() -> None:
    unread = known(error=AWAY)
    values = [rows_rate(unread), lag_of(unread), letters_count(unread), rows_in_table(unread)]
    assert [(value.text, value.known) for value in values] == [("not known", False)] * 4
    assert all(value.title for value in values), "and it is said why"
    assert {label for label, text in figures(committing()).items() if text == "not known"} == {
        "Lag", "Time of a commit", "Fenced", "Failed commits", "Restarts",
    }  # fmt: skip


def test_a_table_in_which_nothing_was_committed_of_late_has_a_rate_of_zero() -> None:
    quiet = known(facts(snapshot(1, 7300), snapshot(2, 7200), state=ledger(2, 7200)))
    assert rows_rate(quiet).text == "0"


@pytest.mark.parametrize(
    ("live", "text"),
    [
        (replace(RUNNING, lag=Lag(rows=1234), pending=5), "1,234 rows"),
        (replace(RUNNING, lag=Lag(seconds=90.0)), "90 s"),
        (replace(RUNNING, pending=5), "5 rows"),
        (RUNNING, "not known"),
    ],
)
def test_the_lag_is_the_source_s_own_word_where_it_has_one(live: LiveFacts, text: str) -> None:
    assert lag_of(committing(live=live)).text == text


def test_a_live_pipeline_shows_what_only_its_process_knows() -> None:
    counts = RowCounts(10, 10)
    commits = (LiveCommit(at(30), 1, 1, counts, 1, 10, 3.0, 1), LiveCommit(at(5), 2, 2, counts, 1, 10, 0.5, 1))
    live = replace(RUNNING, commits=commits, fenced=1, failures={"conflict": 2, "unreachable": 1}, restarts=4)
    shown = figures(committing(live=live))
    assert (shown["Fenced"], shown["Failed commits"], shown["Restarts"], shown["Time of a commit"]) == ("1", "3", "4", "1.8 s")
    assert [row.time.text for row in page(committing(live=live)).commits] == ["500 ms", "3.0 s"]


def test_the_newest_commits_come_first_and_old_ones_are_counted() -> None:
    table = facts(*(snapshot(number, 100 - number) for number in range(1, 41)), state=ledger(40, 60))
    shown = page(known(table))
    assert [row.batch for row in shown.commits] == [str(number) for number in range(40, 40 - MOST_COMMITS, -1)]
    assert shown.commits_known == f"the newest {MOST_COMMITS} of 40 that the snapshots still tell"


def test_charts_have_words_for_those_who_do_not_see_them() -> None:
    shown = page(known(facts(snapshot(1, 30, rows=10), snapshot(2, 20, rows=10), snapshot(3, 10, rows=50), state=ledger(3, 10))))
    assert [chart.title for chart in shown.charts] == ["Rows per second", "Bytes per second"]
    assert shown.charts[0].text == "Rows per second in 2 commits: at least 1.0, at most 5.0, lately 5.0"
    assert page(known(facts(snapshot(1, 30), state=ledger(1, 30)))).charts == ()


def test_an_error_stands_in_the_place_of_the_table_and_what_was_read_before_stays() -> None:
    shown = page(committing(error=AWAY))
    assert shown.problem is not None
    assert (shown.problem.code, shown.problem.message, shown.problem.fix) == ("catalog-unreachable", AWAY.message, "Start it.")
    assert len(shown.commits) == 2
    assert shown.read is not None


def test_dead_letters_are_counted_by_reason() -> None:
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    codes = [(number, "json-type" if number % 3 else "json-key") for number in range(30)]
    letters = tuple(Letter(code, "decode", "no JSON", "", "{}", "x" * 3000, now, number) for number, code in codes)
    found = Letters("shop.orders__dead_letters", 70, letters)
    shown = page(committing(pipeline=watched(on_error="dead_letter")), found).letters
    assert shown.kept
    assert shown.rows == "70 rows"
    assert shown.reasons == (("json-type", "20 of the newest 30"), ("json-key", "10 of the newest 30"))
    assert len(shown.newest) == 10
    assert len(shown.newest[0].raw) <= 400
    assert not page(committing()).letters.kept


@pytest.mark.parametrize(("most", "batch"), [(1, 5), (5, 5), (6, 3), (9, 3), (10, 0)])
def test_letters_are_looked_for_as_far_back_as_the_history_has_enough_of_them(most: int, batch: int) -> None:
    table = facts(snapshot(2, 50), snapshot(3, 40, letters=4), snapshot(4, 30), snapshot(5, 20, letters=5), snapshot(6, 10))
    assert since_batch(known(table), most) == batch


def test_who_owns_the_sink_is_marked() -> None:
    table = facts(
        snapshot(1, 90), snapshot(2, 20, kind="claim", epoch=2, instance="two"), state=ledger(2, 20, epoch=2, instance="two")
    )
    assert [(row.name, row.owns) for row in page(known(table)).instances] == [("two", True), ("one", False)]


def test_events_are_those_of_this_process() -> None:
    assert page(committing()).events is None
    [line] = page(committing(live=replace(RUNNING, notes=(Note(at(3), "fenced", "another took over", bad=True),)))).events or ()
    assert (line.what, line.text, line.bad, line.when and line.when.text) == ("fenced", "another took over", True, "3 s ago")


def test_the_list_begins_with_what_needs_somebody() -> None:
    several = [
        committing(pipeline=watched("c")),
        known(pipeline=watched("d")),
        known(error=AWAY, pipeline=watched("b")),
        committing(live=RUNNING, pipeline=watched("a")),
    ]
    shown = overview_of(several)
    assert [row.key for row in shown.rows] == ["b", "a", "c", "d"]
    assert [(total.tone, total.count) for total in shown.totals] == [(Tone.BAD, 1), (Tone.GOOD, 2), (Tone.OFF, 1)]
    assert [row.problem is not None for row in shown.rows] == [True, False, False, False]


@pytest.mark.parametrize(
    ("asked", "tone", "found"),
    [("", "", ["beta", "alpha"]), ("ALPHA", "", ["alpha"]), ("shop.be", "", ["beta"]), ("unread", "", ["beta"]),
     ("", "good", ["alpha"]), ("zzz", "", []), ("shop", "bad", ["beta"])],
)  # fmt: skip
def test_pipelines_are_found_by_name_table_and_state(asked: str, tone: str, found: list[str]) -> None:
    several = [known(error=AWAY, pipeline=watched("beta")), committing(pipeline=watched("alpha"))]
    shown = overview_of(several, asked, tone)
    assert ([row.key for row in shown.rows], shown.all) == (found, 2)


def test_names_that_are_no_addresses_have_one() -> None:
    [row] = overview_of([committing(pipeline=replace(watched(), key="a/b ü?.yaml"))]).rows
    assert row.href == "/pipelines/a%2Fb%20%C3%BC%3F.yaml"


def test_the_home_of_a_route_shows_its_tables() -> None:
    one = known(
        facts(snapshot(1, 5), state=ledger(1, 5, followers=("shop.de", "shop.fr"))), pipeline=watched(route={"field": "country"})
    )
    assert rows_in_table(one).text == "in 2 tables"
    assert page(one).tables == ("shop.de", "shop.fr")


def test_the_documentation_has_every_state() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ui.md").read_text()
    of_tables = ("committing", "quiet", "never ran", "no table", "rolled back", "unreadable", "not enabled")
    assert [word for word in (*of_tables, *HealthState) if f"*{word}*" not in page] == []
