"""Drives a replayable source into a sink: batch after batch, each from where the table ends.

No checkpoint is kept: the position of the source stands in the table's ledger, in the same commit as the rows. A batch is
due when so many rows are there as the sink asks for, or when its flush interval is over and anything is there at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from frazil.engine.commit import require_same_source
from frazil.engine.part import Part
from frazil.engine.route import RoutedWriter
from frazil.engine.writer import SinkWriter
from frazil.model.commit import Position
from frazil.model.events import Listener, Started, Stopped, Waiting
from frazil.sources.base import Slice, Source


@dataclass
class Totals:
    """What a run has written so far."""

    batches: int = 0
    rows: int = 0


class Pump:
    """One source, one sink. Delivery: exactly once. Stops between batches."""

    def __init__(
        self,
        writer: SinkWriter | RoutedWriter,
        source: Source,
        listen: Listener,
        *,
        rate_limit: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._source = source
        self._listen = listen
        self._clock = clock
        self._rate_limit = rate_limit
        self._name = writer.name
        self._position: Position | None = None
        self.totals = Totals()

    def run(self, stop: threading.Event, *, once: bool) -> Totals:
        """Runs until the source is finished, ``stop`` is set, or, with ``once``, nothing is left to read."""
        error: str | None = None
        try:
            self._open(once)
            self._loop(stop, once)
        except BaseException as problem:
            error = str(problem)
            raise
        finally:
            self._listen(Stopped(self._name, self.totals.batches, self.totals.rows, error))
        return self.totals

    def _open(self, once: bool) -> None:
        self._source.check()
        state = self._writer.open()
        if state is not None and state.end is not None:
            require_same_source(state, self._source.fingerprint, self._writer.sink_id)
        self._position = state.end if state is not None else None
        epoch = state.epoch if state is not None else 1
        total = self._source.total_rows(self._position) if once else None
        table = self._writer.sink.full_name
        self._listen(Started(self._name, table, epoch, self._position, continuous=not once, total_rows=total))

    def _loop(self, stop: threading.Event, once: bool) -> None:
        sink = self._writer.sink
        flushed = self._clock()
        while not stop.is_set():
            part = self._plan(sink.rows_per_batch)
            if part is None:
                if once or self._source.finished(self._position):
                    return
                stop.wait(self._source.poll_seconds)
                continue
            finishing = once or self._source.finished(part.end)
            remaining = sink.flush_interval_secs - (self._clock() - flushed)
            if not (finishing or self._due(part, remaining)):
                self._listen(Waiting(self._name, part.rows))
                stop.wait(min(self._source.poll_seconds, remaining))
                continue
            rows = self._write(part)
            flushed = self._clock()
            if once and not part.full and self._position == part.end:
                return  # all that was there is written; what came meanwhile is for the next run
            self._keep_rate(rows, stop)

    def _plan(self, limit: int) -> Slice | None:
        """The next part; first of all the very part that was cut off when one of its tables had it already."""
        cut_off = self._writer.unfinished
        if cut_off is not None:
            return replace(self._source.between(self._position, cut_off), full=True)
        return self._source.plan(self._position, limit)

    def _due(self, part: Slice, remaining: float) -> bool:
        enough = part.rows is not None and part.rows >= self._writer.sink.batch_size
        return enough or part.full or remaining <= 0

    def _write(self, part: Slice) -> int:
        frame = self._source.read(part)
        if not self._writer.ready:
            state = self._writer.ensure(frame)
            if state is not None and state.end != part.start:
                # Somebody made the table and wrote to this sink since it was looked for: go on from there.
                self._position = state.end
                return 0
        whole = Part(self._source.fingerprint, part.start, part.end, part.rows)
        written = self._writer.write(frame, whole, explain=self._source.explain)
        self._position = part.end
        self._source.observed(part, written.counts.read)
        if not written.skipped:
            self.totals.batches += 1
            self.totals.rows += written.counts.written
        return written.counts.read

    def _keep_rate(self, rows: int, stop: threading.Event) -> None:
        if self._rate_limit is not None and rows:
            stop.wait(rows / self._rate_limit)
