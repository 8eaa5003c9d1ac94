"""Upsert that finds the rows to replace by the key index, and deletes them by their positions.

Its cost is that of the batch, and every reader can read the table at every moment. The rows are looked up with the commit, in the
table that it finds: what other writers change before that is taken into account.

Delivery: one row of each key, whatever was lost of the index: it is a copy, which each commit brings up to the table's snapshot.
Unit of parallelism: rows are written by tasks, the keys are looked up by the driver.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from frazil.columns.schema import quoted
from frazil.iceberg import Change, PositionDelta
from frazil.model.changes import UpsertStrategy
from frazil.write.fit import Fit
from frazil.write.modes.choose import Choice
from frazil.write.modes.last_rows import in_few_tasks, write_last_rows
from frazil.write.modes.latest import Survey, counts_of
from frazil.write.modes.table_context import TableContext, Written, together

# The driver has the hashes of a batch's keys in memory until it is committed: 24 bytes each.
_MOST_KEYS = 5_000_000


def why_no_index(context: TableContext, keys: int) -> str | None:
    """Why the key index is of no use for a batch, if that is so."""
    index, sink = context.index, context.sink
    if index is None or sink.upsert_strategy not in (UpsertStrategy.POSITION, UpsertStrategy.AUTO):
        return "it was not asked for"
    if keys > _MOST_KEYS:
        return f"its {keys} keys are more than the {_MOST_KEYS} that are looked up at once"
    rows, limit = context.table.total("records"), sink.max_indexed_rows
    if limit is not None and rows > limit:
        return f"the table's {rows} rows are more than the {limit} of which a key index is kept"
    return index.why_unused()


def by_position(context: TableContext, last: DataFrame, survey: Survey, fit: Fit, choice: Choice) -> Written:
    """Data files of the rows; the earlier rows with their keys are deleted with the commit."""
    table, index = context.table, context.index
    assert index is not None, "the way was chosen because there is one"
    base = table.base
    last = in_few_tasks(last, survey)
    keys = last.select(*[quoted(key) for key in fit.keys])
    staged, look_up = together(
        lambda: write_last_rows(context, last, survey, fit),
        lambda: table.lookup(index, keys, fit.evolution),
        session=last.sparkSession,
    )
    return Written(Change(PositionDelta(staged, look_up), base, fit.evolution, summary=choice.summary), counts_of(survey))
