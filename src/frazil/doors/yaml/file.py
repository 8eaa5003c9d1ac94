"""The pipeline file as it is written: sections, entries, and the short ways to say things.

What a connector or a table takes stands under ``config`` and is checked by the model of that connector, not here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from frazil.model.base import InconsistencyError, Model, Problem
from frazil.model.cases import CaseSpec
from frazil.model.settings import Settings
from frazil.model.source import (
    CdcStream,
    FilesSource,
    GeneratorSource,
    KafkaSecurity,
    KafkaSource,
    KafkaTls,
    PostgresCdcSource,
    QuerySource,
    TableSource,
)
from frazil.model.transform import TransformSpec

SourceModel = (
    type[GeneratorSource]
    | type[FilesSource]
    | type[TableSource]
    | type[QuerySource]
    | type[PostgresCdcSource]
    | type[KafkaSource]
)

SOURCES: dict[str, SourceModel] = {
    "generator": GeneratorSource,
    "files": FilesSource,
    "table": TableSource,
    "query": QuerySource,
    "postgres-cdc": PostgresCdcSource,
    "kafka": KafkaSource,
}

SourceConnector = Literal["generator", "files", "table", "query", "postgres-cdc", "kafka"]

NAME_PATTERN = r"^\w[\w.\-]*$"
EntryName = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=100)]


def _hoisted(value: Any) -> Any:
    """A transform's settings may stand under ``config``; here they stand beside ``type``."""
    if not isinstance(value, list):
        return value
    return [_flat(item) for item in value]


def _flat(item: Any) -> Any:
    if not isinstance(item, dict) or not isinstance(item.get("config"), dict) or item.keys() & item["config"].keys():
        return item
    return {key: entry for key, entry in item.items() if key != "config"} | item["config"]


def _rows_per_second(value: Any) -> Any:
    """A number, or the number under ``events_per_second``."""
    if isinstance(value, dict) and value.keys() == {"events_per_second"}:
        return value["events_per_second"]
    if isinstance(value, dict):
        words = "rate_limit is a number of rows per second, or a section with events_per_second alone"
        raise InconsistencyError([Problem(words)])
    return value


def _one_or_more(value: Any) -> Any:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Transforms = Annotated[tuple[TransformSpec, ...], BeforeValidator(_hoisted)]
RateLimit = Annotated[int, Field(ge=0, le=2**31 - 1), BeforeValidator(_rows_per_second)]
Topic = Annotated[str, StringConstraints(min_length=1, max_length=255)]
Topics = Annotated[tuple[Topic, ...], BeforeValidator(_one_or_more)]

_RATE_LIMIT = "Most rows per second; 0 for no limit. The smallest of source, pipeline and sink counts."
_DEAD_LETTERS = "Topic for rows that cannot be written."


class StartTime(Model):
    """Reading begins at a time."""

    timestamp: str = Field(description="The time, as in `2026-01-31T12:00:00Z`.")

    @field_validator("timestamp")
    @classmethod
    def _readable(cls, text: str) -> str:
        try:
            datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"cannot read the time {text!r}; write it as 2026-01-31T12:00:00Z") from None
        return text


class BrokerEntry(Model):
    """The Kafka cluster that sinks with `topics` read from."""

    bootstrap_servers: Annotated[tuple[Topic, ...], BeforeValidator(_one_or_more)] = Field(
        min_length=1, description="`host:port` of one or more brokers."
    )
    tls: KafkaTls | None = Field(None, description="How the connection is encrypted.")
    security: KafkaSecurity | None = Field(None, description="How to log in.")


class SourceEntry(Model):
    """Where rows come from."""

    connector: SourceConnector = Field(description="Kind of source.")
    config: dict[str, Any] = Field(default_factory=dict, description="Settings of the connector.")
    streams: tuple[CdcStream, ...] = Field((), description="Tables that a postgres-cdc source follows.")
    enabled: bool = Field(True, description="Whether pipelines of this source run.")
    topic: Topic | None = Field(None, description="Pairs the source with the sinks that list this topic in `topics`.")
    rate_limit: RateLimit | None = Field(None, description=_RATE_LIMIT)
    transforms: Transforms = Field((), description="Changes of rows, made before those of the pipeline.")
    dead_letter_topic: Topic | None = Field(None, description=_DEAD_LETTERS)

    @model_validator(mode="after")
    def _consistent(self) -> SourceEntry:
        if self.streams and self.connector != "postgres-cdc":
            words = f"streams has no meaning for the connector {self.connector}; it belongs to postgres-cdc"
            raise InconsistencyError([Problem(words, "streams")])
        return self


class SinkEntry(Model):
    """Where rows go."""

    connector: Literal["iceberg"] = Field(description="Kind of sink.")
    config: dict[str, Any] = Field(default_factory=dict, description="The table and how it is written.")
    enabled: bool = Field(True, description="Whether pipelines into this sink run.")
    topics: Topics = Field((), description="Topics to read, without a `pipelines` section; `*` stands for any characters.")
    consumer_group: Topic | None = Field(None, description="Name under which the broker knows the reader of `topics`.")
    start_offset: Literal["latest", "earliest"] | StartTime | None = Field(
        None, description="Where reading of `topics` begins the first time; also `{timestamp: 2026-01-31T12:00:00Z}`."
    )
    rate_limit: RateLimit | None = Field(None, description=_RATE_LIMIT)
    transforms: Transforms = Field((), description="Changes of rows, made after those of source and pipeline.")
    dead_letter_topic: Topic | None = Field(None, description=_DEAD_LETTERS)

    @model_validator(mode="after")
    def _consistent(self) -> SinkEntry:
        lonely = [name for name in ("consumer_group", "start_offset") if getattr(self, name) is not None and not self.topics]
        if lonely:
            raise InconsistencyError(Problem(f"{name} has no meaning without topics", name) for name in lonely)
        return self


class PipelineEntry(Model):
    """A source and a sink, joined."""

    source: str = Field(min_length=1, description="Name of a source in this file.")
    sink: str = Field(min_length=1, description="Name of a sink in this file.")
    enabled: bool = Field(True, description="Whether the pipeline runs.")
    rate_limit: RateLimit | None = Field(None, description=_RATE_LIMIT)
    transforms: Transforms = Field((), description="Changes of rows, made after those of the source, before those of the sink.")
    tests: tuple[CaseSpec, ...] = Field((), description="Tests of the transforms, which `frazil test` runs.")


class PipelineFile(Model):
    """A pipeline file. Keys at the top that begin with `x-` are the user's own, e.g. for values that are named and reused."""

    version: Literal["1", "1.0"] = Field("1.0", description="Version of the file format.")
    broker: BrokerEntry | None = Field(None, description="The Kafka cluster that sinks with `topics` read from.")
    sources: dict[EntryName, SourceEntry] = Field(default_factory=dict, description="Where rows come from, by name.")
    sinks: dict[EntryName, SinkEntry] = Field(default_factory=dict, description="Where rows go, by name.")
    pipelines: dict[EntryName, PipelineEntry] | None = Field(None, description="Which source feeds which sink, by name.")
    settings: Settings = Field(Settings(), description="Settings of a run.")
