"""The rows that a table has already, read by many connections as of one moment.

How nothing is lost or doubled between the snapshot and the log, for any table at any time:

1. the slot is there, and the table is in the publication;
2. every transaction that writes and began before now is waited for, so that the snapshot sees all that the log up to the
   position holds, and all that was done before the publication had the table;
3. a snapshot is taken and exported. Which transactions it saw becomes part of the position, with a place in the log behind
   the last of them;
4. the changes after the position are read. Of this table, those of transactions that the snapshot saw are left out.

The connection that took the snapshot keeps it until the slice is committed. Killed before, nothing is lost: the next start
takes another one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from frazil.errors import Retryable
from frazil.sources.postgres.catalog import Connection
from frazil.sources.postgres.connection import Login, asking
from frazil.sources.postgres.position import Seen
from frazil.sources.postgres.protocol import Buffer, lsn_number
from frazil.sources.postgres.spool import FLUSH_BYTES, Columns, SpooledRows, assembled

BATCH_ROWS = 20_000
_PAGE_BYTES = 8192
_COPY_HEADER = 19
_COPY_END = b"\xff\xff"
_LOOK_AGAIN_SECONDS = 0.1


@dataclass(frozen=True)
class PageRange:
    """A part of a table: its pages from the first to before the last; to the end when there is no last."""

    table: str
    first: int
    last: int | None


def page_ranges(leaves: Sequence[tuple[str, int]], chunk_mb: int) -> list[PageRange]:
    """The parts of a table that is held by these tables of so many bytes each."""
    chunk = (chunk_mb << 20) // _PAGE_BYTES
    ranges: list[PageRange] = []
    for table, size in leaves:
        firsts = list(range(0, max(1, -(-size // _PAGE_BYTES)), chunk))
        ranges += [PageRange(table, first, last) for first, last in zip(firsts, [*firsts[1:], None], strict=True)]
    return ranges


def dealt(ranges: Sequence[PageRange], hands: int) -> list[tuple[PageRange, ...]]:
    """The parts in as many hands, none of them empty."""
    return [tuple(ranges[hand::hands]) for hand in range(min(hands, len(ranges)))]


@dataclass(frozen=True)
class SnapshotRead:
    """What an executor must know to read parts of a table as of the snapshot."""

    login: Login = field(repr=False)
    snapshot: str
    table: str
    columns: Columns
    row_filter: str | None
    lsn: int
    at_us: int

    def batches(self, ranges: Sequence[PageRange]) -> Iterator[pa.RecordBatch]:
        """The rows of the parts."""
        with self.login.connect() as connection:
            connection.autocommit = False
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(self.snapshot)))
            for part in ranges:
                yield from self._part(connection, part)

    def _part(self, connection: Connection, part: PageRange) -> Iterator[pa.RecordBatch]:
        messages: list[bytes] = []
        size = 0
        with connection.cursor().copy(self._query(part)) as copy:
            skipped = _COPY_HEADER
            for data in copy:
                row = bytes(data)[skipped:]
                skipped = 0
                if row == _COPY_END:
                    continue
                messages.append(row)
                size += len(row)
                if len(messages) >= BATCH_ROWS or size >= FLUSH_BYTES:
                    yield from self._decoded(messages)
                    messages, size = [], 0
        if messages:
            yield from self._decoded(messages)

    def _query(self, part: PageRange) -> sql.Composed:
        # As the log writes it: a cast to text would trim char(n) and give every inet its mask.
        shown = sql.SQL("case when num_nulls({0}) = 0 then format('%s', {0}) end")
        names = [shown.format(sql.Identifier(column.name)) for column in self.columns]
        where = [sql.SQL("ctid >= {}").format(sql.Literal(f"({part.first},0)"))]
        if part.last is not None:
            where.append(sql.SQL("ctid < {}").format(sql.Literal(f"({part.last},0)")))
        if self.row_filter is not None:
            where.append(sql.SQL(self.row_filter))  # type: ignore[arg-type]  # PostgreSQL's own words
        return sql.SQL("copy (select {} from only {} where {}) to stdout (format binary)").format(
            sql.SQL(", ").join(names),
            sql.SQL(part.table),  # as PostgreSQL quoted it
            sql.SQL(" and ").join(where),
        )

    def _decoded(self, messages: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        buffer, rows = Buffer.of(messages), len(messages)
        meta = {
            "op": pa.repeat("insert", rows),
            "lsn": pa.repeat(pa.scalar(self.lsn, pa.int64()), rows),
            "xid": pa.nulls(rows, pa.int64()),
            "seq": pa.array(np.zeros(rows, np.int64)),
            "at_us": pa.repeat(pa.scalar(self.at_us, pa.int64()), rows),
            "extra": pa.array(np.zeros(rows, np.bool_)),
            "moved": pa.array(np.zeros(rows, np.bool_)),
            "image": pa.array(np.zeros(rows, np.bool_)),
        }
        fields = buffer.copied_rows(len(self.columns))
        yield from assembled(SpooledRows(buffer, fields, self.columns), meta, self.table).to_batches()


_SNAPSHOT = "select pg_current_snapshot()::text, pg_export_snapshot(), (extract(epoch from clock_timestamp()) * 1000000)::bigint"


class ExportedSnapshot:
    """A moment of the database that other connections can read; it lasts as long as its own connection.

    ``at_us`` is its time (microseconds since 1970).
    """

    def __init__(self, login: Login) -> None:
        self._connection = login.connect()
        with asking("Taking a snapshot"):
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._connection.read_only = True
            self._connection.autocommit = False
            # One statement sees one moment; the end of the log, asked for after it, is behind everything seen.
            row = self._connection.execute(_SNAPSHOT).fetchone()
            end = self._connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        assert end is not None
        self.name, self.at_us = str(row[1]), int(row[2])
        self.seen = Seen.from_text(str(row[0]), lsn_number(str(end[0])))

    @property
    def alive(self) -> bool:
        """Whether it can still be read, as far as is known here."""
        return not self._connection.closed

    def close(self) -> None:
        """Lets go of the moment."""
        self._connection.close()


_WAITING_FOR = "select string_agg(pid::text, ', ') from pg_stat_activity where backend_xid is not null"


def await_writers(connection: Connection, seconds: float) -> None:
    """Waits for all transactions that write and began before now. Retryable when that takes too long."""
    with asking("Waiting for running transactions"):
        # A number of our own: all that were given out before are lower.
        own = connection.execute("select pg_current_xact_id()::text::bigint").fetchone()
        until = time.monotonic() + seconds
        while own is not None:
            oldest = connection.execute("select pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone()
            if oldest is None or oldest[0] > own[0]:
                return
            if time.monotonic() > until:
                who = connection.execute(_WAITING_FOR).fetchone()
                named = f" (process {who[0]} of the server)" if who and who[0] else " (prepared, perhaps: see pg_prepared_xacts)"
                raise Retryable(
                    "snapshot-waits",
                    f"A snapshot needs that transactions end which began before it, and one is still running{named}.",
                    fix="End it, or raise snapshot_wait_secs.",
                )
            time.sleep(_LOOK_AGAIN_SECONDS)
