"""Rows that a Python program holds as Arrow tables: as a data frame, and from one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.conversion import LocalDataToArrowConversion

from frazil.columns.types import spark_schema
from frazil.iceberg import active
from frazil.model.types import StructType

if TYPE_CHECKING:
    import pyarrow


def frame_of(session: SparkSession, table: pyarrow.Table, columns: StructType) -> DataFrame:
    """The rows in one part, so that a small batch becomes one file a partition, not as many as there are cores."""
    with active(session):
        return session.createDataFrame(table, schema=spark_schema(columns)).coalesce(1)


class ArrowParts:
    """The rows of a frame, some at a time. One partition of the frame is in memory then, and not all of them.

    It takes longer than to fetch everything at once, which comes from Spark as Arrow already.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._left: Iterator[Row] | None = None

    def take(self, rows: int | None = None) -> pyarrow.Table | None:
        """So many of the rows that are left, or all of them; None when there are none."""
        if self._left is None:
            if rows is None:
                self._left = iter(())
                return self._frame.toArrow()
            self._left = self._frame.toLocalIterator()
        large = self._frame.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes") == "true"
        taken = list(islice(self._left, rows))
        return LocalDataToArrowConversion.convert(taken, self._frame.schema, large) if taken else None
