"""Spark's data frames of a slice: the table's columns, and the hidden ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from frazil.columns.schema import require_data
from frazil.model.hidden import (
    AT,
    CHANGED_AT,
    CHANGES_MARK,
    COLUMN_MARK,
    ERROR,
    EXTRA,
    IMAGE,
    IMAGES_MARK,
    KEY_COUNT_MARK,
    KEY_MARK,
    MOVED,
    OF_KEY_MARK,
    OP,
    ORDER,
    ORIGIN,
    PAIR,
    RAW,
    TURN,
    UNCHANGED,
)
from frazil.sources.postgres.numbering import united
from frazil.sources.postgres.snapshot import PageRange, SnapshotRead
from frazil.sources.postgres.spool import META, Columns, SpooledColumn, SpoolFile
from frazil.sources.postgres.types import ColumnType, widened


def stored_schema(columns: Columns) -> str:
    """Spark's words for what a file or an executor gives."""
    data = [f"c{number} {column.type.spark}" for number, column in enumerate(columns)]
    return ", ".join([*data, *(f"{name} {spark}" for name, _, spark in META)])


def change_frame(
    spark: SparkSession,
    files: Sequence[SpoolFile],
    table: str,
    otherwise: Columns,
    *,
    before: int | None = None,
    keys: Columns = (),
    named: Columns = (),
    images: bool | None = None,
) -> DataFrame:
    """The changes in these files up to a position in the log; without files, no rows, with the columns ``otherwise``.

    ``named``: the columns by which updates and deletes name a row. ``images``: whether the table now logs the previous rows of
    updates; None if they are not needed.
    """
    by_columns: dict[Columns, list[str]] = {}
    for file in files:
        by_columns[file.columns] = [*by_columns.pop(file.columns, []), file.path.as_uri()]
    # The columns as they were last come first.
    shapes = list(reversed(by_columns)) or [otherwise]
    imaged = all(file.images for file in files) if files and images is not None else images
    shown = Shown.of(table, shapes, keys, named, partial=any(file.partial for file in files), images=imaged)
    frames: list[DataFrame] = []
    for columns in shapes:
        if columns in by_columns:
            reader = spark.read.schema(stored_schema(columns)).option("datetimeRebaseMode", "CORRECTED")
            stored = reader.parquet(*by_columns[columns])
        else:
            stored = spark.createDataFrame([], stored_schema(columns))
        if before is not None:
            # A later plan may have put more into the files than the slice had.
            stored = stored.where(sf.col("lsn") < before)
        frames.append(shown.frame(stored, columns))
    return reduce(DataFrame.unionAll, frames)


def is_among(column: SpooledColumn, others: Columns) -> bool:
    """Whether a column is one of some others, by what is known of both."""
    return any(column.name == one.name if None in (column.id, one.id) else column.id == one.id for one in others)


@dataclass(frozen=True)
class Shown:
    """How stored rows of a table are read: its columns, with types that fit everything that was stored, and with marks on them.

    ``names`` are those under which the columns of each period are read. ``partial``: whether some rows lack values that did not
    change. ``images``: whether all updates come with their previous rows; None if these are not needed.
    """

    table: str
    types: dict[str, ColumnType]
    marks: dict[str, dict[str, Any]]
    names: dict[Columns, tuple[str, ...]]
    partial: bool = False
    images: bool | None = None

    @classmethod
    def of(
        cls,
        table: str,
        shapes: Sequence[Columns],
        keys: Columns,
        named: Columns = (),
        *,
        partial: bool = False,
        images: bool | None = None,
    ) -> Shown:
        """For rows that were stored with the columns of these times, of which the last comes first."""
        whole = united(shapes)
        assert whole is not None, "a slice ends before a name goes to another column"
        types: dict[str, ColumnType] = {}
        for columns, names in zip(shapes, whole.names, strict=True):
            for column, name in zip(columns, names, strict=True):
                types[name] = widened(types[name], column.type) if name in types else column.type
        require_data(types, f"The table {table}")
        marks = {column.name: _marks(column, keys, named) for column in whole.columns}
        return cls(table, types, marks, dict(zip(shapes, whole.names, strict=True)), partial, images)

    def frame(self, stored: DataFrame, columns: Columns) -> DataFrame:
        """Rows that were stored with these columns."""
        names = self.names[columns]
        numbers = {name: number for number, name in enumerate(names)}
        own = {name: column.type for name, column in zip(names, columns, strict=True)}
        data = {
            name: _as(sf.col(f"c{numbers[name]}"), own[name], kind) if name in numbers else sf.lit(None).cast(kind.spark)
            for name, kind in self.types.items()
        }
        row = sf.struct(*[sf.col(f"c{number}").alias(column.name) for number, column in enumerate(columns)])
        change = sf.struct(sf.col("op"), sf.lit(self.table).alias("table"), _lsn_text().alias("lsn"), row.alias("row"))
        # Spark computes only what is asked for: where no row goes astray, these texts cost nothing.
        raw = sf.coalesce(sf.col("raw"), sf.to_json(change, {"ignoreNullFields": "false"}).cast("binary"))
        place = sf.struct(_lsn_text().alias("lsn"), sf.col("xid"), sf.col("seq"), sf.lit(self.table).alias("table"))
        turn = sf.when(sf.col("extra"), 0).otherwise(1)
        change_marks = {CHANGES_MARK: True, KEY_COUNT_MARK: sum(KEY_MARK in marks for marks in self.marks.values())}
        change_marks |= {IMAGES_MARK: True} if self.images else {}
        hidden = {
            OP: sf.col("op").alias(OP, metadata=change_marks),
            ORDER: sf.struct(sf.col("lsn"), sf.col("seq"), turn.alias(TURN)),
            EXTRA: sf.col("extra"),
            PAIR: sf.when(sf.col("extra") | sf.col("moved"), sf.struct("lsn", "seq")),
            AT: sf.to_json(place),
            CHANGED_AT: sf.timestamp_micros("at_us"),
            ORIGIN: sf.lit(self.table),
            ERROR: sf.col("error"),
            RAW: raw,
        }
        if self.partial:
            hidden[UNCHANGED] = _under(names, columns)
            hidden[MOVED] = sf.col("moved")
        if self.images is not None:
            hidden[IMAGE] = sf.col("image")
        shown = [column.alias(name, metadata=self.marks[name]) for name, column in data.items()]
        return stored.select(*shown, *[column.alias(name) for name, column in hidden.items()])


def _marks(column: SpooledColumn, keys: Columns, named: Columns) -> dict[str, Any]:
    marks: dict[str, Any] = {} if column.id is None else {COLUMN_MARK: column.id}
    marks |= {OF_KEY_MARK: True} if is_among(column, named) else {}
    return marks | {KEY_MARK: True} if is_among(column, keys) else marks


def _under(names: Sequence[str], columns: Columns) -> SparkColumn:
    """The names of values that were not sent, as they are shown."""
    pairs = [(column.name, name) for name, column in zip(names, columns, strict=True) if column.name != name]
    if not pairs:
        return sf.col("unchanged")
    new = sf.create_map(*[sf.lit(text) for pair in pairs for text in pair])
    return sf.transform("unchanged", lambda name: sf.coalesce(new[name], name))


def _as(column: SparkColumn, own: ColumnType, wanted: ColumnType) -> SparkColumn:
    return column if own == wanted else column.cast(wanted.spark)


def _lsn_text() -> SparkColumn:
    high, low = sf.hex(sf.shiftrightunsigned("lsn", 32)), sf.hex(sf.col("lsn").bitwiseAND(0xFFFFFFFF))
    return sf.concat(high, sf.lit("/"), low)


class _Hand(InputPartition):
    def __init__(self, ranges: tuple[PageRange, ...]) -> None:
        self.ranges = ranges


def snapshot_frame(
    spark: SparkSession,
    job: SnapshotRead,
    hands: Sequence[tuple[PageRange, ...]],
    *,
    keys: Columns = (),
    named: Columns = (),
    images: bool | None = None,
) -> DataFrame:
    """The rows of a table, read by the executors, each hand by a task and a connection of its own."""

    class Reader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [_Hand(ranges) for ranges in hands]

        def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
            return job.batches(partition.ranges)

    # The job is part of the class, not of the options: Spark's plans show the options, and the job contains the password.
    unique = f"frazil_postgres_{uuid.uuid4().hex}"

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return unique

        def schema(self) -> str:
            return stored_schema(job.columns)

        def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
            return Reader()

    spark.dataSource.register(Source)
    stored = spark.read.format(unique).load()
    return Shown.of(job.table, [job.columns], keys, named, images=images).frame(stored, job.columns)
