"""Rows that a Python program holds as an Arrow table, as a data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from frazil.engine.iceberg import active
from frazil.engine.types import spark_schema
from frazil.model.types import StructType

if TYPE_CHECKING:
    import pyarrow


def frame_of(session: SparkSession, table: pyarrow.Table, columns: StructType) -> DataFrame:
    """The rows in one part, so that a small batch becomes one file a partition, not as many as there are cores."""
    with active(session):
        return session.createDataFrame(table, schema=spark_schema(columns)).coalesce(1)
