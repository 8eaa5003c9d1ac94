"""The first batch of a sink, if it is small: Spark interprets its plans instead of compiling Java code for them.

To generate and compile that code takes a Java that has just started longer than to go through some thousand rows without it.
Later batches are compiled: they have the same plans, and their code is compiled once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_ROWS, SMALL_BYTES = 10_000, 2_000_000

# Whole stages, and single expressions. The second one is an internal option of Spark's.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}

_changing = Lock()
_interpreting: set[SparkSession] = set()


@contextmanager
def interpreted_if_small(frame: DataFrame, rows: int | None) -> Iterator[None]:
    """Runs what is done with a frame without compiling, if it is small. ``rows``: how many it has, where that is known.

    Options that the session has already set are left alone. What other threads run in the session meanwhile is interpreted, too.
    """
    spark = frame.sparkSession
    with _changing:
        mine = spark not in _interpreting and _usual(spark) and _is_small(frame, rows)
        if mine:
            _interpreting.add(spark)
            for name, value in _INTERPRETED.items():
                spark.conf.set(name, value)
    try:
        yield
    finally:
        if mine:
            with _changing:
                for name in _INTERPRETED:
                    spark.conf.unset(name)
                _interpreting.discard(spark)


def _usual(spark: SparkSession) -> bool:
    """Whether nobody has chosen how this session compiles."""
    return all(spark.conf.get(name, usual) == usual for name, usual in _COMPILED.items())


def _is_small(frame: DataFrame, rows: int | None) -> bool:
    """As far as is known: Spark knows the sizes of files, and of what is in memory, but not how much is in a topic."""
    if rows is not None:
        return rows <= SMALL_ROWS
    try:
        size = frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    except Py4JJavaError:  # what really fails, fails again when the rows are read
        return False
    return int(str(size)) <= SMALL_BYTES
