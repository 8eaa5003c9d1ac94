"""Changes that were read and are not committed yet: decoded once into Parquet files that Spark reads as often as it likes."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.sources.postgres.protocol import DELETE, FULL, INSERT, UPDATE, Begin, Fields, Relation, changes, lsn_text
from frazil.sources.postgres.protocol import TEXT as SENT
from frazil.sources.postgres.protocol import UNCHANGED as NOT_SENT
from frazil.sources.postgres.protocol import Buffer as Messages
from frazil.sources.postgres.types import ColumnType, values

FLUSH_BYTES = 8 << 20
FLUSH_ROWS = 32_768

OPERATIONS = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}

ERROR = pa.struct([("stage", pa.string()), ("code", pa.string()), ("text", pa.string())])
META: tuple[tuple[str, pa.DataType, str], ...] = (
    ("op", pa.string(), "string"),
    ("lsn", pa.int64(), "bigint"),
    ("xid", pa.int64(), "bigint"),
    ("seq", pa.int64(), "bigint"),
    ("at_us", pa.int64(), "bigint"),
    ("extra", pa.bool_(), "boolean"),
    ("moved", pa.bool_(), "boolean"),
    ("image", pa.bool_(), "boolean"),
    ("unchanged", pa.list_(pa.string()), "array<string>"),
    ("error", ERROR, "struct<stage: string, code: string, text: string>"),
    ("raw", pa.binary(), "binary"),
)
"""The columns beside the values: name, Arrow's type, Spark's type."""


@dataclass(frozen=True)
class SpooledColumn:
    """A column of a table at one time of its life. ``id``: what it is whatever its name, where that is known."""

    name: str
    type: ColumnType
    id: str | None = None


Columns = tuple[SpooledColumn, ...]


@dataclass(frozen=True)
class SpoolFile:
    """A file with changes of one table, all of the same columns. ``partial``: some lack values that did not change.

    ``images``: updates come with their whole previous rows.
    """

    table: str
    columns: Columns
    path: Path
    partial: bool = False
    images: bool = False


def schema_of(columns: Columns) -> pa.Schema:
    """The columns of a file: values under their numbers, since a table may use any name, then the columns beside them."""
    data = [(f"c{number}", column.type.arrow) for number, column in enumerate(columns)]
    return pa.schema([*data, *((name, arrow) for name, arrow, _ in META)])


@dataclass
class _Pending:
    relation: Relation
    columns: Columns
    keys: tuple[str, ...]
    images: bool
    messages: list[bytes] = field(default_factory=list)
    lsns: array[int] = field(default_factory=lambda: array("q"))
    xids: array[int] = field(default_factory=lambda: array("q"))
    seqs: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))

    def decoded(self) -> pa.Table:
        """The changes as Arrow's columns."""
        found = changes(self.messages, self.relation, self.keys, images=self.images)
        kinds = sorted(OPERATIONS)
        places = np.searchsorted(np.array(kinds, np.uint8), found.operations)
        op = pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int8)), [OPERATIONS[kind] for kind in kinds])
        numbers = {"lsn": self.lsns, "xid": self.xids, "seq": self.seqs, "at_us": self.times}
        meta = {name: pa.array(np.frombuffer(of, np.int64)[found.messages]) for name, of in numbers.items()}
        meta |= {"op": op.cast(pa.string()), "extra": pa.array(found.extra)}
        meta |= {"moved": pa.array(found.moved), "image": pa.array(found.image)}
        return assembled(SpooledRows(found.buffer, found.fields, self.columns), meta, self.relation.full_name)

    def clear(self) -> None:
        """Forgets the changes, not what the table looks like."""
        self.messages.clear()
        self.lsns, self.xids, self.seqs, self.times = array("q"), array("q"), array("q"), array("q")


@dataclass(frozen=True)
class SpooledRows:
    """Values as they were sent, and the columns that they are of."""

    buffer: Messages
    fields: Fields
    columns: Columns

    @property
    def count(self) -> int:
        """How many rows."""
        return int(self.fields.kinds.shape[1])


class Spool:
    """The changes of one slice. Memory holds a bounded number of them, the rest is in files."""

    def __init__(self, folder: Path, *, images: bool = False) -> None:
        self._folder = folder
        self._images = images
        self._pending: dict[int, _Pending] = {}
        self._bytes = 0
        self._rows = 0
        self._number = 0
        self.files: list[SpoolFile] = []

    def describe(self, relation: Relation, columns: Columns, keys: tuple[str, ...]) -> None:
        """From now on changes of this table have these columns."""
        known = self._pending.get(relation.oid)
        if known is not None and known.relation == relation and known.columns == columns:
            return
        if known is not None:
            self._write(known)
        self._pending[relation.oid] = _Pending(relation, columns, keys, self._images and relation.identity == FULL)

    def add(self, oid: int, message: bytes, transaction: Begin, seq: int, at_us: int) -> None:
        """Takes an insert, update or delete, and the time at which it was made."""
        pending = self._pending[oid]
        pending.messages.append(message)
        pending.lsns.append(transaction.lsn)
        pending.xids.append(transaction.xid)
        pending.seqs.append(seq)
        pending.times.append(at_us)
        self._bytes += len(message)
        self._rows += 1
        if self._rows >= FLUSH_ROWS or self._bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Puts everything into files."""
        for pending in self._pending.values():
            self._write(pending)
        self._bytes = self._rows = 0

    def _write(self, pending: _Pending) -> None:
        if not pending.messages:
            return
        table = pending.decoded()
        path = self._folder / f"{self._number}.parquet"
        self._number += 1
        # Spark fails to read some pages that Arrow compressed with LZ4.
        pq.write_table(table, path, compression="snappy", store_schema=False)
        partial = table["unchanged"].null_count < len(table)
        self.files.append(SpoolFile(pending.relation.full_name, pending.columns, path, partial, pending.images))
        pending.clear()

    def shapes(self, oid: int) -> list[Columns]:
        """The columns of the changes of a table that are here, the newest first."""
        pending = self._pending.get(oid)
        if pending is None:
            return []
        written = [file.columns for file in reversed(self.files) if file.table == pending.relation.full_name]
        return list(dict.fromkeys([*([pending.columns] if pending.messages else []), *written]))

    def clear(self) -> None:
        """Forgets everything but what the tables look like."""
        for pending in self._pending.values():
            pending.clear()
        for file in self.files:
            file.path.unlink(missing_ok=True)
        self.files = []
        self._bytes = self._rows = 0


def assembled(sent: SpooledRows, meta: dict[str, pa.Array], table: str) -> pa.Table:
    """Values and the columns beside them. A row with a value that does not fit its column has an error instead of values."""
    rows = sent.count
    data: list[pa.Array] = []
    wrong: dict[int, str] = {}
    for number, column in enumerate(sent.columns):
        array_, errors = values(sent.buffer.texts(sent.fields, number), column.type)
        data.append(array_)
        for row, text in errors.items():
            wrong.setdefault(row, f"column {column.name!r}: {text}")
    error, raw = pa.nulls(rows, ERROR), pa.nulls(rows, pa.binary())
    if wrong:
        good = np.ones(rows, np.bool_)
        good[list(wrong)] = False
        data = [pc.if_else(pa.array(good), array_, pa.scalar(None, array_.type)) for array_ in data]
        refusals = [{"stage": "decode", "code": "value-not-representable", "text": wrong[row]} if row in wrong else None
                for row in range(rows)]  # fmt: skip
        error = pa.array(refusals, ERROR)
        raws = [_raw(sent, row, meta, table) if row in wrong else None for row in range(rows)]
        raw = pa.array(raws, pa.binary())
    meta = {**meta, "unchanged": _unchanged(sent), "error": error, "raw": raw}
    return pa.Table.from_arrays([*data, *(meta[name] for name, _, _ in META)], schema=schema_of(sent.columns))


def _unchanged(sent: SpooledRows) -> pa.Array:
    rows = sent.count
    marked = sent.fields.kinds == NOT_SENT
    if not marked.any():
        return pa.nulls(rows, pa.list_(pa.string()))
    lists: list[list[str] | None] = [None] * rows
    for row in np.flatnonzero(marked.any(axis=0)).tolist():
        lists[row] = [sent.columns[number].name for number in np.flatnonzero(marked[:, row]).tolist()]
    return pa.array(lists, pa.list_(pa.string()))


def _raw(sent: SpooledRows, row: int, meta: dict[str, pa.Array], table: str) -> bytes:
    texts: dict[str, Any] = {}
    for number, column in enumerate(sent.columns):
        kind, start, size = (int(of[number, row]) for of in (sent.fields.kinds, sent.fields.starts, sent.fields.lengths))
        if kind != NOT_SENT:
            texts[column.name] = bytes(sent.buffer.data[start : start + size]).decode() if kind == SENT else None
    change = {"op": meta["op"][row].as_py(), "table": table, "lsn": lsn_text(meta["lsn"][row].as_py()), "row": texts}
    return json.dumps(change, ensure_ascii=False).encode()
