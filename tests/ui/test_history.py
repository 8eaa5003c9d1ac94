"""What the snapshots of a table tell of a pipeline, and what this process adds."""

from __future__ import annotations

from frazil.model.commit import RowCounts
from frazil.ui.history import History, history_of, paces, rate_of
from frazil.ui.live import LiveCommit, LiveFacts
from ui.made import NOW_MS, SINK_ID, at, facts, snapshot


def live_commit(number: int, ago: float, rows: int = 100, seconds: float = 0.5) -> LiveCommit:
    return LiveCommit(at(ago), number, number, RowCounts(rows, rows), 2, 8192, seconds, 1)


def test_commits_claims_and_upkeep_are_told_apart() -> None:
    table = facts(
        snapshot(1, 90, kind="claim"),
        snapshot(2, 60, rows=10, letters=3),
        snapshot(3, 50, kind="merge", extra={"frazil.merged-files": "16"}),
        snapshot(4, 40, rows=20),
        snapshot(5, 30, sink_id="another/sink"),
    )
    history = history_of(table, SINK_ID, None)
    counts = [(one.snapshot, one.read, one.written, one.dead_lettered) for one in history.commits]
    assert counts == [(2, 13, 10, 3), (4, 20, 20, 0)]
    assert history.starts == (at(90),)
    assert [(one.kind, one.counts) for one in history.upkeep] == [("merge", (("merged files", 16),))]


def test_how_long_a_commit_took_is_known_of_this_process_alone() -> None:
    table = facts(snapshot(1, 60), snapshot(2, 30))
    live = LiveFacts(commits=(live_commit(2, 30, seconds=1.5), live_commit(3, 1)))
    before, own, newer = history_of(table, SINK_ID, live).commits
    assert (before.seconds, own.seconds, newer.seconds) == (None, 1.5, 0.5)
    assert (own.bytes, newer.bytes) == (4096, 8192), "what the snapshot says counts; a newer commit is known by its event"


def test_the_home_of_a_route_says_nothing_of_files() -> None:
    table = facts(snapshot(1, 60), snapshot(2, 30))
    commits = history_of(table, SINK_ID, LiveFacts(commits=(live_commit(2, 30),)), has_many_tables=True).commits
    assert [(one.files, one.bytes) for one in commits] == [(None, None), (2, 8192)]


def test_who_has_owned_the_sink() -> None:
    table = facts(
        snapshot(1, 90, kind="claim"), snapshot(2, 80), snapshot(3, 70, kind="claim", epoch=2, instance="two"),
        snapshot(4, 60, epoch=2, instance="two"), snapshot(5, 50, epoch=2, instance="two"),
    )  # fmt: skip
    found = history_of(table, SINK_ID, None).instances
    assert [(one.epoch, one.name, one.batches) for one in found] == [(1, "one", 1), (2, "two", 2)]
    assert (found[1].first_ms, found[1].last_ms) == (at(70), at(50))


def test_a_pace_is_that_since_the_commit_or_the_start_before() -> None:
    table = facts(
        snapshot(1, 100), snapshot(2, 90, rows=50), snapshot(3, 20, kind="claim", epoch=2), snapshot(4, 10, rows=50, epoch=2)
    )
    found = paces(history_of(table, SINK_ID, None))
    assert [one.rows for one in found] == [None, 5.0, 5.0], "the hour in which nothing ran does not count"
    assert [one.bytes for one in found] == [None, 409.6, 409.6]


def test_commits_of_one_millisecond_have_no_pace() -> None:
    found = paces(history_of(facts(snapshot(1, 10), snapshot(2, 10)), SINK_ID, None))
    assert [one.rows for one in found] == [None, None]


def test_the_rate_of_late() -> None:
    table = facts(snapshot(1, 3600, rows=10**6), snapshot(2, 100, rows=600), snapshot(3, 50, rows=300))
    found = rate_of(history_of(table, SINK_ID, None), NOW_MS, flush_secs=30)
    assert found is not None
    assert (found.rows, found.bytes) == (300 / 90, 4096 / 90)
    rarely = rate_of(history_of(table, SINK_ID, None), NOW_MS, flush_secs=60)
    assert rarely is not None
    assert rarely.rows == 900 / 180


def test_the_rate_of_a_young_pipeline_counts_from_its_start() -> None:
    found = rate_of(history_of(facts(snapshot(1, 10, kind="claim"), snapshot(2, 5, rows=50)), SINK_ID, None), NOW_MS, 60)
    assert found is not None
    assert found.rows == 5


def test_one_commit_alone_does_not_say_since_when_its_rows_came() -> None:
    assert rate_of(history_of(facts(snapshot(1, 10)), SINK_ID, None), NOW_MS, 60) is None
    assert rate_of(history_of(facts(snapshot(1, 10), snapshot(2, 5)), SINK_ID, None), NOW_MS, 60) is not None


def test_nothing_known_is_no_rate_and_no_commits_of_late_are_zero() -> None:
    assert rate_of(History(), NOW_MS, 1) is None
    found = rate_of(history_of(facts(snapshot(1, 7200)), SINK_ID, None), NOW_MS, 1)
    assert found is not None
    assert (found.rows, found.bytes) == (0, 0)
