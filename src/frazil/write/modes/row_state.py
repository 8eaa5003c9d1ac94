"""What is known of a row beside its values: what it does to the table, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, functions

from frazil.columns.alignment import Aligned, row_error
from frazil.columns.schema import error_of, quoted
from frazil.errors import ConfigError
from frazil.model.dead_letters import OnError
from frazil.model.hidden import (
    ERROR,
    EXTRA,
    IGNORE,
    OP,
    ORDER,
    UPDATE,
)
from frazil.model.sink import SinkSpec
from frazil.write.modes.shared_types import fields_of


def is_extra(frame: DataFrame) -> Column:
    """Which rows are additional to the main row of their record: no separate record was read for them."""
    return functions.coalesce(functions.col(EXTRA), functions.lit(False)) if EXTRA in frame.columns else functions.lit(False)


def place_in_order(frame: DataFrame) -> Column:
    """The values of a row by which the sink's order_by orders it. A change out of an envelope has its turn beside them."""
    return functions.col(ORDER)["place"] if "place" in fields_of(frame, ORDER) else functions.col(ORDER)


def with_error(frame: DataFrame, wrong: Column) -> DataFrame:
    """The frame with what is wrong with its rows, unless that is known of something else already."""
    return frame.withColumn(ERROR, functions.coalesce(functions.col(ERROR), wrong) if ERROR in frame.columns else wrong)


def set_aside(frame: DataFrame, sink: SinkSpec, name: str, why: str, *, fix: str = "") -> DataFrame:
    """The frame without a column that has the name of another. Rows with a value there are bad, where such are kept apart."""
    if sink.error_handling is not OnError.DEAD_LETTER:
        raise ConfigError("column-exists", why, fix=fix)
    there = functions.col(quoted(name)).isNotNull()
    return with_error(frame, functions.when(there, error_of("transform", "column-exists", functions.lit(why)))).drop(name)


def with_op(frame: DataFrame, op: Column, sink: SinkSpec, *, nothing: Column | None = None) -> DataFrame:
    """The frame with the operation of each row; a row without one is an error. ``nothing``: which rows do nothing.

    A row with an error counts as an upsert, so that it is not left out before the error is handled.
    """
    pairs = [functions.lit(text) for item in sink.operations.items() for text in item]
    meant = functions.create_map(*pairs)[functions.lower(op.cast("string"))]
    if nothing is not None:
        meant = functions.when(nothing, IGNORE).otherwise(meant)
    text = functions.concat(
        functions.lit("a row's operation is not known: "), functions.coalesce(op.cast("string"), functions.lit("null"))
    )
    unknown = functions.when(meant.isNull(), error_of("decode", "operation-unknown", text))
    if ERROR not in frame.columns:
        return frame.withColumns({OP: functions.coalesce(meant, functions.lit(UPDATE)), ERROR: unknown})
    known = functions.col(ERROR)
    acts = functions.when(known.isNull(), meant)
    return frame.withColumns({OP: functions.coalesce(acts, functions.lit(UPDATE)), ERROR: functions.coalesce(known, unknown)})


def with_faults(frame: DataFrame, wrong: Sequence[Column | None]) -> DataFrame:
    """The frame with what is wrong with values of its rows, unless something is wrong with the row already."""
    if not (errors := [error for error in wrong if error is not None]):
        return frame
    text = row_error([Aligned("", error, error) for error in errors])
    fault = functions.when(text.isNotNull(), error_of("cast", "value-not-convertible", text))
    return with_error(frame, fault)
