"""Rows in place of others: those of the partitions that the batch touches, or those that a condition names.

A batch into a table without partitions replaces all of it. History stays: what was replaced is in the snapshots before.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, functions

from frazil.engine import target
from frazil.engine.iceberg import Change, Operation, Replace, replaced_unseen
from frazil.engine.target import Fit
from frazil.engine.write.ground import Ground, Written
from frazil.model.commit import RowCounts


def overwrite(ground: Ground, frame: DataFrame, fit: Fit) -> Written:
    """Stages the rows, and says which they replace."""
    table, condition = ground.table, ground.sink.overwrite_where
    base = table.base
    rows = fit.applied(frame)
    staged = ground.stage(rows if condition is None else _within(rows, condition), fit.evolution)
    operation: Operation
    if condition is not None:
        with table.scratch(fit.evolution, target.file_properties(ground.sink)) as scratch:
            scratch.delete_where(condition)
            gone = scratch.changes(conflicts=table.expression(condition))
        operation = replace(gone, staged=gone.staged + staged, refusal=replaced_unseen)
    else:
        operation = Replace(staged, None if table.partition else table.everything)
    return Written(Change(operation, base, fit.evolution), RowCounts(read=staged.rows, written=staged.rows))


def _within(rows: DataFrame, condition: str) -> DataFrame:
    """Rows that the condition does not hold for would be added again by each batch: they stop it."""
    complaint = functions.lit(f"[frazil-outside] a row does not meet overwrite_where: {condition}")
    return rows.where(functions.expr(condition) | functions.raise_error(complaint).cast("boolean"))
