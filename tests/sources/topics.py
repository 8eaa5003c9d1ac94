"""A topic in memory, which a pipeline reads as it reads one of a broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame

from frazil.errors import FrazilError
from frazil.model.commit import Position, position
from frazil.model.events import Event
from frazil.model.pipeline import PipelineSpec
from frazil.model.source import KafkaSource
from frazil.sources.base import Lag, Session, Slice
from frazil.sources.kafka import KafkaTopics
from frazil.sources.kafka.frame import RAW_SCHEMA, with_coordinates
from helpers.lakes import run

Value = bytes | str | None
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Topic(KafkaTopics):
    """One partition, whose messages are known beforehand."""

    messages: Sequence[Value] = ()

    @property
    def fingerprint(self) -> str:
        return "memory"

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        first = _offset(start)
        last = min(first + limit, len(self.messages))
        if last == first:
            return None
        return Slice(start, position({"offset": last}), last - first, full=last < len(self.messages))

    def between(self, start: Position | None, end: Position) -> Slice:
        return Slice(start, end, _offset(end) - _offset(start))

    def check(self) -> None:
        """It is there."""

    def total_rows(self, start: Position | None) -> int | None:
        return len(self.messages) - _offset(start)

    def lag(self, position: Position | None) -> Lag:
        return Lag(rows=self.total_rows(position))

    def explain(self, error: Exception) -> FrazilError | None:
        return None

    def read_each(self, part: Slice) -> Sequence[DataFrame]:
        return (self.read(part),)

    def read(self, part: Slice) -> DataFrame:
        first, last = _offset(part.start), _offset(part.end)
        rows = [(None, _bytes(self.messages[n]), "t", 0, n, WHEN, []) for n in range(first, last)]
        decoder = self._decoder(None)
        assert decoder is not None
        return decoder.decode(with_coordinates(self._spark.createDataFrame(rows, RAW_SCHEMA)))


def _offset(start: Position | None) -> int:
    return 0 if start is None else int(json.loads(start)["offset"])


def _bytes(value: Value) -> bytearray | None:
    return None if value is None else bytearray(value.encode() if isinstance(value, str) else value)


def run_topic(patch: pytest.MonkeyPatch, pipeline: PipelineSpec, messages: Sequence[Value]) -> list[Event]:
    """Runs a pipeline to the end of its topic, which has these messages: the first are those that it has read before."""
    from frazil.sources.decode import decoder

    def opened(spec: KafkaSource, session: Session, **_: Any) -> Topic:
        topic = Topic(spec, session(), lambda: decoder(spec, session()))
        topic.messages = messages
        return topic

    patch.setattr("frazil.runtime.runner.open_source", opened)
    return run(pipeline, once=True)
