"""Every change of an Iceberg table's rows, as the difference between snapshots of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from frazil.columns.digest import key_digest
from frazil.columns.schema import quoted, require_data
from frazil.errors import ConfigError, FrazilError, Halted, KeyMissing
from frazil.iceberg.changed_rows import FollowedTable, TableNow
from frazil.model.commit import Position, position
from frazil.model.hidden import (
    AT,
    CHANGED_AT,
    CHANGES_MARK,
    COLUMN_MARK,
    DELETE,
    EXTRA,
    HIDDEN,
    IMAGE,
    IMAGES_MARK,
    INSERT,
    KEY_COUNT_MARK,
    KEY_MARK,
    OP,
    ORDER,
    TURN,
)
from frazil.model.publishing import Step
from frazil.model.source import TableSource
from frazil.sources.base import Lag, Slice
from frazil.sources.positions import fields_of, unknown_position
from frazil.sources.table.asking import asking, files_gone
from frazil.sources.table.net import net_changes
from frazil.sources.table.ranges import first_change, taken

_START_OVER = (
    "Run frazil reset, which empties the pipeline's table; the next run then reads the source as a whole. Keep snapshots for "
    "longer than a pipeline may stand still."
)


@dataclass(frozen=True)
class ChangePlace:
    """A snapshot of a table, which is known by its UUID: its name may go to another.

    ``at_us`` is its time (microseconds since 1970), for whom each state of a row has a time of its own.
    """

    table: str
    snapshot: int
    at_us: int | None = None

    def to_position(self) -> Position:
        """The place as stored in the ledger."""
        time = {} if self.at_us is None else {"at_us": self.at_us}
        return position({"snapshot": self.snapshot, "table": self.table} | time)

    @classmethod
    def from_position(cls, text: Position) -> ChangePlace:
        """Reads the ledger."""
        fields = fields_of(text, "changes of a table")
        table, snapshot, at_us = fields.get("table"), fields.get("snapshot"), fields.get("at_us")
        if not (isinstance(table, str) and isinstance(snapshot, int) and isinstance(at_us, int | None)):
            raise unknown_position(text, "changes of a table")
        return cls(table, snapshot, at_us)


class TableChanges:
    """The changes of an Iceberg table: first all of its rows, then what differs between one snapshot and a later one.

    Delivery: snapshots do not change, so a slice between two of them has the same changes whenever it is read. Several changes of
    a row between them are read as one; a row that was moved to another file has not changed. Parallelism: the files
    that differ, over all executors. With ``images`` updates come with their previous rows. With ``versions`` each snapshot that
    changes rows is a slice of its own, and its time is later than that of the one before, whatever the writers' clocks said.

    The source may name the snapshot after which it begins, instead of with the whole table, and the one that it ends with.

    Rows are identified by the table's identifier fields, or by columns that the source names. Without either, a row that changed
    is a delete and an insert.
    """

    poll_seconds = 2.0

    def __init__(self, spec: TableSource, spark: SparkSession, *, images: bool = False, versions: bool = False) -> None:
        self._spec = spec
        self._spark = spark
        self._images = images
        self._versions = versions
        self._reading = ExitStack()

    @property
    def fingerprint(self) -> str:
        """The table's name. That it is the same table is part of the positions."""
        return f"table-changes:{self._spec.table}"

    @cached_property
    def _table(self) -> FollowedTable:
        return FollowedTable(self._spark, self._spec.table)

    def _now(self) -> TableNow:
        """The table as it is now; if the source names its last snapshot, as it was then."""
        with asking(self._spec.table):
            now = self._table.now()
        for option, snapshot in (("after_snapshot", self._spec.after_snapshot), ("until_snapshot", self._spec.until_snapshot)):
            if snapshot is not None and snapshot not in now.parents:
                words = f"{self._spec.table} has no snapshot {snapshot}, which the source names as {option}. It may have expired."
                raise ConfigError("source-snapshot-missing", words, fix=f"Choose one of {self._spec.table}.snapshots.")
        return now if self._spec.until_snapshot is None else replace(now, head=self._spec.until_snapshot)

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        """The whole table at first, then the snapshots since, as many as change about ``limit`` rows."""
        now = self._now()
        then = self._reached(start, now)
        if then is None:
            return None if now.head is None else Slice(None, self._position(None, now, now.head), self._rows_at(now, now.head))
        if now.head in (None, then):
            return None
        with asking(self._spec.table):
            steps = now.steps_since(then)
        if steps is None:
            return Slice(start, self._position(start, now, now.head), None)
        rows = [changed_rows(step) for step in steps]
        count = first_change(rows) if self._versions else taken(rows, limit)
        return Slice(start, self._position(start, now, steps[count - 1].snapshot), sum(rows[:count]), full=count < len(steps))

    def _position(self, start: Position | None, now: TableNow, snapshot: int | None) -> Position:
        assert snapshot is not None, "a table without snapshots has no positions"
        if not self._versions:
            return ChangePlace(now.uuid, snapshot).to_position()
        before = None if start is None else ChangePlace.from_position(start).at_us
        with asking(self._spec.table):
            at_us = now.made_at_us(snapshot)
        return ChangePlace(now.uuid, snapshot, at_us if before is None else max(at_us, before + 1)).to_position()

    def _reached(self, position: Position | None, now: TableNow) -> int | None:
        """The snapshot up to which everything was read, or is not to be read; None if that is nothing."""
        return self._spec.after_snapshot if position is None else self._snapshot(position, now)

    def _snapshot(self, text: Position, now: TableNow) -> int:
        """The snapshot of a position, which the table must still have."""
        place, name = ChangePlace.from_position(text), self._spec.table
        if place.table != now.uuid:
            words = f"{name} is not the table that was read before: it was dropped and made again, or replaced under its name."
            raise Halted("source-recreated", words, fix=_START_OVER)
        if place.snapshot not in now.parents:
            words = f"The snapshot {place.snapshot} of {name}, where the last batch ended, has expired"
            raise Halted("source-snapshot-expired", f"{words}: what was deleted since is not known.", fix=_START_OVER)
        return place.snapshot

    def _rows_at(self, now: TableNow, snapshot: int) -> int | None:
        with asking(self._spec.table):
            text = now.step(snapshot).summary.get("total-records")
        return None if text is None else int(text)

    def between(self, start: Position | None, end: Position) -> Slice | None:
        """What differs between two snapshots; None if one of them is gone."""
        known = self._now().parents
        there = all(ChangePlace.from_position(one).snapshot in known for one in (start, end) if one is not None)
        return Slice(start, end, None) if there else None

    def finished(self, position: Position | None) -> bool:
        """When the last snapshot was read, if the source names one: otherwise a table may always change."""
        last = self._spec.until_snapshot
        if last is None:
            return False
        return last == (self._spec.after_snapshot if position is None else ChangePlace.from_position(position).snapshot)

    def total_rows(self, start: Position | None) -> int | None:
        """From the summaries of the snapshots, as far as they tell."""
        now = self._now()
        if now.head is None:
            return 0
        then = self._reached(start, now)
        if then is None:
            return self._rows_at(now, now.head)
        with asking(self._spec.table):
            steps = now.steps_since(then)
        return None if steps is None else sum(map(changed_rows, steps))

    def lag(self, position: Position | None) -> Lag:
        """About how many rows were changed since, and how long ago the first of them."""
        now = self._now()
        if now.head is None:
            return Lag(rows=0, seconds=0.0)
        then = self._reached(position, now)
        if then is None:
            return Lag(rows=self._rows_at(now, now.head))
        with asking(self._spec.table):
            steps = now.steps_since(then)
            if steps is None:
                return Lag()
            changed = [step for step in steps if changed_rows(step)]
            waited = time.time() - now.made_at_us(changed[0].snapshot) / 1_000_000 if changed else 0.0
        return Lag(rows=sum(map(changed_rows, changed)), seconds=max(0.0, waited))

    def read(self, part: Slice) -> DataFrame:
        """The changes of a slice. They can be read until the next slice is."""
        self._reading.close()
        now = self._now()
        end = self._snapshot(part.end, now)
        then = self._reached(part.start, now)
        if then is None:
            return self._whole(now, end, ChangePlace.from_position(part.end).at_us)
        if part.rows == 0:
            return self._whole(now, end).limit(0)
        keys = self._keys(now, end)
        with asking(self._spec.table):
            changed = self._reading.enter_context(now.rows_between(then, end))
            if changed.gone is None and changed.came is None:
                return self._whole(now, end).limit(0)
            made = net_changes(changed.gone, changed.came, keys, images=self._images)
            return self._as_changes(made, now, end, keys, ChangePlace.from_position(part.end).at_us)

    def _whole(self, now: TableNow, snapshot: int, at_us: int | None = None) -> DataFrame:
        keys = self._keys(now, snapshot)
        with asking(self._spec.table):
            rows = self._at(snapshot)
            return self._as_changes(rows.withColumns({OP: sf.lit(INSERT), EXTRA: sf.lit(False)}), now, snapshot, keys, at_us)

    def _at(self, snapshot: int) -> DataFrame:
        return self._spark.read.format("iceberg").option("versionAsOf", str(snapshot)).table(self._spec.table)

    def _keys(self, now: TableNow, snapshot: int) -> tuple[str, ...]:
        """The columns that identify a row: those that the source names, or the table's own."""
        with asking(self._spec.table):
            known = now.column_ids(snapshot)
            own = now.identifiers(snapshot)
        require_data(known, f"The table {self._spec.table}")
        if missing := [name for name in self._spec.key_fields if name not in known]:
            words = (
                f"{self._spec.table} has no column {missing[0]!r}, which the source names as its key. Columns: {', '.join(known)}"
            )
            raise KeyMissing("key-missing", words)
        return self._spec.key_fields or own

    def _as_changes(self, rows: DataFrame, now: TableNow, snapshot: int, keys: Sequence[str], at_us: int | None) -> DataFrame:
        """The rows with what a sink has to know of them. ``at_us``: their time, if that is not the snapshot's own."""
        marks = {
            name: {COLUMN_MARK: f"{now.uuid}.{number}"} | ({KEY_MARK: True} if name in keys else {})
            for name, number in now.column_ids(snapshot).items()
        }
        data = [sf.col(quoted(name)).alias(name, metadata=mark) for name, mark in marks.items()]
        change_marks = {CHANGES_MARK: True, KEY_COUNT_MARK: len(keys)} | ({IMAGES_MARK: True} if self._images else {})
        place = sf.struct(sf.lit(self._spec.table).alias("table"), sf.lit(snapshot).alias("snapshot"), sf.col(OP).alias("op"))
        turn = sf.when(sf.col(OP) == DELETE, 0).otherwise(1)
        hidden = {
            OP: sf.col(OP).alias(OP, metadata=change_marks),
            ORDER: sf.struct(turn.alias(TURN)),
            AT: sf.to_json(place),
            CHANGED_AT: sf.timestamp_micros(sf.lit(at_us or now.made_at_us(snapshot))),
        }
        if self._images:
            hidden[IMAGE] = sf.col(EXTRA)
        others = [name for name in rows.columns if name.startswith(HIDDEN) and name not in hidden]
        return rows.select(*data, *[column.alias(name) for name, column in hidden.items()], *others)

    def observed(self, part: Slice, rows: int) -> None:
        """Nothing to learn: what summaries count is near enough."""

    def committed(self, position: Position) -> None:  # noqa: ARG002 - the protocol's signature
        """The slice is not read again."""
        self._reading.close()

    def explain(self, error: Exception) -> FrazilError | None:
        """Data files that were removed while they were read."""
        return files_gone(self._spec.table, error)

    def close(self) -> None:
        """Lets go of the last slice."""
        self._reading.close()

    def check(self) -> None:
        """The table must be there, an Iceberg table, and have the key's columns."""
        with asking(self._spec.table):
            described = self._spark.sql(f"DESCRIBE TABLE EXTENDED {self._spec.table}").collect()
        if not any(row.col_name == "Provider" and row.data_type.lower() == "iceberg" for row in described):
            words = f"{self._spec.table} is no Iceberg table: only such have snapshots, between which changes are found."
            raise ConfigError("source-not-iceberg", words, fix="Leave changes out, or name an Iceberg table.")
        now = self._now()
        if now.head is not None:
            self._keys(now, now.head)

    # Comparing

    def waiting(self, position: Position) -> bool:
        """Whether rows may have changed after a position."""
        now = self._now()
        then = self._snapshot(position, now)
        with asking(self._spec.table):
            steps = now.steps_since(then)
        return steps is None or any(map(changed_rows, steps))

    @property
    def table_names(self) -> tuple[str, ...]:
        """The one table that is read; none if its older rows are not, as then there is nothing to compare."""
        return () if self._spec.after_snapshot is not None else (self._spec.table,)

    def rows(self, table: str) -> DataFrame:  # noqa: ARG002 - there is one
        """The rows of the table as they are now."""
        now = self._now()
        assert now.head is not None, "somebody has read its rows"
        return self._whole(now, now.head)

    def digest(self, table: str) -> tuple[int, int | None, tuple[str, ...]]:  # noqa: ARG002 - there is one
        """How many rows the table has now, a number that all their keys make, and the columns of the key."""
        now = self._now()
        assert now.head is not None, "somebody has read its rows"
        keys = self._keys(now, now.head)
        rows, digest = key_digest(self._at(now.head), keys)
        return rows, digest if keys else None, keys


def changed_rows(step: Step) -> int:
    """About how many rows a snapshot has changed, by its summary; 0 only if it certainly has changed none."""
    if step.operation == "replace" or step.summary.get("changed-partition-count") == "0":
        return 0
    # A vector that replaces another is counted with all of its positions.
    marked = max(0, step.number("added-position-deletes") - step.number("removed-position-deletes"))
    return max(1, marked + sum(map(step.number, ("added-records", "deleted-records", "added-equality-deletes"))))
