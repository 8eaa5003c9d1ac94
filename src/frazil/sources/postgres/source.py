"""A PostgreSQL database as a source: snapshots of its tables, then slices of whole transactions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

from frazil.errors import ConfigError, FrazilError, Halted, Retryable, SourceAway
from frazil.model.commit import Position
from frazil.model.secrets import scrub
from frazil.model.source import CdcStream, PostgresCdcSource
from frazil.sources.base import Lag, Notice, Slice
from frazil.sources.failures import one_line, whole_text
from frazil.sources.postgres import catalog, slot
from frazil.sources.postgres.catalog import Publication
from frazil.sources.postgres.changes import ChangeReader, Filled, unlogged_values
from frazil.sources.postgres.connection import Login
from frazil.sources.postgres.database import Database, passed
from frazil.sources.postgres.digest import digest
from frazil.sources.postgres.frames import change_frame, snapshot_frame
from frazil.sources.postgres.numbering import Shape, Storage
from frazil.sources.postgres.position import PostgresPlace
from frazil.sources.postgres.protocol import FULL, lsn_text
from frazil.sources.postgres.snapshot import ExportedSnapshot, PageRange, SnapshotRead, await_writers, dealt, page_ranges
from frazil.sources.postgres.spool import SpoolFile
from frazil.sources.postgres.stream import ChangeStream

# So much log without a change of a followed table, and a slice without rows moves the position on: the server keeps the log
# from there, and would fill its disk for tables that nobody writes to.
IDLE_BYTES = 64 << 20

_CAUSE = re.compile(r"^(?:psycopg|frazil)(?:\.\w+)*\.(?P<type>\w+): (?P<text>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class SnapshotPart:
    """A slice that is a table as of one moment."""

    job: SnapshotRead
    hands: tuple[tuple[PageRange, ...], ...]


@dataclass(frozen=True)
class ChangesPart:
    """A slice that is some transactions: before which place in the log they ended, and how many changes each table has."""

    end: int
    rows: Mapping[str, int]


class PostgresCdc:
    """The changes of some tables of a database, in the order of their commits.

    Delivery: a slice of changes holds whole transactions and reads the same rows until it is committed; the slot moves only
    when ``committed`` is called. A table's snapshot reads the same rows as long as this object lives; one that was not
    committed by then starts over. Nothing is lost or doubled between the two. Parallelism: snapshots by ranges of pages over
    all executors; changes are decoded once by the driver into files, which all executors read.

    With several tables ``read_table`` returns the rows of one; the slice is committed when all ``tables`` of it are. With
    ``images`` updates come with their previous rows, if the database logs them (REPLICA IDENTITY FULL). With ``versions`` the
    times of a table's transactions only grow, whatever the server's clock does.
    """

    def __init__(self, spec: PostgresCdcSource, spark: SparkSession, *, images: bool = False, versions: bool = False) -> None:
        self._spec = spec
        self._images = images
        self._versions = versions
        self._spark = spark
        self._login = Login.of(spec)
        self._database = Database(spec, self._login)
        self._reader: ChangeReader | None = None
        self._exported: ExportedSnapshot | None = None
        self._planned: Slice | None = None
        self._confirmed: int | None = None
        self._oldest_us: int | None = None
        self._refreshed_before: Mapping[str, int] | None = None
        self._timeline = 0
        self._replaces: Callable[[str], bool] = lambda _: False

    @property
    def fingerprint(self) -> str:
        """Database and slot. That the server is the same one is part of the positions."""
        return f"postgres-cdc:{self._spec.database}/{self._spec.slot}"

    @property
    def poll_seconds(self) -> float:
        """As the source says."""
        return self._spec.poll_interval_secs

    def check(self) -> None:
        """Database, rights, tables, publication and slot must be as they are needed."""
        slot.require_shared_spool(self._spec, self._spark.sparkContext.master or "")
        own = self._reader.stream.reader if self._reader is not None else None
        self._database.ask(lambda database: slot.check(database, self._spec, own))

    @cached_property
    def streams(self) -> tuple[CdcStream, ...]:
        """The tables that are followed: those named, or those that the publication had at first."""
        return self._database.ask(lambda database: slot.streams(database, self._spec))

    def _following(self) -> dict[str, CdcStream]:
        return {stream.full_name: stream for stream in self.streams if stream.sync_mode == "incremental"}

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        """First a slice for each table's snapshot, then the transactions after ``start`` with about ``limit`` changes."""
        planned = self._planned
        if planned is not None and planned.start == start and isinstance(planned.detail, SnapshotPart) and self._still_there():
            return planned
        place = self._place(start).only(self._following())
        if place.streams and self._spec.snapshot == "initial":
            place = place.published(self._database.members())
        if self._refreshed_before is None:
            self.run_began(start)
        stream = self._next_snapshot(place)
        planned = self._plan_changes(start, place, limit) if stream is None else self._plan_snapshot(start, place, stream)
        self._planned = planned
        return planned

    def run_began(self, position: Position | None) -> None:
        """A table that was read whole after this position was read by this run."""
        self._refreshed_before = {} if position is None else PostgresPlace.from_position(position).refreshed

    def read_again_where(self, replaces: Callable[[str], bool]) -> None:
        """Tells in which tables rows that are read again replace those that are there."""
        self._replaces = replaces

    def _still_there(self) -> bool:
        return self._exported is not None and self._exported.alive

    def _place(self, start: Position | None) -> PostgresPlace:
        """Where reading begins. Without a position of the ledger: where the slot stands, which is made when it is not there."""
        following = self._following()
        place = None if start is None else PostgresPlace.from_position(start)
        system = self._database.system
        if place is not None and place.system != system:
            raise Halted(
                "other-database",
                f"The ledger's position is of another database server than the one at {self._login}.",
                fix="Positions do not carry over. Connect to the server as before, or start again with a new sink id.",
            )
        place = place or PostgresPlace(system)
        if following and place.lsn is None:
            found = self._database.ask(lambda database: slot.ensure(database, self._spec, tuple(following.values())))
            place = place.after(found.confirmed or 0)
        if self._spec.snapshot == "never":
            for name in following:
                place = place if name in place.streams else place.with_snapshot(name, None)
        return place

    # Snapshots

    def _next_snapshot(self, place: PostgresPlace) -> CdcStream | None:
        before = self._refreshed_before or {}
        for name, stream in ((stream.full_name, stream) for stream in self.streams):
            if stream.sync_mode == "incremental" and (name not in place.streams or name in place.again):
                return stream
            if stream.sync_mode == "full_refresh" and place.refreshed.get(name, 0) <= before.get(name, 0):
                return stream
        return None

    def _plan_snapshot(self, start: Position | None, place: PostgresPlace, stream: CdcStream) -> Slice:
        self._let_go()
        spec, name = self._spec, stream.full_name
        follows = stream.sync_mode == "incremental"
        again = name in place.again
        published = self._database.published(name) if follows else None
        if follows:
            place = self._database.located(place)
            members = self._database.members()
            self._database.ask(lambda database: await_writers(database, spec.snapshot_wait_secs))
        files = self._database.files(self._database.table(stream).oid)
        before = self._database.table(stream)
        self._exported = exported = ExportedSnapshot(self._login)
        at_us = max(exported.at_us, place.times.get(name, 0) + 1)
        part, rows = self._snapshot_part(exported, stream, published, place.lsn or 0, at_us)
        place = self._timed(place, {name: at_us})
        end = place.with_refresh(name)
        if again:
            # All changes after the place are applied to what was read, also those that are in it: the last one of a row counts,
            # and a delete that was left out would leave its row in the target. Columns are those of the place.
            end = place.without_gaps(name).published(members)
        elif follows:
            # The columns before the snapshot: what the log has of them is younger.
            known = passed(before, published)
            shape = Shape.of(before.oid, {one.number: (one.name, one.type_oid) for one in known}, before.last)
            shape = replace(shape, storage=Storage.of(files, [one.type_modifier for one in known]))
            end = place.with_snapshot(name, exported.seen).with_shapes({name: shape.to_text()}).published(members)
        return Slice(start, end.to_position(), rows, full=True, detail=part)

    def _timed(self, place: PostgresPlace, times: Mapping[str, int]) -> PostgresPlace:
        return place.with_times(times) if self._versions else place

    def _snapshot_part(
        self, exported: ExportedSnapshot, stream: CdcStream, published: Publication | None, lsn: int, at_us: int
    ) -> tuple[SnapshotPart, int | None]:
        """How a table is read as of a snapshot, and about how many rows it has."""
        table = self._database.table(stream)
        leaves = self._database.ask(lambda database: catalog.leaves(database, table))
        rows = self._database.ask(lambda database: catalog.estimated_rows(database, [leaf for leaf, _ in leaves]))
        columns = self._database.columns(table, published)
        row_filter = published.row_filter if published is not None else None
        job = SnapshotRead(self._login, exported.name, stream.full_name, columns, row_filter, lsn, at_us)
        ranges = page_ranges(leaves, self._spec.snapshot_chunk_mb)
        return SnapshotPart(job, tuple(dealt(ranges, self._spec.snapshot_connections or self._cores()))), rows

    def _cores(self) -> int:
        return self._spark.sparkContext.defaultParallelism

    def _let_go(self) -> None:
        if self._exported is not None:
            self._exported.close()
            self._exported = None

    # Changes

    def _plan_changes(self, start: Position | None, place: PostgresPlace, limit: int) -> Slice | None:
        self._let_go()
        following = self._following()
        if not following:
            return None
        reader = self._reader_at(place, following)
        target = self._database.log_end()
        filled = reader.fill(limit, target)
        self._oldest_us = filled.oldest_us
        rows = filled.rows.total()
        end = filled.end
        if not rows:
            end = max(end, min(reader.stream.reached, target))
            if end - (place.lsn or 0) < IDLE_BYTES:
                return None
        detail = ChangesPart(end, filled.rows)
        behind = self._timed(place.after(end).on(self._timeline).with_shapes(filled.shapes), filled.times)
        for table, columns in filled.unlogged.items():
            behind = behind.with_again(table) if self._reads_again(table) else behind.with_unfilled(table, columns)
        full = rows >= limit or filled.blocked or bool(behind.again)
        return Slice(start, behind.to_position(), rows, full=full, detail=detail, notices=self._notices(filled))

    def _reads_again(self, table: str) -> bool:
        return self._spec.snapshot == "initial" and self._replaces(table)

    def _notices(self, filled: Filled) -> tuple[Notice, ...]:
        """Notices about values that are not in the log."""
        return tuple(
            unlogged_values(table, columns, read_again=self._reads_again(table)) for table, columns in filled.unlogged.items()
        )

    def _reader_at(self, place: PostgresPlace, following: Mapping[str, CdcStream]) -> ChangeReader:
        """The reader that continues from a position: the existing one, or a new one."""
        reader, planned = self._reader, self._planned
        if reader is not None:
            if reader.start == place and reader.usable:
                return reader
            done = planned is not None and isinstance(planned.detail, ChangesPart) and planned.end == place.to_position()
            if done and reader.usable and not reader.blocked:
                reader.forget(place)
                return reader
            self._close_reader()
        lsn = place.lsn or 0
        found = self._database.ask(lambda database: slot.slot(database, self._spec.slot))
        if found is None:
            raise slot.slot_gone(self._spec.slot)
        if found.lost:
            raise slot.slot_lost(self._spec.slot)
        if found.confirmed is not None and found.confirmed > lsn:
            raise Halted(
                "slot-moved",
                f"The slot {self._spec.slot} was moved to {lsn_text(found.confirmed)}, behind the ledger's {lsn_text(lsn)}: "
                "somebody else reads it, or made it anew.",
                fix=slot.START_OVER,
            )
        self._timeline = self._database.located(place).timeline or 0
        stream = ChangeStream(self._login, self._spec.slot, self._spec.publication_name, lsn)
        self._reader = ChangeReader(
            stream,
            place,
            following,
            self._database.describe,
            self._spec.spool_path,
            server_waits=lambda: self._database.ask(lambda database: slot.waits_for_log(database, self._spec.slot)),
            stop_at_truncate=self._spec.on_truncate == "stop",
            images=self._images,
        )
        return self._reader

    def between(self, start: Position | None, end: Position) -> Slice | None:
        """The slice of changes from one position to another, as it was planned once, to write it into the rest of its tables.

        A snapshot, which is of one table, cannot be read again once its process has ended.
        """
        planned = self._planned
        if planned is not None and (planned.start, planned.end) == (start, end):
            # A snapshot that broke meanwhile can no longer be read.
            return planned if isinstance(planned.detail, ChangesPart) or self._still_there() else None
        place, target = self._place(start), PostgresPlace.from_position(end)
        lsn = target.lsn or 0
        # Changes move on in the log, a snapshot does not, whether its table is a new one or one that came back.
        if lsn <= (place.lsn or 0) or not target.streams <= place.streams or place.refreshed != target.refreshed:
            return None
        following = {name: stream for name, stream in self._following().items() if name in target.streams}
        filled = self._reader_at(place.only(following), following).fill(0, lsn, exactly=lsn)
        self._oldest_us = filled.oldest_us
        detail = ChangesPart(lsn, filled.rows)
        if filled.end > lsn or filled.blocked:
            raise Halted("slice-gone", f"No transaction ends at {lsn_text(lsn)}.", fix=slot.START_OVER)
        self._planned = Slice(start, end, filled.rows.total(), full=True, detail=detail, notices=self._notices(filled))
        return self._planned

    def committed(self, position: Position) -> None:
        """Everything up to here is in every table: the server need not keep the log before it."""
        place = PostgresPlace.from_position(position)
        planned = self._planned
        if planned is not None and planned.end == position and isinstance(planned.detail, SnapshotPart):
            self._let_go()
        if place.lsn is None:
            return
        self._confirmed = place.lsn
        self._oldest_us = None
        if self._reader is not None:
            self._reader.stream.confirm(place.lsn)

    def lag(self, position: Position | None) -> Lag:  # noqa: ARG002 - the server knows what is committed
        """How many bytes of log are after the committed position, and how old the oldest change is that waits."""
        since = self._confirmed
        if since is None:
            found = self._database.ask(lambda database: slot.slot(database, self._spec.slot))
            since = found.confirmed if found is not None else None
        behind = max(0, self._database.log_end() - since) if since is not None else 0
        seconds = 0.0 if self._oldest_us is None else max(0.0, time.time() - self._oldest_us / 1_000_000)
        return Lag(bytes=behind, seconds=seconds)

    def waiting(self, position: Position) -> bool:
        """Whether there are changes after a position. Reads the log up to the first: it grows without changes, too."""
        following = self._following()
        place = self._place(position).only(following)
        if place.streams < set(following) or place.again:
            return True
        return bool(following) and self._reader_at(place, following).fill(1, self._database.log_end()).rows.total() > 0

    # Reading

    def tables(self, part: Slice) -> tuple[str, ...]:
        """The tables that have rows in a slice."""
        if isinstance(part.detail, SnapshotPart):
            return (part.detail.job.table,)
        return tuple(sorted(part.detail.rows))

    def read(self, part: Slice) -> DataFrame:
        """The rows of a slice, of a source with one table."""
        return self.read_table(part, self._only_stream().full_name)

    def _only_stream(self) -> CdcStream:
        if len(self.streams) != 1:
            raise ConfigError(
                "several-tables",
                f"The source has {len(self.streams)} tables, whose columns differ: they cannot be read as one.",
                fix="Name one table under streams:, or route each table to its own.",
            )
        return self.streams[0]

    def empty(self) -> DataFrame:
        """The columns of the one table, without rows: nothing is made for it in the database."""
        stream = self._only_stream()
        now = self._database.table(stream)
        columns = self._database.columns(now, self._database.published(stream.full_name))
        return change_frame(self._spark, (), stream.full_name, columns, **self._known_by(now))

    def _known_by(self, table: catalog.DatabaseTable) -> dict[str, Any]:
        """The columns that identify the rows of a table, and whether the previous rows of updates are logged."""
        keys, named = self._database.key_columns(table), self._database.naming_columns(table)
        return {"keys": keys, "named": named, "images": table.identity == FULL if self._images else None}

    def read_each(self, part: Slice) -> list[DataFrame]:
        """The rows of each table that has some."""
        return [self.read_table(part, table) for table in self.tables(part)]

    def read_table(self, part: Slice, stream: str) -> DataFrame:
        """The rows of one table in a slice, with its columns. ``stream`` is `namespace.name`."""
        now = self._database.table(next(one for one in self.streams if one.full_name == stream))
        if isinstance(part.detail, SnapshotPart) and part.detail.job.table == stream:
            return snapshot_frame(self._spark, part.detail.job, part.detail.hands, **self._known_by(now))
        files: tuple[SpoolFile, ...] = ()
        before = None
        if isinstance(part.detail, ChangesPart):
            if self._reader is None or self._planned is None or self._planned.start != part.start:
                raise Retryable("slice-gone", "The slice was planned by a reader that is closed.", fix="Plan it again.")
            files, before = self._reader.files(), part.detail.end
        own = [file for file in files if file.table == stream]
        otherwise = () if own else self._database.columns(now, self._database.published(stream))
        return change_frame(self._spark, own, stream, otherwise, before=before, **self._known_by(now))

    @property
    def table_names(self) -> tuple[str, ...]:
        """The tables that are read."""
        return tuple(stream.full_name for stream in self.streams)

    def rows(self, table: str) -> DataFrame:
        """The rows of a table as they are now, which can be read until the next snapshot is taken."""
        stream = next(one for one in self.streams if one.full_name == table)
        self._let_go()
        self._exported = exported = ExportedSnapshot(self._login)
        part, _ = self._snapshot_part(exported, stream, self._database.published(table), 0, exported.at_us)
        return snapshot_frame(self._spark, part.job, part.hands, **self._known_by(self._database.table(stream)))

    def digest(self, table: str) -> tuple[int, int | None, tuple[str, ...]]:
        """How many rows a table has now, a number that all their keys make, and the columns of the key."""
        now = self._database.table(next(one for one in self.streams if one.full_name == table))
        published = self._database.published(table)
        rows, keys = self._database.ask(lambda database: digest(database, now, published))
        return rows, keys, now.primary_key

    def finished(self, position: Position | None) -> bool:
        """When no table is followed and each was read whole by this run."""
        if position is None or any(stream.sync_mode == "incremental" for stream in self.streams):
            return False
        return self._refreshed_before is not None and self._next_snapshot(PostgresPlace.from_position(position)) is None

    def total_rows(self, start: Position | None) -> int | None:
        """Unknown: the log does not count."""

    def observed(self, part: Slice, rows: int) -> None:
        """Nothing to learn: changes are counted, and a snapshot is read once."""

    def explain(self, error: Exception) -> FrazilError | None:
        """What failed on executors while a snapshot was read."""
        text = whole_text(error)
        if "psycopg" not in text and "frazil/sources/postgres" not in text:
            return None
        self._let_go()
        causes = list(_CAUSE.finditer(text))
        words = scrub(causes[-1]["text"]) if causes else one_line(error)
        message = f"The snapshot could not be read to its end: {words}"
        if causes and causes[-1]["type"] == "InsufficientPrivilege":
            return ConfigError("database-rights", message, fix="Let the user read all rows of the table.")
        return SourceAway("snapshot-interrupted", message, fix="Nothing of it was committed. It is begun anew.")

    def _close_reader(self) -> None:
        if self._reader is not None:
            with suppress(psycopg.Error, FrazilError):
                self._reader.close()
            self._reader = None

    def close(self) -> None:
        """Ends every connection. The slot stays where it is."""
        self._let_go()
        self._close_reader()
        self._database.close()
