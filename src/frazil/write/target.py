"""The table of a sink: found, made, checked against the sink, and written to in its shape."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.columns.partition import partition_json, sort_json
from frazil.columns.table_columns import key_columns, require_own_names
from frazil.columns.types import require_writable
from frazil.errors import ConfigError, Halted
from frazil.iceberg import IcebergTable, Lake
from frazil.model.coercion import with_error_columns
from frazil.model.column_ids import COLUMNS_PREFIX
from frazil.model.commit import STATE_PREFIX
from frazil.model.evolving import PartitionEvolution
from frazil.model.maintenance import CREATED_BY
from frazil.model.sink import MAX_FILE_MB, Compression, FileFormat, SinkSpec
from frazil.model.types import StructType, schema_json
from frazil.spark.catalogs import warehouse_uri
from frazil.version import __version__
from frazil.write.table_after import DescribedTable, repartitioning

FILE_BYTES = "write.target-file-size-bytes"

# The names of codecs in each format's own writer, where they differ.
_CODEC_NAMES: dict[tuple[FileFormat, Compression], str] = {
    (FileFormat.PARQUET, Compression.NONE): "uncompressed",
    # The codec that every reader shares; the older LZ4 of Parquet is framed in a way of its own.
    (FileFormat.PARQUET, Compression.LZ4): "lz4_raw",
    (FileFormat.ORC, Compression.GZIP): "zlib",
    (FileFormat.AVRO, Compression.NONE): "uncompressed",
}


_SMALL_COMMITS = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest.min-count-to-merge": "5",
    # Merging rewrites manifests up to this size, each time that there are enough new ones.
    "commit.manifest.target-size-bytes": str(2 * 1024 * 1024),
}

# What Iceberg shows or takes as a property, but does not keep as one.
_RESERVED = ("format-version", "uuid", "snapshot-count", "current-snapshot-id", "current-schema", "default-partition-spec",
             "default-sort-order", "current-snapshot-summary", "current-snapshot-timestamp-ms")  # fmt: skip


def existing(lake: Lake, sink: SinkSpec) -> IcebergTable | None:
    """The sink's table, checked against what the sink asks for; None when it has to be made."""
    require_settings(sink)
    table = lake.load(sink.namespace_levels, sink.table or "", sink.written_branch)
    require_usable(table, sink)
    return table


def require_settings(sink: SinkSpec) -> None:
    """Refuses settings with which no table can be looked for or made."""
    if not sink.namespace:
        raise ConfigError("namespace-required", "Namespace is required")
    if not sink.table:
        raise ConfigError("table-required", "Table name is required")
    _require_properties(sink)


def require_usable(table: DescribedTable | None, sink: SinkSpec) -> None:
    """Refuses a table that is not as the sink asks for, and a missing one that the sink may not make."""
    if table is None:
        if not sink.auto_create_table:
            raise ConfigError(
                "table-missing",
                f"Table {sink.full_name} does not exist and auto_create_table is disabled",
                fix="Create the table, or set auto_create_table: true.",
            )
        return
    if sink.partition_evolution is PartitionEvolution.REFUSE:
        _require_partitioning(table, sink)
    _require_order(table, sink)


def created(lake: Lake, sink: SinkSpec, schema: StructType, source_keys: Sequence[str] = ()) -> IcebergTable:
    """Creates the table with its namespaces, or takes the one that somebody else has just created. ``source_keys`` are
    the source's keys.
    """
    schema = with_error_columns(schema, sink)
    require_own_names(schema)
    require_writable(schema, sink.format_version)
    keys = key_columns(sink, schema, source_keys)
    ids = schema_json(schema, keys)
    partition, sort = partition_json(sink.partition, schema, ids), sort_json(sink.sort_by, schema, ids)
    location = sink.location or sink.catalog.folder_of(sink.namespace or "", sink.table or "")
    lake.ensure_namespace(sink.namespace_levels)
    return lake.create(
        sink.namespace_levels,
        sink.table or "",
        schema,
        keys=keys,
        partition=partition,
        sort=sort,
        properties=table_properties(sink),
        location=warehouse_uri(location) if location else None,
        branch=sink.written_branch,
    )


def table_properties(sink: SinkSpec) -> dict[str, str]:
    """The properties of a new table: what the sink says about files, so that other writers and compaction do the same.

    A stream makes many small commits: metadata files do not pile up, and manifests are merged before there are many.
    """
    return {"format-version": str(sink.format_version), CREATED_BY: __version__} | _SMALL_COMMITS | file_properties(sink)


def file_properties(sink: SinkSpec) -> dict[str, str]:
    """What the sink says about files, as table properties."""
    prefix = f"write.{sink.file_format.value}"
    return {
        "write.format.default": sink.file_format.value,
        f"{prefix}.compression-codec": codec(sink),
        FILE_BYTES: str(sink.target_file_bytes),
    } | sink.write_properties


def write_options(sink: SinkSpec) -> dict[str, str]:
    """The options of one write: what the sink says holds for its files also when the table says otherwise.

    A table property that the sink sets itself is what it says, too, and the more exact: an option would override it.
    """
    by_option = {
        "write-format": ("write.format.default", sink.file_format.value),
        "compression-codec": (f"write.{sink.file_format.value}.compression-codec", codec(sink)),
    }
    options = {name: value for name, (prop, value) in by_option.items() if prop not in sink.write_properties}
    return options | {
        "target-file-size-bytes": str(_file_bytes(sink)),
        # Nulls in required columns are found row by row, with the column's name; a nullable column alone is no reason to stop.
        "check-nullability": "false",
    }


def _file_bytes(sink: SinkSpec) -> int:
    given = sink.write_properties.get(FILE_BYTES)
    if given is None:
        return sink.target_file_bytes
    if not given.isdecimal() or int(given) == 0:
        raise ConfigError("write-property", f"write_properties: {FILE_BYTES} is not a number of bytes: {given!r}")
    return min(int(given), MAX_FILE_MB * 1024 * 1024)


def lacking_properties(table: DescribedTable, sink: SinkSpec) -> dict[str, str]:
    """The write properties of the sink that the table does not have, or has with another value."""
    have = table.properties
    return {name: value for name, value in sink.write_properties.items() if have.get(name) != value}


def codec(sink: SinkSpec) -> str:
    """The codec's name in the format's own writer."""
    return _CODEC_NAMES.get((sink.file_format, sink.compression), sink.compression.value)


def _require_properties(sink: SinkSpec) -> None:
    """Properties that Iceberg keeps for itself, or frazil, are not the user's to set."""
    for name in sink.write_properties:
        if name in (*_RESERVED, CREATED_BY) or name.startswith((STATE_PREFIX, COLUMNS_PREFIX)):
            fix = "Use the option format_version." if name == "format-version" else "Leave it out."
            raise ConfigError("write-property", f"write_properties: {name} is not a property that can be set.", fix=fix)


def _require_partitioning(table: DescribedTable, sink: SinkSpec) -> None:
    """A sink that asks for another partitioning than the table has must not be ignored."""
    if repartitioning(sink, table.partition) is not None:
        have = ", ".join(f"{transform}({source})" for source, transform in table.partition) or "not at all"
        raise Halted(
            "partitioning-differs",
            f"Table {sink.full_name} is partitioned {have}, but the sink asks for {', '.join(map(str, sink.partition))}.",
            fix="Set partitioning: table_default to write by the table's own spec, or partition_evolution: evolve to change it.",
        )


def _require_order(table: DescribedTable, sink: SinkSpec) -> None:
    """Refuses a sink whose `sort_by` is not the table's own sort order."""
    wanted = [field.iceberg_text for field in sink.sort_by]
    if wanted and wanted != list(table.sort_order):
        have = ", ".join(table.sort_order) or "not at all"
        raise Halted(
            "order-differs",
            f"Table {sink.full_name} is sorted {have}, but the sink asks for {', '.join(wanted)}.",
            fix="Leave sort_by out to write in the table's own order, or change that: ALTER TABLE ... WRITE ORDERED BY ...",
        )
