"""Drives a replayable source into a sink: batch after batch, each from where the table ends.

No checkpoint is kept: the position of the source is in the table's ledger, in the same commit as the rows. A batch is due when
as many rows or bytes are pending as the sink asks for, or when its flush interval is over and anything is pending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from frazil.columns.schema import data_columns
from frazil.commit.protocol import require_same_source
from frazil.commit.retry import retried
from frazil.errors import ColumnMissing, ConfigError, FrazilError, NoColumns, Retryable, SourceAway
from frazil.model.commit import Position
from frazil.model.dead_letters import OnError
from frazil.model.events import (
    Committed,
    Lagged,
    Listener,
    Paused,
    Resumed,
    SourceFailed,
    SourceNoticed,
    Started,
    Stopped,
    Waiting,
)
from frazil.model.pausing import Pause
from frazil.model.settings import RetrySettings
from frazil.sources.base import Behind, Inferring, MultiTableSource, ReadsAgain, ReadsAhead, SetsAside, Slice, Source
from frazil.write.many_tables import RoutedWriter
from frazil.write.part import Part
from frazil.write.writer import Prepared, SinkWriter

# How often a source is asked how far it is ahead, which costs it a question.
LAG_SECONDS = 10.0
# How old what is known of a pause may be, without a commit that would have shown it.
PAUSE_SECONDS = 10.0
# How often a paused pipeline looks whether it may go on.
PAUSED_POLL_SECONDS = 5.0
# Estimated bytes of a row in a file, until the first commit shows the real number.
ROW_BYTES = 100.0
# The next batch is written while the catalog takes longer than this for a commit; a quick one is not worth a thread.
SLOW_COMMIT_SECONDS = 0.25
# If so many rows do not contain the columns that a table needs, it is not an accident.
ROWS_TO_TELL = 10_000


@dataclass
class Totals:
    """What a run has written so far."""

    batches: int = 0
    rows: int = 0


class _Stopped(Exception):
    """The pump was asked to stop while it waited."""


@dataclass(frozen=True)
class _Ahead:
    """A part whose files were written while the one before it was committed."""

    part: Slice
    batch: Prepared


class Pump:
    """One source, one sink. Delivery: exactly once. Stops between batches.

    Where the catalog is slow and more is waiting, the files of the next batch are written while one is committed. Commits keep
    their order: one batch is committed at a time, and one is ahead of it at most.
    """

    def __init__(
        self,
        writer: SinkWriter | RoutedWriter,
        source: Source,
        listen: Listener,
        *,
        rate_limit: int | None = None,
        retry: RetrySettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        turns: AbstractContextManager[object] | None = None,
        require_spark: Callable[[], None] = lambda: None,
    ) -> None:
        self._turns = turns or nullcontext()
        self._require_spark = require_spark
        self._writer = writer
        self._source = source
        self._listen = listen
        self._clock = clock
        self._rate_limit = rate_limit
        self._retry = retry or RetrySettings()
        self._flushed = 0.0
        self._name = writer.name
        self._position: Position | None = None
        self._ahead: _Ahead | None = None
        self._lag_reported: float | None = None
        self._pause: Pause | None = None
        self._row_bytes = ROW_BYTES
        self._further = 0
        self.totals = Totals()

    def run(self, stop: threading.Event, *, once: bool) -> Totals:
        """Runs until the source is finished, ``stop`` is set, or, with ``once``, nothing is left to read."""
        error: str | None = None
        try:
            self._retried(lambda: self._open(once), stop)
            self._loop(stop, once)
        except BaseException as problem:
            error = str(problem)
            raise
        finally:
            self._drop_ahead()
            self._listen(Stopped(self._name, self.totals.batches, self.totals.rows, error))
            self._source.close()
        return self.totals

    def _open(self, once: bool) -> None:
        self._source.check()
        if isinstance(self._source, ReadsAgain):
            self._source.read_again_where(self._writer.sink.replaces_rows_of)
        state = self._writer.open()
        if state is not None and state.end is not None:
            require_same_source(state, self._source.fingerprint, self._writer.sink_id)
        self._position = state.end if state is not None else None
        if self._position is not None:
            self._source.committed(self._position)
        epoch = state.epoch if state is not None else 1
        total = self._source.total_rows(self._position) if once else None
        table = self._writer.sink.full_name
        self._listen(Started(self._name, table, epoch, self._position, continuous=not once, total_rows=total))

    def _loop(self, stop: threading.Event, once: bool) -> None:
        self._flushed = self._clock()
        done = False
        while not done and (self._ahead is not None or not stop.is_set()):
            done = bool(self._retried(lambda: self._turn(stop, once), stop))

    def _turn(self, stop: threading.Event, once: bool) -> bool:
        """A step, unless somebody has paused the pipeline. A batch that is staged ahead comes first."""
        if self._ahead is not None or not self._is_paused(once):
            return self._step(stop, once)
        self._tell_lag()
        stop.wait(PAUSED_POLL_SECONDS)
        return False

    def _step(self, stop: threading.Event, once: bool) -> bool:
        """Looks for the next part, and writes it when it is due; whether nothing is left to do."""
        sink = self._writer.sink
        self._require_spark()  # a source that is looked at without Spark would wait for rows for ever
        self._tell_lag()
        ahead, self._ahead = self._ahead, None
        part = self._plan_next() if ahead is None else ahead.part
        if part is None:
            if once or self._source.finished(self._position):
                return True
            stop.wait(self._source.poll_seconds)
            return False
        finishing = once or self._source.finished(part.end)
        remaining = sink.flush_interval_secs - (self._clock() - self._flushed)
        # Also for a batch that is due: rows wait until it is committed, however long writing it takes.
        self._listen(Waiting(self._name, part.rows))
        if ahead is None and not (finishing or self._due(part, remaining)):
            stop.wait(min(self._source.poll_seconds, remaining))
            return False
        with self._turns:
            rows = self._write(part, once, stop, ahead)
        if rows is None:
            if part.rows == 0:
                self._require_kept(once)
            stop.wait(self._source.poll_seconds)
            return False
        self._flushed = self._clock()
        if once and not part.full and self._position == part.end:
            return True  # all that was there is written; what came meanwhile is for the next run
        self._keep_rate(rows, stop)
        return False

    def _is_paused(self, once: bool) -> bool:
        """Whether somebody has asked this pipeline to wait. A run that ends when all is read has nothing to wait for."""
        pause = self._writer.claimed.pause(PAUSE_SECONDS if self._pause is None else 0.0)
        if pause is not None and once:
            raise Retryable("pipeline-paused", _paused(self._name, pause), fix=f"Let it go on with: frazil resume {self._name}")
        if pause != self._pause:
            self._pause = pause
            self._flushed = self._clock()
            self._listen(Resumed(self._name) if pause is None else Paused(self._name, pause.by, pause.at_ms, pause.reason))
        return pause is not None

    def _retried(self, work: Callable[[], bool | None], stop: threading.Event) -> bool | None:
        """Does the work, again when the source did not answer; True when the pump was stopped meanwhile."""

        def report(error: Retryable, failures: int, final: bool) -> None:
            self._listen(SourceFailed(self._name, error.message, failures, will_retry=not final))

        def wait(seconds: float) -> None:
            if stop.wait(seconds):
                raise _Stopped

        try:
            return retried(work, self._retry, report, wait, but=lambda error: not isinstance(error, SourceAway))
        except _Stopped:
            return True

    def _plan_next(self) -> Slice | None:
        """The next part; first of all the very part that was cut off when one of its tables had it already."""
        cut_off = self._writer.unfinished
        if cut_off is not None:
            part = self._source.between(self._position, cut_off)
            if part is not None:
                return replace(part, full=True)
            self._position = self._writer.abandon()
        return self._source.plan(self._position, self._limit)

    @property
    def _limit(self) -> int:
        """How many rows a part is planned for."""
        return self._writer.sink.rows_planned(self._row_bytes) + self._further

    def _due(self, part: Slice, remaining: float) -> bool:
        enough = part.rows is not None and part.rows >= self._writer.sink.rows_wanted(self._row_bytes)
        # Where a source begins that has no rows yet is kept at once: what comes before the next start is not to be missed.
        begins = part.start is None and part.rows == 0
        return enough or begins or part.full or remaining <= 0

    def _require_kept(self, once: bool) -> None:
        """As long as this process lives the source itself knows where reading began; the next run would begin elsewhere."""
        if once:
            raise ConfigError(
                "beginning-not-kept",
                f"Nothing is there to read yet, and where reading begins cannot be kept: there is no table "
                f"{self._writer.sink.full_name}, and its columns are not known. What comes until the next run would be "
                "missed.",
                fix="Declare the sink's columns with schema, or create the table; or read from the first message on, which for "
                "Kafka is start_offset: earliest.",
            )

    def _write(self, part: Slice, once: bool, stop: threading.Event, ahead: _Ahead | None = None) -> int | None:
        """How many rows were read; None when there is nothing to make a table of."""
        frames = self._read(part) if ahead is None else ()
        if not self._writer.ready:
            (frame,) = frames
            if part.rows == 0 and not data_columns(frame):
                return None
            try:
                state = self._writer.ensure(frame)
            except FrazilError as error:
                if not self._looks_further(part, error, once):
                    raise
                return None
            if state is not None and state.end != part.start:
                # Somebody made the table and wrote to this sink since it was looked for: go on from there.
                self._position = state.end
                return 0
        try:
            written = self._written(part, frames, stop, ahead)
        except FrazilError as error:
            if not self._goes_on_without(error):
                raise
            return self._write(part, once, stop)
        self._position = part.end
        self._source.observed(part, written.counts.read)
        self._source.committed(part.end)
        for notice in part.notices:
            self._listen(SourceNoticed(self._name, notice.code, notice.message, notice.gap))
        if not written.skipped:
            if written.counts.read and written.bytes:
                self._row_bytes = written.bytes / written.counts.read
            self.totals.batches += 1
            self.totals.rows += written.counts.written
        return written.counts.read

    def _written(self, part: Slice, frames: Sequence[DataFrame], stop: threading.Event, ahead: _Ahead | None) -> Committed:
        writer, explain = self._writer, self._source.explain
        if isinstance(writer, RoutedWriter):
            return writer.write_each(frames, self._whole(part), explain)
        batch = ahead.batch if ahead is not None else writer.stage_batch(frames[0], self._whole(part), explain)
        is_slow = writer.claimed.commit_seconds >= SLOW_COMMIT_SECONDS
        if not (is_slow and part.full and batch.leaves_room and isinstance(self._source, ReadsAhead)) or stop.is_set():
            return writer.commit_batch(batch)
        committing = writer.begin_commit(batch)
        try:
            self._ahead = self._next_staged(writer, part.end)
        finally:
            try:
                written = writer.end_commit(committing)
            except BaseException:
                self._drop_ahead()
                raise
        return written

    def _next_staged(self, writer: SinkWriter, start: Position) -> _Ahead | None:
        """The next part and its files, if it is due. What is wrong with it is said when its turn has come."""
        try:
            part = self._source.plan(start, self._limit)
            if part is None or not self._due(part, remaining=1):
                return None
            (frame,) = self._read(part)
            return _Ahead(part, writer.stage_ahead(frame, self._whole(part), self._source.explain))
        except FrazilError:
            return None

    def _drop_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.batch.let_go()

    def _whole(self, part: Slice) -> Part:
        return Part(self._source.fingerprint, part.start, part.end, part.rows)

    def _goes_on_without(self, error: FrazilError) -> bool:
        """Whether the part, read again, has a dead letter in place of what could not be read."""
        keeps_letters = self._writer.sink.error_handling is OnError.DEAD_LETTER
        return keeps_letters and isinstance(self._source, SetsAside) and self._source.set_aside(error)

    def _looks_further(self, part: Slice, error: FrazilError, once: bool) -> bool:
        """Whether records that are not enough to create a table are read again together with those that follow.

        If bad records become dead letters, the first record of a source does not stop it. The number of such records is
        bounded; and a run that ends when nothing is left has nothing to wait for.
        """
        apart = self._writer.sink.error_handling is OnError.DEAD_LETTER and isinstance(error, NoColumns | ColumnMissing)
        if not apart or part.rows is None or part.rows >= ROWS_TO_TELL or (once and not part.full):
            return False
        self._listen(Waiting(self._name, part.rows))
        self._further = max(part.rows, self._further) * 2
        return True

    def _tell_lag(self) -> None:
        now = self._clock()
        if not isinstance(self._source, Behind) or (self._lag_reported is not None and now - self._lag_reported < LAG_SECONDS):
            return
        self._lag_reported = now
        lag = self._source.lag(self._position)
        self._listen(Lagged(self._name, lag.rows, lag.bytes, lag.seconds))

    def _read(self, part: Slice) -> Sequence[DataFrame]:
        if isinstance(self._source, Inferring) and (columns := self._writer.source_columns) is not None:
            self._source.expect(columns, exactly=self._writer.sink.strict_casting)
        if isinstance(self._writer, RoutedWriter) and isinstance(self._source, MultiTableSource):
            return self._source.read_each(part)
        return (self._source.read(part),)

    def _keep_rate(self, rows: int, stop: threading.Event) -> None:
        if self._rate_limit is not None and rows:
            stop.wait(rows / self._rate_limit)


def _paused(name: str, pause: Pause) -> str:
    why = f": {pause.reason}" if pause.reason else ""
    return f"The pipeline {name!r} is paused by {pause.by}{why}. Nothing was read."
