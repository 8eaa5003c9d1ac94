"""What a pipeline's table says about it, and what a person should know of that: for `frazil status` and the web application."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from frazil.errors import FrazilError
from frazil.model.commit import SinkState, unfilled_columns
from frazil.model.pipeline import PipelineSpec
from frazil.model.words import ago, size
from frazil.observe.lake import TableFacts, table_facts

# A commit that is so many flush intervals old, and this many seconds at least, is worth a word.
OLD_INTERVALS, OLD_SECONDS = 10, 120
# From so many files on it matters when they are far smaller than asked for.
MANY_FILES, SMALL_SHARE = 100, 8


@dataclass(frozen=True)
class Status:
    """What a pipeline's table says about it."""

    pipeline: PipelineSpec
    facts: TableFacts | None = None
    error: FrazilError | None = None

    @property
    def ledger(self) -> SinkState | None:
        """The last entry of this pipeline's sink."""
        return self.facts.ledgers.get(self.pipeline.sink_id) if self.facts is not None else None


def look(pipeline: PipelineSpec) -> Status:
    """One pipeline's status."""
    try:
        return Status(pipeline, table_facts(pipeline.sink))
    except FrazilError as error:
        return Status(pipeline, error=error)


def is_old(pipeline: PipelineSpec, seconds: float) -> bool:
    """Whether a last commit of that age says that the pipeline does not run, or has nothing to read."""
    return seconds > max(OLD_INTERVALS * pipeline.sink.flush_interval_secs, OLD_SECONDS)


def hints(one: Status, now: float | None = None) -> Iterator[str]:
    """What a person should know of it, at this moment if no other is given."""
    if one.error is not None:
        return
    if not one.pipeline.enabled:
        yield "not enabled"
    if one.facts is None:
        yield "the table does not exist yet"
        return
    state = one.ledger
    if state is None:
        yield "this pipeline has never committed to the table"
        return
    if (pause := one.facts.paused.get(one.pipeline.sink_id)) is not None:
        yield f"paused {pause.words}; it goes on after: frazil resume {one.pipeline.name}"
        return
    if one.facts.was_rolled_back(state):
        yield "the table was rolled back behind the last commit of this pipeline: a run will stop and say so"
    for origin, columns in unfilled_columns(state.end).items():
        yield (
            f"rows of {origin} may lack values in {', '.join(columns)} that the database has and its log does not carry: "
            "see docs/postgres.md, Values that are not in the log"
        )
    age = max(0.0, (time.time() if now is None else now) - state.at_ms / 1000)
    if is_old(one.pipeline, age):
        interval = one.pipeline.sink.flush_interval_secs
        yield f"the last commit was {ago(age)} (flush_interval_secs is {interval}): it is not running, or has nothing to read"
    head = one.facts.current
    if head is not None and head.total_files > MANY_FILES:
        average = head.total_bytes // head.total_files
        if average * SMALL_SHARE < one.pipeline.sink.target_file_bytes:
            yield f"{head.total_files:,} files of {size(average)} on average: compaction would make reading faster"
