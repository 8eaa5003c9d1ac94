"""The table of a sink: found, made, checked against the sink, and written to in its shape."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, functions

from frazil.engine.catalogs import warehouse_uri
from frazil.engine.coerce import CAST_MARK, NULL_MARK
from frazil.engine.faults import UNREACHABLE, JavaFault, explain
from frazil.engine.iceberg import IcebergTable, Lake
from frazil.engine.partition import partition_json, sort_json
from frazil.engine.schema import (
    DELETE,
    ERROR,
    OP,
    RECORD_MARK,
    UNCHANGED,
    alignment,
    hidden_columns,
    schema_of,
    told_ids,
    told_keys,
    unchanged,
)
from frazil.engine.types import require_writable
from frazil.errors import ConfigError, DataError, EnvironmentFault, FrazilError, Halted, Retryable
from frazil.model.changes import CommitMode
from frazil.model.coercion import admitted, require_casts, with_error_columns
from frazil.model.column_ids import COLUMNS_PREFIX, ColumnIds, Following, columns_property, followed, known_from_json
from frazil.model.commit import STATE_PREFIX
from frazil.model.dead_letters import OnError
from frazil.model.evolution import (
    Partition,
    RenameColumn,
    Rules,
    SetPartition,
    TableChange,
    changes_for,
    evolved,
    optional,
    partition_after,
    partition_change,
    renamed,
    required_paths,
)
from frazil.model.evolving import PartitionEvolution, SchemaEvolution
from frazil.model.sink import MAX_FILE_MB, Compression, FileFormat, PartitionStrategy, SinkSpec
from frazil.model.types import NOT_KEYS, Column, ListType, MapType, StructType, Type, schema_json

FILE_BYTES = "write.target-file-size-bytes"
REQUIRED_NULL = "required-null"

# The names of codecs in each format's own writer, where they differ.
_CODEC_NAMES: dict[tuple[FileFormat, Compression], str] = {
    (FileFormat.PARQUET, Compression.NONE): "uncompressed",
    # The codec that every reader shares; the older LZ4 of Parquet is framed in a way of its own.
    (FileFormat.PARQUET, Compression.LZ4): "lz4_raw",
    (FileFormat.ORC, Compression.GZIP): "zlib",
    (FileFormat.AVRO, Compression.NONE): "uncompressed",
}


# What Iceberg shows or takes as a property, but does not keep as one.
_RESERVED = ("format-version", "uuid", "snapshot-count", "current-snapshot-id", "current-schema", "default-partition-spec",
             "default-sort-order", "current-snapshot-summary", "current-snapshot-timestamp-ms")  # fmt: skip


_METADATA_COLUMNS = frozenset(
    f"_{name}" for name in ("file", "pos", "deleted", "spec_id", "partition", "row_id", "last_updated_sequence_number")
)


def existing(lake: Lake, sink: SinkSpec) -> IcebergTable | None:
    """The sink's table, checked against what the sink asks for; None when it has to be made."""
    if not sink.namespace:
        raise ConfigError("namespace-required", "Namespace is required")
    if not sink.table:
        raise ConfigError("table-required", "Table name is required")
    _require_properties(sink)
    table = lake.load(sink.namespace_levels, sink.table)
    if table is None:
        if not sink.auto_create_table:
            raise ConfigError(
                "table-missing",
                f"Table {sink.full_name} does not exist and auto_create_table is disabled",
                fix="Create the table, or set auto_create_table: true.",
            )
        return None
    if sink.partition_evolution is PartitionEvolution.REFUSE:
        _require_partitioning(table, sink)
    _require_order(table, sink)
    return table


def created(lake: Lake, sink: SinkSpec, schema: StructType, told: Sequence[str] = ()) -> IcebergTable:
    """Makes the table with its namespaces, or takes the one that somebody else has just made. ``told`` are the source's keys."""
    schema = with_error_columns(schema, sink)
    _require_own_names(schema)
    require_writable(schema, sink.format_version)
    keys = key_columns(sink, schema, told)
    ids = schema_json(schema, keys)
    partition, sort = partition_json(sink.partition, schema, ids), sort_json(sink.sort_by, schema, ids)
    lake.ensure_namespace(sink.namespace_levels)
    return lake.create(
        sink.namespace_levels,
        sink.table or "",
        schema,
        keys=keys,
        partition=partition,
        sort=sort,
        properties=table_properties(sink),
        location=warehouse_uri(sink.location) if sink.location else None,
    )


def frame_schema(frame: DataFrame, unfilled: Collection[str] = ()) -> StructType:
    """The columns of a new table that is made for this data. None is required: that the first rows have no null is no promise."""
    schema = schema_of(frame)
    schema = StructType(tuple(column for column in schema.fields if column.name not in unfilled) or schema.fields)
    if not schema.fields:
        raise DataError("no-columns", "The data has no columns, so that no table can be made for it.")
    _require_distinct(schema)
    return StructType(tuple(Column(c.name, optional(c.type), doc=c.doc) for c in schema.fields))


def _require_own_names(schema: StructType) -> None:
    """Iceberg has columns of its own, which Spark shows in every table: one with such a column could not be read."""
    if taken := [column.name for column in schema.fields if column.name.lower() in _METADATA_COLUMNS]:
        raise DataError(
            "column-reserved",
            f"Iceberg keeps these names for columns of its own: {', '.join(taken)}.",
            fix="Rename them with a rename_field transform.",
        )


def _require_distinct(kind: Type, path: str = "") -> None:
    """Spark does not tell columns apart by case: a table with such columns could be written, and never be read."""
    match kind:
        case StructType():
            names = [field.name.lower() for field in kind.fields]
            if twice := sorted({field.name for field in kind.fields if names.count(field.name.lower()) > 1}):
                inside = f" inside {path!r}" if path else ""
                raise DataError(
                    "columns-differ-by-case",
                    f"These columns{inside} have the same name, but for upper and lower case: {', '.join(twice)}.",
                    fix="Rename one of them with a rename_field transform.",
                )
            for field in kind.fields:
                _require_distinct(field.type, f"{path}.{field.name}".lstrip("."))
        case ListType():
            _require_distinct(kind.element, f"{path}.element")
        case MapType():
            _require_distinct(kind.value, f"{path}.value")


def table_properties(sink: SinkSpec) -> dict[str, str]:
    """The properties of a new table: what the sink says about files, so that other writers and compaction do the same."""
    return {"format-version": str(sink.format_version)} | file_properties(sink)


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


def lacking_properties(table: IcebergTable, sink: SinkSpec) -> dict[str, str]:
    """The write properties of the sink that the table does not have, or has with another value."""
    have = table.properties
    return {name: value for name, value in sink.write_properties.items() if have.get(name) != value}


def codec(sink: SinkSpec) -> str:
    """The codec's name in the format's own writer."""
    return _CODEC_NAMES.get((sink.file_format, sink.compression), sink.compression.value)


@dataclass(frozen=True)
class Meeting:
    """What decides how data goes into a table: the columns of both, and the table's partitioning.

    ``nulls`` are required columns in which the data has nulls, ``hidden`` the columns that it has beside its own, ``told`` those
    that identify a row as far as the source says so. ``ids`` are the columns that the source knows by more than their names, and
    ``known`` is what the table remembers of them.
    """

    data: StructType
    table: StructType
    partition: Partition
    nulls: frozenset[str]
    hidden: frozenset[str]
    told: tuple[str, ...]
    ids: Mapping[str, str]
    known: str | None


@dataclass(frozen=True)
class Fit:
    """How data of one schema goes into a table of another: the columns to select (None: all), and what must change in the table.

    ``schema`` and ``partition`` are the table's after that, ``keys`` the columns that identify a row. ``error`` says of a row
    that it cannot be written, where such rows are left out. ``ids`` is what the table is to remember of its source's columns,
    where that is new; ``apart`` are those that the source has renamed and the table has under the name of before, too.
    """

    met: Meeting
    columns: tuple[SparkColumn, ...] | None
    error: SparkColumn | None
    evolution: tuple[TableChange, ...]
    schema: StructType
    partition: Partition
    keys: tuple[str, ...]
    ids: ColumnIds | None = None
    apart: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The table's columns after the changes."""
        return tuple(column.name for column in self.schema.fields)

    @property
    def given(self) -> tuple[str, ...]:
        """The table's columns that the data has."""
        have = {column.name for column in self.met.data.fields}
        return tuple(name for name in self.names if name in have)

    @property
    def keys_before(self) -> tuple[str, ...] | None:
        """The keys under the names that they have before the changes; None when the table lacks one of them."""
        names = {renamed(column.name, self.evolution): column.name for column in self.met.table.fields}
        return tuple(names[key] for key in self.keys) if all(key in names for key in self.keys) else None

    @property
    def repartitions(self) -> bool:
        """Whether the table's partitioning changes."""
        return any(isinstance(change, SetPartition) for change in self.evolution)

    def applied(self, frame: DataFrame) -> DataFrame:
        """The frame in the table's shape, and what it has of hidden columns; in one of them what is wrong with a row."""
        if self.columns is None:
            return frame
        hidden = [name for name in hidden_columns(frame) if name != ERROR]
        wrong = [] if self.error is None else [self.error.alias(ERROR)]
        return frame.select(*self.columns, *hidden, *wrong)

    def rows(self, frame: DataFrame) -> DataFrame:
        """The frame in the table's shape, and nothing else."""
        made = self.applied(frame)
        return made.drop(*hidden_columns(made))


def fit(
    table: IcebergTable,
    sink: SinkSpec,
    sink_id: str,
    frame: DataFrame,
    *,
    last: Fit | None = None,
    nulls: frozenset[str] = frozenset(),
) -> Fit:
    """How the frame goes into the table: as the last one did when neither has changed, which saves the JVM many calls."""
    have, before, data = table.schema, table.partition, schema_of(frame)
    ids = told_ids(frame)
    known = table.property_text(columns_property(sink_id)) if ids else None
    met = Meeting(data, have, before, nulls, frozenset(hidden_columns(frame)), told_keys(frame), ids, known)
    if last is not None and last.met == met:
        return last
    _require_distinct(data)
    following = _following(table, sink, sink_id, met)
    incoming = admitted(evolved(have, (*_by_aliases(sink), *following.renames)), data, sink)
    changes: tuple[TableChange, ...] = changes_for(have, incoming, _rules(table, sink, nulls, following))
    schema = evolved(have, changes)
    require_writable(schema, table.format_version)
    require_casts(schema, data, sink)
    if changes:
        _require_own_names(schema)
        _require_distinct(schema)
    if (partition := repartitioning(sink, partition_after(before, changes))) is not None:
        partition_json(partition.fields, schema, schema_json(schema))
        changes = (*changes, partition)
    had = tuple(renamed(name, changes) for name in table.identifier_fields)
    keys = _keys_of(sink, schema, had, met.told) if sink.commit_mode is CommitMode.UPSERT else ()
    rejects = sink.error_handling is OnError.DEAD_LETTER
    compared = keys or tuple(name for columns in sink.replace_by for name in columns)
    aligned = alignment(data, schema, sink, keys=compared, unless=_meaningless(met.hidden), hidden=met.hidden, rejects=rejects)
    kept = ColumnIds(columns_property(sink_id), following.known, following.new)
    news = kept if following.new or following.known != known_from_json(known) else None
    partition_then = partition_after(before, changes)
    return Fit(met, aligned.columns, aligned.error, changes, schema, partition_then, keys, news, following.apart)


def _by_aliases(sink: SinkSpec) -> list[RenameColumn]:
    return [RenameColumn(earlier, name) for earlier, name in sink.earlier_names.items()]


def _following(table: IcebergTable, sink: SinkSpec, sink_id: str, met: Meeting) -> Following:
    """What the ids of the source's columns say: which were renamed. A name that another column has now is not written to."""
    if not met.ids:
        return Following(known_from_json(met.known))
    fields = {renamed(name, _by_aliases(sink)): number for name, number in table.field_ids.items()}
    renames = sink.schema_evolution is SchemaEvolution.FULL
    following = followed(met.ids, fields, known_from_json(met.known), renames=renames)
    if following.replaced:
        name = following.replaced[0]
        raise Halted(
            "column-replaced",
            f"The column {name!r} of the source is not the one that {sink.full_name} has under this name: that one was dropped "
            "or renamed, and another one has its name now. Their values would be mixed.",
            fix=f"To keep them apart, rename the table's column: ALTER TABLE ... RENAME COLUMN {name} TO ... To have both in one "
            f"column, forget what is known: ALTER TABLE ... UNSET TBLPROPERTIES ('{columns_property(sink_id)}').",
        )
    return following


def _meaningless(hidden: Collection[str]) -> Callable[[str], SparkColumn] | None:
    """Which values of a row nobody is to look at: all but the key of a row that only deletes, and those that were not sent."""
    if not {OP, UNCHANGED} & set(hidden):
        return None

    def said(column: str) -> SparkColumn:
        deletes = functions.col(OP) == DELETE if OP in hidden else functions.lit(False)
        return deletes | unchanged(column) if UNCHANGED in hidden else deletes

    return said


def _rules(table: IcebergTable, sink: SinkSpec, nulls: frozenset[str], following: Following) -> Rules:
    """What the sink lets happen to the table. Columns are named as they are after renames."""
    renames = [*_by_aliases(sink), *following.renames]
    keys = {renamed(name, renames) for name in table.identifier_fields}
    wanted = {key if sink.case_sensitive else key.lower() for key in sink.key_fields}
    names = [renamed(column.name, renames) for column in table.schema.fields]
    return Rules(
        mode=sink.schema_evolution,
        declared=sink.declared_schema or StructType(()),
        aliases=sink.aliases,
        dropped=sink.dropped_columns,
        keys=frozenset(keys | {name for name in names if (name if sink.case_sensitive else name.lower()) in wanted}),
        held=frozenset(renamed(path, renames) for path in table.held_columns),
        nulls=nulls,
        row_by_row=sink.error_handling is OnError.DEAD_LETTER,
        renames=following.renames,
        apart=following.apart,
    )


def null_column(error: FrazilError, fit: Fit, sink: SinkSpec) -> str | None:
    """The path of what is required and null in a row that has stopped a batch, when the sink lets it become optional."""
    if error.code != REQUIRED_NULL or not sink.schema_evolution.widens:
        return None
    declared = {column.name for column in sink.columns if column.required}
    may = [path for path in required_paths(fit.schema) if path not in (*fit.keys, *declared)]
    return next((path for path in may if f"column {path!r} " in error.message), None)


# What an expression of ours says when it stops a batch, by the mark that its message begins with.
_MARKS = {
    CAST_MARK: "value-not-convertible",
    NULL_MARK: REQUIRED_NULL,
    "[frazil-alias] ": "alias-ambiguous",
    "[frazil-outside] ": "row-outside",
}
_FIXES = {
    CAST_MARK: "Correct the data, declare the column with another type, or set on_error: dead_letter to go on without such rows.",
    NULL_MARK: "Correct the data, or set on_error: dead_letter to go on without such rows.",
    RECORD_MARK: "Correct the data, or set on_error: dead_letter to go on without such records.",
}


def explain_staging(fault: JavaFault) -> FrazilError:
    """Why the executors could not write a batch."""
    for part in fault.chain:
        for mark, code in _MARKS.items():
            if mark in part.message:
                text = part.message.partition(mark)[2].splitlines()[0].partition(" SQLSTATE: ")[0]
                return DataError(code, text, fix=_FIXES.get(mark, "Correct the data."))
        if RECORD_MARK in part.message:
            code, _, text = part.message.partition(RECORD_MARK)[2].splitlines()[0].partition(": ")
            return DataError(code, text.partition(" SQLSTATE: ")[0], fix=_FIXES[RECORD_MARK])
    if fault.find("BadConfigurationException") and "BrotliCodec" in fault.text:
        return EnvironmentFault(
            "codec-missing",
            "The Spark session was started without the codec for brotli.",
            fix="Let frazil start Spark, or choose another compression.",
        )
    known = explain(fault)
    if known is not None and known.code != UNREACHABLE:
        return known
    text = f"The batch could not be written: {fault.chain[-1].line}"
    return DataError("batch-not-written", text) if known is None else Retryable("batch-not-written", text)


def _require_properties(sink: SinkSpec) -> None:
    """Properties that Iceberg keeps for itself, or frazil, are not the user's to set."""
    for name in sink.write_properties:
        if name in _RESERVED or name.startswith((STATE_PREFIX, COLUMNS_PREFIX)):
            fix = "Use the option format_version." if name == "format-version" else "Leave it out."
            raise ConfigError("write-property", f"write_properties: {name} is not a property that can be set.", fix=fix)


def repartitioning(sink: SinkSpec, have: Partition) -> SetPartition | None:
    """The change of a table's partitioning that the sink asks for; none when it leaves that to the table."""
    if not sink.partition or sink.partitioning is PartitionStrategy.TABLE_DEFAULT:
        return None
    return partition_change(have, sink.partition)


def _require_partitioning(table: IcebergTable, sink: SinkSpec) -> None:
    """A sink that asks for another partitioning than the table has must not be ignored."""
    if repartitioning(sink, table.partition) is not None:
        have = ", ".join(f"{transform}({source})" for source, transform in table.partition) or "not at all"
        raise Halted(
            "partitioning-differs",
            f"Table {sink.full_name} is partitioned {have}, but the sink asks for {', '.join(map(str, sink.partition))}.",
            fix="Set partitioning: table_default to write by the table's own spec, or partition_evolution: evolve to change it.",
        )


def _require_order(table: IcebergTable, sink: SinkSpec) -> None:
    """The same for an order of rows within files."""
    wanted = [field.iceberg_text for field in sink.sort_by]
    if wanted and wanted != list(table.sort_order):
        have = ", ".join(table.sort_order) or "not at all"
        raise Halted(
            "order-differs",
            f"Table {sink.full_name} is sorted {have}, but the sink asks for {', '.join(wanted)}.",
            fix="Leave sort_by out to write in the table's own order, or change that: ALTER TABLE ... WRITE ORDERED BY ...",
        )


def _keys_of(sink: SinkSpec, schema: StructType, had: tuple[str, ...], told: tuple[str, ...]) -> tuple[str, ...]:
    if sink.key_fields or not had:
        return key_columns(sink, schema, told)
    if told and set(told) != set(had):
        raise Halted(
            "key-changed",
            f"The rows of {sink.full_name} are identified by {', '.join(had)}; in the source they now are by {', '.join(told)}.",
            fix="Rows of before cannot be found by the new key. Read the source into a new table.",
        )
    return had


def key_columns(sink: SinkSpec, schema: StructType, told: Sequence[str] = ()) -> tuple[str, ...]:
    """The columns that identify a row, with the names that they have in the table: the sink's, or those the source tells."""
    keys = tuple(_key_column(sink, key, schema) for key in sink.key_fields)
    if sink.commit_mode is not CommitMode.UPSERT:
        return keys
    if not keys and not told:
        raise ConfigError(
            "key-missing",
            f"{sink.full_name}: upsert sinks must specify a key, and the source has no primary key to take.",
            fix="Add key_fields, or give the table of the source a primary key.",
        )
    if keys and told and set(keys) != set(told):
        raise ConfigError(
            "key-differs",
            f"{sink.full_name}: key_fields are {', '.join(keys)}, but the source identifies its rows by {', '.join(told)}: "
            "a row whose key changes could not be followed.",
            fix="Leave key_fields out, or name the same columns.",
        )
    return keys or tuple(told)


def _key_column(sink: SinkSpec, key: str, schema: StructType) -> str:
    exact = [c for c in schema.fields if c.name == key]
    found = exact or [c for c in schema.fields if not sink.case_sensitive and c.name.lower() == key.lower()]
    if not found:
        known = ", ".join(c.name for c in schema.fields)
        raise ConfigError("key-missing", f"Key field {key!r} is not among the data's columns: {known}")
    column = found[0]
    if column.type.name in NOT_KEYS:
        text = f"column {column.name} has type {column.type.name} which cannot be used as an Iceberg equality delete key"
        raise ConfigError("key-type", text)
    return column.name
