"""Columns whose values are added up: within a batch by key, and by the merge with what the table has."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import DataType, DecimalType

from frazil.columns.coerce import SUM_MARK, complaint
from frazil.columns.schema import data_columns, quoted, tells_changes
from frazil.errors import ConfigError
from frazil.model.changes import ChangeOptions, Combine

_MOST_DIGITS = 38


def combined(frame: DataFrame, keys: Sequence[str], options: ChangeOptions) -> DataFrame:
    """One row per key, in the types of the columns. Operations are ignored: every row is an insert."""
    if tells_changes(frame):
        raise ConfigError(
            "combine-operations",
            "combine is for rows that are only added, and those of this source are also updated and deleted.",
            fix="Leave combine out, and add up when you read the table; or set tombstones: ignore in the source.",
        )
    others = [name for name in data_columns(frame) if name not in keys]
    if lacking := [name for name in others if options.way_of(name) is None]:
        raise ConfigError(
            "combine-missing",
            f"combine says nothing of the column {lacking[0]!r}, which is no key.",
            fix="Say sum, min or max for it, or leave it out with a transform.",
        )
    values = [_of(frame, name, options.way_of(name) or Combine.SUM) for name in others]
    made = frame.groupBy(*[functions.col(quoted(key)) for key in keys]).agg(*values)
    return made.select(*[quoted(name) for name in data_columns(frame)])


def _of(frame: DataFrame, name: str, way: Combine) -> Column:
    value, kind = functions.col(quoted(name)), frame.schema[name].dataType
    match way:
        case Combine.MIN:
            made = functions.min(value)
        case Combine.MAX:
            made = functions.max(value)
        case Combine.SUM:
            # Null where it does not fit, whatever the session is set to, and where there is nothing to add up.
            total = functions.try_sum(value).try_cast(kind)
            made = functions.when(functions.count(value) > 0, functions.coalesce(total, _too_large(name, kind)))
    return made.alias(name)


def added(one: Column, other: Column, name: str, kind: DataType) -> Column:
    """Two values of a column together; where one is null, the other. A sum that does not fit stops the batch."""
    left, right = one, other
    if isinstance(kind, DecimalType):
        # With the largest precision Spark would keep the first digits, and round the last.
        room = DecimalType(min(kind.precision, _MOST_DIGITS - 1), kind.scale)
        left, right = one.try_cast(room), other.try_cast(room)
    total = functions.try_add(left, right).try_cast(kind)
    both = functions.coalesce(total, _too_large(name, kind))
    return functions.when(one.isNull(), other).when(other.isNull(), one).otherwise(both)


def _too_large(name: str, kind: DataType) -> Column:
    words = f"The sum of column {name!r} is too large for its type, {kind.simpleString()}."
    return complaint(SUM_MARK, functions.lit(words)).cast(kind)
