"""The messages between offsets as a data frame, as they are in the topics, before anything is decoded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from frazil.model.hidden import AT, HEADERS, KEY, LANE, ORDER, ORIGIN, RAW, TIME
from frazil.sources.kafka.offsets import Range
from frazil.sources.kafka.settings import PREFIX

RAW_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
V1_SOURCES = "spark.sql.sources.useV1SourceList"
RAW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


def raw_frame(
    spark: SparkSession, settings: Mapping[str, str], parts: Sequence[Range], group: str, *, by_time: bool = False
) -> DataFrame:
    """The messages of these ranges with the hidden columns that the engine asks for; ``by_time``: with one order for all."""
    messages = with_coordinates(_messages(spark, settings, parts, group))
    return ordered_by_time(messages) if by_time else messages


def _messages(spark: SparkSession, settings: Mapping[str, str], parts: Sequence[Range], group: str) -> DataFrame:
    if not parts:
        return spark.createDataFrame([], RAW_SCHEMA)
    _prefer_the_direct_reader(spark)
    reader = spark.read.format("kafka").options(**{f"{PREFIX}{name}": value for name, value in settings.items()})
    return (
        # Spark keeps consumers by the group's name, and would make new ones for every slice under a name of its own.
        reader.option("kafka.group.id", group)
        .option("assign", json.dumps(_by_topic({part: part.partition for part in parts}, as_list=True)))
        .option("startingOffsets", json.dumps(_by_topic({part: part.start for part in parts})))
        .option("endingOffsets", json.dumps(_by_topic({part: part.end for part in parts})))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .load()
        .select(*RAW_COLUMNS)
    )


def _prefer_the_direct_reader(spark: SparkSession) -> None:
    """Spark has two readers for Kafka. The one that it takes by default turns every message into an object on its way."""
    listed = (spark.conf.get(V1_SOURCES) or "").split(",")
    if "kafka" in listed:
        spark.conf.set(V1_SOURCES, ",".join(name for name in listed if name != "kafka"))


def _by_topic(values: Mapping[Range, int], *, as_list: bool = False) -> dict[str, object]:
    topics: dict[str, dict[str, int]] = {}
    for part, value in values.items():
        topics.setdefault(part.topic, {})[str(part.partition)] = value
    return {topic: list(of.values()) if as_list else of for topic, of in topics.items()}


def with_coordinates(messages: DataFrame) -> DataFrame:
    """Adds the original record, its position in the source, and the order of records of one key in a partition."""
    return messages.select(
        "*",
        f.col("value").alias(RAW),
        f.col("key").alias(KEY),
        # Names of topics have nothing that JSON would escape.
        f.expr("""concat('{"topic":"', topic, '","partition":', partition, ',"offset":', offset, '}')""").alias(AT),
        f.struct("offset").alias(ORDER),
        f.xxhash64("topic", "partition").alias(LANE),
        f.col("topic").alias(ORIGIN),
        f.col("timestamp").alias(TIME),
        f.col("headers").alias(HEADERS),
    )


def ordered_by_time(messages: DataFrame) -> DataFrame:
    """The messages in one order, also those of several partitions: by their times, and within a partition by offset.

    A clock may go back, and a partition does not: a message is taken to be no earlier than those before it in its partition.
    """
    before = Window.partitionBy("topic", "partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    reached = f.max("timestamp").over(before).alias("time")
    return messages.withColumn(ORDER, f.struct(reached, "topic", "partition", "offset")).drop(LANE)
