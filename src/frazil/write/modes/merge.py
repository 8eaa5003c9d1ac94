"""Upsert that reads the table's rows: Spark's MERGE on a private copy, whose changes are committed by the commit loop.

It reads the files that can contain the keys, and leaves no equality deletes.

Delivery: one row of each key, also where the table had several. If others have added or deleted rows since the table was read,
the commit is refused, and the batch is merged again into the table as it is then.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, functions

from frazil.columns.schema import quoted
from frazil.iceberg import Change, StagedFiles, WorkingCopy
from frazil.model.hidden import HIDDEN
from frazil.write import target
from frazil.write.fit import Fit
from frazil.write.modes.choose import Choice
from frazil.write.modes.latest import Survey, counts_of, is_delete
from frazil.write.modes.row_values import NEW, OLD, new, old, same_key
from frazil.write.modes.table_context import TableContext, Written

_ROWS = f"{HIDDEN}rows"


def merge(context: TableContext, last: DataFrame, survey: Survey, fit: Fit, choice: Choice) -> Written:
    """Merges the last row of each key into a copy of the table, and hands over what that changed."""
    table, sink = context.table, context.sink
    base = table.base
    properties = target.file_properties(sink) | {"write.merge.mode": sink.merge_mode.value, "write.delete.granularity": "file"}
    with table.working_copy(fit.evolution, properties, last.sparkSession) as copy:
        values = {quoted(name): new(name) for name in fit.names}
        merging = last.alias(NEW).mergeInto(copy.name, same_key(fit)).whenMatched(is_delete(last)).delete()
        merging.whenMatched().update(values).whenNotMatched(~is_delete(last)).insert(values).merge()
        repeats = _written(copy.summary) > survey.upserts
        again = _one_of_each(context, copy, last, fit) if repeats else StagedFiles()
        changes = copy.changes(conflicts=table.everything)
        changes = replace(changes, staged=changes.staged + again)
    return Written(Change(changes, base, fit.evolution, summary=choice.summary), counts_of(survey))


def _one_of_each(context: TableContext, copy: WorkingCopy, last: DataFrame, fit: Fit) -> StagedFiles:
    """Leaves one row of every key of the batch that the table has had several rows of.

    All of them go from the copy. What is handed back is to come in their place.
    """
    upserts = last.where(~is_delete(last)).alias(NEW)
    matched = copy.rows.alias(OLD).join(upserts, same_key(fit), "left_semi")
    repeated = matched.groupBy(*[old(key).alias(key) for key in fit.keys]).agg(functions.count(functions.lit(1)).alias(_ROWS))
    repeated = repeated.where(functions.col(_ROWS) > 1).persist()
    try:
        rows = upserts.join(repeated.alias(OLD), same_key(fit), "left_semi")
        repeated.alias(NEW).mergeInto(copy.name, same_key(fit)).whenMatched().delete().merge()
        return context.write_files(rows.select(*[quoted(name) for name in fit.names]), fit.evolution)
    finally:
        repeated.unpersist()


def _written(summary: dict[str, str]) -> int:
    """How many rows a merge wrote, as it counted itself."""
    updated, inserted = (summary.get(f"spark.merge-into.num-target-rows-{what}") for what in ("updated", "inserted"))
    if updated is None or inserted is None:
        # Spark turns a merge that only inserts into an append, which counts by its files.
        return int(summary.get("added-records", 0))
    return int(updated) + int(inserted)
