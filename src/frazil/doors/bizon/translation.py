"""What all documents of a Bizon file have in common on their way to pipelines: what they must say, and the sinks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from frazil.doors.bizon.catalog import catalog_of, warehouse_of
from frazil.doors.bizon.columns import TIME, Shape
from frazil.doors.bizon.context import Context
from frazil.doors.bizon.cures import advice_of
from frazil.doors.bizon.destination import MOST_SECONDS, DestinationConfig
from frazil.doors.bizon.tables import BizonTable, Layout
from frazil.doors.bizon.without_effect import keys_without_effect
from frazil.model.coercion import ExtraColumns
from frazil.model.dead_letters import OnError
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import RetrySettings
from frazil.model.sink import SinkSpec
from frazil.model.source import KafkaSource, PagesSource
from frazil.model.types import parse_type
from frazil.reading.document import Path

# A record, as large as they are on the average: what a bound in megabytes is in rows.
ROW_BYTES = 1024

# Without a catalog a part of a file is checked as if it had this one.
_NO_CATALOG = {"type": "memory"}

REQUIRED = ("project_id", "dataset_id", "gcs_warehouse_bucket")

_LETTER_LIMITS = ("max_dead_letters", "max_dead_letter_rate")


@dataclass
class TranslatedDocument:
    """What a document contains: its pipelines, the sinks that no topic feeds by their names, and notes for the user."""

    pipelines: list[PipelineSpec] = field(default_factory=list)
    parts: dict[str, SinkSpec] = field(default_factory=dict)
    notices: list[tuple[Path, str]] = field(default_factory=list)


class Translation(Context):
    """One document on its way."""

    def _catalog(self) -> dict[str, Any]:
        """The catalog; empty when something is wrong with it."""
        if not self.runs and not self.config.catalog_config:
            return _NO_CATALOG
        catalog, notes = catalog_of(self.document, self.home("catalog_config"), self.config)
        self.notices += notes
        return catalog

    @property
    def _catalog_path(self) -> Path:
        return (*self.home("catalog_config"), "catalog_config", *self.config.catalog_config)

    def _tell_of_times(self, table: BizonTable, layout: Layout) -> None:
        self.notices += [
            (table.path, f"column {one.column}: Spark cannot write the type time; it is long, microseconds since midnight")
            for one in layout.fields
            if parse_type(one.column_type).name == TIME
        ]

    @property
    def alias(self) -> str:
        """What the destination is called."""
        return self.file.destination.alias if self.file.destination is not None else "bigquery_iceberg"

    @property
    def identity(self) -> str:
        """What tables know the document by: its `id`, which stays when it is renamed, or its name."""
        return self.file.id or self.file.name or "bizon"

    @property
    def goes_on(self) -> bool:
        """Whether reading goes on when all that is there was read."""
        source = self.file.source
        return (source is not None and source.sync_mode == "stream") or self.file.engine.runner.type == "stream"

    # What the file lacks, or says in vain.

    def _require(self) -> None:
        if self.file.name is None:
            message, fix = "`name` is required: the tables know their pipeline by it", "Add `name` at the top."
            self.problem("missing-key", message, ("source",), fix)
        for key in REQUIRED:
            if getattr(self.config, key) is None:
                self.problem("missing-key", f"`{key}` is required in `{self.base[-1]}`", self.base, f"Add `{key}`.")

    def _require_letters(self) -> None:
        """Limits of letters have a meaning where letters are kept."""
        if self._keeps_letters:
            return
        for key in self._limits:
            words = f"{key} has no meaning with on_error: stop; it belongs to dead_letter"
            self.problem("invalid-value", words, (*self.base, key))

    def _tell_of_engine(self) -> None:
        engine = self.file.engine
        words = {
            "backend": "is not needed: how far a table is stands in the table itself",
            "queue": "is not needed: rows go from the source to the table",
        }
        self.notices += [(("engine", key), f"engine.{key} {why}") for key, why in words.items() if getattr(engine, key)]
        if engine.runner.config:
            self.notices.append((("engine", "runner", "config"), "engine.runner.config is not needed: Spark does the work"))

    def _tell_without_effect(self) -> None:
        """Says which keys have no effect here."""
        self.notices += keys_without_effect(self.file)
        words = "has no effect: columns are declared with destination_table_config and iceberg_schema"
        given = {"unnest": self.config.unnest, "record_schemas": self.config.record_schemas is not None}
        self.notices += [((*self.base, key), f"`{key}` {words}") for key, there in given.items() if there]
        if self.config.buffer_flush_timeout == 0:
            note = f"rows wait for a commit for {MOST_SECONDS:,} seconds at most; 0 does not mean longer"
            self.notices.append(((*self.base, "buffer_flush_timeout"), note))

    # Values for the engine.

    def _changes(self) -> tuple[Any, ...]:
        """The user's changes of rows, with where they stand, for errors that show when there is data."""
        return tuple(
            transform.placed(self.document.places_below(("transforms", number)))
            for number, transform in enumerate(self.file.transforms)
        )

    def _pipeline_of(
        self, name: str | None, path: Path, source: KafkaSource | PagesSource, sink: SinkSpec, made: Shape
    ) -> PipelineSpec | None:
        """The pipeline from a source to a sink; its errors are reported at the path, also when it runs."""
        listed = isinstance(path[-1], int)  # an item has no key
        metadata = {
            "name": name,
            "source_name": self.file.source.name if self.file.source is not None else None,
            "source": source,
            "sink_name": self.alias,
            "sink": sink,
            "transforms": made.transforms,
            "once": not self.goes_on,
            "retry": retry_of(self.config),
            "place": self.document.value_place(path) if listed else self.document.key_place(path),
            "advice": advice_of(self.document, self._catalog_path, topics=isinstance(source, KafkaSource)),
        }
        return self.made(path, lambda: PipelineSpec.model_validate(metadata))

    @property
    def _keeps_letters(self) -> bool:
        """Whether records that cannot be written are kept aside."""
        return self.config.on_error == "dead_letter"

    @property
    def _limits(self) -> dict[str, Any]:
        given = {key: getattr(self.config, key) for key in _LETTER_LIMITS}
        return {key: value for key, value in given.items() if value is not None}

    def _options(self, table: BizonTable) -> dict[str, Any]:
        config = self.config
        options: dict[str, Any] = {
            "namespace": config.iceberg_namespace,
            "table": table.entry.destination_id,
            "id": f"{self.identity}/{table.entry.destination_id}",
            "batch_size": config.write_batch_size,
            "max_batch_size": max(config.write_batch_size, min(config.buffer_size * 1024 * 1024 // ROW_BYTES, 1_000_000)),
            "flush_interval_secs": config.flush_seconds,
            "file_format": config.table_format,
            "target_file_size_mb": config.target_file_size_mb,
            "extra_columns": ExtraColumns.IGNORE,
            "on_error": OnError.DEAD_LETTER if self._keeps_letters else OnError.STOP,
            "epoch_unit": config.epoch_unit,
        }
        # Without dead letters it was already reported, once for all tables, that they have no effect.
        return options | (self._limits if self._keeps_letters else {}) | self._google()

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
            words = "BigQuery does not get the tables: the warehouse is not in Google Cloud Storage"
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
            # No credentials are sent in clear, and an emulator asks for none.
            "no_auth": key is None and (config.bigquery_endpoint or "").startswith("http://"),
        }
        return options


def retry_of(config: DestinationConfig) -> RetrySettings:
    """How failed calls are tried again."""
    base, longest = config.retry_backoff_base, config.retry_backoff_max
    return RetrySettings(
        max_retries=config.max_retry_attempts,
        initial_backoff_ms=max(1, int(min(base, longest) * 1000)),
        max_backoff_ms=max(1, int(longest * 1000)),
        backoff_multiplier=max(1.0, base),
    )
