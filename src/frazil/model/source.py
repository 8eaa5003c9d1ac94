"""Sources: where rows come from."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from frazil.model.base import InconsistencyError, Model, Problem, Texts
from frazil.model.format import MessageOptions
from frazil.model.sink import ColumnSpec, columns_by_name


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
    """A folder; files that appear in it are read once, in the order of modification times, and of names where these are equal."""

    connector: Literal["files"] = "files"
    path: str = Field(min_length=1, description="The folder: a local path or a URI that Spark can read.")
    format: SourceFormat = Field(description="Format of the files.")
    pattern: str = Field("*", description="Which file names count.")
    recursive: bool = Field(False, description="Whether folders within it are read too.")
    columns: tuple[ColumnSpec, ...] = Field((), alias="schema", description="Columns of the files; inferred when left out.")
    options: Texts = Field(default_factory=dict, description="Options of Spark's reader, e.g. `header: true`.")
    poll_interval_secs: float = Field(1.0, gt=0, le=3600, description="How often the folder is looked at.")
    late_window_secs: int = Field(
        3600,
        ge=0,
        description="Has no effect any more: a file that was never read is found however old its modification time is.",
    )

    @field_validator("columns", mode="before")
    @classmethod
    def _columns_by_name(cls, value: Any) -> Any:
        return columns_by_name(value)


class TableSource(Model):
    """A table that Spark knows. An Iceberg table is read on from the snapshot where the last batch ended."""

    connector: Literal["table"] = "table"
    table: str = Field(min_length=1, description="Name in Spark: `catalog.namespace.table`.")
    changes: bool = Field(
        False, description="Read all inserts, updates and deletes of an Iceberg table, not only what is appended."
    )
    key_fields: tuple[str, ...] = Field(
        (), description="With changes: columns that identify a row; the table's identifier fields when left out."
    )
    after_snapshot: int | None = Field(
        None, description="With changes: read what was changed after this snapshot, and not the whole table first."
    )
    until_snapshot: int | None = Field(None, description="With changes: the last snapshot that is read; the pipeline then ends.")
    on_change: Literal["stop", "ignore"] = Field(
        "stop",
        description="Without changes: what to do when rows of an Iceberg source were replaced or deleted, which an append cannot "
        "follow.",
    )

    @field_validator("key_fields", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _consistent(self) -> TableSource:
        problems = []
        if self.key_fields and not self.changes:
            problems.append(Problem("key_fields has no meaning without changes: true: what is appended needs none", "key_fields"))
        for name in ("after_snapshot", "until_snapshot"):
            if getattr(self, name) is not None and not self.changes:
                problems.append(Problem(f"{name} has no meaning without changes: true", name))
        if len(set(self.key_fields)) < len(self.key_fields):
            problems.append(Problem("key_fields names a column twice", "key_fields"))
        if self.changes and "on_change" in self.model_fields_set:
            problems.append(Problem("on_change has no meaning with changes: true, which follows every change", "on_change"))
        if problems:
            raise InconsistencyError(problems)
        return self


class QuerySource(Model):
    """A Spark SQL query. With a cursor column only rows above the last value are read; without, the result is read once."""

    connector: Literal["query"] = "query"
    query: str = Field(min_length=1, description="The query.")
    cursor: str | None = Field(None, description="A column that only grows; rows above its last value are new.")
    every_run: bool = Field(False, description="Without a cursor: read the whole result again on every run.")

    @model_validator(mode="after")
    def _one_way(self) -> QuerySource:
        if self.cursor and self.every_run:
            words = "cursor and every_run exclude each other: with a cursor each run reads what is new"
            raise InconsistencyError([Problem(words, "every_run")])
        return self


class CdcStream(Model):
    """One table of a change-data source."""

    name: str = Field(min_length=1, description="Name of the table.")
    namespace: str = Field("public", min_length=1, description="Schema of the database that holds it.")
    sync_mode: Literal["incremental", "full_refresh"] = Field(
        "incremental", description="Changes as they come, or the whole table on every run."
    )

    @property
    def full_name(self) -> str:
        """With its schema, as the source names it."""
        return f"{self.namespace}.{self.name}"


class PostgresCdcSource(Model):
    """Changes of PostgreSQL tables through a logical replication slot: first each table as it is, then every transaction."""

    connector: Literal["postgres-cdc"] = "postgres-cdc"
    host: str = Field(min_length=1, description="Host of the database.")
    port: int = Field(5432, ge=1, le=65535, description="Port of the database.")
    database: str = Field(min_length=1, description="Name of the database.")
    user: str = Field(min_length=1, description="User that may replicate.")
    password: SecretStr | None = Field(None, description="Password of the user.")
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] | None = Field(
        None, description="How the connection is encrypted; PostgreSQL's own default is `prefer`."
    )
    sslrootcert: str | None = Field(None, description="File with the certificates that are trusted, for `verify-ca` and above.")
    slot_name: str | None = Field(
        None,
        pattern=r"^[a-z0-9_]{1,63}$",
        description="Replication slot, which belongs to this source alone; `frazil_` and the database's name when left out.",
    )
    publication: str | None = Field(
        None, min_length=1, description="Publication that names the tables; `frazil_` and the database's name when left out."
    )
    streams: tuple[CdcStream, ...] = Field((), description="Tables to follow; all of the publication when left out.")
    create_slot: bool = Field(True, description="Whether a slot that is not there is made.")
    create_publication: bool = Field(True, description="Whether a publication that is not there is made, for the streams.")
    snapshot: Literal["initial", "never"] = Field(
        "initial", description="Whether the rows that a table has already are read before its changes."
    )
    snapshot_chunk_mb: int = Field(64, ge=1, description="A table is read in parts of about this size.")
    snapshot_connections: int | None = Field(
        None, ge=1, description="How many parts of a table are read at once at most; as many as Spark has cores when left out."
    )
    snapshot_wait_secs: float = Field(
        600, ge=0, description="How long a snapshot waits for transactions that write and began before it."
    )
    on_truncate: Literal["stop", "ignore"] = Field(
        "stop", description="What to do when a table was truncated, which the changes of single rows cannot tell."
    )
    unbounded_numeric: str = Field(
        "string",
        pattern=r"^(string|double|decimal\(\s*\d+\s*,\s*\d+\s*\))$",
        description="Type of `numeric` columns without a precision: `string`, `double` or `decimal(p, s)`.",
    )
    poll_interval_secs: float = Field(1.0, gt=0, le=3600, description="How often new changes are asked for when there were none.")
    spool_path: str | None = Field(
        None,
        description="Folder for changes that are read and not yet committed; on a cluster one that all machines see.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> PostgresCdcSource:
        names = [stream.full_name for stream in self.streams]
        problems = [
            Problem(f"the stream {name} is named twice", "streams", str(number))
            for number, name in enumerate(names)
            if name in names[:number]
        ]
        if match := re.search(r"(\d+)\s*,\s*(\d+)", self.unbounded_numeric):
            precision, scale = int(match[1]), int(match[2])
            if not (1 <= precision <= 38 and scale <= precision):
                words = "a decimal has a precision of 1 to 38 and a scale not above it"
                problems.append(Problem(words, "unbounded_numeric"))
        if problems:
            raise InconsistencyError(problems)
        return self

    @property
    def slot(self) -> str:
        """The slot's name."""
        return self.slot_name or f"frazil_{re.sub(r'[^a-z0-9_]', '_', self.database.lower())}"[:63]

    @property
    def publication_name(self) -> str:
        """The publication's name."""
        return self.publication or f"frazil_{self.database}"[:63]


class KafkaTls(Model):
    """How the connection to a Kafka cluster is encrypted."""

    enabled: bool = Field(False, description="Whether the connection is encrypted.")
    ca_path: str | None = Field(None, description="PEM file with the certificates that are trusted; Java's own when left out.")
    cert_path: str | None = Field(None, description="PEM file with the client's own certificate.")
    key_path: str | None = Field(None, description="PEM file with the key of the client's certificate (PKCS 8, not encrypted).")
    server_name: str | None = Field(
        None, description="Name that the servers' certificates must have instead of that of their address."
    )
    insecure: bool = Field(False, description="Trust whatever certificate the servers show; for tests.")

    @model_validator(mode="after")
    def _consistent(self) -> KafkaTls:
        problems = []
        if (self.cert_path is None) != (self.key_path is None):
            problems.append(Problem("cert_path and key_path belong together", "cert_path" if self.cert_path else "key_path"))
        if self.insecure and self.server_name is not None:
            problems.append(Problem("insecure and server_name exclude each other", "insecure"))
        given = [name for name in type(self).model_fields if name != "enabled" and getattr(self, name)]
        if given and not self.enabled:
            problems.append(Problem(f"{given[0]} has no meaning without enabled: true", given[0]))
        if problems:
            raise InconsistencyError(problems)
        return self


class KafkaSecurity(Model):
    """How to log in to a Kafka cluster (SASL)."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(description="What the cluster expects.")
    user: str = Field(min_length=1, description="Name of the user.")
    password: SecretStr = Field(description="Password of the user.")


# Settings of Kafka's client that frazil gives itself, and what a user sets instead.
_OWN_SETTINGS = {
    "kafka.bootstrap.servers": "bootstrap_servers",
    "kafka.group.id": "consumer_group",
    "kafka.auto.offset.reset": "start_offset",
    "kafka.key.deserializer": "",
    "kafka.value.deserializer": "",
    "kafka.enable.auto.commit": "",
    "kafka.interceptor.classes": "",
}


class KafkaCluster(Model):
    """A Kafka cluster, and how to connect to it."""

    bootstrap_servers: str = Field(min_length=1, description="`host:port` of one or more brokers, with commas between.")
    tls: KafkaTls | None = Field(None, description="How the connection is encrypted.")
    security: KafkaSecurity | None = Field(None, description="How to log in.")
    options: Texts = Field(default_factory=dict, description="Settings of Kafka's client: `kafka.fetch.max.bytes: 1000000`.")

    @field_validator("options")
    @classmethod
    def _options_of_the_client(cls, options: dict[str, str]) -> dict[str, str]:
        for name in options:
            if not name.startswith("kafka."):
                raise ValueError(f"{name}: settings of Kafka's client begin with kafka., as in kafka.{name}")
            if (instead := _OWN_SETTINGS.get(name)) is not None:
                raise ValueError(f"{name} cannot be set here{f'; use {instead}' if instead else ''}")
        return options


class KafkaSource(MessageOptions, KafkaCluster):
    """Topics of a Kafka cluster."""

    connector: Literal["kafka"] = "kafka"
    topics: tuple[str, ...] = Field(
        min_length=1, description="Topics to read; `*` stands for any characters, `/.../` is a regular expression."
    )
    consumer_group: str | None = Field(
        None,
        min_length=1,
        description="Consumer group whose offsets are set after each commit, so that Kafka's tools show how far the reader is.",
    )
    start_offset: Literal["latest", "earliest", "timestamp", "explicit"] = Field(
        "latest", description="Where reading begins when the table's ledger holds no offsets."
    )
    start_timestamp: str | None = Field(None, description="The time, for `start_offset: timestamp`.")
    start_offsets: dict[str, dict[int, Annotated[int, Field(ge=0)]]] = Field(
        default_factory=dict,
        description="For `start_offset: explicit`: the first offset by topic and partition; the others begin at the earliest.",
    )
    order: Literal["offset", "time"] = Field(
        "offset",
        description="Which of two rows of a key is the later: `offset` tells within a partition alone, `time` also between "
        "partitions and topics, by the times of the records.",
    )

    @field_validator("topics")
    @classmethod
    def _topics_are_names_or_patterns(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        for topic in topics:
            if is_topic_pattern(topic) and topic.startswith("/"):
                try:
                    re.compile(topic[1:-1])
                except re.error as error:
                    raise ValueError(f"{topic} is no regular expression: {error}") from None
            elif re.fullmatch(r"[A-Za-z0-9._*-]{1,249}", topic) is None:
                raise ValueError(f"{topic!r} is no name of a topic; these have letters, digits, dots, _ and -")
        return topics

    @field_validator("start_timestamp")
    @classmethod
    def _a_time(cls, text: str | None) -> str | None:
        try:
            datetime.fromisoformat(text or "2026-01-31")
        except ValueError:
            raise ValueError(f"cannot read the time {text!r}; write it as 2026-01-31T12:00:00Z") from None
        return text

    @property
    def cluster(self) -> KafkaCluster:
        """Where the topics are."""
        return KafkaCluster(bootstrap_servers=self.bootstrap_servers, tls=self.tls, security=self.security, options=self.options)

    @model_validator(mode="after")
    def _consistent(self) -> KafkaSource:
        problems = []
        if (self.start_offset == "timestamp") != (self.start_timestamp is not None):
            problems.append(Problem("start_offset: timestamp and start_timestamp belong together", "start_offset"))
        if (self.start_offset == "explicit") != bool(self.start_offsets):
            problems.append(Problem("start_offset: explicit and start_offsets belong together", "start_offset"))
        if self.order == "time" and self.enveloped:
            problems.append(
                Problem("order: time has no meaning with envelope: debezium: the database's log is the order", "order")
            )
        if problems:
            raise InconsistencyError(problems)
        return self


def is_topic_pattern(topic: str) -> bool:
    """Whether it is a pattern of topic names: with a `*`, or as a regular expression between slashes."""
    return "*" in topic or (len(topic) > 2 and topic.startswith("/") and topic.endswith("/"))


class PagesSource(MessageOptions):
    """A source that is asked for page after page: one of the package bizon, or a class in a file that is written for it."""

    connector: Literal["bizon"] = "bizon"
    name: str = Field(min_length=1, description="Name of the source.")
    stream: str = Field(min_length=1, description="What of it is read.")
    file: str | None = Field(None, min_length=1, description="Python file with the class; one of the package's when left out.")
    config: dict[str, Any] = Field(default_factory=dict, repr=False, description="Its settings, as its own class takes them.")
    mode: Literal["full_refresh", "incremental", "stream"] = Field(
        "full_refresh", description="All of it on every run; what is new since the last run; or on and on."
    )
    cursor_field: str | None = Field(None, description="Field by which the source tells what is new.")
    max_pages: int | None = Field(None, ge=1, description="Most pages of one run.")
    tables: tuple[str, ...] = Field(min_length=1, description="The tables that records may name.")
    table: str | None = Field(None, description="The table of records that name none.")
    gather_secs: float = Field(60, gt=0, description="So long pages are gathered at most before they are written.")
    poll_interval_secs: float = Field(2.0, gt=0, le=3600, description="How often a stream is asked when there was nothing.")


CONNECTORS: tuple[type[Model], ...] = (
    GeneratorSource,
    FilesSource,
    TableSource,
    QuerySource,
    PostgresCdcSource,
    KafkaSource,
)
"""The sources that a pipeline names by their connector. Others belong to the files of one door."""

SourceSpec = Annotated[
    GeneratorSource | FilesSource | TableSource | QuerySource | PostgresCdcSource | KafkaSource | PagesSource,
    Field(discriminator="connector"),
]
