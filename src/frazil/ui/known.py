"""All that is known of a pipeline when a page is made, and the state that follows from it. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from frazil.model.words import several
from frazil.observe.health import PipelineHealth
from frazil.observe.health import State as HealthState
from frazil.observe.lake import TableFacts
from frazil.observe.status import Status, is_old
from frazil.ui.history import History, Rate, history_of, rate_of
from frazil.ui.live import LiveFacts
from frazil.ui.readings import Reading
from frazil.ui.values import State, Tone, Value, bytes_rate, rate, seconds, unknown, when
from frazil.ui.watched import Watched

ONLY_LIVE = "Only the process that runs the pipeline knows this: frazil run --ui shows it."
NOT_READ = "The table has not been read."

_LIVE_STATES = {
    HealthState.STARTING: (Tone.WAIT, "Spark is starting, or the sink is not claimed yet"),
    HealthState.RUNNING: (Tone.GOOD, ""),
    HealthState.PAUSED: (Tone.OFF, "somebody has paused it"),
    HealthState.FAILING: (Tone.BAD, "the last attempt to commit failed"),
    HealthState.FENCED: (Tone.BAD, "another instance owns the sink"),
    HealthState.FAILED: (Tone.BAD, "it stopped with an error"),
    HealthState.FINISHED: (Tone.OFF, "it has read everything"),
    HealthState.STALE: (Tone.WARN, "rows wait, and none was committed for long"),
}


@dataclass(frozen=True)
class Known:
    """What is known of a pipeline at a moment. ``live``: what this process knows of it, if it runs it."""

    pipeline: Watched
    table: Reading[TableFacts | None]
    live: LiveFacts | None
    now_ms: int

    @property
    def facts(self) -> TableFacts | None:
        """The table as it was read last."""
        return self.table.value

    @property
    def status(self) -> Status:
        """The same as `frazil status` has it."""
        return Status(self.pipeline.spec, self.facts, self.table.error)

    @property
    def has_many_tables(self) -> bool:
        """Whether the sink routes rows to several tables."""
        return self.pipeline.spec.sink.route is not None

    @cached_property
    def history(self) -> History:
        """What happened."""
        return history_of(self.facts, self.pipeline.spec.sink_id, self.live, has_many_tables=self.has_many_tables)

    @cached_property
    def rate(self) -> Rate | None:
        """The rate of late."""
        return rate_of(self.history, self.now_ms, self.pipeline.spec.sink.flush_interval_secs)

    @property
    def last_commit_ms(self) -> int | None:
        """When the last batch was committed."""
        newest = self.history.commits[-1].at_ms if self.history.commits else None
        state = self.status.ledger
        return newest if newest is not None else state.at_ms if state is not None else None


def state_of(known: Known) -> State:
    """The state of a pipeline: what its process says of it, and otherwise what its table tells."""
    if known.live is not None:
        return _live_state(known.live.health)
    return _state_of_table(known)


def _live_state(health: PipelineHealth) -> State:
    tone, why = _LIVE_STATES[health.state]
    return State(health.state.value, tone, health.last_error or why)


def _state_of_table(known: Known) -> State:  # noqa: PLR0911 - one for each state
    if not known.pipeline.spec.enabled:
        return State("not enabled", Tone.OFF, "the file has enabled: false")
    if known.table.error is not None:
        return State("unreadable", Tone.BAD, known.table.error.message)
    if known.table.at is None:
        return State("being read", Tone.WAIT, "the catalog has not answered yet")
    facts, state = known.facts, known.status.ledger
    if facts is None:
        return State("no table", Tone.OFF, "a first run makes the table")
    if state is None:
        return State("never ran", Tone.OFF, "this pipeline has never committed to the table")
    if (pause := facts.paused.get(known.pipeline.spec.sink_id)) is not None:
        return State("paused", Tone.OFF, pause.words)
    if facts.was_rolled_back(state):
        return State("rolled back", Tone.BAD, "somebody moved the table back behind the last commit: a run will stop and say so")
    if is_old(known.pipeline.spec, (known.now_ms - state.at_ms) / 1000):
        return State("quiet", Tone.WARN, "no commit for long: it does not run, or has nothing to read")
    return State("committing", Tone.GOOD, "the last commit is recent")


def rows_rate(known: Known) -> Value:
    """Rows a second."""
    found = known.rate
    return unknown(_why_no_history(known)) if found is None else Value(rate(found.rows))


def data_rate(known: Known) -> Value:
    """Bytes a second."""
    found = known.rate
    if found is None:
        return unknown(_why_no_history(known))
    if found.bytes is None:
        return unknown("The table with the position of a route has no files. " + ONLY_LIVE)
    return Value(bytes_rate(found.bytes))


def lag_of(known: Known) -> Value:
    """How far the table is behind its source."""
    live = known.live
    if live is None:
        return unknown(ONLY_LIVE)
    if live.lag is not None and live.lag.rows is not None:
        return Value(f"{live.lag.rows:,} rows", "Messages of the source that are not in the table yet")
    if live.lag is not None and live.lag.seconds is not None:
        return Value(seconds(live.lag.seconds), "Age of the oldest change of the source that is not in the table yet")
    if live.pending is not None:
        return Value(f"{live.pending:,} rows", "Rows that are seen and not committed yet")
    return unknown("The source does not say how far ahead it is.")


def last_commit(known: Known) -> Value:
    """When the last batch was committed."""
    found = when(known.last_commit_ms, known.now_ms)
    if found is not None:
        return Value(found.text, found.iso)
    return unknown(_why_no_history(known)) if known.facts is None and not _has_no_table(known) else Value("never")


def letters_count(known: Known) -> Value:
    """How many rows became dead letters."""
    commits = known.history.commits
    if known.facts is None and known.live is None:
        return unknown(_why_no_history(known))
    several = "the commit" if len(commits) == 1 else f"the {len(commits):,} commits"
    return Value(f"{sum(one.dead_lettered for one in commits):,}", f"In {several} that the history has")


def rows_in_table(known: Known) -> Value:
    """How many rows the table has."""
    facts = known.facts
    if facts is None:
        return unknown(_why_no_history(known))
    if known.has_many_tables:
        state = known.status.ledger
        text = f"in {several(len(state.followers), 'table')}" if state is not None else "0"
        return Value(text, "The rows are in the tables of the route")
    return Value(f"{facts.current.total_rows:,}" if facts.current is not None else "0")


def _has_no_table(known: Known) -> bool:
    return known.table.error is None and known.table.at is not None and known.facts is None


def _why_no_history(known: Known) -> str:
    if known.table.error is not None:
        return "The table cannot be read."
    if known.table.at is None:
        return NOT_READ
    return "There is no table yet." if known.facts is None else "There are too few commits so far."
