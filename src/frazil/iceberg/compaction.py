"""Merges small data files into larger ones: which there are, by partition, and the files that take their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.errors import Halted
from frazil.iceberg.debt import LiveFile, Rewrite, live_file
from frazil.iceberg.jvm import Jvm, items
from frazil.iceberg.small import laid_out, merged, rows_of, target_bytes
from frazil.iceberg.zorder import ZOrder
from frazil.model.maintenance import LARGE_ENOUGH, SmallFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tasks that write one file each read at least so many; those that read larger ones write so many.
FILES_OF_A_TASK = 4
_FIRST_WITH_SEQUENCES = 2  # the version of the table format
_UNLIMITED = str(2**60)


@dataclass(frozen=True)
class SmallFiles:
    """The small data files of one partition."""

    files: tuple[SmallFile, ...]
    tasks: Any
    """Iceberg's tasks that read them, in the same order."""

    def live(self, places: Sequence[int]) -> list[LiveFile]:
        """The files at some places."""
        return [live_file(self.tasks.get(place)) for place in places]


def small_files_of(jvm: Jvm, table: Any) -> list[SmallFiles]:
    """Data files that are smaller than the table wants them, or of which many rows are deleted; manifests are read in Java."""
    if table.currentSnapshot() is None:
        return []
    planner = jvm.iceberg.actions.BinPackRewriteFilePlanner(table, jvm.iceberg.expressions.Expressions.alwaysTrue())
    planner.init({"min-input-files": "2", "max-file-group-size-bytes": _UNLIMITED, "max-file-size-bytes": _UNLIMITED})
    groups = planner.plan().groups()
    try:
        return [_group(jvm, table, group.fileScanTasks()) for group in items(groups)]
    finally:
        groups.close()


def _group(jvm: Jvm, table: Any, tasks: Any) -> SmallFiles:
    target = target_bytes(table)
    sizes = jvm.each(tasks, "ContentScanTask.length")
    added = jvm.each(tasks, "ContentScanTask.file", "ContentFile.fileSequenceNumber")
    # A file that is large enough is only here because of its deletes.
    files = (SmallFile(size, since or 0, deleted=size >= LARGE_ENOUGH * target) for size, since in zip(sizes, added, strict=True))
    return SmallFiles(tuple(files), tasks)


def merged_files(jvm: Jvm, table: Any, files: Sequence[LiveFile], sequence: int, order: ZOrder | None) -> Rewrite:
    """Fewer files with the rows of these. Their deletes by position go with them, if they are about no other file.

    ``sequence``: that of the snapshot in which the files were found. Deletes that came since are not among theirs.
    """
    metadata = table.operations().current()
    if order is None:
        staged = merged(jvm, jvm.spark, table, files, {}, task_bytes=_task_bytes(table, files))
    else:
        staged = laid_out(jvm, table, files, order)
    expected = _rows(jvm, jvm.spark, table, files)
    if staged.rows != expected:
        raise Halted(
            "audit-failed",
            f"Merging small files of the table at {metadata.location()} would have changed its rows: {staged.rows} instead of "
            f"{expected}. Nothing was committed.",
            fix="Report this. Set maintenance.enabled to false to go on without it.",
        )
    is_about_one = jvm.iceberg.util.ContentFileUtil.isFileScoped
    ended = {_identity(delete): delete for one in files for delete in one.deletes if is_about_one(delete)}
    return Rewrite(
        staged,
        removed=tuple(one.file for one in files),
        removed_deletes=tuple(ended.values()),
        as_of=sequence if int(metadata.formatVersion()) >= _FIRST_WITH_SEQUENCES else None,
    )


def _task_bytes(table: Any, files: Sequence[LiveFile]) -> int:
    """How much each task of a merge reads: so much that it does not matter that the last file of a task is seldom full.

    If each task wrote one file, of files that are more than half as large no two would find room in a task, and each would only
    be written again. Files of several partitions are read by one task, so that no partition is cut in two.
    """
    sizes, target = [int(one.file.fileSizeInBytes()) for one in files], target_bytes(table)
    if len({str(one.file.partition()) for one in files}) > 1:
        return max(sum(sizes), target)
    return target if max(sizes) <= target // FILES_OF_A_TASK else FILES_OF_A_TASK * target


def _identity(delete: Any) -> tuple[str, int | None]:
    return str(delete.location()), delete.contentOffset()


def _rows(jvm: Jvm, spark: SparkSession, table: Any, files: Sequence[LiveFile]) -> int:
    """How many rows are left of files. They are counted where deletes do not say how many rows of a file they delete."""
    known = [one.rows for one in files]
    if None not in known:
        return sum(one or 0 for one in known)
    with rows_of(jvm, spark, table, files) as rows:
        return rows.count()
