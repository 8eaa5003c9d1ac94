"""From a document of a Bizon file to pipelines: one for each table that topics are led to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import SecretStr, ValidationError

from frazil.doors.bizon.catalog import catalog_of, warehouse_of
from frazil.doors.bizon.columns import (
    ENVELOPE,
    TIME,
    Reading,
    bizon_column,
    shape,
    table_type,
    with_partition_columns,
)
from frazil.doors.bizon.destination import DestinationConfig, SchemaField, TableEntry, TimePartition, Upsert
from frazil.doors.bizon.file import BizonDocument
from frazil.doors.bizon.kafka import Cluster, cluster_of
from frazil.errors import ConfigError
from frazil.model.base import InconsistencyError
from frazil.model.changes import CommitMode, Reader
from frazil.model.coercion import ExtraColumns
from frazil.model.dead_letters import OnError
from frazil.model.partition import PartitionField, Transform, transform_problem
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import RetrySettings
from frazil.model.sink import SinkSpec
from frazil.model.source import KafkaSource
from frazil.model.types import parse_type
from frazil.reading.document import Document, Path
from frazil.reading.explain import nearest

T = TypeVar("T")

# A record of Kafka, as large as they are on the average: what a bound in megabytes is in rows.
ROW_BYTES = 1024

# Without a catalog a part of a file is checked as if it had this one.
_NO_CATALOG = {"type": "memory"}

REQUIRED = ("project_id", "dataset_id", "gcs_warehouse_bucket")

# Which key of a Bizon file an option of the sink comes from, where they differ.
_KEYS = {"key_fields": "upsert", "partition_by": "time_partitioning", "schema": "iceberg_schema", "sort_by": "clustering_keys",
         "when_matched_update_all": "upsert", "namespace": "iceberg_namespace", "table": "destination_id"}  # fmt: skip


@dataclass
class Found:
    """What a document says: its pipelines, the sinks that no topic is led to by their names, and what a person should know."""

    pipelines: list[PipelineSpec] = field(default_factory=list)
    parts: dict[str, SinkSpec] = field(default_factory=dict)
    notices: list[tuple[Path, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Table:
    """A table: what is said of it and where, and the topics that are led to it."""

    entry: TableEntry
    path: Path
    topics: tuple[str, ...] = ()


def translated(document: Document, file: BizonDocument) -> Found:
    """The pipelines of a document; what is wrong is in the document then."""
    return _Translation(document, file).found()


class _Translation:
    """One document on its way."""

    def __init__(self, document: Document, file: BizonDocument) -> None:
        self.document = document
        self.file = file
        self.config = file.merged
        self.runs = file.source is not None and file.config is not None
        self.notices: list[tuple[Path, str]] = []

    @property
    def base(self) -> Path:
        """Where the settings of the destination stand."""
        return ("destination", "config") if self.file.destination is not None else ("bigquery_iceberg",)

    def found(self) -> Found:
        if self.runs:
            self._require()
        cluster = cluster_of(self.document, self.file.source) if self.file.source is not None else None
        if cluster is not None:
            self.notices += cluster.notices
        catalog: dict[str, Any] = _NO_CATALOG
        if self.runs or self.config.catalog_config:
            catalog, told = catalog_of(self.document, self._home("catalog_config"), self.config)
            self.notices += told
        tables = self._tables()
        found = Found(notices=self.notices)
        if not catalog:
            return found
        self._tell_of_engine()
        for table in tables:
            self._add(found, table, catalog, cluster)
        return found

    def _add(self, found: Found, table: Table, catalog: dict[str, Any], cluster: Cluster | None) -> None:
        before = len(self.document.problems)
        fields, partitions = self._fields(table)
        keys = self._keys(table, fields)
        partition = self._partition(table, fields, partitions)
        sort = self._sorted(table, fields)
        if len(self.document.problems) > before:
            return
        reading = self._reading(cluster)
        made = shape(fields, reading)
        options = self._options(table) | keys | {"partition_by": partition, "sort_by": sort}
        if fields:
            options["schema"] = made.columns
        sink = self._made(table.path, lambda: SinkSpec.model_validate(options | {"catalog": catalog}))
        if sink is None:
            return
        if not self.runs or not table.topics:
            found.parts[f"{self.alias}.{table.entry.destination_id}"] = sink
        self.notices += [
            (table.path, f"column {one.column}: Spark cannot write the type time; it is long, microseconds since midnight")
            for one in fields
            if parse_type(one.column_type).name == TIME
        ]
        if not self.runs or cluster is None or not table.topics:
            return
        source = self._made(
            ("source",), lambda: KafkaSource.model_validate(cluster.options | made.source | {"topics": table.topics})
        )
        if source is None:
            return
        pipeline = self._made(
            table.path,
            lambda: PipelineSpec.model_validate(
                {
                    "name": table.entry.destination_id,
                    "source_name": "kafka",
                    "source": source,
                    "sink_name": self.alias,
                    "sink": sink,
                    "transforms": made.transforms,
                    "once": not self.goes_on,
                    "retry": retry_of(self.config),
                }
            ),
        )
        if pipeline is not None:
            found.pipelines.append(pipeline)

    @property
    def alias(self) -> str:
        """What the destination is called."""
        return self.file.destination.alias if self.file.destination is not None else "bigquery_iceberg"

    @property
    def goes_on(self) -> bool:
        """Whether reading goes on when all that is there was read."""
        source = self.file.source
        return (source is not None and source.sync_mode == "stream") or self.file.engine.runner.type == "stream"

    # What the file lacks, or says in vain.

    def _require(self) -> None:
        if self.file.name is None:
            message, fix = "`name` is required: the tables know their pipeline by it", "Add `name` at the top."
            self._problem("missing-key", message, ("source",), fix)
        for key in REQUIRED:
            if getattr(self.config, key) is None:
                self._problem("missing-key", f"`{key}` is required in `{self.base[-1]}`", self.base, f"Add `{key}`.")

    def _tell_of_engine(self) -> None:
        engine = self.file.engine
        words = {
            "backend": "is not needed: how far a table is stands in the table itself",
            "queue": "is not needed: rows go from the topic to the table",
        }
        self.notices += [(("engine", key), f"engine.{key} {why}") for key, why in words.items() if getattr(engine, key)]
        if engine.runner.config:
            self.notices.append((("engine", "runner", "config"), "engine.runner.config is not needed: Spark does the work"))

    # Tables.

    def _tables(self) -> list[Table]:
        entries = self.config.destination_table_config
        base = (*self._home("destination_table_config"), "destination_table_config")
        known = [Table(entry, (*base, number)) for number, entry in enumerate(entries or ())]
        names = [table.entry.destination_id for table in known]
        for number, name in enumerate(names):
            if name in names[:number]:
                message = f"the table {name} stands there twice"
                self._problem("invalid-value", message, (*base, number, "destination_id"))
        topics = self._topics(names if entries is not None else None)
        if entries is None and self.file.source is None:
            # A part that names no table is checked as one of any.
            return [Table(TableEntry(destination_id=self.config.destination_id or "bigquery_iceberg"), ())]
        if entries is None:
            return [Table(TableEntry(destination_id=name), ("source", "topics"), tuple(led)) for name, led in topics.items()]
        return [Table(table.entry, table.path, tuple(topics.get(table.entry.destination_id, ()))) for table in known]

    def _topics(self, known: Sequence[str] | None) -> dict[str, list[str]]:
        """The topics by the table that they are led to. With tables that are declared, another one is a mistake."""
        led: dict[str, list[str]] = {}
        for number, topic in enumerate(self.file.source.topics if self.file.source is not None else ()):
            path: Path = ("source", "topics", number)
            name = topic.destination_id or self.config.destination_id
            if name is None:
                message = f"the topic {topic.name} has no destination_id, and neither has the destination"
                self._problem("missing-key", message, path, "Add `destination_id`.")
            elif known is not None and name not in known:
                near = nearest(name, known)
                message = f"no table is declared for the destination_id `{name}`"
                fix = f"Did you mean `{near}`?" if near else f"Tables: {', '.join(known)}."
                at: Path = (*path, "destination_id") if topic.destination_id else (*self.base, "destination_id")
                self._problem("unknown-destination", message, at, fix, at_value=True)
            elif "." in name:
                message = f"`{name}` is no name of a table: a dot would begin a namespace"
                self._problem("invalid-value", message, (*path, "destination_id"), at_value=True)
            else:
                led.setdefault(name, []).append(topic.name)
        return led

    def _fields(self, table: Table) -> tuple[tuple[SchemaField, ...], tuple[TimePartition, ...]]:
        entry = table.entry
        fields = entry.iceberg_schema or self.file.iceberg_schema or (ENVELOPE if self.file.source is not None else ())
        partitions = self.config.time_partitioning if entry.time_partitioning is None else entry.time_partitioning
        names = [one.column.lower() for one in fields]
        for number, one in enumerate(fields):
            if one.column.lower() in names[:number]:
                self._problem("invalid-value", f"column {one.column!r} is declared twice", (*table.path, "iceberg_schema"))
        return with_partition_columns(fields, partitions or ()) if fields else (), partitions or ()

    def _partition(
        self, table: Table, fields: Sequence[SchemaField], partitions: Sequence[TimePartition]
    ) -> tuple[PartitionField, ...]:
        """Partition fields by the names of the columns; in the file stand those of the data."""
        by_source = {bizon_column(one) or one.source: one for one in fields}
        own = table.entry.time_partitioning is not None
        base = (*(table.path if own else self._home("time_partitioning")), "time_partitioning")
        made = []
        for number, one in enumerate(partitions):
            column = by_source.get(one.field)
            path: Path = (*base, number, "field")
            transform = Transform(one.type.lower())
            if not fields:  # a part of a file, which does not say what the table has
                made.append(PartitionField(source=one.field, transform=transform))
                continue
            if column is None:
                near = nearest(one.field, by_source)
                renamed = next((known.source for known in fields if known.column == one.field), None)
                name = table.entry.destination_id
                message = f"time_partitioning: there is no field `{one.field}` in the data of `{name}`"
                fix = f"Did you mean `{renamed or near}`?" if renamed or near else f"Fields: {', '.join(by_source)}."
                self._problem("invalid-value", message, path, fix, at_value=True)
                continue
            field_ = PartitionField(source=column.column, transform=transform)
            if problem := transform_problem(field_, parse_type(table_type(column)).name):
                self._problem("invalid-value", problem, path, at_value=True)
            made.append(field_)
        return tuple(made)

    def _keys(self, table: Table, fields: Sequence[SchemaField]) -> dict[str, Any]:
        upsert = table.entry.upsert or self.config.upsert
        if upsert is None or not upsert.enabled:
            return {}
        path = (*(table.path if table.entry.upsert is not None else self._home("upsert")), "upsert")
        if not upsert.join_cols:
            message = "upsert needs join_cols: a new table has no columns yet that identify its rows"
            self._problem("missing-key", message, path, "Add `join_cols`.")
            return {}
        if not (upsert.when_matched_update_all or upsert.when_not_matched_insert_all):
            message = "when_matched_update_all and when_not_matched_insert_all are both false: a batch would change nothing"
            self._problem("invalid-value", message, (*path, "when_matched_update_all"))
            return {}
        names = self._named(table, fields, upsert.join_cols, (*path, "join_cols"), upsert)
        return {
            "commit_mode": CommitMode.UPSERT,
            "key_fields": names,
            "case_sensitive": upsert.case_sensitive,
            "when_matched_update_all": upsert.when_matched_update_all,
            "when_not_matched_insert_all": upsert.when_not_matched_insert_all,
            # Those who read tables of Bizon's: neither PyIceberg nor BigQuery is asked to read deletes by key.
            "readers": (Reader.PYICEBERG,),
        }

    def _named(
        self, table: Table, fields: Sequence[SchemaField], names: Iterable[str], path: Path, upsert: Upsert | None = None
    ) -> tuple[str, ...]:
        """Columns of the table that an option names."""
        if not fields:
            return tuple(names)
        known = {one.column: one.column for one in fields}
        if upsert is not None and not upsert.case_sensitive:
            known |= {one.column.lower(): one.column for one in fields}
        found = []
        for number, name in enumerate(names):
            column = known.get(name) or (known.get(name.lower()) if upsert and not upsert.case_sensitive else None)
            if column is None:
                near = nearest(name, [one.column for one in fields])
                message = f"{path[-1]}: the table `{table.entry.destination_id}` has no column `{name}`"
                fix = f"Did you mean `{near}`?" if near else f"Columns: {', '.join(one.column for one in fields)}."
                self._problem("invalid-value", message, (*path, number), fix, at_value=True)
            else:
                found.append(column)
        return tuple(found)

    def _sorted(self, table: Table, fields: Sequence[SchemaField]) -> tuple[str, ...]:
        return self._named(table, fields, table.entry.clustering_keys, (*table.path, "clustering_keys"))

    # Values for the engine.

    def _reading(self, cluster: Cluster | None) -> Reading:
        source = self.file.source
        unit = self.config.epoch_unit
        return Reading(
            source.message_encoding if source is not None else "utf-8",
            cluster.registry if cluster is not None else None,
            # Where they stand, for errors that show when there is data.
            tuple(
                transform.placed(self.document.places_below(("transforms", number)))
                for number, transform in enumerate(self.file.transforms)
            ),
            source.timestamp_ms_name if source is not None else None,
            unit.value if unit is not None else None,
        )

    def _options(self, table: Table) -> dict[str, Any]:
        config = self.config
        skips = self.file.source is not None and self.file.source.skip_message_on_decode_error
        dead = config.on_error == "dead_letter" or skips
        options: dict[str, Any] = {
            "namespace": config.iceberg_namespace,
            "table": table.entry.destination_id,
            "id": f"{self.file.name or 'bizon'}/{table.entry.destination_id}",
            "batch_size": config.write_batch_size,
            "max_batch_size": max(config.write_batch_size, min(config.buffer_size * 1024 * 1024 // ROW_BYTES, 1_000_000)),
            "flush_interval_secs": config.buffer_flush_timeout,
            "file_format": config.table_format,
            "target_file_size_mb": config.target_file_size_mb,
            "extra_columns": ExtraColumns.IGNORE,
            "on_error": OnError.DEAD_LETTER if dead else OnError.STOP,
            "epoch_unit": config.epoch_unit,
        }
        for limit in ("max_dead_letters", "max_dead_letter_rate"):
            if getattr(config, limit) is not None:
                options[limit] = getattr(config, limit)
        return options | self._google()

    def _google(self) -> dict[str, Any]:
        config = self.config
        key: SecretStr | None = config.authentication.service_account_key if config.authentication is not None else None
        options: dict[str, Any] = {}
        in_google = (warehouse_of(config) or "").startswith("gs://")
        if in_google:
            options["gcs"] = {"project_id": config.project_id, "service_account_key": key}
        if not self.runs or config.project_id is None or config.dataset_id is None:
            return options
        if not in_google and config.bigquery_endpoint is None:
            words = "BigQuery is not told of the tables: the warehouse is not in Google Cloud Storage"
            if (self.base, words) not in self.notices:
                self.notices.append((self.base, words))
            return options
        options["biglake"] = {
            "project_id": config.project_id,
            "dataset_id": config.dataset_id,
            "dataset_location": config.dataset_location,
            "connection_id": config.biglake_connection_id,
            "service_account_key": key,
            "endpoint": config.bigquery_endpoint,
            "no_auth": key is None and config.bigquery_endpoint is not None,
        }
        return options

    # Places.

    def _home(self, key: str) -> Path:
        """Where a part of the destination stands: in its settings, or at the top."""
        return () if key in self.document.value else self.base

    def _problem(self, code: str, message: str, path: Path, fix: str = "", *, at_value: bool = False) -> None:
        place = self.document.value_place(path) if at_value else self.document.key_place(path)
        self.document.problems.append(ConfigError(code, message, fix=fix, location=place))

    def _made(self, path: Path, make: Callable[[], T]) -> T | None:
        """A value of the model. What it refuses is told at the key that the option comes from."""
        try:
            return make()
        except ValidationError as error:
            for found in error.errors(include_url=False):
                cause = found.get("ctx", {}).get("error")
                if isinstance(cause, InconsistencyError):
                    for problem in cause.problems:
                        self._problem("invalid-value", str(problem), self._written(path, problem.at))
                else:
                    way = tuple(str(step) for step in found["loc"])
                    words = str(cause) if cause is not None else found["msg"]
                    told = f"{way[-1]}: {words}" if way else words
                    self._problem("invalid-value", told, self._written(path, way))
            return None

    def _written(self, path: Path, way: Sequence[str]) -> Path:
        for step in reversed(way):
            key = _KEYS.get(step, step)
            for base in (path, self.base, ()):
                if (*base, key) in self.document.keys:
                    return (*base, key)
        return path


def retry_of(config: DestinationConfig) -> RetrySettings:
    """How failed calls are tried again."""
    base, longest = config.retry_backoff_base, config.retry_backoff_max
    return RetrySettings(
        max_retries=config.max_retry_attempts,
        initial_backoff_ms=max(1, int(min(base, longest) * 1000)),
        max_backoff_ms=max(1, int(longest * 1000)),
        backoff_multiplier=max(1.0, base),
    )
