"""How the data of a batch goes into a table: what must change in the table, and what is selected of the data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, functions

from frazil.columns.partition import partition_json
from frazil.columns.schema import (
    Doubt,
    alignment,
    column_ids_from_source,
    filled,
    hidden_columns,
    keys_from_source,
    schema_of,
    unchanged,
)
from frazil.columns.table_columns import keys_of, require_distinct, require_own_names, with_room
from frazil.columns.types import require_writable
from frazil.errors import FrazilError, Halted, RequiredNull
from frazil.iceberg import IcebergTable
from frazil.model.changes import CommitMode
from frazil.model.coercion import admitted, require_casts
from frazil.model.column_ids import ColumnIds, Following, columns_property, followed, known_from_json
from frazil.model.dead_letters import OnError
from frazil.model.evolution import (
    Partition,
    RenameColumn,
    Rules,
    SetPartition,
    TableChange,
    changes_for,
    evolved,
    overruled,
    partition_after,
    partition_change,
    renamed,
    required_paths,
)
from frazil.model.evolving import DroppedColumns, SchemaEvolution
from frazil.model.hidden import DELETE, ERROR, IGNORE, OP, UNCHANGED
from frazil.model.refusals import refused_casts, surplus, without
from frazil.model.sink import PartitionStrategy, SinkSpec
from frazil.model.types import StructType, Type, schema_json


@dataclass(frozen=True)
class FitInputs:
    """What decides how data goes into a table: the columns of both, and the table's partitioning.

    ``nulls`` are required columns in which the data has nulls, ``hidden`` the columns that it has beside its own, ``source_keys``
    the columns that identify a row, if the source provides them. ``ids`` are the columns that the source identifies by an id
    besides the name, and ``known`` is what the table remembers of them.
    """

    data: StructType
    table: StructType
    partition: Partition
    nulls: frozenset[str]
    hidden: frozenset[str]
    source_keys: tuple[str, ...]
    ids: Mapping[str, str]
    known: str | None


@dataclass(frozen=True)
class Fit:
    """How data of one schema goes into a table of another: the columns to select (None: all), and what must change in the table.

    ``schema`` and ``partition`` are the table's after that, ``keys`` the columns that identify a row. ``error`` says of a row
    that it cannot be written, where such rows are left out. ``ids`` is what the table is to remember of its source's columns,
    where that is new; ``notes`` is what a person should know of the columns.
    """

    inputs: FitInputs
    columns: tuple[SparkColumn, ...] | None
    error: SparkColumn | None
    evolution: tuple[TableChange, ...]
    schema: StructType
    partition: Partition
    keys: tuple[str, ...]
    ids: ColumnIds | None = None
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The table's columns after the changes."""
        return tuple(column.name for column in self.schema.fields)

    @property
    def given(self) -> tuple[str, ...]:
        """The table's columns that the data has."""
        have = {column.name for column in self.inputs.data.fields}
        return tuple(name for name in self.names if name in have)

    @property
    def lacks_parts(self) -> bool:
        """Whether the table has columns, or parts of them, that the data does not have."""
        return _lacks_parts(self.inputs.data, self.schema)

    @property
    def keys_before(self) -> tuple[str, ...] | None:
        """The keys under the names that they have before the changes; None when the table lacks one of them."""
        names = {renamed(column.name, self.evolution): column.name for column in self.inputs.table.fields}
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


def _lacks_parts(data: Type, table: Type) -> bool:
    """Whether a struct lacks a part that the table's has. Lists and maps come as a whole, whatever is in them."""
    if not isinstance(data, StructType) or not isinstance(table, StructType):
        return False
    types = {field.name: field.type for field in data.fields}
    return any(field.name not in types or _lacks_parts(types[field.name], field.type) for field in table.fields)


def fit_of(
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
    ids = column_ids_from_source(frame)
    known = table.property_text(columns_property(sink_id)) if ids else None
    inputs = FitInputs(data, have, before, nulls, frozenset(hidden_columns(frame)), keys_from_source(frame, sink), ids, known)
    if last is not None and last.inputs == inputs:
        return last
    following = _following(table, sink, sink_id, inputs)
    wanted = _with_declared(evolved(have, (*_by_aliases(sink), *following.renames)), sink.declared_schema)
    row_by_row = sink.error_handling is not OnError.STOP
    refused = surplus(wanted, data, sink.extra_columns, sink.schema_evolution) if row_by_row else ()
    taken = without(data, [one.path for one in refused])
    require_distinct(taken)
    incoming = admitted(wanted, with_room(taken, sink, [column.name for column in wanted.fields]), sink)
    rules = _rules(table, sink, nulls, following)
    changes: tuple[TableChange, ...] = changes_for(have, incoming, rules)
    schema = evolved(have, changes)
    require_writable(schema, table.format_version)
    if row_by_row:
        refused += refused_casts(schema, taken, sink)
    else:
        require_casts(schema, data, sink)
    if changes:
        require_own_names(schema)
        require_distinct(schema)
    if (partition := repartitioning(sink, partition_after(before, changes))) is not None:
        partition_json(partition.fields, schema, schema_json(schema))
        changes = (*changes, partition)
    had = tuple(renamed(name, changes) for name in table.identifier_fields)
    keys = keys_of(sink, schema, had, inputs.source_keys) if sink.commit_mode is CommitMode.UPSERT else ()
    rejects = sink.error_handling is OnError.DEAD_LETTER
    given = {column.name for column in taken.fields}
    required = [column.name for column in schema.fields if column.required and not rules.partial]
    lacking = [name for name in (*keys, *required) if name not in given] if rejects else []
    compared = keys or tuple(name for columns in sink.replace_by for name in columns)
    gone = functions.col(OP) == DELETE if OP in inputs.hidden and not keys else None
    aligned = alignment(
        data,
        _insisting(schema, sink.declared_schema),
        sink,
        keys=compared,
        unless=_meaningless(inputs.hidden, sink),
        hidden=inputs.hidden,
        rejects=rejects,
        needed=keys or [column.name for column in schema.fields if column.required and column.name in compared],
        excused=gone,
        ignored=functions.col(OP) == IGNORE if OP in inputs.hidden else None,
        lacking=lacking,
        doubts=[Doubt(filled(data, one.path), one.code, one.text) for one in refused],
    )
    kept = ColumnIds(columns_property(sink_id), following.known, following.new)
    news = kept if following.new or following.known != known_from_json(known) else None
    partition_then = partition_after(before, changes)
    notes = (*_apart(following), *_overruled(schema, sink))
    return Fit(inputs, aligned.columns, aligned.error, changes, schema, partition_then, keys, news, notes)


def _apart(following: Following) -> list[str]:
    """The columns that the source has renamed and that the table also has under the earlier name."""
    note = "The source has renamed {!r} to {!r}: what is in the table stays under the old name."
    return [note.format(old, new) for new, old in following.apart.items()]


def _overruled(schema: StructType, sink: SinkSpec) -> list[str]:
    found = overruled(sink.declared_schema or StructType(()), schema)
    return [f"The column {m.path!r} is declared as {m.data}, and stays what it is in the table: {m.table}." for m in found]


def _with_declared(table: StructType, declared: StructType | None) -> StructType:
    """The columns that are nobody's surplus: the table's, and those that were declared since it was made."""
    names = {column.name for column in table.fields}
    return StructType((*table.fields, *(c for c in (declared.fields if declared else ()) if c.name not in names)))


def _insisting(table: StructType, declared: StructType | None) -> StructType:
    """The table's columns as rows are to have them: what is declared to be required is, also where the table takes nulls."""
    required = {column.name for column in declared.fields if column.required} if declared is not None else set()
    return StructType(tuple(replace(c, required=True) if c.name in required else c for c in table.fields))


def _by_aliases(sink: SinkSpec) -> list[RenameColumn]:
    return [RenameColumn(earlier, name) for earlier, name in sink.earlier_names.items()]


def _following(table: IcebergTable, sink: SinkSpec, sink_id: str, inputs: FitInputs) -> Following:
    """What the ids of the source's columns say: which were renamed. A name that another column has now is not written to."""
    if not inputs.ids:
        return Following(known_from_json(inputs.known))
    fields = {renamed(name, _by_aliases(sink)): number for name, number in table.field_ids.items()}
    renames = sink.schema_evolution is SchemaEvolution.FULL
    following = followed(inputs.ids, fields, known_from_json(inputs.known), renames=renames)
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


def _meaningless(hidden: Collection[str], sink: SinkSpec) -> Callable[[str], SparkColumn] | None:
    """Which values of a row nobody is to look at: those that were not sent, all of one that is ignored, and of a row that only
    deletes all but the key."""
    if OP not in hidden and UNCHANGED not in hidden:
        return None
    nothing = [IGNORE] if sink.keeps_deletes else [IGNORE, DELETE]

    def said(column: str) -> SparkColumn:
        skipped = functions.col(OP).isin(*nothing) if OP in hidden else functions.lit(False)
        return skipped | unchanged(column) if UNCHANGED in hidden else skipped

    return said


def _rules(table: IcebergTable, sink: SinkSpec, nulls: frozenset[str], following: Following) -> Rules:
    """What the sink lets happen to the table. Columns are named as they are after renames."""
    renames = [*_by_aliases(sink), *following.renames]
    keys = {renamed(name, renames) for name in table.identifier_fields}
    wanted = {key if sink.case_sensitive else key.lower() for key in sink.key_fields}
    names = [renamed(column.name, renames) for column in table.schema.fields]
    drops = sink.schema_evolution is SchemaEvolution.FULL and sink.dropped_columns is DroppedColumns.HARD
    return Rules(
        mode=sink.schema_evolution,
        declared=sink.declared_schema or StructType(()),
        aliases=sink.aliases,
        dropped=sink.dropped_columns,
        keys=frozenset(keys | {name for name in names if (name if sink.case_sensitive else name.lower()) in wanted}),
        held=frozenset(renamed(path, renames) for path in table.held_columns),
        # Files are read for this: it is asked for where columns may be dropped.
        compared=frozenset(renamed(name, renames) for name in table.compared_columns) if drops else frozenset(),
        nulls=nulls,
        row_by_row=sink.error_handling is not OnError.STOP,
        rejects=sink.error_handling is OnError.DEAD_LETTER,
        # Where there are no rows yet, there is nothing to keep.
        partial=sink.partial_updates and not table.holds_no_files,
        renames=following.renames,
        apart=following.apart,
    )


def null_column(error: FrazilError, fit: Fit, sink: SinkSpec) -> str | None:
    """The path of what is required and null in a row that has stopped a batch, when the sink lets it become optional."""
    if not isinstance(error, RequiredNull) or not sink.schema_evolution.widens:
        return None
    declared = {column.name for column in sink.columns if column.required}
    may = [path for path in required_paths(fit.schema) if path not in (*fit.keys, *declared)]
    return error.column if error.column in may else None


def repartitioning(sink: SinkSpec, have: Partition) -> SetPartition | None:
    """The change of a table's partitioning that the sink asks for; none when it leaves that to the table."""
    if not sink.partition or sink.partitioning is PartitionStrategy.TABLE_DEFAULT:
        return None
    return partition_change(have, sink.partition)
