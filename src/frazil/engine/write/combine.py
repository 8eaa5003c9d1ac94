"""Columns whose values are added up: within a batch by key, and by the merge with what the table has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import ByteType, DataType, DecimalType, DoubleType, FloatType, IntegerType, LongType, ShortType

from frazil.engine.coerce import SUM_MARK, complaint
from frazil.engine.schema import data_columns, quoted, tells_changes
from frazil.errors import ConfigError
from frazil.model.changes import Combine
from frazil.model.sink import SinkSpec

# As many digits more as Spark gives to a sum.
_MORE_DIGITS, _MOST_DIGITS = 10, 38


def way_of(combine: Mapping[str, Combine], name: str) -> Combine | None:
    """How a column is combined; upper and lower case do not tell columns apart."""
    return next((way for column, way in combine.items() if column.lower() == name.lower()), None)


def combined(frame: DataFrame, keys: Sequence[str], combine: Mapping[str, Combine]) -> DataFrame:
    """One row a key, in the types that the columns have. What rows do is not looked at: they only come."""
    if tells_changes(frame):
        raise ConfigError(
            "combine-operations",
            "combine adds up rows that only come, and those of this source are updated and deleted.",
            fix="Leave combine out, and add up when you read the table; or set tombstones: ignore in the source.",
        )
    others = [name for name in data_columns(frame) if name not in keys]
    if lacking := [name for name in others if way_of(combine, name) is None]:
        raise ConfigError(
            "combine-missing",
            f"combine says nothing of the column {lacking[0]!r}, which is no key.",
            fix="Say sum, min or max for it, or leave it out with a transform.",
        )
    values = [_of(frame, name, way_of(combine, name) or Combine.SUM) for name in others]
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
        # Of all digits that there can be Spark would keep the first ones, and round the last.
        room = DecimalType(min(kind.precision, _MOST_DIGITS - 1), kind.scale)
        left, right = one.try_cast(room), other.try_cast(room)
    total = functions.try_add(left, right).try_cast(kind)
    both = functions.coalesce(total, _too_large(name, kind))
    return functions.when(one.isNull(), other).when(other.isNull(), one).otherwise(both)


def _too_large(name: str, kind: DataType) -> Column:
    words = f"The sum of column {name!r} is too large for its type, {kind.simpleString()}."
    return complaint(SUM_MARK, functions.lit(words)).cast(kind)


def with_room(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    """The frame with types for its sums that hold more than one value needs, so that a new table has them."""
    wider = {
        name: _wider(frame.schema[name].dataType) for name in data_columns(frame) if way_of(sink.combine, name) is Combine.SUM
    }
    changed = {name: kind for name, kind in wider.items() if kind != frame.schema[name].dataType}
    return (
        frame.withColumns({name: functions.col(quoted(name)).cast(kind) for name, kind in changed.items()}) if changed else frame
    )


def _wider(kind: DataType) -> DataType:
    match kind:
        case ByteType() | ShortType() | IntegerType():
            return LongType()
        case FloatType():
            return DoubleType()
        case DecimalType():
            return DecimalType(min(kind.precision + _MORE_DIGITS, _MOST_DIGITS), kind.scale)
        case _:
            return kind
