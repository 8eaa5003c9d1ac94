"""Rows that cannot be written, kept in a table of their own: the record as it came, where it was, and why.

The table follows the one that the rows were for: it gets the letters of a batch before that gets its rows, and its ledger says
which batch they are of, so that a batch that is cut off in between is found and repeated without writing them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol

from pyspark.sql import DataFrame, functions

from frazil.columns.coerce import json_text
from frazil.columns.schema import data_columns, quoted, schema_of
from frazil.columns.types import spark_type
from frazil.commit.protocol import Moved
from frazil.errors import Halted
from frazil.model.commit import Position, SinkState
from frazil.model.dead_letters import LETTERS
from frazil.model.hidden import AT, ERROR, HEADERS, KEY, RAW, TIME
from frazil.model.sink import SinkSpec
from frazil.write import take_back
from frazil.write.claim import ClaimedSink
from frazil.write.part import SINGLE_WRITES, Part

Post = Callable[[DataFrame], None]
"""Sends a copy of letters elsewhere, before they are in their table: again when that fails."""


@dataclass(frozen=True)
class Rejected:
    """The rows of a batch that its table cannot take: a frame that has them among others, and how many they are."""

    frame: DataFrame
    table: str
    rows: int


@dataclass(frozen=True)
class StagedLetters:
    """The letters of a batch on their way. ``files``: what the writer of their table has staged, None if there is nothing to add.

    ``rows`` is how many letters this run has more with them, ``end`` where their batch ends if it has any.
    """

    rows: int = 0
    end: Position | None = None
    files: Any = None


class Follower(Protocol):
    """What is needed of the writer of the letters' own table."""

    sink: SinkSpec
    sink_id: str
    claimed: ClaimedSink

    @property
    def state(self) -> SinkState | None:
        """What the ledger says."""

    def open(self, *, claim: bool = True, make: bool = True) -> SinkState | None:
        """Finds or creates the table, claims it, and returns what its ledger says."""

    def committed_before(self, end: Position) -> bool:
        """Whether a batch with this end was committed, however long ago."""

    def stage_batch(self, frame: DataFrame, part: Part) -> Any:
        """Writes the files of a batch."""

    def commit_batch(self, batch: Any) -> object:
        """Commits what was staged."""


class Letters(Protocol):
    """Takes the rows that cannot be written."""

    @property
    def followers(self) -> tuple[str, ...]:
        """The tables that hold them, which follow the sink's own."""

    def open(self, home: SinkState | None, *, claim: bool, make: bool = True) -> Position | None:
        """Gets ready behind the sink's home; where a batch ended that was cut off when its letters were written already."""

    def put(self, rejected: Sequence[Rejected], read: int, part: Part, home_batch: int) -> None:
        """Keeps the rows that a batch of so many could not write."""

    def abandon(self) -> None:
        """The batch that was cut off will not be repeated: nothing is left of it."""


class LetterBox:
    """The table of dead letters of one sink."""

    def __init__(self, writer: Follower, sink: SinkSpec, pipeline: str, post: Post | None = None) -> None:
        self._writer = writer
        self._post = post
        self._sink = sink
        self._pipeline = pipeline
        self._put = 0
        self._cut_off: Position | None = None

    @property
    def followers(self) -> tuple[str, ...]:
        """The one table."""
        return (self._writer.sink.full_name,)

    def open(self, home: SinkState | None, *, claim: bool, make: bool = True) -> Position | None:
        """Claims the table as the home was claimed, or only looks."""
        theirs = self._writer.open(claim=claim, make=make)
        self._cut_off = unfinished(home, theirs)
        return self._cut_off

    def put(self, rejected: Sequence[Rejected], read: int, part: Part, home_batch: int) -> None:
        """Writes the letters of a batch, once."""
        staged = self.stage(rejected, read, part, home_batch)
        if staged.files is not None:
            self._writer.commit_batch(staged.files)
        self.kept(staged)

    def stage(self, rejected: Sequence[Rejected], read: int, part: Part, home_batch: int) -> StagedLetters:
        """Writes the files of the letters of a batch. Once they are committed, `kept` must be called."""
        count = sum(one.rows for one in rejected)
        state = self._writer.state
        own = replace(part, rows=count).following(state, home_batch)
        claimed = own.held_by(state)
        if claimed and state is not None and state.rows != count:
            raise Halted(
                "dead-letters-differ",
                f"The batch up to {part.end} was cut off when {state.rows} of its rows were dead letters already; now it has "
                f"{count}. Rows would be lost or doubled.",
                fix="Something was changed since: the sink's columns, or the table. Undo it, and change it after the next batch.",
            )
        if not count:
            return StagedLetters()
        if claimed:
            return StagedLetters(end=part.end)
        require_few(self._sink, read, count, self._put)
        # Where a batch ends says which one it is for single writes alone: a source may be read again from an earlier place.
        if part.source == SINGLE_WRITES and self._writer.committed_before(part.end):
            return StagedLetters(count, part.end)
        constants = {"pipeline": self._pipeline, "sink": self._writer.sink_id, "batch": own.home_batch}
        frames = [letters(one.frame, constants | {"table": one.table}) for one in rejected if one.rows]
        frame = reduce(DataFrame.unionByName, frames)
        if self._post is not None:
            self._post(frame)
        return StagedLetters(count, part.end, self._writer.stage_batch(frame, own))

    def kept(self, staged: StagedLetters) -> None:
        """The letters are in their table."""
        self._put += staged.rows
        self._cut_off = staged.end

    def abandon(self) -> None:
        """Takes the letters of the batch that was cut off back out."""
        state = self._writer.state
        if self._cut_off is not None and state is not None:
            take_back.undo(self._writer.claimed, f"batch = {state.home_batch} and sink = {literal(self._writer.sink_id)}")
        self._cut_off = None

    @property
    def head(self) -> int | None:
        """The table's snapshot."""
        return self._writer.claimed.table.base.head

    def remove(self, condition: str, among: str, source: str, home_batch: int) -> None:
        """Takes letters out, whoever has put them there; from then on the ledger says that this was done for a batch."""
        take_back.remove(self._writer.claimed, condition, among, Moved(source, None, home_batch))

    def cleared(self, home_batch: int) -> bool:
        """Whether that was done for a batch."""
        state = self._writer.state
        return state is not None and state.home_batch == home_batch and state.end is None

    def rows_of(self, home_batch: int) -> int:
        """How many letters a batch has that was the last one to have any."""
        state = self._writer.state
        return state.rows if state is not None and state.home_batch == home_batch else 0


class Collected:
    """Letters of one table that somebody else puts away."""

    followers: tuple[str, ...] = ()

    def __init__(self, take: Callable[[Sequence[Rejected]], None]) -> None:
        self._take = take

    def open(self, home: SinkState | None, *, claim: bool, make: bool = True) -> Position | None:
        """Nothing of its own to open."""

    def put(self, rejected: Sequence[Rejected], read: int, part: Part, home_batch: int) -> None:  # noqa: ARG002 - the protocol's
        """Hands them over."""
        self._take(rejected)

    def abandon(self) -> None:
        """Nothing of its own to give up."""


def unfinished(home: SinkState | None, follower: SinkState | None) -> Position | None:
    """Where the batch ended that a follower has and its home has not. A single write is nobody's to repeat."""
    if follower is None or follower.source == SINGLE_WRITES or follower.home_batch != (home.batch if home is not None else 0) + 1:
        return None
    return follower.end if follower.start == (home.end if home is not None else None) else None


def letters_sink(sink: SinkSpec) -> SinkSpec:
    """The table of a sink's dead letters as a sink of its own, in the same catalog and store."""
    namespace, table = sink.letters_name
    kept = ("catalog", "s3", "gcs", "azure", "format_version")
    columns = [{"name": c.name, "type": str(c.type), "doc": c.doc} for c in LETTERS.fields]
    given: dict[str, Any] = {name: getattr(sink, name) for name in kept}
    return SinkSpec.model_validate(given | {"namespace": namespace, "table": table, "schema": columns})


def require_letters_apart(sink: SinkSpec) -> None:
    """Letters in the table itself would be rows of it."""
    if sink.letters_name == (sink.namespace, sink.table):
        raise Halted("dead-letter-table", f"dead_letter_table is the sink's own table {sink.full_name}.", fix="Name another one.")


def with_record(frame: DataFrame) -> DataFrame:
    """The source's rows with the record that each was made from: what the source says, or the row itself as JSON."""
    if {RAW, KEY} <= set(frame.columns):
        return frame  # a source of records
    names = data_columns(frame)
    row = json_text(functions.struct(*[functions.col(quoted(name)) for name in names]), schema_of(frame)).cast("binary")
    return frame.withColumn(RAW, functions.coalesce(functions.col(RAW), row) if RAW in frame.columns else row)


def letters(frame: DataFrame, constants: Mapping[str, object]) -> DataFrame:
    """The rows of the frame that have an error, as rows of the dead letter table; ``constants`` has the columns that are equal
    for all of them.
    """
    error = functions.col(ERROR)

    def given(name: str, kind: str) -> Any:
        return functions.col(name) if name in frame.columns else functions.lit(None).cast(kind)

    values = {name: functions.lit(value) for name, value in constants.items()} | {
        "stage": error["stage"],
        "code": error["code"],
        "error": error["text"],
        "at": given(AT, "string"),
        "key": given(KEY, "binary"),
        "raw": functions.col(RAW),
        "sent_at": given(TIME, "timestamp"),
        "headers": given(HEADERS, "array<struct<key: string, value: binary>>"),
        "failed_at": functions.current_timestamp(),
    }
    columns = [values[c.name].cast(spark_type(c.type)).alias(c.name) for c in LETTERS.fields]
    return frame.where(error.isNotNull()).select(*columns)


def literal(text: str) -> str:
    """A text as it is written in SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def require_few(sink: SinkSpec, rows: int, rejected: int, before: int) -> None:
    """Stops a batch with more dead letters than the sink allows; nothing of it is written."""
    example = "Look at what the source sends, or raise the limit."
    most, rate = sink.max_dead_letters, sink.max_dead_letter_rate
    if most is not None and before + rejected > most:
        raise Halted(
            "too-many-dead-letters",
            f"{rejected} of the batch's {rows} rows cannot be written, which makes {before + rejected} since the pipeline was "
            f"started; max_dead_letters is {most}. The batch was not written.",
            fix=example,
        )
    if rate is not None and rejected > rate * rows:
        raise Halted(
            "too-many-dead-letters",
            f"{rejected} of the batch's {rows} rows cannot be written; max_dead_letter_rate is {rate:g}. "
            "The batch was not written.",
            fix=example,
        )
