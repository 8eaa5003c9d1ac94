"""All rows of a batch in place of those that have the same values in some columns, however many there are of either.

A row of the batch that has no value in one of the columns replaces none: nothing equals what is not known. A row that says that
it is a delete takes away the rows with its values, and is not added.

Delivery: every row of a batch once, and what it replaces goes in the same commit, including what others have committed before
that. A batch that others overtake while it reads the table, or whose layout they change, is staged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, functions

from frazil.columns.coerce import Casting, present
from frazil.columns.counting import Counted
from frazil.columns.schema import quoted
from frazil.errors import ColumnMissing, ConfigError
from frazil.iceberg import Append, Change, Delta, Fits, Operation, StagedFiles
from frazil.model.changes import WITHOUT_EQUALITY_DELETES
from frazil.model.commit import RowCounts
from frazil.model.evolution import AddUnpartitionedSpec
from frazil.model.hidden import DELETE, IGNORE, OP
from frazil.model.types import NOT_KEYS
from frazil.write import target
from frazil.write.fit import Fit
from frazil.write.modes.choose import APPEND, EQUALITY_DELETE, MERGE, Choice, misread, unfit_for_duckdb, why_misread
from frazil.write.modes.row_values import NEW, new, old
from frazil.write.modes.rows import require_columns
from frazil.write.modes.table_context import TableContext, Written
from frazil.write.modes.upsert import deletes_everywhere_by


def delete_insert(context: TableContext, frame: DataFrame, fit: Fit) -> Written:
    """Stages the rows, and what takes away those that they replace."""
    _require_comparable(context, frame, fit)
    choice = _choice(context, fit)
    applied = fit.applied(frame)
    if choice.way == APPEND:
        return _replaced(context, applied, fit, choice)  # read once, for the rows alone
    # Read for the rows and for what they replace: both must be of the same rows, also where a frame is not the same each time.
    whole = applied.persist()
    try:
        return _replaced(context, whole, fit, choice)
    finally:
        whole.unpersist()


def _replaced(context: TableContext, applied: DataFrame, fit: Fit, choice: Choice) -> Written:
    op = functions.col(OP) if OP in applied.columns else functions.lit("")
    gone, ignored = op == DELETE, op == IGNORE
    seen = Counted(applied, functions.count_if(gone).alias("deletes"), functions.count_if(ignored).alias("ignored"))
    applied = applied.where(~ignored)
    rows = seen.frame.where(~gone & ~ignored).select(*_with_required(context, fit))
    change, added = (_in_copy if choice.way == MERGE else _by_values)(context, rows, applied, fit, choice)
    counts = seen.get() if OP in applied.columns else None
    deleted, filtered = (int(counts["deletes"]), int(counts["ignored"])) if counts is not None else (0, 0)
    return Written(change, RowCounts(read=added + deleted + filtered, written=added, deleted=deleted, filtered=filtered))


def _with_required(context: TableContext, fit: Fit) -> list[Column]:
    """The table's columns. The compared ones may be null in a delete, and are checked only here."""
    compared = {name for columns in context.sink.replace_by for name in columns}
    casting = Casting(context.sink)
    values = {column.name: functions.col(quoted(column.name)) for column in fit.schema.fields}
    needed = {column.name for column in fit.schema.fields if column.required} & compared
    return [present(value, value, name, casting).value.alias(name) if name in needed else value for name, value in values.items()]


def _choice(context: TableContext, fit: Fit) -> Choice:
    if context.table.holds_no_files:
        return Choice(APPEND, "the table is empty")
    unable = [reader.value for reader in context.sink.readers if reader in WITHOUT_EQUALITY_DELETES]
    if unable:
        return Choice(MERGE, f"{', '.join(unable)} cannot read equality deletes")
    if lost := misread([name for columns in context.sink.replace_by for name in columns], fit.schema):
        return Choice(MERGE, why_misread(lost))
    for columns in context.sink.replace_by:
        everywhere = deletes_everywhere_by(context.table, fit, columns)
        unfit = unfit_for_duckdb(context.sink, columns, fit.schema, fit.partition, everywhere=everywhere)
        if unfit is not None:
            return Choice(MERGE, unfit)
    return Choice(EQUALITY_DELETE, "its cost does not grow with the table")


def _values(applied: DataFrame, columns: Sequence[str]) -> DataFrame:
    """What the batch replaces: its different values in the columns, where it has all of them."""
    # Spark's `dropna` takes a dot in a name for a part of a struct.
    there = reduce(Column.__and__, (functions.col(quoted(name)).isNotNull() for name in columns))
    return applied.select(*[quoted(name) for name in columns]).where(there).distinct()


def _by_values(context: TableContext, rows: DataFrame, applied: DataFrame, fit: Fit, choice: Choice) -> tuple[Change, int]:
    """Data files of the rows, and delete files of the values that they replace; and how many rows that are."""
    table = context.table
    base, evolution = table.base, fit.evolution
    kinds = () if choice.way == APPEND else context.sink.replace_by
    everywhere = {columns: deletes_everywhere_by(table, fit, columns) for columns in kinds}
    if any(everywhere.values()) and fit.partition and table.unpartitioned_spec is None:
        evolution = (*evolution, AddUnpartitionedSpec())

    # One after the other: the first job keeps the rows, and two at a time on several machines could each read rows of their own.
    added, deleted = context.write_files(rows, fit.evolution), StagedFiles()
    for columns in kinds:
        found = _values(applied, columns)
        deleted += table.write_deletes(found, context.options, columns, evolution, everywhere=everywhere[columns])
    operation: Operation = Delta(added, deleted, Fits.HEAD if choice.way == APPEND else Fits.LAYOUT)
    if not added.files and not deleted.files:
        operation = Append()
    return Change(operation, base, evolution, summary=choice.summary), added.rows


def _in_copy(context: TableContext, rows: DataFrame, applied: DataFrame, fit: Fit, choice: Choice) -> tuple[Change, int]:
    """Finds the rows to delete by reading the table, so that no equality deletes are written."""
    table, sink = context.table, context.sink
    base = table.base
    properties = target.file_properties(sink) | {"write.merge.mode": sink.merge_mode.value}
    with table.working_copy(fit.evolution, properties, rows.sparkSession) as copy:
        for columns in sink.replace_by:
            same = [old(name) == new(name) for name in columns]
            found = _values(applied, columns).alias(NEW)
            found.mergeInto(copy.name, reduce(Column.__and__, same)).whenMatched().delete().merge()
        changes = copy.changes(conflicts=table.everything)
    staged = context.write_files(rows, fit.evolution)
    changes = replace(changes, staged=changes.staged + staged)
    return Change(changes, base, fit.evolution, summary=choice.summary), staged.rows


def _require_comparable(context: TableContext, frame: DataFrame, fit: Fit) -> None:
    types = {column.name: column.type for column in fit.schema.fields}
    for columns in context.sink.replace_by:
        require_columns(frame, columns, "replace_by")
        for name in columns:
            if name not in types:
                raise ColumnMissing(
                    "column-missing", f"replace_by: the table has no column {name!r}. Columns: {', '.join(types)}"
                )
            if types[name].name in NOT_KEYS:
                text = f"replace_by: column {name} has type {types[name].name}, whose values cannot be compared for this"
                raise ConfigError("key-type", text)
