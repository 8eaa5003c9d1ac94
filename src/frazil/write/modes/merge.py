"""Upsert that reads the table's rows: Spark's MERGE on a private copy, whose changes are committed by the commit loop.

It reads the files that can contain the keys, and leaves no equality deletes. It can do what equality deletes cannot: add only
new keys, update only existing ones, and keep values that the batch does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, functions

from frazil.columns.coerce import NULL_MARK, complaint
from frazil.columns.schema import quoted, unchanged
from frazil.columns.types import spark_type
from frazil.errors import DataError
from frazil.iceberg import Change, StagedFiles, WorkingCopy
from frazil.model.changes import ChangeOptions, Combine
from frazil.model.commit import RowCounts
from frazil.model.hidden import DELETE, HIDDEN, OP, ORDER, TURN, UNCHANGED
from frazil.model.types import StructType, Type
from frazil.write import target
from frazil.write.fit import Fit
from frazil.write.modes.choose import Choice
from frazil.write.modes.combine import added
from frazil.write.modes.latest import GONE_AT, MOVED_AT, Survey, began_here, keeps_known, lacks_values
from frazil.write.modes.row_state import is_extra
from frazil.write.modes.shared_types import fields_of
from frazil.write.modes.table_context import TableContext, Written

_NEW, _OLD = "frazil_new", WorkingCopy.NAME
_ROWS = f"{HIDDEN}rows"
_PLACE, _KEY, _ROW, _UNSENT, _BEGAN, _HELD_KEY, _HELD = (
    f"{HIDDEN}before_{name}" for name in ("place", "key", "row", "unsent", "began", "held_key", "held")
)


def merge(context: TableContext, last: DataFrame, survey: Survey, fit: Fit, choice: Choice) -> Written:
    """Merges the last row of each key into a copy of the table, and hands over what that changed."""
    table, sink = context.table, context.sink
    base = table.base
    if survey.extra:
        _require_followed(sink, fit)
    properties = target.file_properties(sink) | {"write.merge.mode": sink.merge_mode.value, "write.delete.granularity": "file"}
    with table.working_copy(fit.evolution, properties, last.sparkSession) as copy:
        merging = last
        if survey.unchanged:
            known = last.sparkSession.table(copy.name)
            merging = _with_moved(last, known, fit)
            if sink.unchanged_missing == "stop":
                _require_known(merging, known, fit)
            merging = merging.withColumn(UNCHANGED, functions.when(~began_here(merging), functions.col(UNCHANGED)))
        _merge_into(copy.name, merging, fit, sink)
        written, updated = _rows_of(copy.summary)
        again = StagedFiles()
        # Usually the counts show that no key was there twice. If keys may have been left out, only the rows show it.
        if written > survey.upserts or (updated > 1 and not sink.when_not_matched_insert_all):
            again, surplus = _one_of_each(context, copy, last, fit)
            written -= surplus
        changes = copy.changes(conflicts=table.everything)
        changes = replace(changes, staged=changes.staged + again)
    return Written(Change(changes, base, fit.evolution, summary=choice.summary), _counts(survey, written))


def _require_followed(options: ChangeOptions, fit: Fit) -> None:
    """Under its new key a row is a new one: it would not be added, or would lack what the batch does not have."""
    if options.when_not_matched_insert_all and not (options.partial_updates and fit.lacks_parts):
        return
    option = "partial_updates: true" if options.when_not_matched_insert_all else "when_not_matched_insert_all: false"
    raise DataError(
        "key-moved",
        f"A change gave a row another key, and with {option} what the table holds of the row would be lost.",
        fix="Let the changes have all columns, and add rows with new keys; or write the changes to a table of their own.",
    )


def _with_moved(last: DataFrame, table: DataFrame, fit: Fit) -> DataFrame:
    """The rows with the values that they had under their old key, where a change of the key did not send these values.

    The delete of the old key, at the same position in the order, identifies the old key. It has the values that earlier changes
    sent; the others are in the table, under the old key.
    """
    if MOVED_AT not in last.columns or TURN not in fields_of(last, ORDER):
        return last
    lacks = lacks_values(last) & functions.col(MOVED_AT).isNotNull()
    others = [name for name in fit.names if name not in fit.keys]
    before = last.where(is_extra(last) & (functions.col(OP) == DELETE)).select(
        _place(last, ORDER).alias(_PLACE),
        _together(fit.keys).alias(_KEY),
        _together(others).alias(_ROW),
        functions.coalesce(functions.col(UNCHANGED), functions.array().cast("array<string>")).alias(_UNSENT),
        began_here(last).alias(_BEGAN),
    )
    held = table.select(_together(fit.keys).alias(_HELD_KEY), _together(others).alias(_HELD))
    same_place = _place(last, MOVED_AT) == functions.col(_PLACE)
    same_key = reduce(Column.__and__, (functions.col(_KEY)[key] == functions.col(_HELD_KEY)[key] for key in fit.keys))
    moved = last.where(lacks).join(before, same_place, "left").join(held, same_key & ~functions.col(_BEGAN), "left")
    in_batch = {name: functions.coalesce(~functions.array_contains(_UNSENT, name), functions.lit(False)) for name in others}
    values = {
        name: functions.when(
            unchanged(name), functions.when(in_batch[name], functions.col(_ROW)[name]).otherwise(functions.col(_HELD)[name])
        ).otherwise(functions.col(quoted(name)))
        for name in others
    }
    lacking = [
        functions.when(unchanged(name) & ~in_batch[name] & functions.col(_HELD).isNull(), functions.lit(name)) for name in others
    ]
    still = functions.array_compact(functions.array(*lacking))
    filled = moved.withColumns(values | {UNCHANGED: functions.when(functions.size(still) > 0, still)})
    return last.where(~lacks).unionByName(filled.select(*[quoted(name) for name in last.columns]))


def _place(frame: DataFrame, column: str) -> Column:
    """A place in the order, whose turn it is at that place aside."""
    return functions.struct(*[functions.col(column)[part].alias(part) for part in fields_of(frame, column) if part != TURN])


def _together(names: Sequence[str]) -> Column:
    return functions.struct(*[functions.col(quoted(name)).alias(name) for name in names])


def _require_known(last: DataFrame, table: DataFrame, fit: Fit) -> None:
    """A row that lacks values because they did not change must be in the table, where they are."""
    lacking = last.where(lacks_values(last))
    its_own = _same_key(fit) & ~began_here(lacking)
    unknown = lacking.alias(_NEW).join(table.alias(_OLD), its_own, "left_anti")
    row = unknown.select(*[quoted(key) for key in fit.keys], UNCHANGED).first()
    if row is None:
        return
    raise DataError(
        "unchanged-missing",
        f"A row ({_key_text(row, fit)}) came without the values of {', '.join(row[UNCHANGED])}, which did not change, and the "
        "table has no such row: it was never read, or came after a delete of its key in the batch, or its key changed, and the "
        "old one was itself new, or taken again, in the same batch.",
        fix="Let the database log whole rows (REPLICA IDENTITY FULL), or set unchanged_missing: write_null.",
    )


def _merge_into(name: str, last: DataFrame, fit: Fit, options: ChangeOptions) -> None:
    is_delete = _deletes(last)
    merging = last.alias(_NEW).mergeInto(name, _same_key(fit))
    if OP in last.columns:
        merging = merging.whenMatched(is_delete).delete()
    if keeps_known(options) and GONE_AT in last.columns:
        # The row that the table holds was deleted in this batch: what comes is a new one, which takes nothing from it.
        anew = functions.col(f"{_NEW}.{GONE_AT}").isNotNull()
        if options.when_not_matched_insert_all:
            merging = merging.whenMatched(anew).update({quoted(name): value for name, value in _inserts(fit).items()})
        else:
            merging = merging.whenMatched(anew).delete()
    if options.when_matched_update_all:
        merging = merging.whenMatched().update(_updates(last, fit, options))
    if options.when_not_matched_insert_all:
        merging = merging.whenNotMatched(~is_delete).insert({quoted(name): value for name, value in _inserts(fit).items()})
    merging.merge()


def _inserts(fit: Fit) -> dict[str, Column]:
    """The values of a new row. It has no earlier values for columns that the batch lacks; if the table requires such a column,
    that is an error.
    """
    lacking = {c.name: spark_type(c.type) for c in fit.schema.fields if c.required and c.name not in fit.given}
    words = "is required, and a row with a new key has no value for it"
    stops = {name: complaint(NULL_MARK, functions.lit(f"column {name!r} {words}")).cast(kind) for name, kind in lacking.items()}
    return {name: stops.get(name, _new(name)) for name in fit.names}


def _one_of_each(context: TableContext, copy: WorkingCopy, last: DataFrame, fit: Fit) -> tuple[StagedFiles, int]:
    """Leaves one row of every key of the batch that the table has had several rows of, and says how many were too many.

    All of them go from the copy. What is handed back is to come in their place.
    """
    upserts = last.where(~_deletes(last)).alias(_NEW)
    held = copy.rows.alias(_OLD).join(upserts, _same_key(fit), "left_semi")
    several = held.groupBy(*[_old(key).alias(key) for key in fit.keys]).agg(functions.count(functions.lit(1)).alias(_ROWS))
    several = several.where(functions.col(_ROWS) > 1).persist()
    try:
        surplus = several.agg(functions.sum(functions.col(_ROWS) - 1)).collect()[0][0]
        if surplus is None:
            return StagedFiles(), 0
        rows = upserts.join(several.alias(_OLD), _same_key(fit), "left_semi")
        _require_whole(rows, fit, context.sink)
        several.alias(_NEW).mergeInto(copy.name, _same_key(fit)).whenMatched().delete().merge()
        return context.write_files(rows.select(*[quoted(name) for name in fit.names]), fit.evolution), int(surplus)
    finally:
        several.unpersist()


def _require_whole(rows: DataFrame, fit: Fit, options: ChangeOptions) -> None:
    """Refuses rows that would keep values of the table when it is not known which row has these values."""
    keeps = bool(options.combine) or (options.partial_updates and fit.lacks_parts)
    row = (rows if keeps else rows.where(lacks_values(rows))).select(*[quoted(key) for key in fit.keys]).first()
    if row is not None:
        raise DataError(
            "key-held-twice",
            f"The table has several rows with one key ({_key_text(row, fit)}), and values of the table's are to be kept: "
            "it is not known which of the rows has them.",
            fix="Delete all but one of these rows from the table.",
        )


def _key_text(row: Row, fit: Fit) -> str:
    return ", ".join(f"{name} = {row[name]}" for name in fit.keys)


def _updates(last: DataFrame, fit: Fit, options: ChangeOptions) -> dict[str, Column]:
    """What a known row becomes: the batch's values, but for those that it does not have."""
    names = fit.given if options.partial_updates else fit.names
    if options.combine:
        return {quoted(name): _combined(last, name, options) for name in names if name not in fit.keys}
    new = {name: _kept(last, name) for name in names if name not in fit.keys}
    if options.partial_updates:
        given = {column.name: column.type for column in fit.inputs.data.fields}
        whole = {column.name: column.type for column in fit.schema.fields}
        new = {name: _with_parts(value, _old(name), given[name], whole[name]) for name, value in new.items()}
    return {quoted(name): value for name, value in new.items()}


def _with_parts(new: Column, old: Column, given: Type, whole: Type) -> Column:
    """The batch's value, with the table's for parts of a struct that the batch does not have."""
    if not isinstance(given, StructType) or not isinstance(whole, StructType):
        return new
    types = {field.name: field.type for field in given.fields}
    parts = [
        (_with_parts(new[one.name], old[one.name], types[one.name], one.type) if one.name in types else old[one.name])
        for one in whole.fields
    ]
    named = [part.alias(field.name) for part, field in zip(parts, whole.fields, strict=True)]
    return functions.when(new.isNotNull(), functions.struct(*named))


def _combined(last: DataFrame, name: str, options: ChangeOptions) -> Column:
    """The value that both are together; where one has none, the other."""
    old, new = _old(name), _new(name)
    match options.way_of(name):
        case Combine.MIN:
            return functions.least(old, new)
        case Combine.MAX:
            return functions.greatest(old, new)
        case _:
            return added(old, new, name, last.schema[name].dataType)


def _kept(last: DataFrame, name: str) -> Column:
    """The batch's value; the table's where that did not change and was not sent."""
    if UNCHANGED not in last.columns:
        return _new(name)
    return functions.when(unchanged(name), _old(name)).otherwise(_new(name))


def _new(name: str) -> Column:
    return functions.col(f"{_NEW}.{quoted(name)}")


def _old(name: str) -> Column:
    return functions.col(f"{_OLD}.{quoted(name)}")


def _deletes(last: DataFrame) -> Column:
    return functions.col(OP) == DELETE if OP in last.columns else functions.lit(False)


def _same_key(fit: Fit) -> Column:
    return reduce(Column.__and__, (_old(key) == _new(key) for key in fit.keys))


def _rows_of(summary: dict[str, str]) -> tuple[int, int]:
    """How many rows a merge wrote, as it counted itself, and how many of them were there before."""
    updated, inserted = (summary.get(f"spark.merge-into.num-target-rows-{what}") for what in ("updated", "inserted"))
    if updated is None or inserted is None:
        # Spark turns a merge that only inserts into an append, which counts by its files.
        return int(summary.get("added-records", 0)), 0
    return int(updated) + int(inserted), int(updated)


def _counts(survey: Survey, written: int) -> RowCounts:
    """The counts of the merge. Rows that the options leave unchanged count as filtered."""
    return RowCounts(
        read=survey.changes - survey.extra,
        written=written,
        filtered=survey.ignored + survey.upserts - written,
        deleted=survey.deletes,
        superseded=survey.superseded,
        extra=survey.extra,
    )
