"""The arguments of `iceberg_rest` as type checkers and editors see them. What they mean is in `IcebergRestConfiguration`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class Capabilities(TypedDict, total=False):
    """What dlt lets every destination be given, beside its settings: see dlt's DestinationCapabilitiesContext."""

    in_container: Any
    extras_added: Any
    preferred_loader_file_format: Any
    supported_loader_file_formats: Any
    loader_file_format_selector: Any
    preferred_table_format: Any
    supported_table_formats: Any
    type_mapper: Any
    recommended_file_size: Any
    preferred_staging_file_format: Any
    supported_staging_file_formats: Any
    format_datetime_literal: Any
    escape_identifier: Any
    escape_literal: Any
    casefold_identifier: Any
    null_safe_aggregate: Any
    has_case_sensitive_identifiers: Any
    decimal_precision: Any
    wei_precision: Any
    max_identifier_length: Any
    max_column_identifier_length: Any
    max_query_length: Any
    is_max_query_length_in_bytes: Any
    max_text_data_type_length: Any
    is_max_text_data_type_length_in_bytes: Any
    supports_transactions: Any
    supports_ddl_transactions: Any
    naming_convention: Any
    alter_add_multi_column: Any
    supports_create_table_if_not_exists: Any
    supports_truncate_command: Any
    schema_supports_numeric_precision: Any
    timestamp_precision: Any
    max_timestamp_precision: Any
    supports_timestamp_precision_configuration: Any
    supports_binary_precision_configuration: Any
    max_rows_per_insert: Any
    insert_values_writer_type: Any
    supports_multiple_statements: Any
    supports_clone_table: Any
    max_table_nesting: Any
    supported_merge_strategies: Any
    merge_strategies_selector: Any
    supported_replace_strategies: Any
    replace_strategies_selector: Any
    max_parallel_load_jobs: Any
    loader_parallelism_strategy: Any
    max_query_parameters: Any
    supports_native_boolean: Any
    supports_nested_types: Any
    enforces_nulls_on_alter: Any
    sqlglot_dialect: Any
    parquet_format: Any
    supports_tz_aware_datetime: Any
    supports_tz_aware_datetime_in_cast: Any
    supports_naive_datetime: Any
    supports_session_timezone: Any
    dialect_capabilities: Any


class DestinationArguments(Capabilities, total=False):
    """Settings of the destination beside those that it takes by position."""

    destination_name: str | None
    destination_type: str
    environment: str | None
    capabilities: Any
    dataset_name: str | None
    default_schema_name: str | None
    replace_strategy: Literal["truncate-and-insert", "insert-from-staging", "staging-optimized"] | None
    staging_dataset_name_layout: str
    enable_dataset_name_normalization: bool
    info_tables_query_threshold: int

    credential: str | None
    oauth2_server_uri: str | None
    scope: str | None
    token: str | None

    sigv4_enabled: bool
    signing_region: str | None
    signing_name: str | None

    s3_endpoint: str | None
    s3_access_key_id: str | None
    s3_secret_access_key: str | None
    s3_region: str | None

    max_retries: int
    retry_backoff_base: float
    merge_batch_size: int | None
    strict_casting: bool

    table_location_layout: str | None
    register_new_tables: bool
    hard_delete_column: str | None
    internal_table_prefix: str

    format_version: int
    readers: list[str]
    spark_master: str | None
    spark_conf: dict[str, Any] | None
