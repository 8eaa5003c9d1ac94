"""Deleted keys, remembered in a table of their own so that a late row does not bring them back.

What a batch deletes is written down before the batch is committed, and depends on the batch alone: a batch that was cut off in
between finds it there when it is repeated. If other rows come in its place, what it has written is taken back first. So the table
has the deletes of committed batches, and those of the batch that is being written, to which they make no difference.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession, functions

from frazil.columns.schema import quoted
from frazil.commit.protocol import Moved
from frazil.errors import Halted
from frazil.model.commit import SinkState
from frazil.model.late import BATCH, BRANCH, DELETED_AT, SINK, SUFFIX
from frazil.model.sink import SinkSpec
from frazil.write import take_back
from frazil.write.claim import now_ms
from frazil.write.deadletters import Follower, literal
from frazil.write.part import Part

# The source of tombstones in the ledger of their table. They follow their own table's batches, whatever these are read from.
_SOURCE = "tombstones"
# How often it is looked for tombstones that need not be kept any longer.
_LOOK_SECONDS = 3_600
_HOUR_MS = 3_600_000
# Each task writes a file of its own.
_ROWS_A_TASK = 250_000


class TombstoneWriter(Follower, Protocol):
    """What is needed of the writer of the table of tombstones."""

    session: SparkSession

    @property
    def ready(self) -> bool:
        """Whether the table is there."""

    def ensure(self, frame: DataFrame) -> SinkState | None:
        """Creates the table with the columns of a frame."""


class Tombstones:
    """The deleted keys of one sink's table. The table that remembers them is created with the first delete."""

    def __init__(self, writer: TombstoneWriter, sink: SinkSpec) -> None:
        self._writer = writer
        self._sink = sink
        self._part: Part | None = None
        self._looked: float | None = None

    def open(self, *, claim: bool) -> None:
        """Claims the table if it is there."""
        self._writer.open(claim=claim, make=False)

    def begin(self, part: Part, home: SinkState | None) -> None:
        """A batch begins, or begins again. What another one has left under its number, which was cut off, is taken back."""
        number = part.home_batch or (home.batch if home is not None else 0) + 1
        self._part = Part(_SOURCE, part.start, part.end, home_batch=number)
        if not self._writer.ready:
            self._writer.open(make=False)  # another sink of the table may have made it
            return
        self._writer.claimed.retried(self._writer.claimed.table.refresh)
        state = self._writer.state
        if state is not None and state.home_batch >= number and not self._part.held_by(state):
            self._take_back(number)

    def rows(self, names: Sequence[str]) -> DataFrame | None:
        """The keys and places in the order of all deletes that are remembered."""
        if not self._writer.ready:
            return None
        table = self._writer.claimed.table
        have = {column.name for column in table.schema.fields}
        if lacking := [name for name in names if name not in have]:
            raise Halted(
                "tombstones-differ",
                f"{self._writer.sink.full_name}, which remembers deleted keys of {self._sink.full_name}, has no column "
                f"{lacking[0]!r}: key_fields or order_by has changed, or a column was renamed.",
                fix="Rename the column in that table as well. Otherwise drop the table: late rows of keys that were deleted up "
                "to now are then written.",
            )
        rows = self._writer.session.table(table.sql_name)
        return rows.where(functions.col(BRANCH) == self._sink.written_branch).select(*[quoted(name) for name in names])

    def stage(self, deletes: DataFrame, count: int) -> Any:
        """Writes the files for so many deleted keys of the batch; None when their table has them."""
        assert self._part is not None, "a batch was begun"
        if self._part.held_by(self._writer.state):
            return None
        own = {
            SINK: functions.lit(self._writer.sink_id),
            BRANCH: functions.lit(self._sink.written_branch),
            BATCH: functions.lit(self._part.home_batch).cast("long"),
            DELETED_AT: functions.timestamp_millis(functions.lit(now_ms())),
        }
        plain = [functions.col(quoted(name)).alias(name, metadata={}) for name in deletes.columns]
        frame = deletes.select(*plain, *[value.alias(name) for name, value in own.items()])
        frame = frame.coalesce(max(1, count // _ROWS_A_TASK))
        if not self._writer.ready:
            self._writer.ensure(frame)
        return self._writer.stage_batch(frame, self._part)

    def put(self, staged: Any) -> None:
        """Commits the deleted keys of a batch, and forgets those whose time is over."""
        self._writer.commit_batch(staged)
        now = time.monotonic()
        if self._looked is None or now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._expire()

    def clear(self) -> None:
        """Forgets all deleted keys of the sink, whose table is to be emptied."""
        if self._writer.ready:
            take_back.remove(self._writer.claimed, self._own, self._own)

    @property
    def _own(self) -> str:
        """The sink's tombstones, as a condition."""
        return f"{SINK} = {literal(self._writer.sink_id)} AND {BRANCH} = {literal(self._sink.written_branch)}"

    def _take_back(self, number: int) -> None:
        cleared = Moved(_SOURCE, None, number - 1)
        take_back.remove(self._writer.claimed, f"{self._own} AND {BATCH} >= {number}", f"{BATCH} >= {number}", cleared)

    def _expire(self) -> None:
        before = now_ms() - self._sink.tombstone_retention_hours * _HOUR_MS
        over = f"{DELETED_AT} < timestamp_millis({before})"
        take_back.remove(self._writer.claimed, f"{self._own} AND {over}", over)


def tombstones_sink(sink: SinkSpec) -> SinkSpec:
    """The table of a sink's deleted keys as a sink of its own, in the same catalog and store."""
    kept = ("catalog", "namespace", "s3", "gcs", "azure", "format_version")
    given: dict[str, Any] = {name: getattr(sink, name) for name in kept}
    # Keys may become wider in the table; it is decided there whether they may.
    return SinkSpec.model_validate(given | {"table": f"{sink.table}{SUFFIX}", "schema_evolution": "type_widen"})
