"""Files written by executors with Iceberg's own writers, and named by no snapshot yet."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from frazil.iceberg.changes import StagedFiles
from frazil.iceberg.jvm import Jvm, active, items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stage_files(jvm: Jvm, frame: DataFrame, options: Mapping[str, str], target: Any) -> StagedFiles:
    """Lets the executors write the frame as data files of the target, a table or a view of one; commits nothing.

    Iceberg's own machinery for rewrites hands the files back: a table put into its cache under a fresh id can be written to by
    that id, and the files are left with a coordinator instead of being committed.
    """
    group = str(uuid.uuid4())
    jvm.table_cache.add(group, target)
    try:
        with active(frame.sparkSession):
            frame.write.format("iceberg").options(**options).mode("append").save(group)
        files = tuple(items(jvm.coordinator.fetchNewFiles(target, group)))
    finally:
        jvm.coordinator.clearRewrite(target, group)
        jvm.table_cache.remove(group)
    return StagedFiles(files, sum(f.recordCount() for f in files), sum(f.fileSizeInBytes() for f in files))


def metrics_of(jvm: Jvm, file: Any) -> Any:
    """The statistics of a file, for a file that is derived from it."""
    return jvm.iceberg.Metrics(
        file.recordCount(),
        file.columnSizes(),
        file.valueCounts(),
        file.nullValueCounts(),
        file.nanValueCounts(),
        file.lowerBounds(),
        file.upperBounds(),
    )
