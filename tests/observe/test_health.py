from __future__ import annotations

import json

import pytest

from frazil.model import secrets
from frazil.model.catalog import CatalogSpec, CatalogType
from frazil.model.events import CommitFailed, Event, Waiting
from frazil.model.pipeline import PipelineSpec
from frazil.model.sink import SinkSpec
from frazil.model.source import GeneratorSource
from frazil.observe.health import CONTENTION_LIMIT, STALE_SECONDS, Health

from .samples import committed, failed, fenced, staged, started, stopped


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def after(*events: Event) -> Health:
    health = Health(["orders"])
    for event in events:
        health(event)
    return health


def state(health: Health, pipeline: str = "orders") -> str:
    return health.report().pipelines[pipeline].state.value


def test_before_the_start_it_is_healthy_but_not_ready() -> None:
    report = after().report()
    assert report.healthy
    assert not report.ready
    assert report.not_ready == ["orders"]


def test_ready_needs_every_pipeline() -> None:
    health = Health(["orders", "users"])
    health(started("orders"))
    assert health.report().not_ready == ["users"]
    health(started("users"))
    assert health.report().ready


def test_nothing_to_run_is_not_ready() -> None:
    assert not Health().report().ready


@pytest.mark.parametrize("kind", ["unknown", "unreachable", "refused"])
def test_a_failed_attempt_is_unhealthy_until_the_next_commit(kind: str) -> None:
    health = after(started(), committed(), failed(kind))
    assert not health.report().healthy
    health(failed("conflict", attempt=2))
    assert not health.report().healthy, "contention after a failure is no recovery"
    health(Waiting("orders", 0))
    assert not health.report().healthy, "waiting is no recovery"
    health(committed(batch=2))
    assert health.report().healthy
    assert health.report().pipelines["orders"].consecutive_failures == 0


def test_conflicts_are_contention_until_there_are_too_many() -> None:
    health = after(started())
    for attempt in range(1, CONTENTION_LIMIT):
        health(failed("conflict", attempt=attempt))
        assert health.report().healthy
    health(failed("conflict", attempt=CONTENTION_LIMIT))
    assert not health.report().healthy


def test_conflicts_of_different_commits_do_not_add_up() -> None:
    health = after(started())
    for batch in range(3 * CONTENTION_LIMIT):
        health(failed("conflict"))
        health(committed(batch=batch))
        assert health.report().healthy


def test_a_conflict_that_is_given_up_is_unhealthy() -> None:
    assert not after(started(), failed("conflict", will_retry=False)).report().healthy


def test_a_batch_that_the_table_already_held_is_a_commit() -> None:
    assert after(started(), failed("unknown"), committed(skipped=True)).report().healthy


def test_a_claim_that_fails_is_unhealthy_until_it_succeeds() -> None:
    health = after(failed("unreachable"))
    assert not health.report().healthy
    assert not health.report().ready
    health(started())
    assert health.report().healthy
    assert health.report().ready


def test_fenced_is_unhealthy_and_not_ready_and_stays_so() -> None:
    health = after(started(), committed(), fenced(), stopped(error="fenced"))
    assert state(health) == "fenced"
    assert not health.report().healthy
    assert not health.report().ready


def test_stopped_with_an_error_is_unhealthy_until_started_again() -> None:
    health = after(started(), stopped(error="a column went missing"))
    assert state(health) == "failed"
    assert not health.report().healthy
    assert not health.report().ready
    health(started())
    assert health.report().healthy
    assert health.report().ready


def test_finished_is_healthy_unless_its_last_commit_failed() -> None:
    assert state(after(started(), committed(), stopped())) == "finished"
    assert after(started(), committed(), stopped()).report().healthy
    assert after(started(), committed(), stopped()).report().ready
    assert not after(started(), failed(), stopped()).report().healthy


def test_one_bad_pipeline_is_enough() -> None:
    health = Health(["orders", "users"])
    for event in (started("orders"), started("users"), committed("users"), failed(pipeline="orders")):
        health(event)
    assert not health.report().healthy
    assert state(health, "users") == "running"


def test_rows_that_wait_too_long_are_stale() -> None:
    clock = Clock()
    health = Health(["orders"], stale_after={"orders": 120}, clock=clock)
    health(started())
    clock.now += 1000
    assert health.report().healthy, "nothing is pending"
    health(Waiting("orders", 5))
    clock.now += 119
    health(Waiting("orders", 9))
    assert health.report().healthy
    clock.now += 2
    assert state(health) == "stale"
    assert not health.report().healthy
    assert "121 s" in str(health.report().pipelines["orders"].last_error)
    health(committed())
    assert health.report().healthy
    clock.now += 1000
    assert health.report().healthy


@pytest.mark.parametrize("pending", [5, None], ids=["counted", "rows whose number only reading tells"])
def test_rows_that_wait_from_the_start_are_stale_before_the_first_commit(pending: int | None) -> None:
    clock = Clock()
    health = Health(["orders"], stale_after={"orders": 120}, clock=clock)
    health(started())
    health(Waiting("orders", pending))
    clock.now += 121
    body = health.report().to_json()
    assert (body["status"], body["pipelines"]["orders"]["state"]) == ("unhealthy", "stale")
    assert body["pipelines"]["orders"]["last_commit_at"] is None


def test_staged_rows_are_pending_and_a_quiet_source_is_not() -> None:
    clock = Clock()
    health = Health(["orders"], stale_after={"orders": 120}, clock=clock)
    health(started())
    health(staged())
    clock.now += 121
    assert state(health) == "stale"
    health(Waiting("orders", 0))
    assert state(health) == "running"


def test_watching_pipelines_takes_their_flush_intervals() -> None:
    def spec(name: str, flush: int, enabled: bool = True) -> PipelineSpec:
        sink = SinkSpec(catalog=CatalogSpec(type=CatalogType.MEMORY), namespace="shop", table=name, flush_interval_secs=flush)
        return PipelineSpec(name=name, source_name="s", source=GeneratorSource(), sink_name="k", sink=sink, enabled=enabled)

    clock = Clock()
    health = Health.watching([spec("quick", 1), spec("slow", 60), spec("by-name", 1, enabled=False)], clock=clock)
    assert sorted(health.report().pipelines) == ["by-name", "quick", "slow"]
    for name in ("quick", "slow", "by-name"):
        health(started(name))
        health(Waiting(name, 1))
    clock.now += STALE_SECONDS + 1
    assert (state(health, "quick"), state(health, "slow"), state(health, "by-name")) == ("stale", "running", "stale")
    clock.now += 600 - STALE_SECONDS
    assert state(health, "slow") == "stale"


def test_the_body_says_what_is_known_without_secrets() -> None:
    secrets.remember(["canary-4711"])
    health = after(started(), committed(batch=4))
    health(CommitFailed("orders", "refused", "403 for user x with canary-4711 at http://u:pw12@cat/", 1, will_retry=True))
    body = health.report().to_json()
    assert body == {
        "status": "unhealthy",
        "ready": True,
        "pipelines": {
            "orders": {
                "state": "failing",
                "table": "lake.shop.orders",
                "epoch": 3,
                "last_commit_at": "2025-10-09T08:53:20.500+00:00",
                "batch": 4,
                "snapshot": 7_000_000_000_000_000_004,
                "consecutive_failures": 1,
                "last_error": "refused: 403 for user x with ********** at http://u:**********@cat/",
            }
        },
    }
    health(stopped(error="gave up canary-4711"))
    assert "canary" not in json.dumps(health.report().to_json())
