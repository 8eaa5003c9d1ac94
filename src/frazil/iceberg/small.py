"""Finds small data files and reads them alone, so that their rows can be rewritten into fewer files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from frazil.columns.partition import Room, open_file_bytes
from frazil.iceberg.changes import StagedFiles
from frazil.iceberg.debt import FileFacts, LiveFile
from frazil.iceberg.jvm import Jvm
from frazil.iceberg.splits import in_few_tasks
from frazil.iceberg.staging import stage_files
from frazil.iceberg.zorder import ZOrder, z_ordered
from frazil.spark.running_java import task_memory

# Smaller than this part of what a file of the table should have.
SMALL_PART = 8
_PLACES = StructType([StructField("_file", StringType(), nullable=False), StructField("_pos", LongType(), nullable=False)])
_DELETED = StructField("_deleted", BooleanType(), nullable=False)
_WORDS = "__words"
_FILE_BYTES, _DEFAULT_BYTES = "write.target-file-size-bytes", 512 * 1024 * 1024


def target_bytes(table: Any) -> int:
    """The size that the table's data files should have."""
    return int(table.properties().get(_FILE_BYTES) or _DEFAULT_BYTES)


def small_files(table: Any, live: Sequence[LiveFile], facts: Sequence[FileFacts], since: int) -> list[LiveFile]:
    """The small files that came since a sequence number, where a partition has several; those of one partition together.

    A file that has other deletes than a vector is not among them: how many of its rows are left is not known without reading.
    Neither is any file of a table that keeps its rows sorted.
    """
    if table.sortOrder().isSorted():
        return []
    most = target_bytes(table) // SMALL_PART
    spec = int(table.spec().specId())
    by_scope: dict[str, list[LiveFile]] = {}
    for one, fact in zip(live, facts, strict=True):
        fresh = fact.sequence >= since and int(one.file.specId()) == spec
        if fresh and int(one.file.fileSizeInBytes()) < most and one.rows is not None:
            by_scope.setdefault(fact.scope, []).append(one)
    return [one for files in by_scope.values() if len(files) > 1 for one in files]


@contextmanager
def rows_of(
    jvm: Jvm, spark: SparkSession, table: Any, files: Sequence[LiveFile], task_bytes: int | None = None
) -> Iterator[DataFrame]:
    """Only the rows of some files, with their positions and the row lineage columns that only a rewrite sees.

    The files are read in the order in which they are given, and in tasks of the size of a new file, if of no other.
    """
    tasks = jvm.root.java.util.ArrayList()
    for one in files:
        tasks.add(one.task)
    with rows_of_tasks(jvm, spark, table, tasks, in_few_tasks(spark, len(files), task_bytes or target_bytes(table))) as rows:
        yield rows


@contextmanager
def rows_of_tasks(
    jvm: Jvm, spark: SparkSession, table: Any, tasks: Any, options: Mapping[str, int], *, deleted: bool = False
) -> Iterator[DataFrame]:
    """Only the rows that Iceberg's tasks read, as above; ``options`` are those of the read.

    With ``deleted``, a column `_deleted` says which rows are, and where that column is read these come, too.
    """
    group = str(uuid.uuid4())
    jvm.table_cache.add(group, table)
    jvm.task_sets.stageTasks(table, group, tasks)
    try:
        columns = StructType([*_PLACES.fields, _DELETED]) if deleted else _PLACES
        yield _with_columns(jvm, spark.read.format("iceberg").options(**options).load(group), columns)
    finally:
        jvm.task_sets.removeTasks(table, group)
        jvm.table_cache.remove(group)


def no_rows(jvm: Jvm, spark: SparkSession, table: Any) -> DataFrame:
    """The columns of a table, for where there is no file to read."""
    columns = jvm.iceberg.spark.SparkSchemaUtil.convert(table.schema())
    return spark.createDataFrame([], StructType.fromJson(json.loads(str(columns.json()))))


def _with_columns(jvm: Jvm, rows: DataFrame, columns: StructType) -> DataFrame:
    """With columns of Iceberg's own, as the file and the position of each row. A rewrite has them, but Spark does not allow
    selecting them by name.
    """
    spark, sql = rows.sparkSession, jvm.root.org.apache.spark.sql
    relation = rows._jdf.queryExecution().analyzed()
    places = sql.catalyst.types.DataTypeUtils.toAttributes(sql.types.DataType.fromJson(columns.json()))
    whole = relation.output().appendedAll(places)
    known = (relation.catalog(), relation.identifier(), relation.options(), relation.timeTravelSpec())
    placed = relation.copy(relation.table(), whole, *known)
    return DataFrame(sql.classic.Dataset.ofRows(spark._jsparkSession, placed), spark)


def laid_out(jvm: Jvm, table: Any, files: Sequence[LiveFile], order: ZOrder) -> StagedFiles:
    """Files with the rows of those of one partition, along a z-order."""
    # The places of rows are estimated: a file may become somewhat larger, so that none has a tiny one beside it.
    size = str(target_bytes(table) * 3 // 2)
    options = {"use-table-distribution-and-ordering": "false", "fanout-enabled": "true", "check-nullability": "false"}
    with rows_of(jvm, jvm.spark, table, files) as rows:
        total = sum(int(one.file.recordCount()) for one in files)
        ordered = z_ordered(without_dead(rows, {}), total, order)
        return stage_files(jvm, ordered, options | {"target-file-size-bytes": size}, table)


def merged(
    jvm: Jvm,
    spark: SparkSession,
    table: Any,
    files: Sequence[LiveFile],
    dead: Mapping[str, BitMap64],
    *,
    task_bytes: int | None = None,
) -> StagedFiles:
    """Few files with the rows of small ones, but for the dead; ``task_bytes`` is how much each task reads."""
    options = {"distribution-mode": "none", "fanout-enabled": _fans_out(jvm, spark, table, files), "check-nullability": "false"}
    with rows_of(jvm, spark, table, files, task_bytes) as rows:
        return stage_files(jvm, without_dead(rows, dead), options, table)


def _fans_out(jvm: Jvm, spark: SparkSession, table: Any, files: Sequence[LiveFile]) -> str:
    """Whether a task has room for an open file in each partition that the files are in: `true` or `false`."""
    partitions = {str(one.file.partition()) for one in files}
    columns = int(jvm.iceberg.types.TypeUtil.getProjectedIds(table.schema()).size())
    file_format = str(table.properties().get("write.format.default") or "parquet").lower()
    one = open_file_bytes(file_format, columns, str(table.location()))
    return str(len(partitions) <= Room(task_memory(spark), one).files).lower()


def without_dead(rows: DataFrame, dead: Mapping[str, BitMap64]) -> DataFrame:
    """The rows without those at deleted positions of their files, and without the columns for file and position.

    Executors get one bit per position: there may be as many deleted rows as live ones, and this is the most compact form.
    """
    if dead:
        words = pyarrow.array([_words(gone) for gone in dead.values()], pyarrow.list_(pyarrow.int64()))
        files = rows.sparkSession.createDataFrame(pyarrow.table({"_file": list(dead), _WORDS: words}))
        word = functions.get(_WORDS, functions.shiftright("_pos", 6).cast("int"))
        is_dead = functions.call_function("bit_get", word, functions.col("_pos").bitwiseAND(63).cast("int"))
        joined = rows.join(functions.broadcast(files), "_file", "left")
        rows = joined.where(functions.coalesce(is_dead, functions.lit(0)) == 0)
    return rows.drop("_file", "_pos", _WORDS)


def _words(positions: BitMap64) -> npt.NDArray[np.int64]:
    """A bit for each position up to the last, in words of 64."""
    bits = np.zeros(64 * (positions.max() // 64 + 1), bool)
    bits[np.array(positions, np.int64)] = True
    return np.packbits(bits, bitorder="little").view(np.int64)
