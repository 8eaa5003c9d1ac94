"""Rows in place of others: those of the partitions that the batch touches, or those that a condition names.

A batch into a table without partitions replaces all of it. History stays: what was replaced is in the snapshots before.

Delivery: every row of a batch once, and what it replaces goes in the same commit. Rows that somebody else adds or changes there
after the batch was staged are not replaced unseen: the sink stops (`overwrite-conflict`).
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, functions

from frazil.columns.fixed_time import at_one_time
from frazil.errors import ConfigError, Halted
from frazil.iceberg import Append, Change, IcebergTable, Operation, Replace, RowChanges, replaced_unseen
from frazil.write import target
from frazil.write.fit import Fit
from frazil.write.modes.plain import PlainRows
from frazil.write.modes.table_context import TableContext, Written


def overwrite(context: TableContext, frame: DataFrame, fit: Fit) -> Written:
    """Stages the rows, and says which they replace."""
    table, asked = context.table, context.sink.overwrite_where
    # Asked of the rows that come and of those that go, at one time.
    condition = None if asked is None else at_one_time(frame.sparkSession, asked, "overwrite_where")
    base = replace(table.base, head=context.seen.head)
    if condition is None:
        _require_one_partitioning(context, fit)
    plain = PlainRows(frame, context.sink)
    rows = fit.rows(plain.frame)
    staged = context.write_files(rows if condition is None else _within(rows, condition), fit.evolution)
    operation: Operation
    if condition is not None:
        with table.working_copy(fit.evolution, target.file_properties(context.sink)) as copy:
            copy.delete_where(condition)
            # The condition may name columns that the table does not have yet: then nobody may have changed any row.
            gone = copy.changes(conflicts=table.everything if fit.evolution else table.where(condition))
        operation = replace(gone, staged=gone.staged + staged, refusal=replaced_unseen)
    elif staged.files or not fit.partition:
        operation = Replace(staged, None if fit.partition else table.everything)
    else:
        operation = Append()  # no rows, no partitions that they could replace
    return Written(Change(operation, base, fit.evolution), plain.counts(staged.rows))


def deleted_where(table: IcebergTable, condition: str, among: str | None = None) -> RowChanges:
    """Takes rows away, and brings none. Where the condition says more than Iceberg can, ``among`` is the part that it can say."""
    with table.working_copy() as copy:
        copy.delete_where(condition if among is None else f"({among}) AND ({condition})")
        return copy.changes(conflicts=table.where(among or condition))


def _require_one_partitioning(context: TableContext, fit: Fit) -> None:
    """Rows of the batch's partitions that are in files of another partitioning would not be replaced."""
    table = context.table
    mixed = not table.holds_no_files if fit.repartitions else table.base.specs > 1 and not table.one_spec
    if fit.partition and mixed:
        raise Halted(
            "partitioning-mixed",
            f"Table {context.sink.full_name} has files from before its partitioning changed, and an overwrite of partitions "
            f"would leave their rows in place.",
            fix="Say which rows to replace with overwrite_where, or rewrite the older files under the table's current spec.",
        )


def _within(rows: DataFrame, condition: str) -> DataFrame:
    """Rows that the condition does not hold for would be added again by each batch: they stop it."""
    complaint = functions.lit(f"[frazil-outside] a row does not meet overwrite_where: {condition}")
    try:
        return rows.where(functions.expr(condition) | functions.raise_error(complaint).cast("boolean"))
    except (AnalysisException, ParseException) as error:
        words = str(error).strip().splitlines()[0].partition(" SQLSTATE: ")[0]
        fix = f"The rows have the columns {', '.join(rows.columns)}; texts stand in single quotes."
        raise ConfigError("condition-wrong", f"overwrite_where: {condition}: {words}", fix=fix) from error
