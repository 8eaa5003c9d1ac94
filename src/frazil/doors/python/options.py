"""The options of a sink and of its catalog as type checkers and editors see them. What they mean is in the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from frazil.model.base import Model
from frazil.model.catalog import CatalogSpec

Section = Mapping[str, Any] | Model


class CatalogOptions(TypedDict, total=False):
    """See :class:`frazil.model.catalog.CatalogSpec`."""

    type: str
    name: str
    warehouse: str | None
    rest: Section | None
    sql: Section | None
    jdbc: Section | None
    hive: Section | None
    glue: Section | None
    s3tables: Section | None
    nessie: Section | None
    bigquery: Section | None
    hadoop: Section | None
    properties: Mapping[str, Any]


class RetryOptions(TypedDict, total=False):
    """See :class:`frazil.model.settings.RetrySettings`."""

    max_retries: int
    initial_backoff_ms: int
    max_backoff_ms: int
    backoff_multiplier: float


class TriggerOptions(TypedDict, total=False):
    """Spark's triggers; Spark has no continuous one for what is written batch by batch."""

    processingTime: str
    availableNow: bool
    once: bool


class SinkOptions(TypedDict, total=False):
    """See :class:`frazil.model.sink.SinkSpec`."""

    catalog: Mapping[str, Any] | CatalogSpec
    namespace: str | None
    table: str | None
    branch: str | None
    publish: Section | None
    id: str | None
    route: Section | None

    batch_size: int
    batch_bytes: int | None
    max_batch_size: int | None
    flush_interval_secs: int

    file_format: str
    target_file_size_mb: int
    compression: str
    write_properties: Mapping[str, str | float]
    format_version: Literal[2, 3]
    location: str | None
    auto_create_table: bool

    partitioning: str
    partition_fields: Sequence[str]
    num_buckets: int
    time_granularity: str
    partition_by: str | Sequence[str | Section]
    sort_by: str | Sequence[str | Section]
    distribution: Literal["auto", "none", "hash", "range"]
    partition_evolution: str

    schema: Mapping[str, Any] | Sequence[Section]
    schema_evolution: str
    aliases: Mapping[str, Sequence[str]]
    dropped_columns: str
    extra_columns: str
    strict_casting: bool
    epoch_unit: str | None
    error_column: str | None
    raw_column: str | None

    on_error: str
    dead_letter_table: str | None
    max_dead_letters: int | None
    max_dead_letter_rate: float | None
    expect: Sequence[Section]

    commit_mode: str
    overwrite_where: str | None
    key_fields: Sequence[str]
    replace_by: Sequence[Sequence[str] | str]
    case_sensitive: bool
    order_by: Sequence[str]
    late: str
    tombstone_retention_hours: int
    change_format: str
    op_field: str | None
    op_values: Section
    op_column: str | None
    diff_column: str | None
    time_column: str | None
    upsert_strategy: str
    when_matched_update_all: bool
    when_not_matched_insert_all: bool
    partial_updates: bool
    combine: Mapping[str, str]
    unchanged_value: str | None
    unchanged_missing: Literal["stop", "write_null"]
    history: str | Section | None
    merge_mode: str
    readers: Sequence[str]
    max_equality_deletes: int | None
    max_delete_files: int | None
    max_indexed_rows: int | None
    maintenance: Section

    s3: Section | None
    gcs: Section | None
    azure: Section | None
    biglake: Section | None
