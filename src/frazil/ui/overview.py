"""The page with all pipelines, made from what is known of them. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from frazil.ui.charts import Spark, spark_of
from frazil.ui.history import paces
from frazil.ui.known import Known, lag_of, last_commit, letters_count, rows_in_table, rows_rate, state_of
from frazil.ui.values import Problem, State, Tone, Value, problem

# What needs somebody comes first.
_ORDER = {tone: place for place, tone in enumerate(Tone)}
_SUMMARY = {
    Tone.BAD: "need attention",
    Tone.WARN: "quiet or stale",
    Tone.WAIT: "starting",
    Tone.GOOD: "working",
    Tone.OFF: "not running",
}


@dataclass(frozen=True)
class Row:
    """A pipeline in the list."""

    key: str
    href: str
    state: State
    table: str
    rate: Value
    spark: Spark | None
    lag: Value
    last: Value
    rows: Value
    letters: Value
    problem: Problem | None


@dataclass(frozen=True)
class Total:
    """How many pipelines are in one kind of state."""

    tone: Tone
    count: int
    text: str
    chosen: bool


@dataclass(frozen=True)
class Overview:
    """The list: ``rows`` are those that match what was asked for, of ``all``. ``pending``: some tables are still being read."""

    rows: tuple[Row, ...]
    totals: tuple[Total, ...]
    all: int
    asked: str
    tone: str
    pending: bool


def overview_of(known: Sequence[Known], asked: str = "", tone: str = "") -> Overview:
    """The list of those pipelines whose name or table has the text that is asked for, and whose state has the tone."""
    rows = sorted((_row(one) for one in known), key=lambda row: (_ORDER[row.state.tone], row.key))
    counts = Counter(row.state.tone for row in rows)
    words = asked.casefold().split()
    shown = [row for row in rows if tone in ("", row.state.tone) and all(word in _searched(row) for word in words)]
    return Overview(
        rows=tuple(shown),
        totals=tuple(Total(one, counts[one], _SUMMARY[one], chosen=one == tone) for one in Tone if counts[one]),
        all=len(rows),
        asked=asked,
        tone=tone,
        pending=any(not one.table.is_done for one in known),
    )


def href_of(key: str) -> str:
    """The address of a pipeline's page."""
    return f"/pipelines/{quote(key, safe='')}"


def _searched(row: Row) -> str:
    return f"{row.key} {row.table} {row.state.word}".casefold()


def _row(known: Known) -> Row:
    return Row(
        key=known.pipeline.key,
        href=href_of(known.pipeline.key),
        state=state_of(known),
        table=known.pipeline.spec.sink.full_name,
        rate=rows_rate(known),
        spark=spark_of(paces(known.history)),
        lag=lag_of(known),
        last=last_commit(known),
        rows=rows_in_table(known),
        letters=letters_count(known),
        problem=problem(known.table.error),
    )
