"""The page of one pipeline, made from what is known of it. Pure functions."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from frazil.model.dead_letters import OnError
from frazil.model.words import several, short, size
from frazil.observe.health_words import health_rows
from frazil.observe.letters import Letter, Letters
from frazil.observe.status import hints
from frazil.observe.table_health import TableHealth
from frazil.ui.charts import Chart, charts_of
from frazil.ui.configuration import configuration_text
from frazil.ui.history import Commit, Instance, Upkeep, paces
from frazil.ui.known import ONLY_LIVE, Known, data_rate, lag_of, last_commit, letters_count, rows_in_table, rows_rate, state_of
from frazil.ui.readings import Reading
from frazil.ui.values import Problem, State, Value, When, problem, seconds, unknown, when

MOST_COMMITS, MOST_UPKEEP, MOST_INSTANCES, MOST_LETTERS = 25, 20, 10, 10
_LETTER_LENGTH = 400

_DONE = {
    "merge": "merged small files",
    "manifests": "rewrote manifests by partition",
    "statistics": "counted the values of columns",
    "settle": "settled equality deletes",
    "compact": "rewrote files without their deletes",
    "erase": "erased rows",
    "remove": "removed dead letters or rows that were taken back",
}


@dataclass(frozen=True)
class Figure:
    """One number at the top of the page."""

    label: str
    value: Value


@dataclass(frozen=True)
class CommitRow:
    """A commit in the list."""

    when: When | None
    batch: str
    snapshot: str
    written: str
    read: str
    dead_lettered: str
    filtered: str
    files: Value
    size: Value
    time: Value


@dataclass(frozen=True)
class LetterRow:
    """A dead letter."""

    when: When | None
    batch: str
    code: str
    stage: str
    error: str
    table: str
    at: str
    raw: str


@dataclass(frozen=True)
class LettersView:
    """Dead letters. ``reasons`` are the codes of those that were read, with how many there are."""

    kept: bool
    table: str
    rows: str
    reasons: tuple[tuple[str, str], ...]
    newest: tuple[LetterRow, ...]
    pending: bool
    problem: Problem | None
    replay: str


@dataclass(frozen=True)
class HealthView:
    """The health of the table."""

    rows: tuple[tuple[str, str], ...]
    pending: bool
    problem: Problem | None


@dataclass(frozen=True)
class Line:
    """Something that happened at a time."""

    when: When | None
    what: str
    text: str
    bad: bool = False


@dataclass(frozen=True)
class InstanceRow:
    """A process that has owned the sink."""

    epoch: str
    name: str
    first: When | None
    last: When | None
    batches: str
    owns: bool


@dataclass(frozen=True)
class Page:
    """All of the page. ``events`` is None where this process does not run the pipeline."""

    key: str
    file: str
    state: State
    table: str
    catalog: str
    branch: str
    tables: tuple[str, ...]
    problem: Problem | None
    nothing: str
    read: When | None
    hints: tuple[str, ...]
    figures: tuple[Figure, ...]
    charts: tuple[Chart, ...]
    commits: tuple[CommitRow, ...]
    commits_known: str
    letters: LettersView
    health: HealthView
    upkeep: tuple[Line, ...]
    instances: tuple[InstanceRow, ...]
    events: tuple[Line, ...] | None
    configuration: str
    run: str
    pending: bool


def page_of(known: Known, health: Reading[TableHealth | None], letters: Reading[Letters | None]) -> Page:
    """The page of a pipeline."""
    spec, history, now_ms = known.pipeline.spec, known.history, known.now_ms
    state, state_of_ledger = state_of(known), known.status.ledger
    live = known.live
    return Page(
        key=known.pipeline.key,
        file=known.pipeline.file,
        state=state,
        table=spec.sink.full_name,
        catalog=spec.sink.catalog.address,
        branch=spec.sink.branch or "",
        tables=state_of_ledger.followers if state_of_ledger is not None and known.has_many_tables else (),
        problem=problem(known.table.error),
        nothing=_nothing(known),
        read=when(int(known.table.at * 1000), now_ms) if known.table.at else None,
        hints=tuple(hints(known.status, now_ms / 1000)),
        figures=tuple(_figures(known)),
        charts=charts_of(paces(history)),
        commits=tuple(_commit(one, now_ms) for one in history.commits[: -MOST_COMMITS - 1 : -1]),
        commits_known=_commits_known(known),
        letters=_letters(known, letters),
        health=_health(health),
        upkeep=tuple(_upkeep(one, now_ms) for one in history.upkeep[: -MOST_UPKEEP - 1 : -1]),
        instances=tuple(_instance(one, known) for one in history.instances[: -MOST_INSTANCES - 1 : -1]),
        events=None if live is None else tuple(Line(when(n.at_ms, now_ms), n.what, n.text, n.bad) for n in live.notes[::-1]),
        configuration=configuration_text(known.pipeline),
        run=f"frazil run {known.pipeline.file} {spec.name}",
        pending=not (known.table.is_done and health.is_done and letters.is_done),
    )


def _nothing(known: Known) -> str:
    """Why sections have nothing to show, where that is because of the table; empty where it was read."""
    if known.facts is not None:
        return ""
    if known.table.error is not None:
        return "The table cannot be read."
    return "There is no table yet." if known.table.is_done else "The table is being read."


def since_batch(known: Known, most: int) -> int:
    """The batch since which so many rows became dead letters, by the history: 0 where it does not go back so far."""
    left = most
    for one in reversed(known.history.commits):
        left -= one.dead_lettered
        if left <= 0:
            return one.batch
    return 0


def _figures(known: Known) -> Iterator[Figure]:
    live = known.live
    yield Figure("Rows/s", rows_rate(known))
    yield Figure("Bytes/s", data_rate(known))
    yield Figure("Lag", lag_of(known))
    yield Figure("Last commit", last_commit(known))
    yield Figure("Time of a commit", _commit_time(known))
    yield Figure("Rows in the table", rows_in_table(known))
    yield Figure("Dead letters", letters_count(known))
    if live is None:
        yield from (Figure(label, unknown(ONLY_LIVE)) for label in ("Fenced", "Failed commits", "Restarts"))
        return
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in live.failures.items()) or "none since this process started"
    yield Figure("Fenced", Value(f"{live.fenced:,}", "How often another instance took the sink from this process"))
    yield Figure("Failed commits", Value(f"{sum(live.failures.values()):,}", f"Attempts by kind: {kinds}"))
    source = f"The source did not answer {live.source_failures:,} times"
    yield Figure("Restarts", Value(f"{live.restarts:,}", source))


def _commit_time(known: Known) -> Value:
    times = [one.seconds for one in known.history.commits if one.seconds is not None]
    if not times:
        return unknown(ONLY_LIVE if known.live is None else "This process has not committed yet.")
    title = f"Median of {several(len(times), 'commit')}; the longest took {seconds(max(times))}"
    return Value(seconds(statistics.median(times)), title)


def _commits_known(known: Known) -> str:
    """How far back the list goes."""
    count = len(known.history.commits)
    if count == 0:
        return ""
    shown = f"the newest {MOST_COMMITS} of {count:,}" if count > MOST_COMMITS else several(count, "commit")
    return f"{shown} that the snapshots still tell"


def _commit(one: Commit, now_ms: int) -> CommitRow:
    no_time = unknown("Another process made this commit, or this one before it was started anew.")
    attempts = "" if one.attempts in (None, 1) else f"{one.attempts} attempts"
    no_files = unknown("The files are in the tables of the route.")
    return CommitRow(
        when=when(one.at_ms, now_ms),
        batch=f"{one.batch:,}",
        snapshot=str(one.snapshot),
        written=f"{one.written:,}",
        read=f"{one.read:,}",
        dead_lettered=f"{one.dead_lettered:,}",
        filtered=f"{one.filtered:,}",
        files=no_files if one.files is None else Value(f"{one.files:,}"),
        size=no_files if one.bytes is None else Value(size(one.bytes)),
        time=no_time if one.seconds is None else Value(seconds(one.seconds), attempts),
    )


def _letters(known: Known, reading: Reading[Letters | None]) -> LettersView:
    sink, found = known.pipeline.spec.sink, reading.value
    newest = found.newest if found is not None else ()
    reasons = Counter(one.code for one in newest)
    return LettersView(
        kept=sink.error_handling is OnError.DEAD_LETTER,
        table=".".join(sink.letters_name),
        rows=several(found.rows, "row") if found is not None else "",
        reasons=tuple((code, f"{count:,} of the newest {len(newest):,}") for code, count in reasons.most_common()),
        newest=tuple(_letter(one, known.now_ms) for one in newest[:MOST_LETTERS]),
        pending=not reading.is_done,
        problem=problem(reading.error),
        replay=f"frazil replay {known.pipeline.file} {known.pipeline.spec.name}",
    )


def _letter(one: Letter, now_ms: int) -> LetterRow:
    at_ms = None if one.failed_at is None else int(one.failed_at.timestamp() * 1000)
    raw = short(one.raw, _LETTER_LENGTH)
    return LetterRow(when(at_ms, now_ms), f"{one.batch:,}", one.code, one.stage, one.error, one.table, one.at, raw)


def _health(reading: Reading[TableHealth | None]) -> HealthView:
    rows = tuple(health_rows(reading.value)) if reading.value is not None else ()
    return HealthView(rows, not reading.is_done, problem(reading.error))


def _upkeep(one: Upkeep, now_ms: int) -> Line:
    counts = ", ".join(f"{name}: {count:,}" for name, count in one.counts)
    return Line(when(one.at_ms, now_ms), _DONE.get(one.kind, one.kind), counts)


def _instance(one: Instance, known: Known) -> InstanceRow:
    state = known.status.ledger
    owns = state is not None and (state.epoch, state.instance) == (one.epoch, one.name)
    return InstanceRow(
        f"{one.epoch:,}", one.name, when(one.first_ms, known.now_ms), when(one.last_ms, known.now_ms), f"{one.batches:,}", owns
    )
