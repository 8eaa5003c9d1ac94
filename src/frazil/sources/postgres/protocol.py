"""The messages of pgoutput (version 1), PostgreSQL's plugin for logical replication: pure functions over bytes.

Rows are decoded in bulk: thousands of messages of one table are laid behind each other, and one step of numpy reads the same
column of all of them. No value becomes a Python object on the way to Arrow.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import DataError

INSERT, UPDATE, DELETE = b"IUD"
BEGIN, COMMIT, RELATION, TRUNCATE = b"BCRT"
CHANGES = frozenset(b"IUD")

NULL, UNCHANGED, TEXT = b"nut"
_OLD_KEY, _OLD_ROW = b"KO"
FULL = "f"
"""The replica identity under which an old row comes whole."""

# Microseconds between 1970 and 2000, where PostgreSQL's clock begins.
_EPOCH_SHIFT = 946_684_800_000_000

# From here on joining slices is cheaper than an index for every byte.
_WIDE_VALUE = 64

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


def lsn_text(lsn: int) -> str:
    """A place in the log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """A place in the log as a number."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


@dataclass(frozen=True)
class Begin:
    """A transaction begins: the position of its commit in the log, its time (microseconds since 1970), and its number."""

    lsn: int
    at_us: int
    xid: int


@dataclass(frozen=True)
class RelationColumn:
    """A column of a table, as the log describes it."""

    name: str
    type_oid: int
    type_modifier: int
    is_key: bool


@dataclass(frozen=True)
class Relation:
    """A table at one time of its life."""

    oid: int
    namespace: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def full_name(self) -> str:
        """With its schema."""
        return f"{self.namespace}.{self.name}"


def begin(message: bytes) -> Begin:
    """Reads a begin message."""
    lsn, at, xid = struct.unpack_from(">QqI", message, 1)
    return Begin(lsn, at + _EPOCH_SHIFT, xid)


def commit_end(message: bytes) -> int:
    """The place behind a transaction's commit."""
    return int(struct.unpack_from(">Q", message, 10)[0])


def relation(message: bytes) -> Relation:
    """Reads a relation message."""
    (oid,) = struct.unpack_from(">I", message, 1)
    namespace, at = _string(message, 5)
    name, at = _string(message, at)
    identity, count = chr(message[at]), int.from_bytes(message[at + 1 : at + 3])
    at += 3
    columns: list[RelationColumn] = []
    for _ in range(count):
        is_key = bool(message[at] & 1)
        column, at = _string(message, at + 1)
        type_oid, modifier = struct.unpack_from(">Ii", message, at)
        at += 8
        columns.append(RelationColumn(column, type_oid, modifier, is_key))
    return Relation(oid, namespace or "pg_catalog", name, identity, tuple(columns))


def truncated(message: bytes) -> tuple[int, ...]:
    """The tables that a truncate message empties."""
    (count,) = struct.unpack_from(">I", message, 1)
    return struct.unpack_from(f">{count}I", message, 6)


def _string(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1


@dataclass(frozen=True)
class Fields:
    """Where the values of some rows are in a buffer: three tables with one line per column and one entry per row."""

    kinds: Bytes
    starts: Places
    lengths: Places

    @classmethod
    def empty(cls, columns: int, rows: int) -> Fields:
        """Nulls."""
        shape = (columns, rows)
        return cls(np.full(shape, NULL, np.uint8), np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def put(self, rows: Places, other: Fields) -> None:
        """Takes the values of other rows."""
        for own, new in ((self.kinds, other.kinds), (self.starts, other.starts), (self.lengths, other.lengths)):
            own[:, rows] = new

    def at(self, rows: Places) -> Fields:
        """Some of the rows."""
        return Fields(self.kinds[:, rows], self.starts[:, rows], self.lengths[:, rows])


@dataclass(frozen=True)
class Buffer:
    """Messages behind each other."""

    data: Bytes
    starts: Places

    @classmethod
    def of(cls, messages: Sequence[bytes]) -> Buffer:
        """Lays the messages behind each other."""
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        # A length after the last value may be read before it is known that there is none.
        data = np.frombuffer(b"".join(messages) + bytes(8), np.uint8)
        return cls(data, np.cumsum(lengths) - lengths)

    def numbers(self, at: Places) -> Places:
        """The four-byte numbers at these places."""
        high, middle, low, lowest = (self.data[at + offset].astype(np.int64) for offset in range(4))
        return (high << 24) | (middle << 16) | (low << 8) | lowest

    def tuples(self, at: Places, columns: int) -> tuple[Fields, Places]:
        """The rows that begin at these places, and where each ends."""
        counts = self.data[at].astype(np.int64) << 8 | self.data[at + 1]
        if counts.size and (counts != columns).any():
            raise malformed(f"a row has {int(counts[counts != columns][0])} columns, its table {columns}")
        fields = Fields.empty(columns, at.size)
        at = at + 2
        for column in range(columns):
            kinds = self.data[at]
            has_text = kinds == TEXT
            lengths = np.where(has_text, self.numbers(at + 1), 0)
            fields.kinds[column], fields.starts[column], fields.lengths[column] = kinds, at + 5, lengths
            at = at + 1 + np.where(has_text, 4 + lengths, 0)
        return fields, at

    def copied_rows(self, columns: int) -> Fields:
        """The rows of `COPY ... (FORMAT binary)`, one a message."""
        fields = Fields.empty(columns, self.starts.size)
        at = self.starts + 2
        for column in range(columns):
            lengths = self.numbers(at)
            there = lengths != 0xFFFFFFFF
            lengths = np.where(there, lengths, 0)
            fields.kinds[column] = np.where(there, TEXT, NULL)
            fields.starts[column], fields.lengths[column] = at + 4, lengths
            at = at + 4 + lengths
        return fields

    def texts(self, fields: Fields, column: int) -> pa.Array:
        """The values of one column as they were sent; null where there is none."""
        there = fields.kinds[column] == TEXT
        starts, lengths = fields.starts[column], np.where(there, fields.lengths[column], 0)
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if ends.size else 0
        offsets = np.zeros(lengths.size + 1, np.int32)
        offsets[1:] = ends
        if total > _WIDE_VALUE * lengths.size:
            view = self.data.data
            joined = b"".join([view[at : at + size] for at, size in zip(starts.tolist(), lengths.tolist(), strict=True)])
            data = pa.py_buffer(joined)
        else:
            index = np.repeat(starts - (ends - lengths), lengths) + np.arange(total)
            data = pa.py_buffer(self.data[index])
        valid = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
        return pa.Array.from_buffers(pa.string(), lengths.size, [valid, pa.py_buffer(offsets), data])


@dataclass(frozen=True)
class Changes:
    """Changes of one table: each message's own row first, then the deletes of old keys.

    ``messages`` says which message a row is of, ``extra`` which rows are deletes of old keys, and ``moved`` which rows have such
    beside them. ``image``: which of these are there though the key is what it was.
    """

    buffer: Buffer
    fields: Fields
    operations: Bytes
    messages: Places
    extra: npt.NDArray[np.bool_]
    moved: npt.NDArray[np.bool_]
    image: npt.NDArray[np.bool_]


def changes(messages: Sequence[bytes], table: Relation, keys: Sequence[str], *, images: bool = False) -> Changes:
    """Decodes inserts, updates and deletes of one table, all sent under the same relation message.

    If the whole old row is sent, a change of the key is found only by comparison: ``keys`` are the columns to compare. With
    ``images`` each whole old row becomes a delete beside its update, whether the key changed or not.
    """
    buffer, columns = Buffer.of(messages), len(table.columns)
    operations = buffer.data[buffer.starts]
    marks = buffer.data[buffer.starts + 5]
    has_old = (marks == _OLD_KEY) | (marks == _OLD_ROW)
    old_rows = np.flatnonzero(has_old)
    old, ends = buffer.tuples(buffer.starts[old_rows] + 6, columns)
    new_at = buffer.starts + 6
    new_at[old_rows] = ends + 1
    new_rows = np.flatnonzero(operations != DELETE)
    new, _ = buffer.tuples(new_at[new_rows], columns)

    before = Fields.empty(columns, len(messages))
    before.put(old_rows, old)
    main = Fields.empty(columns, len(messages))
    main.put(new_rows, new)
    deletes = np.flatnonzero(operations == DELETE)
    main.put(deletes, before.at(deletes))
    _fill_unchanged(main, before)

    moved = has_old & (operations == UPDATE)
    whole = np.flatnonzero(moved & (marks == _OLD_ROW))
    stays = np.zeros(len(messages), np.bool_)
    if whole.size:
        differs = _differs(buffer, before.at(whole), main.at(whole), table, keys)
        moved[whole] = differs | images
        stays[whole] = ~differs
    extra = np.flatnonzero(moved)
    old_keys = before.at(extra)
    # What the new row lacks, the old one had.
    old_keys.kinds[main.kinds[:, extra] == UNCHANGED] = UNCHANGED
    both = Fields(*(np.concatenate([a, b], axis=1) for a, b in zip(_parts(main), _parts(old_keys), strict=True)))
    return Changes(
        buffer,
        both,
        np.concatenate([operations, np.full(extra.size, DELETE, np.uint8)]),
        np.concatenate([np.arange(len(messages)), extra]),
        np.concatenate([np.zeros(len(messages), np.bool_), np.ones(extra.size, np.bool_)]),
        np.concatenate([moved, np.zeros(extra.size, np.bool_)]),
        np.concatenate([np.zeros(len(messages), np.bool_), stays[extra]]),
    )


def _parts(fields: Fields) -> tuple[npt.NDArray[np.generic], ...]:
    return (fields.kinds, fields.starts, fields.lengths)


def _fill_unchanged(main: Fields, before: Fields) -> None:
    """A value that was not sent because it did not change is in the old row, where that was sent."""
    known = (main.kinds == UNCHANGED) & (before.kinds == TEXT)
    for own, old in zip(_parts(main), _parts(before), strict=True):
        own[known] = old[known]


def _differs(buffer: Buffer, old: Fields, new: Fields, table: Relation, keys: Sequence[str]) -> npt.NDArray[np.bool_]:
    differs = np.zeros(old.kinds.shape[1], np.bool_)
    for number, column in enumerate(table.columns):
        if column.name not in keys:
            continue
        before, after = buffer.texts(old, number), buffer.texts(new, number)
        same = pc.fill_null(pc.equal(before, after), False).to_numpy(zero_copy_only=False)
        both_null = (old.kinds[number] != TEXT) & (new.kinds[number] != TEXT)
        differs |= ~(same | both_null | (new.kinds[number] == UNCHANGED))
    return differs


def malformed(what: str) -> DataError:
    """The error for bytes that are not what the protocol says."""
    return DataError("replication-protocol", f"PostgreSQL sent a change that cannot be read: {what}.", fix="Report this.")
