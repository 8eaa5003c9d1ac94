"""What the process that runs the pipelines knows of them beside their tables: taken from the engine's events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from frazil.model.commit import RowCounts
from frazil.model.events import (
    CommitFailed,
    Committed,
    Event,
    FencedOut,
    Lagged,
    Maintained,
    PublishFailed,
    Restarting,
    Settled,
    SourceFailed,
    SourceNoticed,
    Staged,
    Started,
    Stopped,
    Waiting,
)
from frazil.model.pipeline import PipelineSpec
from frazil.model.secrets import scrub
from frazil.observe.health import Health, PipelineHealth
from frazil.observe.progress import upkeep_text

# So much is kept of each pipeline, however long it runs.
MOST_COMMITS, MOST_NOTES = 500, 50


@dataclass(frozen=True)
class LiveCommit:
    """A commit that this process made."""

    at_ms: int
    snapshot: int
    batch: int
    counts: RowCounts
    files: int
    bytes: int
    seconds: float
    attempts: int


@dataclass(frozen=True)
class Note:
    """Something that a person may want to know, and when it happened. ``bad``: it kept rows from their table."""

    at_ms: int
    what: str
    text: str
    bad: bool = False


@dataclass(frozen=True)
class Lag:
    """How far a table is behind its source, each None where the source does not say it."""

    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class LiveFacts:
    """What is known of a pipeline that this process runs.

    ``underway`` are the counts of a batch with several tables, whose home has not committed it yet. ``failures`` are failed
    attempts of commits by kind.
    """

    health: PipelineHealth = field(default_factory=PipelineHealth)
    started_ms: tuple[int, ...] = ()
    commits: tuple[LiveCommit, ...] = ()
    underway: RowCounts = field(default_factory=lambda: RowCounts(0, 0))
    pending: int | None = None
    lag: Lag | None = None
    fenced: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    source_failures: int = 0
    restarts: int = 0
    dead_lettered: int = 0
    notes: tuple[Note, ...] = ()


def after(live: LiveFacts, event: Event, home: str, now_ms: int) -> LiveFacts:  # noqa: PLR0911 - one for each event
    """What is known after an event. ``home`` is the table whose commits count: that of the sink's ledger."""
    noted = _noted(live, event, now_ms)
    match event:
        case Started():
            return replace(noted, started_ms=(*live.started_ms, now_ms)[-MOST_NOTES:], underway=RowCounts(0, 0), pending=None)
        case Waiting():
            return replace(noted, pending=event.pending_rows)
        case Staged():
            return replace(noted, pending=live.pending or event.rows)
        case Committed():
            return noted if event.skipped else _committed(noted, event, home)
        case Lagged():
            return replace(noted, lag=Lag(event.rows, event.bytes, event.seconds))
        case CommitFailed():
            return replace(noted, failures={**live.failures, event.kind: live.failures.get(event.kind, 0) + 1})
        case SourceFailed():
            return replace(noted, source_failures=live.source_failures + 1)
        case Restarting():
            return replace(noted, restarts=live.restarts + 1, underway=RowCounts(0, 0))
        case FencedOut():
            return replace(noted, fenced=live.fenced + 1)
        case _:
            return noted


def _committed(live: LiveFacts, event: Committed, home: str) -> LiveFacts:
    counts = live.underway + event.counts
    if event.table != home:
        return replace(live, underway=counts)
    made = LiveCommit(event.at_ms, event.snapshot, event.batch, counts, event.files, event.bytes, event.seconds, event.attempts)
    commits, lettered = (*live.commits, made)[-MOST_COMMITS:], live.dead_lettered + counts.dead_lettered
    return replace(live, commits=commits, underway=RowCounts(0, 0), pending=0, dead_lettered=lettered)


def _noted(live: LiveFacts, event: Event, now_ms: int) -> LiveFacts:
    note = note_of(event, now_ms)
    return live if note is None else replace(live, notes=(*live.notes, note)[-MOST_NOTES:])


def note_of(event: Event, now_ms: int) -> Note | None:  # noqa: PLR0911 - one for each event
    """What an event says to a person; None if it is no news."""
    match event:
        case Started():
            return Note(now_ms, "started", f"owns the sink, epoch {event.epoch}")
        case CommitFailed():
            then = "tried again" if event.will_retry else "given up"
            text = f"{event.kind}, attempt {event.attempt}, {then}: {_line(event.message)}"
            return Note(now_ms, "commit failed", text, bad=True)
        case SourceFailed():
            then = "tried again" if event.will_retry else "given up"
            return Note(now_ms, "source failed", f"attempt {event.attempt}, {then}: {_line(event.message)}", bad=True)
        case SourceNoticed():
            return Note(now_ms, "source", _line(event.message), bad=event.gap)
        case Restarting():
            text = f"attempt {event.attempt}, in {event.seconds:.0f} s, after: {_line(event.error)}"
            return Note(now_ms, "restarting", text, bad=True)
        case PublishFailed():
            return Note(now_ms, "not published", f"{event.target}: {_line(event.message)}", bad=True)
        case FencedOut():
            return Note(now_ms, "fenced", _line(event.message), bad=True)
        case Maintained() | Settled():
            return Note(now_ms, "maintained", f"{event.table}: {upkeep_text(event)}")
        case Stopped(error=None):
            return Note(now_ms, "finished", f"{event.rows:,} rows in {event.batches:,} batches")
        case Stopped():
            return Note(now_ms, "failed", _line(event.error or ""), bad=True)
        case _:
            return None


def _line(message: str) -> str:
    return " ".join(scrub(message).split())


class Live:
    """Listens to the events of pipelines, from any thread."""

    def __init__(self, pipelines: Iterable[PipelineSpec], clock: Callable[[], float] = time.time) -> None:
        known = tuple(pipelines)
        self._health = Health.watching(known)
        self._homes = {spec.name: spec.sink.full_name for spec in known}
        self._letters = {spec.name: ".".join(spec.sink.letters_name) for spec in known}
        self._facts = {spec.name: LiveFacts() for spec in known}
        self._clock = clock
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Takes note of one event. What the table of dead letters gets is counted with the batch that it is of."""
        of_letters = isinstance(event, Committed) and event.table == self._letters.get(event.pipeline)
        if event.pipeline not in self._homes or of_letters:
            return
        self._health(event)
        now_ms = int(self._clock() * 1000)
        with self._lock:
            known = self._facts[event.pipeline]
            self._facts[event.pipeline] = after(known, event, self._homes[event.pipeline], now_ms)

    def facts(self) -> Mapping[str, LiveFacts]:
        """What is known now, by pipeline."""
        states = self._health.report().pipelines
        with self._lock:
            return {name: replace(facts, health=states[name]) for name, facts in self._facts.items()}
