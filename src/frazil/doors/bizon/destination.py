"""The `bigquery_iceberg` destination of a Bizon file as it is written."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from frazil.model.base import InconsistencyError, Model, Problem
from frazil.model.biglake import DEFAULT_CONNECTION
from frazil.model.coercion import EpochUnit
from frazil.model.dead_letters import DeadLetterOptions
from frazil.model.sink import FileFormat, Name
from frazil.model.types import parse_type

# The longest time that rows wait for a commit.
MOST_SECONDS = 3600

# As many tables as Bizon writes at the same time.
WORKERS = 4


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


class TimePartition(Model):
    """One field that a table is partitioned by."""

    field: str = Field(min_length=1, description="Field of the data, under the name that it has there.")
    type: Annotated[Literal["YEAR", "MONTH", "DAY", "HOUR"], BeforeValidator(_upper)] = Field(description="Width of a partition.")


class SchemaField(Model):
    """One column: `name` and `type`, or in the older form `target_field` and `iceberg_type`."""

    name: Name | None = Field(None, description="Name of the column.")
    type: str | None = Field(None, description="Type of the column.")
    target_field: Name | None = Field(None, description="Name of the column, in the older form.")
    iceberg_type: str | None = Field(None, description="Type of the column, in the older form.")
    source_field: Name | None = Field(None, description="Field of the data, where it has another name than the column.")

    @field_validator("type", "iceberg_type")
    @classmethod
    def _readable(cls, text: str | None) -> str | None:
        if text is not None:
            parse_type(text)
        return text

    @model_validator(mode="after")
    def _one_form(self) -> SchemaField:
        problems = []
        for new, old in (("name", "target_field"), ("type", "iceberg_type")):
            given = [key for key in (new, old) if getattr(self, key) is not None]
            if len(given) == 2:
                problems.append(Problem(f"{new} and {old} say the same thing twice: keep one of them", old))
            elif not given:
                problems.append(Problem(f"a column needs {new} (or {old}, in the older form)"))
        if problems:
            raise InconsistencyError(problems)
        return self

    @property
    def column(self) -> str:
        """Name of the column."""
        return self.name or self.target_field or ""

    @property
    def column_type(self) -> str:
        """Type of the column."""
        return self.type or self.iceberg_type or ""

    @property
    def source(self) -> str:
        """Name in the data."""
        return self.source_field or self.column


def _by_source(value: Any) -> Any:
    """The older form is a mapping, whose keys are the names in the data."""
    if not isinstance(value, dict):
        return value
    return [{"source_field": name, **entry} if isinstance(entry, dict) else entry for name, entry in value.items()]


Schema = Annotated[tuple[SchemaField, ...], BeforeValidator(_by_source)]


class Upsert(Model):
    """How rows with known keys replace the old ones."""

    enabled: bool = Field(False, description="Whether rows are merged; they are appended otherwise.")
    join_cols: tuple[str, ...] = Field((), description="Columns that identify a row; the table's own when left out.")
    when_matched_update_all: bool = Field(True, description="Whether a row with a known key replaces the old one.")
    when_not_matched_insert_all: bool = Field(True, description="Whether a row with a new key is added.")
    case_sensitive: bool = Field(True, description="Whether join_cols are matched to columns by upper and lower case, too.")


class TableEntry(Model):
    """One table."""

    destination_id: Name = Field(description="Name of the table. Topics with this name are written to it.")
    iceberg_schema: Schema | None = Field(None, min_length=1, description="Columns; those of Bizon's envelope when left out.")
    clustering_keys: tuple[str, ...] = Field((), description="Columns that the rows of each file are sorted by.")
    time_partitioning: tuple[TimePartition, ...] | None = Field(None, description="Instead of that of the destination.")
    upsert: Upsert | None = Field(None, description="Instead of that of the destination.")


class Authentication(Model):
    """How to log in to Google."""

    service_account_key: SecretStr | None = Field(None, description="JSON key; Google's default credentials when left out.")

    @field_validator("service_account_key", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any) -> Any:
        return value or None


class DestinationConfig(Model):
    """Everything under `config` of the destination."""

    project_id: str | None = Field(None, min_length=1, description="Project of BigQuery.")
    dataset_id: str | None = Field(None, min_length=1, description="Dataset of BigQuery.")
    dataset_location: str = Field("US", min_length=1, description="Where a dataset that is made is put.")
    gcs_warehouse_bucket: str | None = Field(None, min_length=1, description="Bucket of the tables.")
    gcs_warehouse_path: str = Field("iceberg", description="Folder in the bucket.")
    table_format: FileFormat = Field(FileFormat.PARQUET, description="Format of data files.")
    iceberg_namespace: Name = Field("bizon", description="Namespace of the tables; it is made when it is missing.")
    biglake_connection_id: str = Field(DEFAULT_CONNECTION, min_length=1, description="Connection with which BigQuery reads.")
    catalog_config: dict[str, dict[str, Any]] = Field(default_factory=dict, description="The catalog, under its name.")
    target_file_size_mb: int = Field(128, ge=1, le=1024, description="Size at which a file is closed.")
    write_batch_size: int = Field(1000, ge=1, le=1_000_000, description="Rows of a commit.")
    max_retry_attempts: int = Field(3, ge=0, le=1000, description="Tries after the first.")
    retry_backoff_base: float = Field(2.0, gt=0, le=3600, description="Seconds before the second try, and growth of the wait.")
    retry_backoff_max: float = Field(60, gt=0, le=86_400, description="Longest wait in seconds.")
    time_partitioning: tuple[TimePartition, ...] | None = Field(None, description="How tables are partitioned.")
    destination_table_config: tuple[TableEntry, ...] | None = Field(None, description="The tables.")
    upsert: Upsert | None = Field(None, description="How tables take rows with known keys.")
    authentication: Authentication | None = Field(None, description="How to log in to Google.")
    buffer_size: int = Field(50, ge=0, le=1000, description="Most megabytes of a commit while catching up.")
    buffer_flush_timeout: int = Field(
        600, ge=0, le=3600, description=f"A commit is made after so many seconds; with 0 after {MOST_SECONDS:,}."
    )
    max_concurrent_threads: int = Field(WORKERS, ge=1, le=64, description="How many tables are written at the same time.")
    destination_id: Name | None = Field(None, description="Table of topics that name none.")
    record_schemas: tuple[dict[str, Any], ...] | None = Field(None, description="Without effect; see iceberg_schema.")
    unnest: bool = Field(False, description="Without effect; see iceberg_schema.")

    on_error: Literal["stop", "dead_letter"] = Field("stop", description="What becomes of a record that cannot be written.")
    max_dead_letters: int | None = Field(None, ge=0, description=DeadLetterOptions.model_fields["max_dead_letters"].description)
    max_dead_letter_rate: float | None = Field(
        None, gt=0, le=1, description=DeadLetterOptions.model_fields["max_dead_letter_rate"].description
    )
    epoch_unit: EpochUnit | None = Field(None, description="What numbers count that go into dates and timestamps.")
    bigquery_endpoint: str | None = Field(None, pattern=r"^https?://", description="A service that speaks BigQuery's protocol.")

    @field_validator("gcs_warehouse_bucket")
    @classmethod
    def _name_alone(cls, text: str | None) -> str | None:
        if text is not None and "/" in text:
            bucket, _, path = text.rpartition("://")[2].strip("/").partition("/")
            below = f", and gcs_warehouse_path: {path}" if path else ""
            raise ValueError(f"it is the name of a bucket, without gs:// and without a folder: write {bucket}{below}")
        return text

    @property
    def flush_seconds(self) -> int:
        """The longest time that rows wait for a commit."""
        return self.buffer_flush_timeout or MOST_SECONDS


class Destination(Model):
    """Where rows go."""

    name: Literal["bigquery_iceberg"] = Field(description="Kind of destination.")
    alias: Name = Field("bigquery_iceberg", description="What to call it.")
    buffer_size: int | None = Field(None, description="Without effect; see that of `config`.")
    config: DestinationConfig = Field(DestinationConfig(), description="Its settings.")
