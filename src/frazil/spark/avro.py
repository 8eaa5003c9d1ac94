"""Avro values as a column, in plans that several threads may look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import functions

from frazil.spark.running_java import java_names

if TYPE_CHECKING:
    from pyspark.sql import Column


def from_avro(value: Column, schema: str, options: Mapping[str, str]) -> Column:
    """The value of a binary column by a schema.

    Spark's own function keeps its options as an expression that two threads must not evaluate at once, as happens where several
    tables of one batch are written: each then finds the other's keys in its map. Here they are a constant.
    """
    return functions.call_function("from_avro", value, functions.lit(schema), _constant(options))


def _constant(texts: Mapping[str, str]) -> Column:
    from pyspark.sql.classic.column import Column as ClassicColumn

    spark = java_names(SparkContext._active_spark_context._jvm).org.apache.spark  # type: ignore[union-attr]
    types = spark.sql.types.DataTypes
    found = spark.api.python.PythonUtils.toScalaMap(dict(texts))
    map_type = types.createMapType(types.StringType, types.StringType)
    return ClassicColumn(spark.sql.classic.ExpressionUtils.column(spark.sql.catalyst.expressions.Literal.create(found, map_type)))
