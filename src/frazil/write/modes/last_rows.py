"""Writes the last row of each key of a batch, for the ways of an upsert that do not read the table."""

from __future__ import annotations

from pyspark.sql import DataFrame

from frazil.columns.schema import quoted
from frazil.iceberg import StagedFiles
from frazil.write.fit import Fit
from frazil.write.modes.latest import Survey, is_delete
from frazil.write.modes.table_context import TableContext

# Each task writes files of its own for each partition: fewer tasks make fewer files, which is what readers pay for.
_ROWS_A_TASK = 250_000


def in_few_tasks(last: DataFrame, survey: Survey) -> DataFrame:
    """The last changes, in as many tasks as their number is worth."""
    return last.coalesce(max(1, survey.keys // _ROWS_A_TASK))


def write_last_rows(context: TableContext, last: DataFrame, survey: Survey, fit: Fit) -> StagedFiles:
    """Data files of the last changes, but for deletes."""
    if not survey.upserts:
        return StagedFiles()
    return context.write_files(last.where(~is_delete(last)).select(*[quoted(name) for name in fit.names]), fit.evolution)
