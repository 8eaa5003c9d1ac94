"""How the data of a batch goes into a table: what must change in the table, and what is selected of the data."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, functions

from frazil.columns.alignment import Doubt, alignment, filled
from frazil.columns.schema import column_ids_from_source, hidden_columns, keys_from_source, schema_of, unchanged
from frazil.errors import FrazilError, RequiredNull
from frazil.iceberg import IcebergTable
from frazil.model.column_ids import ColumnIds
from frazil.model.dead_letters import OnError
from frazil.model.evolution import Partition, SetPartition, TableChange, renamed, required_paths
from frazil.model.hidden import DELETE, ERROR, IGNORE, OP, UNCHANGED
from frazil.model.sink import SinkSpec
from frazil.model.types import StructType, Type
from frazil.write.table_after import FitInputs, Incoming, inputs_of, table_after


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
    inputs = inputs_of(table, sink_id, incoming_of(frame, sink), nulls)
    if last is not None and last.inputs == inputs:
        return last
    after = table_after(table, sink, sink_id, inputs)
    data, schema, keys = inputs.data, after.schema, after.keys
    rejects = sink.error_handling is OnError.DEAD_LETTER
    given = {column.name for column in after.taken.fields}
    required = [column.name for column in schema.fields if column.required and not after.partial]
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
        doubts=[Doubt(filled(data, one.path), one.code, one.text) for one in after.refused],
    )
    return Fit(inputs, aligned.columns, aligned.error, after.changes, schema, after.partition, keys, after.ids, after.notes)


def incoming_of(frame: DataFrame, sink: SinkSpec) -> Incoming:
    """The columns of a frame, and what the source says of them."""
    ids = column_ids_from_source(frame)
    return Incoming(schema_of(frame), frozenset(hidden_columns(frame)), keys_from_source(frame, sink), ids)


def _insisting(table: StructType, declared: StructType | None) -> StructType:
    """The table's columns as rows are to have them: what is declared to be required is, also where the table takes nulls."""
    required = {column.name for column in declared.fields if column.required} if declared is not None else set()
    return StructType(tuple(replace(c, required=True) if c.name in required else c for c in table.fields))


def _meaningless(hidden: Collection[str], sink: SinkSpec) -> Callable[[str], SparkColumn] | None:
    """Which values of a row nobody is to look at: those that were not sent, all of one that is ignored, and of a row that only
    deletes all but the key, and the order by which it may be late."""
    if OP not in hidden and UNCHANGED not in hidden:
        return None
    compared = sink.order_by if sink.ignores_late else ()

    def said(column: str) -> SparkColumn:
        nothing = [IGNORE] if sink.keeps_deletes or column in compared else [IGNORE, DELETE]
        skipped = functions.col(OP).isin(*nothing) if OP in hidden else functions.lit(False)
        return skipped | unchanged(column) if UNCHANGED in hidden else skipped

    return said


def null_column(error: FrazilError, fit: Fit, sink: SinkSpec) -> str | None:
    """The path of what is required and null in a row that has stopped a batch, when the sink lets it become optional."""
    if not isinstance(error, RequiredNull) or not sink.schema_evolution.widens:
        return None
    declared = {column.name for column in sink.columns if column.required}
    may = [path for path in required_paths(fit.schema) if path not in (*fit.keys, *declared)]
    return error.column if error.column in may else None
