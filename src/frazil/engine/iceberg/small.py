"""Small data files: found, and read by themselves, so that their rows can be written anew in few."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from frazil.engine.iceberg.debt import LiveFile, facts_of
from frazil.engine.iceberg.jvm import Jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Smaller than this part of what a file of the table should have.
SMALL_PART = 8
_FILE_BYTES, _DEFAULT_BYTES = "write.target-file-size-bytes", 512 * 1024 * 1024


def small_files(table: Any, live: Sequence[LiveFile], since: int) -> list[LiveFile]:
    """The small files that came since a sequence number, where a partition has several; those of one partition together.

    A file that has other deletes than a vector is not among them: how many of its rows are left is not known without reading.
    Neither is any file of a table that keeps its rows sorted.
    """
    if table.sortOrder().isSorted():
        return []
    most = int(table.properties().get(_FILE_BYTES) or _DEFAULT_BYTES) // SMALL_PART
    spec = int(table.spec().specId())
    fresh = [one for one in live if one.rows is not None and int(one.file.dataSequenceNumber()) >= since]
    small = [one for one in fresh if int(one.file.fileSizeInBytes()) < most and int(one.file.specId()) == spec]
    scopes = [fact.scope for fact in facts_of(table, (one.file for one in small))]
    several = {scope for scope, count in Counter(scopes).items() if count > 1}
    found = [(scope, one) for scope, one in zip(scopes, small, strict=True) if scope in several]
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


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
