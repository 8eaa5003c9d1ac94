"""Columns whose values are added up: within a batch by key, and by the merge with what the table has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import ByteType, DataType, DecimalType, DoubleType, FloatType, IntegerType, LongType, ShortType

from frazil.engine.schema import data_columns, quoted
from frazil.errors import ConfigError
from frazil.model.changes import Combine
from frazil.model.hidden import OP
from frazil.model.sink import SinkSpec

_WAYS = {Combine.SUM: functions.sum, Combine.MIN: functions.min, Combine.MAX: functions.max}

# As many digits more as Spark gives to a sum.
_MORE_DIGITS, _MOST_DIGITS = 10, 38


def way_of(combine: Mapping[str, Combine], name: str) -> Combine | None:
    """How a column is combined; upper and lower case do not tell columns apart."""
    return next((way for column, way in combine.items() if column.lower() == name.lower()), None)


def combined(frame: DataFrame, keys: Sequence[str], combine: Mapping[str, Combine]) -> DataFrame:
    """One row a key, in the types that the columns have."""
    if OP in frame.columns:
        raise ConfigError(
            "combine-operations", "combine: rows that say what they do (insert, update, delete) cannot be added up."
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
    return _WAYS[way](functions.col(quoted(name))).cast(frame.schema[name].dataType).alias(name)


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
