"""A document of a Bizon file as it is written: whole, or a part of one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from frazil.doors.bizon.destination import Destination, DestinationConfig, Schema, TableEntry, TimePartition, Upsert
from frazil.doors.bizon.source import KafkaEntry, PagedEntry
from frazil.model.base import InconsistencyError, Model, Problem
from frazil.model.settings import HealthSettings, MetricsSettings, Settings
from frazil.model.transform import TransformSpec

# Parts of a destination that may stand at the top by themselves.
PARTS = ("destination_table_config", "time_partitioning", "iceberg_namespace", "upsert")

_LEVELS = {"trace": "debug", "critical": "error"}


def _level(value: Any) -> Any:
    return _LEVELS.get(value.lower(), value.lower()) if isinstance(value, str) else value


class Runner(Model):
    """How Bizon would run the pipeline."""

    type: Literal["thread", "process", "stream"] | None = Field(None, description="`stream` goes on reading; the others end.")
    log_level: Annotated[Literal["debug", "info", "warning", "error"] | None, BeforeValidator(_level)] = Field(
        None, description="Least level that is logged."
    )
    config: dict[str, Any] | None = Field(None, description="Threads of Bizon's own.")


class Engine(Model):
    """Where Bizon would keep what it knows."""

    runner: Runner = Field(Runner(), description="How it would run.")
    backend: dict[str, Any] | None = Field(None, description="Bizon's own state.")
    queue: dict[str, Any] | None = Field(None, description="Bizon's own queue.")


def _without_labels(value: Any) -> Any:
    """A change may have a label, as Bizon's have."""
    if not isinstance(value, list):
        return value
    return [{k: v for k, v in item.items() if k != "label"} if isinstance(item, dict) else item for item in value]


# Short runs side by side would quarrel about ports that nobody asked for.
QUIET = Settings(health=HealthSettings(enabled=False), metrics=MetricsSettings(enabled=False))


class StreamSource(Model):
    """Where the rows of a stream come from. Bizon takes other keys, too, for sources that are no topics."""

    model_config = ConfigDict(extra="allow")

    topic: str | None = Field(None, min_length=1, description="The topic.")
    name: str | None = Field(None, description="Without effect.")
    endpoint: str | None = Field(None, description="Without effect.")


class StreamDestination(Model):
    """Where the rows of a stream go. Bizon takes other keys, too, for other destinations."""

    model_config = ConfigDict(extra="allow")

    table_id: str = Field(pattern=r"^[^.]+\.[^.]+\.[^.]+$", description="`project.dataset.table`.")
    record_schema: list[Any] | None = Field(None, description="Without effect; see iceberg_schema.")
    clustering_keys: list[Any] | None = Field(None, description="Without effect; see destination_table_config.")


class Stream(Model):
    """A topic and its table, in one place."""

    name: str = Field(description="What to call it.")
    source: StreamSource = Field(description="Where its rows come from.")
    destination: StreamDestination = Field(description="Where they go.")


class AnyDocument(Model):
    """One document, but for its source."""

    name: str | None = Field(None, min_length=1, max_length=100, description="Name of the pipeline.")
    id: str | None = Field(None, min_length=1, max_length=100, description="What tables know it by, instead of its name.")
    streams: tuple[Stream, ...] | None = Field(None, description="Topics with their tables, instead of `topics` of the source.")
    alerting: dict[str, Any] | None = Field(None, description="Without effect.")
    monitoring: dict[str, Any] | None = Field(None, description="Without effect.")
    secrets: dict[str, Any] | None = Field(None, description="Without effect.")
    transforms: Annotated[tuple[TransformSpec, ...], BeforeValidator(_without_labels)] = Field(
        (), description="Changes of rows on their way."
    )
    destination: Destination | None = Field(None, description="Where rows go.")
    engine: Engine = Field(Engine(), description="How Bizon would run.")
    bigquery_iceberg: DestinationConfig | None = Field(None, description="The destination's settings, in short.")
    destination_table_config: tuple[TableEntry, ...] | None = Field(None, description="The tables.")
    time_partitioning: tuple[TimePartition, ...] | None = Field(None, description="How tables are partitioned.")
    iceberg_namespace: str | None = Field(None, min_length=1, max_length=255, description="Namespace of the tables.")
    iceberg_schema: Schema | None = Field(None, min_length=1, description="Columns of tables that have none of their own.")
    upsert: Upsert | None = Field(None, description="How tables take rows with known keys.")
    settings: Settings | None = Field(None, description="Settings of a run, as in a pipeline file of frazil's own.")

    @model_validator(mode="after")
    def _consistent(self) -> AnyDocument:
        problems = []
        if self.destination is not None and self.bigquery_iceberg is not None:
            problems.append(Problem("destination and bigquery_iceberg are the same thing: keep one of them", "bigquery_iceberg"))
        config = self.config
        if config is not None:
            problems += [
                Problem(f"{part} stands in the destination, too: keep one of them", part)
                for part in PARTS
                if part in self.model_fields_set & config.model_fields_set
            ]
        if problems:
            raise InconsistencyError(problems)
        return self

    @property
    def config(self) -> DestinationConfig | None:
        """The destination's settings, in whichever form."""
        return self.destination.config if self.destination is not None else self.bigquery_iceberg

    @property
    def merged(self) -> DestinationConfig:
        """These settings with the parts that stand at the top."""
        parts = {part: getattr(self, part) for part in PARTS if getattr(self, part) is not None}
        return (self.config or DestinationConfig()).model_copy(update=parts)


class BizonDocument(AnyDocument):
    """One that reads topics. With a source and a destination it is a pipeline; without, a part, which is checked."""

    source: KafkaEntry | None = Field(None, description="Where rows come from.")


class PagedDocument(AnyDocument):
    """One whose source is asked for pages."""

    source: PagedEntry = Field(description="Where rows come from.")
