"""Lays the rows of several files out along a z-order, so that a filter on any of some columns reads few of the files.

Values are compared by their rank in a sample, not by their bits: columns of any type and of any distribution count alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from pyspark.sql import Column, DataFrame, functions

from frazil.errors import ConfigError
from frazil.model.names import nearest
from frazil.model.types import StructType

# A column has 64 ranks: with two columns a table is divided into 4,096 parts, more than it has files.
_BITS = 6
_SAMPLED_ROWS = 20_000
_PLACE = "__place"
_TYPES = ("boolean", "int", "long", "float", "double", "decimal", "date", "timestamp", "timestamptz", "string", "uuid")


@dataclass(frozen=True)
class ZOrder:
    """How the rows of one partition are laid out: by which columns, and in how many files."""

    columns: tuple[str, ...]
    files: int


def require_z_order(schema: StructType, columns: Sequence[str]) -> None:
    """Raises when the table has no such columns, or when their values have no order."""
    names = [field.name for field in schema.fields]
    for name in columns:
        column = schema.column(name)
        if column is None:
            near = nearest(name, names)
            raise ConfigError(
                "z-order-column",
                f"maintenance.z_order names the column {name!r}, which the table does not have.",
                fix=f"Did you mean {near!r}?" if near else f"It has: {', '.join(names)}.",
            )
        if column.type.name not in _TYPES:
            words = f"maintenance.z_order names the column {name!r}, and values of type {column.type} cannot be ordered."
            raise ConfigError("z-order-column", words, fix="Name columns of numbers, texts, dates or times.")


def z_ordered(rows: DataFrame, count: int, order: ZOrder) -> DataFrame:
    """The rows, ``count`` of them, in the order in which they go into the files: one task writes each."""
    columns = order.columns
    part = min(1.0, _SAMPLED_ROWS / max(1, count))
    sample = rows.select(*columns).sample(part, seed=0).collect()
    bounds = [_bounds([row[place] for row in sample]) for place in range(len(columns))]
    places = [_place(functions.col(f"`{name}`"), bounds[n], n, len(columns)) for n, name in enumerate(columns)]
    placed = rows.withColumn(_PLACE, reduce(add, places))
    return placed.repartitionByRange(order.files, _PLACE).sortWithinPartitions(_PLACE).drop(_PLACE)


def _bounds(values: Sequence[Any]) -> list[Any]:
    """The values that divide those of a sample into equal parts; what is not a number has no place among numbers."""
    known = sorted(value for value in values if value is not None and value == value)  # noqa: PLR0124
    parts = 2**_BITS
    return sorted({known[len(known) * part // parts] for part in range(1, parts)}) if known else []


def _place(column: Column, bounds: Sequence[Any], turn: int, columns: int) -> Column:
    """What a column contributes to the place of a row: the bits of its rank, in turns with those of the other columns."""

    def among(low: int, high: int) -> Column:
        if low == high:
            return functions.lit(spread(low, turn, columns)).cast("long")
        middle = (low + high) // 2
        below = column < functions.lit(bounds[middle])
        return functions.when(below, among(low, middle)).otherwise(among(middle + 1, high))

    return among(0, len(bounds))


def spread(rank: int, turn: int, columns: int) -> int:
    """The bits of a rank with room between them for those of other columns."""
    return sum((rank >> bit & 1) << (bit * columns + turn) for bit in range(_BITS))
