"""Rows that get another key, where a change does not have all values of the row."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, functions

from frazil.columns.schema import quoted, unchanged
from frazil.errors import DataError
from frazil.model.changes import ChangeOptions
from frazil.model.hidden import HIDDEN, ORDER, TURN, UNCHANGED
from frazil.write.fit import Fit
from frazil.write.modes.latest import MOVED_AT, began_here, is_delete, lacks_values
from frazil.write.modes.row_state import is_extra
from frazil.write.modes.row_values import struct_of
from frazil.write.modes.shared_types import fields_of

_PLACE, _KEY, _ROW, _UNSENT, _BEGAN, _KNOWN_KEY, _KNOWN = (
    f"{HIDDEN}before_{name}" for name in ("place", "key", "row", "unsent", "began", "known_key", "known")
)


def require_followed(options: ChangeOptions, fit: Fit) -> None:
    """Under its new key a row is a new one: it would not be added, or would lack what the batch does not have."""
    if options.when_not_matched_insert_all and not (options.partial_updates and fit.lacks_parts):
        return
    option = "partial_updates: true" if options.when_not_matched_insert_all else "when_not_matched_insert_all: false"
    raise DataError(
        "key-moved",
        f"A change gave a row another key, and with {option} what the table holds of the row would be lost.",
        fix="Let the changes have all columns, and add rows with new keys; or write the changes to a table of their own.",
    )


def with_moved(last: DataFrame, rows: DataFrame, fit: Fit) -> DataFrame:
    """The rows with the values that they had under their old key, where a change of the key did not send these values.

    The delete of the old key, at the same position in the order, identifies the old key. It has the values that earlier changes
    sent; the others are in the table, under the old key.
    """
    if MOVED_AT not in last.columns or TURN not in fields_of(last, ORDER):
        return last
    lacks = lacks_values(last) & functions.col(MOVED_AT).isNotNull()
    others = [name for name in fit.names if name not in fit.keys]
    before = last.where(is_extra(last) & is_delete(last)).select(
        _place(last, ORDER).alias(_PLACE),
        struct_of(fit.keys).alias(_KEY),
        struct_of(others).alias(_ROW),
        functions.coalesce(functions.col(UNCHANGED), functions.array().cast("array<string>")).alias(_UNSENT),
        began_here(last).alias(_BEGAN),
    )
    known = rows.select(struct_of(fit.keys).alias(_KNOWN_KEY), struct_of(others).alias(_KNOWN))
    same_place = _place(last, MOVED_AT) == functions.col(_PLACE)
    same_key = reduce(Column.__and__, (functions.col(_KEY)[key] == functions.col(_KNOWN_KEY)[key] for key in fit.keys))
    moved = last.where(lacks).join(before, same_place, "left").join(known, same_key & ~functions.col(_BEGAN), "left")
    in_batch = {name: functions.coalesce(~functions.array_contains(_UNSENT, name), functions.lit(False)) for name in others}
    values = {
        name: functions.when(
            unchanged(name), functions.when(in_batch[name], functions.col(_ROW)[name]).otherwise(functions.col(_KNOWN)[name])
        ).otherwise(functions.col(quoted(name)))
        for name in others
    }
    lacking = [
        functions.when(unchanged(name) & ~in_batch[name] & functions.col(_KNOWN).isNull(), functions.lit(name)) for name in others
    ]
    still = functions.array_compact(functions.array(*lacking))
    filled = moved.withColumns(values | {UNCHANGED: functions.when(functions.size(still) > 0, still)})
    return last.where(~lacks).unionByName(filled.select(*[quoted(name) for name in last.columns]))


def _place(frame: DataFrame, column: str) -> Column:
    """A place in the order, whose turn it is at that place aside."""
    return functions.struct(*[functions.col(column)[part].alias(part) for part in fields_of(frame, column) if part != TURN])
