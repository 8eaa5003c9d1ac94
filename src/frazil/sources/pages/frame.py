"""Records of pages as a data frame of messages, which are decoded like those of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from frazil.columns.schema import error_of
from frazil.model.hidden import AT, ERROR, KEY, ORDER, ORIGIN, RAW, TIME
from frazil.model.source import PagesSource
from frazil.sources.pages.spool import SPARK_COLUMNS

_AT = "table string, number bigint"


def messages_in(spark: SparkSession, files: Sequence[Path], spec: PagesSource) -> DataFrame:
    """The records of some files."""
    if not files:
        return _marked(spark.createDataFrame([], SPARK_COLUMNS), spec)
    return _marked(spark.read.schema(SPARK_COLUMNS).parquet(*(file.as_uri() for file in files)), spec)


def messages_of(letters: DataFrame, spec: PagesSource) -> DataFrame:
    """Dead letters as the records that they were, to be read again."""
    place = sf.from_json("at", _AT)
    columns = {
        "key": sf.col("key"),
        "value": sf.col("raw"),
        "topic": place["table"],
        "offset": place["number"],
        "timestamp": sf.col("sent_at"),
    }
    return _marked(letters.select(*(value.alias(name) for name, value in columns.items())), spec)


def _marked(records: DataFrame, spec: PagesSource) -> DataFrame:
    """With the hidden columns that the engine asks for. A record that names no table of the file is a bad one."""
    table = sf.coalesce(sf.col("topic"), sf.lit(spec.table))
    at = sf.to_json(sf.struct(sf.col("topic").alias("table"), sf.col("offset").alias("number")))
    named = sf.concat(sf.lit("no table is declared for the destination_id "), sf.coalesce(sf.col("topic"), sf.lit("null")))
    stray = sf.when(table.isNull() | ~table.isin(*spec.tables), error_of("route", "unknown-destination", named))
    return records.select(
        "key",
        "value",
        table.alias("topic"),
        "offset",
        "timestamp",
        sf.col("value").alias(RAW),
        sf.col("key").alias(KEY),
        at.alias(AT),
        sf.struct("offset").alias(ORDER),
        table.alias(ORIGIN),
        sf.col("timestamp").alias(TIME),
        stray.alias(ERROR),
    )
