"""Records that were fetched and are not committed yet, in Parquet files that Spark reads as often as it likes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.sources.pages.pager import Record

FLUSH_ROWS = 32_768
FLUSH_CHARACTERS = 16 << 20

COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""A record as a message: its id is the key, its fields are the value, its table is the topic, its number is the offset."""

SPARK_COLUMNS = "key binary, value binary, topic string, offset bigint, timestamp timestamp"


class PageSpool:
    """The records of one slice, in the order in which they came. Memory holds a bounded number of them."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._pending: list[Record] = []
        self._characters = 0
        self._written = 0
        self.files: list[Path] = []

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._written + len(self._pending)

    def add(self, records: Iterable[Record]) -> None:
        """Takes the records of a page."""
        for record in records:
            self._pending.append(record)
            self._characters += len(record.data)
            if len(self._pending) >= FLUSH_ROWS or self._characters >= FLUSH_CHARACTERS:
                self.flush()

    def flush(self) -> None:
        """Puts everything into files."""
        if not self._pending:
            return
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="frazil-pages-"))
        path = self._folder / f"{len(self.files)}.parquet"
        # Spark fails to read some pages that Arrow compressed with LZ4.
        pq.write_table(_table(self._pending, self._written), path, compression="snappy", store_schema=False)
        self.files.append(path)
        self._written += len(self._pending)
        self._pending, self._characters = [], 0

    def clear(self) -> None:
        """Forgets everything."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
        self._pending, self._characters, self._written, self.files = [], 0, 0, []


def _table(records: list[Record], first: int) -> pa.Table:
    # A time without a zone is one in UTC, as Bizon has it.
    times = [one.timestamp if one.timestamp.tzinfo is not None else one.timestamp.replace(tzinfo=UTC) for one in records]
    columns = [
        [one.id.encode(errors="replace") for one in records],
        [one.data.encode() for one in records],
        [one.table for one in records],
        range(first, first + len(records)),
        times,
    ]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, COLUMNS.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=COLUMNS)
