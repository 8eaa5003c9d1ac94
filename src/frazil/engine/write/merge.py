"""Upsert by a look at the table's rows: Spark's MERGE on a private copy, whose changes are committed by the loop.

It costs a read of the files that the keys can be in, and leaves no equality deletes. It can do what deletes by key cannot: add
only new keys, update only known ones, and keep values that the batch does not have.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, functions

from frazil.engine import target
from frazil.engine.iceberg import Change, Scratch
from frazil.engine.schema import DELETE, OP, UNCHANGED, quoted, unchanged
from frazil.engine.target import Fit
from frazil.engine.write.choose import Choice
from frazil.engine.write.ground import Ground, Written
from frazil.engine.write.latest import Survey
from frazil.errors import DataError
from frazil.model.changes import ChangeOptions
from frazil.model.commit import RowCounts

_NEW, _OLD = "frazil_new", Scratch.NAME


def merge(ground: Ground, last: DataFrame, survey: Survey, fit: Fit, choice: Choice) -> Written:
    """Merges the last row of each key into a copy of the table, and hands over what that changed."""
    table, sink = ground.table, ground.sink
    base = table.base
    properties = target.file_properties(sink) | {"write.merge.mode": sink.merge_mode.value, "write.delete.granularity": "file"}
    with table.scratch(fit.evolution, properties, last.sparkSession) as scratch:
        if survey.unchanged and sink.unchanged_missing == "stop":
            _require_known(last, last.sparkSession.table(scratch.name), fit)
        _merge_into(scratch.name, last, fit, sink)
        changes = scratch.changes(conflicts=table.everything)
        summary = scratch.summary
    return Written(Change(changes, base, fit.evolution, summary=choice.summary), _counts(survey, summary))


def _require_known(last: DataFrame, table: DataFrame, fit: Fit) -> None:
    """A row that lacks values because they did not change must be in the table, where they are."""
    lacking = last.where(functions.col(UNCHANGED).isNotNull())
    if OP in last.columns:
        lacking = lacking.where(functions.col(OP) != DELETE)
    same = reduce(Column.__and__, (_old(key) == _new(key) for key in fit.keys))
    unknown = lacking.alias(_NEW).join(table.alias(_OLD), same, "left_anti")
    row = unknown.select(*[quoted(key) for key in fit.keys], UNCHANGED).first()
    if row is None:
        return
    key = ", ".join(f"{name} = {row[name]}" for name in fit.keys)
    raise DataError(
        "unchanged-missing",
        f"A row ({key}) came without the values of {', '.join(row[UNCHANGED])}, which did not change, and the table has no such "
        "row: it was never read, or its key was changed together with other values.",
        fix="Let the database log whole rows (REPLICA IDENTITY FULL), or set unchanged_missing: write_null.",
    )


def _merge_into(name: str, last: DataFrame, fit: Fit, options: ChangeOptions) -> None:
    on = reduce(Column.__and__, (_old(key) == _new(key) for key in fit.keys))
    is_delete = _new(OP) == DELETE if OP in last.columns else functions.lit(False)
    merging = last.alias(_NEW).mergeInto(name, on)
    if OP in last.columns:
        merging = merging.whenMatched(is_delete).delete()
    if options.when_matched_update_all:
        merging = merging.whenMatched().update(_updates(last, fit, options))
    if options.when_not_matched_insert_all:
        merging = merging.whenNotMatched(~is_delete).insert({quoted(name): _new(name) for name in fit.names})
    merging.merge()


def _updates(last: DataFrame, fit: Fit, options: ChangeOptions) -> dict[str, Column]:
    """What a known row becomes: the batch's values, but for those that it does not have."""
    names = fit.given if options.partial_updates else fit.names
    return {quoted(name): _kept(last, name) for name in names if name not in fit.keys}


def _kept(last: DataFrame, name: str) -> Column:
    """The batch's value; the table's where that did not change and was not sent."""
    if UNCHANGED not in last.columns:
        return _new(name)
    return functions.when(unchanged(name), _old(name)).otherwise(_new(name))


def _new(name: str) -> Column:
    return functions.col(f"{_NEW}.{quoted(name)}")


def _old(name: str) -> Column:
    return functions.col(f"{_OLD}.{quoted(name)}")


def _counts(survey: Survey, summary: dict[str, str]) -> RowCounts:
    """What became of the rows, as the merge itself counted. Those that it was told to leave alone are filtered."""
    counted = [summary.get(f"spark.merge-into.num-target-rows-{what}") for what in ("updated", "inserted")]
    # Spark turns a merge that only inserts into an append, which counts by its files.
    written = int(summary.get("added-records", 0)) if None in counted else sum(map(int, filter(None, counted)))
    return RowCounts(
        read=survey.changes - survey.extra,
        written=written,
        filtered=survey.ignored + survey.upserts - written,
        deleted=survey.deletes,
        superseded=survey.superseded,
        extra=survey.extra,
    )
