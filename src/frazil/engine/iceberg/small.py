"""Small data files: found, and read by themselves, so that their rows can be written anew in few."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from frazil.engine.iceberg.debt import FileFacts, LiveFile
from frazil.engine.iceberg.jvm import Jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Smaller than this part of what a file of the table should have.
SMALL_PART = 8
_FILE_BYTES, _DEFAULT_BYTES = "write.target-file-size-bytes", 512 * 1024 * 1024


def small_files(table: Any, live: Sequence[LiveFile], facts: Sequence[FileFacts], since: int) -> list[LiveFile]:
    """The small files that came since a sequence number, where a partition has several; those of one partition together.

    A file that has other deletes than a vector is not among them: how many of its rows are left is not known without reading.
    Neither is any file of a table that keeps its rows sorted.
    """
    if table.sortOrder().isSorted():
        return []
    most = int(table.properties().get(_FILE_BYTES) or _DEFAULT_BYTES) // SMALL_PART
    spec = int(table.spec().specId())
    by_scope: dict[str, list[LiveFile]] = {}
    for one, fact in zip(live, facts, strict=True):
        fresh = fact.sequence >= since and int(one.file.specId()) == spec
        if fresh and int(one.file.fileSizeInBytes()) < most and one.rows is not None:
            by_scope.setdefault(fact.scope, []).append(one)
    return [one for files in by_scope.values() if len(files) > 1 for one in files]


@contextmanager
def rows_of(jvm: Jvm, spark: SparkSession, table: Any, files: Sequence[LiveFile]) -> Iterator[DataFrame]:
    """The rows of some files alone, with the columns that only a rewrite sees: those that tell rows apart for good."""
    group = str(uuid.uuid4())
    tasks = jvm.root.java.util.ArrayList()
    for one in files:
        tasks.add(one.task)
    jvm.table_cache.add(group, table)
    jvm.task_sets.stageTasks(table, group, tasks)
    try:
        yield spark.read.format("iceberg").load(group)
    finally:
        jvm.task_sets.removeTasks(table, group)
        jvm.table_cache.remove(group)
