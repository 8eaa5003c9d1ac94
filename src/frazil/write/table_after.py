"""What becomes of a table when data goes into it: decided by columns and settings alone, without a data frame or Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from frazil.columns.partition import partition_json
from frazil.columns.table_columns import keys_of, require_distinct, require_own_names, with_room
from frazil.columns.types import require_writable
from frazil.errors import Halted
from frazil.model.changes import CommitMode
from frazil.model.coercion import admitted, extra_paths, require_casts
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
)
from frazil.model.evolving import SchemaEvolution
from frazil.model.refusals import Refusal, refused_casts, surplus, without
from frazil.model.sink import PartitionStrategy, SinkSpec
from frazil.model.types import StructType, schema_json


class DescribedTable(Protocol):
    """A table as its metadata describes it, read by Iceberg's Java library or by PyIceberg."""

    @property
    def schema(self) -> StructType:
        """The current columns."""

    @property
    def field_ids(self) -> Mapping[str, int]:
        """The ids of the current columns, by their names."""

    @property
    def partition(self) -> Partition:
        """The current partition spec: source column and transform, e.g. `("id", "bucket[16]")`."""

    @property
    def sort_order(self) -> tuple[str, ...]:
        """The order of rows within files: `ts desc nulls last`, `bucket[16](id) asc nulls first`."""

    @property
    def layout_columns(self) -> frozenset[str]:
        """The columns that the table's specs and sort orders, earlier ones too, are made from."""

    @property
    def compared_columns(self) -> frozenset[str]:
        """The columns that live equality deletes compare. Only asked for where the sink may drop columns."""

    @property
    def identifier_fields(self) -> tuple[str, ...]:
        """The columns that identify a row."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""

    @property
    def format_version(self) -> int:
        """Version of the table format."""

    @property
    def holds_no_files(self) -> bool:
        """Whether the table certainly has no rows."""

    def property_text(self, name: str) -> str | None:
        """One of the table's properties."""


@dataclass(frozen=True)
class Incoming:
    """The columns of data that is to be written.

    ``hidden`` are the columns that it has beside its own, ``keys`` those that identify a row, if the source provides them, and
    ``ids`` those that the source identifies by an id besides the name.
    """

    schema: StructType
    hidden: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()
    ids: Mapping[str, str] = field(default_factory=dict)


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
class TableAfter:
    """A table after data has gone into it: what must change, and its columns, partitioning and keys after that.

    ``taken`` are the columns of the data that go into the table, ``refused`` those that do not: rows with a value there are bad.
    ``left_out`` are columns that the table lacks and does not get. ``partial``: columns that the data lacks keep their values.
    ``ids`` is what the table is to remember of its source's columns, where that is new; ``notes`` is what a person should know
    of the columns.
    """

    changes: tuple[TableChange, ...]
    schema: StructType
    partition: Partition
    keys: tuple[str, ...]
    taken: StructType
    refused: tuple[Refusal, ...]
    left_out: tuple[str, ...]
    partial: bool
    ids: ColumnIds | None
    notes: tuple[str, ...]


def inputs_of(table: DescribedTable, sink_id: str, data: Incoming, nulls: frozenset[str] = frozenset()) -> FitInputs:
    """What decides how the data goes into the table."""
    known = table.property_text(columns_property(sink_id)) if data.ids else None
    return FitInputs(data.schema, table.schema, table.partition, nulls, data.hidden, data.keys, data.ids, known)


def table_after(table: DescribedTable, sink: SinkSpec, sink_id: str, inputs: FitInputs) -> TableAfter:
    """What becomes of the table. Raises a FrazilError if the sink does not let the data go into it."""
    have, before, data = inputs.table, inputs.partition, inputs.data
    following = _following(table, sink, sink_id, inputs)
    wanted = _with_declared(evolved(have, (*_by_aliases(sink), *following.renames)), sink.declared_schema)
    row_by_row = sink.error_handling is not OnError.STOP
    refused = surplus(wanted, data, sink.extra_columns, sink.schema_evolution) if row_by_row else ()
    taken = without(data, [one.path for one in refused])
    require_distinct(taken)
    incoming = admitted(wanted, with_room(taken, sink, [column.name for column in wanted.fields]), sink)
    rules = _rules(table, sink, inputs.nulls, following)
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
    kept = ColumnIds(columns_property(sink_id), following.known, following.new)
    return TableAfter(
        changes=changes,
        schema=schema,
        partition=partition_after(before, changes),
        keys=keys,
        taken=taken,
        refused=refused,
        left_out=() if refused else extra_paths(schema, data),
        partial=rules.partial,
        ids=kept if following.new or following.known != known_from_json(inputs.known) else None,
        notes=(*_apart(following), *_overruled(schema, sink)),
    )


def repartitioning(sink: SinkSpec, have: Partition) -> SetPartition | None:
    """The change of a table's partitioning that the sink asks for; none when it leaves that to the table."""
    if not sink.partition or sink.partitioning is PartitionStrategy.TABLE_DEFAULT:
        return None
    return partition_change(have, sink.partition)


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


def _by_aliases(sink: SinkSpec) -> list[RenameColumn]:
    return [RenameColumn(earlier, name) for earlier, name in sink.earlier_names.items()]


def _following(table: DescribedTable, sink: SinkSpec, sink_id: str, inputs: FitInputs) -> Following:
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


def _rules(table: DescribedTable, sink: SinkSpec, nulls: frozenset[str], following: Following) -> Rules:
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
        layout=frozenset(renamed(path, renames) for path in table.layout_columns),
        # Files are read for this: it is asked for where columns may be dropped.
        compared=frozenset(renamed(name, renames) for name in table.compared_columns) if sink.drops_columns else frozenset(),
        nulls=nulls,
        row_by_row=sink.error_handling is not OnError.STOP,
        rejects=sink.error_handling is OnError.DEAD_LETTER,
        # Where there are no rows yet, there is nothing to keep.
        partial=sink.partial_updates and not table.holds_no_files,
        renames=following.renames,
        apart=following.apart,
    )
