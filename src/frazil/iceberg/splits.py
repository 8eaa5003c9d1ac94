"""How files are divided into the tasks of a read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

# What a task reads at most, and what it takes to open a file, as if that much were read: as Iceberg has it by default.
TASK_BYTES, OPEN_BYTES = 128 * 1024 * 1024, 4 * 1024 * 1024
USUAL_TASKS = {"split-size": TASK_BYTES, "file-open-cost": OPEN_BYTES}


def in_even_tasks(spark: SparkSession, files: Sequence[Any], at_least: int | None = None) -> dict[str, int]:
    """Options of a read that divides files into tasks of one size: as many for each core, or so few that some cores have none.

    ``at_least``: so many tasks; one for each core by itself. Iceberg makes many tasks of small files instead, and whatever
    number of others, so that cores wait in the end for the one that has a task more.
    """
    cores = int(spark.sparkContext.defaultParallelism)
    weights = [max(int(file.fileSizeInBytes()), OPEN_BYTES) for file in files]
    return {"split-size": share(weights, cores, at_least or cores), "file-open-cost": OPEN_BYTES}


# So many files are opened one after the other in less time than it takes to notice.
FEW_FILES = 100


def in_few_tasks(spark: SparkSession, files: int, target_bytes: int) -> dict[str, int]:
    """Options of a read whose rows are rewritten into files of a size: each task writes one of its own.

    Many files that are tiny are read by all cores: opening them takes longer than reading.
    """
    at_most = 1 if files < FEW_FILES else int(spark.sparkContext.defaultParallelism)
    return {"split-size": target_bytes, "file-open-cost": min(OPEN_BYTES, max(1, at_most * target_bytes // max(1, files)))}


def share(weights: Sequence[int], cores: int, at_least: int) -> int:
    """How much each task takes: its part, and as much as one file, since no file begins in one task and ends in the next."""
    tasks = max(-(-sum(weights) // TASK_BYTES), at_least)
    if tasks > cores:
        tasks = cores * -(-tasks // cores)
    return sum(weights) // tasks + max(weights)
