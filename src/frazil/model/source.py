"""Sources: where rows come from."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from frazil.model.base import Model
from frazil.model.sink import ColumnSpec


class SourceFormat(StrEnum):
    """Formats of files."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    AVRO = "avro"


class GeneratorSource(Model):
    """Made-up but realistic shop events, numbered from 0: the same number is always the same event."""

    connector: Literal["generator"] = "generator"
    rows_per_second: int = Field(1000, ge=1, le=10_000_000, description="How fast events come.")
    rows: int | None = Field(None, ge=0, description="How many in all; endless when left out.")
    seed: int = Field(0, description="Another seed, other events.")


class FilesSource(Model):
    """A folder; files that appear in it are read once, in the order of their modification time."""

    connector: Literal["files"] = "files"
    path: str = Field(min_length=1, description="The folder: a local path or a URI that Spark can read.")
    format: SourceFormat = Field(description="Format of the files.")
    pattern: str = Field("*", description="Which file names count.")
    recursive: bool = Field(False, description="Whether folders within it are read too.")
    columns: tuple[ColumnSpec, ...] = Field(
        (), alias="schema", description="Columns of the files; inferred when left out."
    )
    options: dict[str, str] = Field(default_factory=dict, description="Options of Spark's reader, e.g. `header: true`.")
    poll_interval_secs: float = Field(1.0, gt=0, le=3600, description="How often the folder is looked at.")
    late_window_secs: int = Field(
        3600,
        ge=0,
        description="A file that appears with a modification time so far behind the newest one read is still found.",
    )

    @field_validator("columns", mode="before")
    @classmethod
    def _columns_by_name(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return [
                {"name": name, "type": kind} if isinstance(kind, str) else {"name": name, **kind}
                for name, kind in value.items()
            ]
        return value

    @field_validator("options", mode="before")
    @classmethod
    def _option_texts(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}
        return value


class TableSource(Model):
    """A table that Spark knows. An Iceberg table is read on from the snapshot where the last batch ended."""

    connector: Literal["table"] = "table"
    table: str = Field(min_length=1, description="Name in Spark: `catalog.namespace.table`.")
    on_change: Literal["stop", "ignore"] = Field(
        "stop",
        description="What to do when rows of an Iceberg source were replaced or deleted, which an append cannot follow.",
    )


class QuerySource(Model):
    """A Spark SQL query. With a cursor column only rows above the last value are read; without, the result is read once."""

    connector: Literal["query"] = "query"
    query: str = Field(min_length=1, description="The query.")
    cursor: str | None = Field(None, description="A column that only grows; rows above its last value are new.")
    every_run: bool = Field(False, description="Without a cursor: read the whole result again on every run.")

    @model_validator(mode="after")
    def _one_way(self) -> QuerySource:
        if self.cursor and self.every_run:
            raise ValueError("cursor and every_run exclude each other: with a cursor each run reads what is new")
        return self


class CdcStream(Model):
    """One table of a change-data source."""

    name: str = Field(min_length=1)
    namespace: str = "public"
    sync_mode: Literal["incremental", "full_refresh"] = "incremental"


class PostgresCdcSource(Model):
    """Changes of PostgreSQL tables through a logical replication slot."""

    connector: Literal["postgres-cdc"] = "postgres-cdc"
    host: str
    port: int = Field(5432, ge=1, le=65535)
    database: str
    user: str
    password: SecretStr | None = None
    sslmode: str | None = None
    slot_name: str | None = None
    publication: str | None = None
    streams: tuple[CdcStream, ...] = ()


class KafkaSource(Model):
    """Topics of a Kafka cluster."""

    connector: Literal["kafka"] = "kafka"
    bootstrap_servers: str
    topics: tuple[str, ...] = Field(min_length=1)
    consumer_group: str | None = None
    start_offset: Literal["latest", "earliest", "timestamp"] = "latest"


SourceSpec = Annotated[
    GeneratorSource | FilesSource | TableSource | QuerySource | PostgresCdcSource | KafkaSource,
    Field(discriminator="connector"),
]

# Sources that this version can run; the others load, so that files can be written and checked, and are refused by `run`.
RUNNABLE = (GeneratorSource, FilesSource, TableSource, QuerySource)
