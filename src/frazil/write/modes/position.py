"""Upsert that finds the rows to replace by the key index, and deletes them by their positions.

Its cost is that of the batch, and every reader can read the table at every moment. The rows that it deletes are those of the
snapshot that it looked at: if another writer changes the table before the commit, they are looked up again.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from frazil.columns.schema import quoted
from frazil.iceberg import Change, DeletesWritten, IndexFailed, RowChanges
from frazil.model.changes import UpsertStrategy
from frazil.write.fit import Fit
from frazil.write.modes.choose import Choice
from frazil.write.modes.last_rows import in_few_tasks, write_last_rows
from frazil.write.modes.latest import Survey, counts_of
from frazil.write.modes.table_context import TableContext, Written, together


def why_no_index(context: TableContext) -> str | None:
    """Why the sink, which wants the index, cannot use it."""
    index = context.index
    if index is None or context.sink.upsert_strategy is not UpsertStrategy.POSITION:
        return None
    try:
        if index.given_up is None and not context.table.can_open(index):
            return "another process has the key index, or Spark was started without frazil's jar"
    except IndexFailed as failed:
        index.give_up(failed)
    return index.given_up


def by_position(context: TableContext, last: DataFrame, survey: Survey, fit: Fit, choice: Choice) -> Written:
    """Data files of the rows, and deletes by position of the earlier rows with their keys."""
    table, index = context.table, context.index
    assert index is not None, "the way was chosen because there is one"
    base = table.base
    last = in_few_tasks(last, survey)

    def deletes() -> DeletesWritten:
        if not survey.keys:
            return DeletesWritten()
        return table.delete_by_position(index, last.select(*[quoted(key) for key in fit.keys]), fit.evolution)

    staged, deleted = together(lambda: write_last_rows(context, last, survey, fit), deletes, session=last.sparkSession)
    changes = RowChanges(table.everything, staged, (), deleted.added, deleted.replaced, deleted.referenced)
    return Written(Change(changes, base, fit.evolution, summary=choice.summary), counts_of(survey))
