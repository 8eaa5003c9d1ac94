"""What is appended to a table that Spark knows: an Iceberg table from snapshot to snapshot, any other one once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from frazil.columns.schema import require_data
from frazil.errors import FrazilError, Halted
from frazil.model.commit import Position, position
from frazil.model.source import TableSource
from frazil.sources.base import Lag, Slice
from frazil.sources.positions import fields_of, unknown_position
from frazil.sources.table.asking import asking, files_gone
from frazil.sources.table.ranges import taken

READ_ALL = position({"read": "all"})

# Snapshots that only add rows, or only move them between files. The others replace or delete rows.
_HARMLESS = ("append", "replace")


@dataclass(frozen=True)
class Snapshot:
    """A snapshot in the table's metadata."""

    id: int
    parent: int | None
    operation: str
    added_rows: int
    total_rows: int | None
    made_at: float


def snapshots_between(start: int, head: int, known: dict[int, Snapshot], table: str) -> list[Snapshot]:
    """The snapshots after ``start`` up to ``head``, oldest first. Halted when ``start`` is not behind ``head``."""
    line: list[Snapshot] = []
    at: int | None = head
    while at != start:
        if at is None or at not in known:
            raise _no_way_from(start, known, table)
        line.append(known[at])
        at = known[at].parent
    return line[::-1]


def _no_way_from(start: int, known: dict[int, Snapshot], table: str) -> Halted:
    if start in known:
        what = f"The snapshot {start} of {table}, where the last batch ended, is not in the history of its current one"
        return Halted("source-rolled-back", f"{what}: the table was rolled back or its branch replaced.", fix=_START_OVER)
    what = f"The snapshot {start} of {table}, where the last batch ended, or one after it is gone"
    return Halted("source-snapshot-expired", f"{what}: it expired, or the table was made anew.", fix=_START_OVER)


_START_OVER = (
    "What was added since cannot be distinguished. Compare the tables, then start again with a new sink id, "
    "which reads the whole source. Keep snapshots for longer than a pipeline may stand still."
)


class SparkTable:
    """A table of Spark's catalogs.

    Delivery: Iceberg snapshots do not change, so a slice between two of them reads the same rows. First the whole table is
    read, then what was appended since; compactions are passed over. Any other table is read once as it is. Parallelism:
    the table's own.
    """

    poll_seconds = 2.0

    def __init__(self, spec: TableSource, spark: SparkSession) -> None:
        self._spec = spec
        self._spark = spark
        self._iceberg: bool | None = None

    @property
    def fingerprint(self) -> str:
        """The table's name."""
        return f"table:{self._spec.table}"

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        """The whole table at first, then the snapshots since, as many as hold about ``limit`` rows."""
        if not self._is_iceberg():
            return None if start == READ_ALL else Slice(start, READ_ALL, None)
        head, known = self._history()
        if head is None:
            return None
        if start is None:
            return Slice(None, position({"snapshot": head}), known[head].total_rows if head in known else None)
        line = snapshots_between(_snapshot_of(start), head, known, self._spec.table)
        if not line:
            return None
        self._require_appends(line)
        rows = [snapshot.added_rows if snapshot.operation == "append" else 0 for snapshot in line]
        count = taken(rows, limit)
        return Slice(start, position({"snapshot": line[count - 1].id}), sum(rows[:count]), full=count < len(line))

    def _require_appends(self, line: list[Snapshot]) -> None:
        changed = [snapshot for snapshot in line if snapshot.operation not in _HARMLESS]
        if changed and self._spec.on_change == "stop":
            first = changed[0]
            raise Halted(
                "source-rows-changed",
                f"The snapshot {first.id} of {self._spec.table} ({first.operation}) replaced or deleted rows, "
                "which an append cannot follow.",
                fix="Set on_change: ignore to go on with what is appended, or start again with a new sink id.",
            )

    def between(self, start: Position | None, end: Position) -> Slice:
        """What was appended between two snapshots."""
        return Slice(start, end, None)

    def finished(self, position: Position | None) -> bool:
        """When a table that is no Iceberg table was read."""
        return position == READ_ALL

    def total_rows(self, start: Position | None) -> int | None:
        """From the summaries of an Iceberg table's snapshots."""
        if not self._is_iceberg():
            return 0 if start == READ_ALL else None
        head, known = self._history()
        if head is None:
            return 0
        if start is None:
            return known[head].total_rows if head in known else None
        line = snapshots_between(_snapshot_of(start), head, known, self._spec.table)
        return sum(snapshot.added_rows for snapshot in line if snapshot.operation == "append")

    def lag(self, position: Position | None) -> Lag:
        """The rows that were appended since, and how long the oldest of them are there."""
        if not self._is_iceberg():
            return Lag()
        head, known = self._history()
        if head is None or (position is None and head not in known):
            return Lag()
        if position is None:
            return Lag(rows=known[head].total_rows)
        line = snapshots_between(_snapshot_of(position), head, known, self._spec.table)
        added = [snapshot for snapshot in line if snapshot.operation == "append" and snapshot.added_rows]
        rows = sum(snapshot.added_rows for snapshot in added)
        return Lag(rows=rows, seconds=max(0.0, time.time() - added[0].made_at) if added else 0.0)

    def read(self, part: Slice) -> DataFrame:
        """The rows of a slice."""
        return self._of_data(self._rows(part))

    def _rows(self, part: Slice) -> DataFrame:
        if part.end == READ_ALL:
            return self._table()
        end = str(_snapshot_of(part.end))
        reader = self._spark.read.format("iceberg")
        if part.start is None:
            return reader.option("versionAsOf", end).table(self._spec.table)
        start = str(_snapshot_of(part.start))
        return reader.option("start-snapshot-id", start).option("end-snapshot-id", end).table(self._spec.table)

    def observed(self, part: Slice, rows: int) -> None:
        """Nothing to learn: snapshots count their rows."""

    def committed(self, position: Position) -> None:
        """Nothing is kept for this reader alone."""

    def explain(self, error: Exception) -> FrazilError | None:
        """Data files that were removed while they were read."""
        return files_gone(self._spec.table, error)

    def close(self) -> None:
        """Nothing is held open."""

    def check(self) -> None:
        """The table must be there."""
        self._of_data(self._table())

    def _of_data(self, rows: DataFrame) -> DataFrame:
        require_data(rows.columns, f"The table {self._spec.table}")
        return rows

    def _table(self) -> DataFrame:
        with asking(self._spec.table):
            return self._spark.table(self._spec.table)

    def _is_iceberg(self) -> bool:
        if self._iceberg is None:
            with asking(self._spec.table):
                described = self._spark.sql(f"DESCRIBE TABLE EXTENDED {self._spec.table}").collect()
            self._iceberg = any(row.col_name == "Provider" and row.data_type.lower() == "iceberg" for row in described)
        return self._iceberg

    def _history(self) -> tuple[int | None, dict[int, Snapshot]]:
        """The current snapshot, and all that the table still has. In this order: a snapshot that comes between is known."""
        with asking(self._spec.table):
            # A catalog that caches tables would answer for ever with what it saw first.
            self._spark.catalog.refreshTable(self._spec.table)
            head = self._spark.sql(f"SELECT snapshot_id FROM {self._spec.table}.refs WHERE name = 'main'").first()
            rows = self._spark.sql(
                "SELECT snapshot_id, parent_id, operation, summary['added-records'] AS added, summary['total-records'] AS total,"
                " unix_millis(committed_at) AS at_ms"
                f" FROM {self._spec.table}.snapshots"
            ).collect()
        known = {
            row.snapshot_id: Snapshot(
                row.snapshot_id,
                row.parent_id,
                row.operation or "",
                int(row.added or 0),
                None if row.total is None else int(row.total),
                row.at_ms / 1000,
            )
            for row in rows
        }
        return (None if head is None else head.snapshot_id), known


def _snapshot_of(text: Position) -> int:
    snapshot = fields_of(text, "an Iceberg table").get("snapshot")
    if not isinstance(snapshot, int):
        raise unknown_position(text, "an Iceberg table")
    return snapshot
