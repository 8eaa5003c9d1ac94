"""Health as a state machine over the engine's events.

Health follows the last commit, not the process. The rules, for each pipeline:

- An attempt that failed because the catalog could not be reached, refused, or left the outcome unknown makes it *failing* at
  once. So does an attempt of any kind that is not tried again.
- A conflict is contention: somebody else's commit won, and the catalog works. Only :data:`CONTENTION_LIMIT` failed attempts in a
  row make the pipeline failing, so that two busy writers of one table do not flap.
- The next commit, or a fresh claim of the sink (:class:`Started`), makes it *running* again.
- *Fenced* and *failed* (stopped with an error) last until it is started again. A pipeline that ended well is *finished*.
- *Paused* is healthy, however long it lasts: somebody has asked for it.
- A running pipeline is *stale* when rows are pending and none was committed for :data:`STALE_INTERVALS` flush intervals, and
  for :data:`STALE_SECONDS` at least. The time counts from when the rows were first seen, before the first commit as after it.

Healthy: no pipeline is failing, fenced, failed or stale. Ready: every pipeline owned its sink and none is fenced or failed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from frazil.model.events import (
    CommitFailed,
    Committed,
    Event,
    FencedOut,
    Lagged,
    Maintained,
    Paused,
    Published,
    PublishFailed,
    Requested,
    Restarting,
    Resumed,
    Settled,
    SourceFailed,
    SourceNoticed,
    Staged,
    Started,
    Stopped,
    TableMeasured,
    Waiting,
)
from frazil.model.pipeline import PipelineSpec
from frazil.model.secrets import scrub

CONTENTION_LIMIT = 5
STALE_INTERVALS = 10
STALE_SECONDS = 120.0


class State(StrEnum):
    """Where a pipeline is."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    FAILING = "failing"
    FENCED = "fenced"
    FAILED = "failed"
    FINISHED = "finished"
    STALE = "stale"


UNHEALTHY = (State.FAILING, State.FENCED, State.FAILED, State.STALE)


@dataclass(frozen=True)
class PipelineHealth:
    """What is known of one pipeline. ``owned``: it has claimed its sink. ``pending_since``: when rows began to wait."""

    state: State = State.STARTING
    owned: bool = False
    table: str | None = None
    epoch: int | None = None
    last_commit_ms: int | None = None
    batch: int | None = None
    snapshot: int | None = None
    consecutive_failures: int = 0
    last_error: str | None = None
    pending_since: float | None = None

    @property
    def ready(self) -> bool:
        """Whether it owned its sink and nothing took it away."""
        return self.owned and self.state not in (State.FENCED, State.FAILED)

    def at(self, now: float, stale_after: float | None) -> PipelineHealth:
        """The health at a moment: a pipeline that runs too long without a commit is stale."""
        waited = now - self.pending_since if self.pending_since is not None else 0.0
        if self.state is not State.RUNNING or stale_after is None or waited <= stale_after:
            return self
        return replace(self, state=State.STALE, last_error=f"rows have been pending for {waited:.0f} s without a commit")

    def to_json(self) -> dict[str, Any]:
        """As it stands in the body of the answer."""
        return {
            "state": self.state.value,
            "table": self.table,
            "epoch": self.epoch,
            "last_commit_at": _iso(self.last_commit_ms),
            "batch": self.batch,
            "snapshot": self.snapshot,
            "consecutive_failures": self.consecutive_failures,
            "last_error": self.last_error,
        }


def after(health: PipelineHealth, event: Event, now: float) -> PipelineHealth:  # noqa: PLR0911, PLR0912 - one for each event
    """The health of a pipeline after an event."""
    match event:
        case Started():
            return replace(health, state=State.RUNNING, owned=True, table=event.table, epoch=event.epoch,
                           consecutive_failures=0, last_error=None, pending_since=None)  # fmt: skip
        case Waiting():
            return replace(health, pending_since=None if event.pending_rows == 0 else _since(health, now))
        case Staged():
            return replace(health, pending_since=_since(health, now) if event.rows else health.pending_since)
        case Committed():
            return replace(health, state=State.RUNNING, table=event.table, last_commit_ms=event.at_ms, batch=event.batch,
                           snapshot=event.snapshot, consecutive_failures=0, last_error=None, pending_since=None)  # fmt: skip
        case CommitFailed():
            return _after_failure(health, event)
        case SourceFailed():
            failures = health.consecutive_failures + 1
            return replace(health, state=State.FAILING, consecutive_failures=failures, last_error=scrub(event.message))
        case Restarting():
            return replace(health, state=State.FAILING, last_error=scrub(event.error), pending_since=None)
        case Paused():
            return replace(health, state=State.PAUSED, consecutive_failures=0, last_error=None, pending_since=None)
        case Resumed():
            return replace(health, state=State.RUNNING)
        case FencedOut():
            return replace(health, state=State.FENCED, last_error=scrub(event.message), pending_since=None)
        case Settled() | Maintained() | TableMeasured() | Requested() | Lagged() | SourceNoticed():
            return health
        case Published() | PublishFailed():
            return health
        case Stopped():
            return _after_stop(health, event)


def _after_failure(health: PipelineHealth, event: CommitFailed) -> PipelineHealth:
    failures = health.consecutive_failures + 1
    contention = event.kind == "conflict" and event.will_retry and failures < CONTENTION_LIMIT
    return replace(
        health,
        state=health.state if contention else State.FAILING,
        consecutive_failures=failures,
        last_error=scrub(f"{event.kind}: {event.message}"),
    )


def _after_stop(health: PipelineHealth, event: Stopped) -> PipelineHealth:
    state = State.FINISHED if event.error is None else State.FAILED
    if health.state is State.FENCED or (health.state is State.FAILING and event.error is None):
        state = health.state
    error = health.last_error if event.error is None else scrub(event.error)
    return replace(health, state=state, last_error=error, pending_since=None)


def _since(health: PipelineHealth, now: float) -> float:
    return now if health.pending_since is None else health.pending_since


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Report:
    """The health of all pipelines at one moment."""

    pipelines: Mapping[str, PipelineHealth]

    @property
    def healthy(self) -> bool:
        """Whether commits work."""
        return not any(pipeline.state in UNHEALTHY for pipeline in self.pipelines.values())

    @property
    def not_ready(self) -> list[str]:
        """The pipelines that do not own their sinks."""
        return [name for name, pipeline in self.pipelines.items() if not pipeline.ready]

    @property
    def ready(self) -> bool:
        """Whether there are pipelines and all own their sinks."""
        return bool(self.pipelines) and not self.not_ready

    def to_json(self) -> dict[str, Any]:
        """The body of the answer."""
        return {
            "status": "healthy" if self.healthy else "unhealthy",
            "ready": self.ready,
            "pipelines": {name: pipeline.to_json() for name, pipeline in self.pipelines.items()},
        }


class Health:
    """Listens to events, from any thread, and reports. ``pipelines`` are those that must start before the process is ready.

    ``stale_after`` gives for a pipeline the seconds that rows may be pending; without an entry it never becomes stale.
    """

    def __init__(
        self,
        pipelines: Iterable[str] = (),
        *,
        stale_after: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._pipelines = {name: PipelineHealth() for name in pipelines}
        self._stale_after = dict(stale_after or {})
        self._clock = clock

    @classmethod
    def watching(cls, pipelines: Iterable[PipelineSpec], *, clock: Callable[[], float] = time.monotonic) -> Health:
        """The health of these pipelines, which are those that run: one that is not enabled may be run by its name."""
        intervals = {spec.name: spec.sink.flush_interval_secs for spec in pipelines}
        stale_after = {name: max(STALE_INTERVALS * secs, STALE_SECONDS) for name, secs in intervals.items()}
        return cls(intervals, stale_after=stale_after, clock=clock)

    def __call__(self, event: Event) -> None:
        """Takes note of one event."""
        now = self._clock()
        with self._lock:
            self._pipelines[event.pipeline] = after(self._pipelines.get(event.pipeline, PipelineHealth()), event, now)

    def report(self) -> Report:
        """The health at this moment."""
        now = self._clock()
        with self._lock:
            pipelines = dict(self._pipelines)
        return Report({name: pipeline.at(now, self._stale_after.get(name)) for name, pipeline in pipelines.items()})
