"""Moves a pipeline to another place of its source: the ledger says from where the next batch is read."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from frazil.commit.protocol import Moved
from frazil.errors import ConfigError, Halted
from frazil.model.commit import Position
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import Settings
from frazil.runtime.runner import open_pipeline, start_spark
from frazil.sources.base import Source
from frazil.write import take_back
from frazil.write.writer import SinkWriter


@dataclass(frozen=True)
class ToLatest:
    """After everything that is there now."""


@dataclass(frozen=True)
class ToTime:
    """The first that is not older than a time."""

    moment_ms: int


@dataclass(frozen=True)
class ToOffsets:
    """The offsets that are named, by topic and partition; for all others the nearest to where the pipeline is."""

    offsets: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class ToSnapshot:
    """Where the sink was when it made a snapshot of its table; 0 is the beginning."""

    snapshot: int


Place = ToLatest | ToTime | ToOffsets | ToSnapshot


@dataclass(frozen=True)
class Rewound:
    """From where a pipeline was moved, and to where. ``done``: it was, and not only looked up."""

    pipeline: str
    table: str
    before: Position | None
    after: Position | None
    done: bool


@runtime_checkable
class Movable(Protocol):
    """A source whose positions can be given by offsets and times."""

    def rewound_to_latest(self, start: Position | None) -> Position:
        """After everything that is there now, for a pipeline that is at ``start``."""

    def rewound_to_time(self, start: Position | None, moment_ms: int) -> Position:
        """The first that is not older than a time."""

    def rewound_to_offsets(self, start: Position | None, wanted: Mapping[str, Mapping[int, int]]) -> Position:
        """The offsets that are wanted, for the rest the nearest to where it is."""


def reset(pipeline: PipelineSpec, settings: Settings, *, really: bool) -> Rewound:
    """Empties the pipeline's table and lets it read its source from the beginning, or only says what would happen."""
    if pipeline.sink.route is not None:
        raise ConfigError(
            "reset-impossible",
            f"The pipeline {pipeline.name!r} writes to many tables, and a reset empties one.",
            fix="Use frazil rewind --to-snapshot 0, which leaves the rows where they are.",
        )
    spark = start_spark([pipeline], settings)
    writer, source = open_pipeline(pipeline, settings, spark, lambda _: None, threading.Event())
    assert isinstance(writer, SinkWriter), "it has one table"
    try:
        state = writer.open(claim=really, make=really)
        if state is None:
            raise ConfigError("nothing-to-reset", f"The pipeline {pipeline.name!r} has not written anything yet.")
        if really:
            if writer.unfinished is not None:
                writer.abandon()
            if writer.tombstones is not None:
                writer.tombstones.clear()
            take_back.restart(writer.claimed, source.fingerprint)
    finally:
        source.close()
    return Rewound(pipeline.name, pipeline.sink.full_name, state.end, None, done=really)


def rewind(pipeline: PipelineSpec, settings: Settings, to: Place, *, really: bool) -> Rewound:
    """Moves the pipeline, or only says where it would go. Rows that are in the table stay there."""
    spark = start_spark([pipeline], settings)
    writer, source = open_pipeline(pipeline, settings, spark, lambda _: None, threading.Event())
    try:
        state = writer.open(claim=really, make=really)
        if state is None:
            raise ConfigError("nothing-to-rewind", f"The pipeline {pipeline.name!r} has not written anything yet.")
        if writer.unfinished is not None:
            raise Halted(
                "batch-unfinished",
                f"The last batch of {pipeline.name!r} was cut off when some of its tables had it already.",
                fix="Run the pipeline once, so that it is finished, and rewind it then.",
            )
        after = (
            take_back.position_at(writer.claimed, to.snapshot) if isinstance(to, ToSnapshot) else _place(source, state.end, to)
        )
        if really:
            writer.claimed.move(Moved(source.fingerprint, after))
    finally:
        source.close()
    return Rewound(pipeline.name, pipeline.sink.full_name, state.end, after, done=really)


def _place(source: Source, start: Position | None, to: ToLatest | ToTime | ToOffsets) -> Position:
    if not isinstance(source, Movable):
        raise ConfigError(
            "rewind-impossible",
            "This source has neither offsets nor times; only Kafka has.",
            fix="Use --to-snapshot, with a snapshot of the table, or 0 for the beginning.",
        )
    match to:
        case ToLatest():
            return source.rewound_to_latest(start)
        case ToTime(moment_ms):
            return source.rewound_to_time(start, moment_ms)
        case ToOffsets(offsets):
            return source.rewound_to_offsets(start, offsets)


def read_offsets(text: str) -> dict[str, dict[int, int]]:
    """`nearest`, or `{"topic": {"0": 17}}`."""
    if text == "nearest":
        return {}
    try:
        found = {topic: {int(n): int(at) for n, at in parts.items()} for topic, parts in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            "offsets-unreadable", f"Offsets cannot be read: {text}", fix='Write nearest, or JSON: {"topic": {"0": 17}}.'
        ) from None
    return found
