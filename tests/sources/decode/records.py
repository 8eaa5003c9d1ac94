"""Frames of records as a Kafka source hands them over, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from frazil.model.format import MessageOptions
from frazil.sources.decode import Decoder, decoder

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>, __frazil_raw binary, __frazil_key binary, __frazil_at string"
)
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

Value = bytes | str | None


def records(spark: SparkSession, values: Iterable[Value], keys: Sequence[Value] | None = None) -> DataFrame:
    """One record a value, with offsets from 0."""
    rows = []
    for offset, value in enumerate(values):
        key = _bytes(keys[offset]) if keys is not None else None
        at = json.dumps({"topic": "t", "partition": 0, "offset": offset})
        headers = [("trace", bytearray(b"\x01\xff")), ("kind", bytearray(b"test"))]
        rows.append((key, _bytes(value), "t", 0, offset, WHEN, headers, _bytes(value), key, at))
    return spark.createDataFrame(rows, SCHEMA)


def _bytes(value: Value) -> bytearray | None:
    return None if value is None else bytearray(value.encode() if isinstance(value, str) else value)


def decoder_of(spark: SparkSession, given: Any, **options: Any) -> Decoder:
    """From what a user writes."""
    return decoder(MessageOptions.model_validate({"format": given, **options}), spark)


class Decoded:
    """The rows of a frame in the order of its records: data without hidden columns, and faults as `code: text`."""

    def __init__(self, frame: DataFrame) -> None:
        self.schema: StructType = frame.schema
        names = [name for name in frame.columns if not name.startswith("__frazil_")]
        self.columns = names
        self.all: list[Row] = sorted(frame.collect(), key=lambda row: json.loads(row["__frazil_at"])["offset"])
        self.rows = [{name: row[name] for name in names} for row in self.all]
        self.faults = [
            row["__frazil_error"] and f"{row['__frazil_error'].code}: {row['__frazil_error'].text}" for row in self.all
        ]
        for row, fault in zip(self.rows, self.faults, strict=True):
            assert fault is None or not any(value is not None for value in row.values()), "a bad record has no data"

    @property
    def codes(self) -> list[str | None]:
        return [fault and fault.partition(":")[0] for fault in self.faults]

    @property
    def ops(self) -> list[str]:
        return [row["__frazil_op"] for row in self.all]

    def types(self) -> dict[str, str]:
        return {one.name: one.dataType.simpleString() for one in self.schema.fields if not one.name.startswith("__frazil_")}


def decoded(
    spark: SparkSession, given: Any, values: Iterable[Value], keys: Sequence[Value] | None = None, **options: Any
) -> Decoded:
    """What becomes of records in one batch."""
    return Decoded(decoder_of(spark, given, **options).decode(records(spark, values, keys)))
