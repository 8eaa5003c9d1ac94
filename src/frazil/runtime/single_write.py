"""Batches that somebody else drives: Spark's own streaming (foreachBatch), and single data frames.

Spark numbers the batches of a checkpoint, and repeats the last one after a crash with the same number and the same rows. The
number and the checkpoint's own id are the position in the ledger, so that a repeated batch is found there and skipped.
Delivery: exactly once as long as the checkpoint lives. Another checkpoint on the same sink is refused: where it begins cannot
be compared with where the table ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from pyspark.sql import DataFrame

from frazil.errors import Halted, OutOfOrder
from frazil.model.commit import Position, position
from frazil.model.events import Committed
from frazil.write.many_tables import RoutedWriter
from frazil.write.part import SINGLE_WRITES, Part
from frazil.write.writer import SinkWriter

Writer = SinkWriter | RoutedWriter

QUERY_ID = "sql.streaming.queryId"
_CHECKPOINT = "spark-checkpoint:"
_ANOTHER_ID = 'Give it an id of its own: .id("..."), or .option("id", "...") of Spark\'s writers.'


class BatchSink:
    """What `foreachBatch` calls: commits each batch under the number that Spark gave it."""

    def __init__(self, open_writer: Callable[[DataFrame], Writer]) -> None:
        self._open_writer = open_writer
        self._writer: Writer | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Writes one micro-batch."""
        try:
            self._write(frame, batch_id)
        except Halted:
            # A query that is started again, even with this very object, starts from the table as it is then.
            self._writer = None
            raise

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        source = f"{_CHECKPOINT}{query}"
        writer = self._ready(frame)
        start: Position | None = stream_position(batch_id - 1)
        end = stream_position(batch_id)
        state = writer.state
        if state is not None and state.end is not None:
            if state.source == SINGLE_WRITES:
                raise Halted(
                    "source-changed",
                    f"The id {writer.sink_id!r} is in the ledger of {writer.sink.full_name} for single writes, between which a "
                    "stream would not find its place again.",
                    fix=_ANOTHER_ID,
                )
            if state.source != source:
                raise Halted(
                    "checkpoint-changed",
                    f"The sink {writer.sink_id!r} was written through another checkpoint; rows could be lost or doubled.",
                    fix="Continue with the old checkpoint, or give the sink another id to begin anew.",
                )
            if state.end == end:
                return  # repeated by Spark after a crash between the table's commit and its own
        if state is None or state.end is None:
            start = None  # the first batch of the sink, whatever its number
        writer.write(frame, Part(source, start, end))

    def _ready(self, frame: DataFrame) -> Writer:
        if self._writer is None:
            writer = self._open_writer(frame)
            writer.open()
            writer.ensure(frame)
            self._writer = writer
        return self._writer


def stream_position(batch_id: int) -> Position:
    """The end of one batch of a checkpoint."""
    return position({"batch": batch_id})


def is_data_frame(value: object) -> bool:
    """Whether a value is a data frame of Spark's."""
    return isinstance(value, DataFrame)


def write_once(writer: Writer, frame: DataFrame, key: str | None, *, keys_differ: bool = False) -> Committed:
    """Writes a data frame as one batch. A key that the table has seen is skipped: the same call can be made again.

    Writes at the same time, from whatever process, all count: one that finds another before it goes behind that.
    ``keys_differ``: each key of a row is known to come once.
    """
    end = position({"write": key if key is not None else f"#{uuid.uuid4().hex}"})
    state = writer.open(claim=False) or writer.ensure(frame, claim=False)
    if state is not None and state.source.startswith(_CHECKPOINT):
        raise Halted(
            "source-changed",
            f"The id {writer.sink_id!r} is in the ledger of {writer.sink.full_name} for a stream, which would not find its place "
            "again behind a single write.",
            fix=_ANOTHER_ID,
        )
    maybe_there = key is not None
    while state is None or not (maybe_there and (state.end == end or writer.committed_before(end))):
        try:
            start = state.end if state else None
            return writer.write(frame, Part(SINGLE_WRITES, start, end, named=key is not None, keys_differ=keys_differ))
        except OutOfOrder:
            state, maybe_there = writer.claimed.look(), True
    return Committed.before(writer.name, writer.sink.full_name, state)
