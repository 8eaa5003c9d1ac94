"""Spark's data frames of a slice: the table's columns, and the hidden ones."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from frazil.sources.postgres.snapshot import PageRange, SnapshotRead
from frazil.sources.postgres.spool import META, Columns, SpoolFile
from frazil.sources.postgres.types import ColumnType, widened

HIDDEN = "__frazil_"
_KEY = {"frazil.key": True}


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
    keys: Collection[str] = (),
) -> DataFrame:
    """The changes in these files up to a place in the log; of a table that has none, no rows, with the columns ``otherwise``."""
    by_columns: dict[Columns, list[str]] = {}
    for file in files:
        by_columns.setdefault(file.columns, []).append(file.path.as_uri())
    # The columns as they were last come first.
    shapes = list(reversed(by_columns)) or [otherwise]
    shown = Shown(table, _types(shapes), frozenset(keys), any(file.partial for file in files))
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


def _types(shapes: Sequence[Columns]) -> dict[str, ColumnType]:
    types: dict[str, ColumnType] = {}
    for columns in shapes:
        for column in columns:
            known = types.get(column.name)
            types[column.name] = column.type if known is None else widened(known, column.type)
    return types


@dataclass(frozen=True)
class Shown:
    """How stored rows of a table are shown: its columns, of whatever types hold all that was stored, with a mark on the keys.

    ``partial``: whether there are rows that lack values which did not change.
    """

    table: str
    types: dict[str, ColumnType]
    keys: frozenset[str]
    partial: bool = False

    def frame(self, stored: DataFrame, columns: Columns) -> DataFrame:
        """Rows that were stored with these columns."""
        numbers = {column.name: number for number, column in enumerate(columns)}
        own = {column.name: column.type for column in columns}
        data = {
            name: _as(sf.col(f"c{numbers[name]}"), own[name], kind) if name in numbers else sf.lit(None).cast(kind.spark)
            for name, kind in self.types.items()
        }
        row = sf.struct(*[sf.col(f"c{number}").alias(name) for name, number in numbers.items()])
        change = sf.struct(sf.col("op"), sf.lit(self.table).alias("table"), _lsn_text().alias("lsn"), row.alias("row"))
        # Spark computes only what is asked for: where no row goes astray, these texts cost nothing.
        raw = sf.coalesce(sf.col("raw"), sf.to_json(change, {"ignoreNullFields": "false"}).cast("binary"))
        place = sf.struct(_lsn_text().alias("lsn"), sf.col("xid"), sf.col("seq"), sf.lit(self.table).alias("table"))
        turn = sf.when(sf.col("extra"), 0).otherwise(1)
        hidden = {
            "op": sf.col("op"),
            "order": sf.struct(sf.col("lsn"), sf.col("seq"), turn.alias("turn")),
            "extra": sf.col("extra"),
            "at": sf.to_json(place),
            "table": sf.lit(self.table),
            "error": sf.col("error"),
            "raw": raw,
        }
        if self.partial:
            hidden["unchanged"] = sf.col("unchanged")
        shown = [column.alias(name, metadata=_KEY if name in self.keys else {}) for name, column in data.items()]
        return stored.select(*shown, *[column.alias(f"{HIDDEN}{name}") for name, column in hidden.items()])


def _as(column: SparkColumn, own: ColumnType, wanted: ColumnType) -> SparkColumn:
    return column if own == wanted else column.cast(wanted.spark)


def _lsn_text() -> SparkColumn:
    high, low = sf.hex(sf.shiftrightunsigned("lsn", 32)), sf.hex(sf.col("lsn").bitwiseAND(0xFFFFFFFF))
    return sf.concat(high, sf.lit("/"), low)


class _Hand(InputPartition):
    def __init__(self, ranges: tuple[PageRange, ...]) -> None:
        self.ranges = ranges


def snapshot_frame(
    spark: SparkSession, job: SnapshotRead, hands: Sequence[tuple[PageRange, ...]], keys: Collection[str] = ()
) -> DataFrame:
    """The rows of a table, read by the executors, each hand by a task and a connection of its own."""

    class Reader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [_Hand(ranges) for ranges in hands]

        def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
            return job.batches(partition.ranges)

    # The job is part of the class, not of the options: those stand in Spark's plans, and the job holds the password.
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
    return Shown(job.table, _types([job.columns]), frozenset(keys)).frame(stored, job.columns)
