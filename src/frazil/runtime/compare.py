"""Compares the rows of a table with those of its source, value by value, and says at which keys they differ.

1. Both are read once, and hashed by groups of keys. Only the sums are shuffled, and most of them are equal.
2. In groups whose sums differ, rows are joined by key, and the columns that differ are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from frazil.columns.schema import quoted
from frazil.iceberg import IcebergTable
from frazil.model.dead_letters import OnError
from frazil.model.evolution import renamed
from frazil.model.hidden import DELETE, ERROR, IGNORE, OP
from frazil.model.sink import SinkSpec
from frazil.model.transform import TransformSpec
from frazil.write.fit import Fit, fit_of
from frazil.write.shape.apply import sink_rows

GROUPS = 4096
EXAMPLES = 5

_NESTED = (ArrayType, MapType, StructType, VariantType)
_UNREADABLE = -1
_GROUP, _KEY, _OURS, _THEIRS = "group", "key", "ours", "theirs"
_MISSING, _SURPLUS, _OTHER = "missing", "surplus", "other"


@dataclass(frozen=True)
class Difference:
    """So many rows that differ in one way, from the lowest key to the highest, with some of the keys as examples.

    ``kind``: `missing` in the table, `surplus` there, or with `other` values, and ``columns`` says in how many rows each differs.
    """

    kind: str
    rows: int
    low: str
    high: str
    examples: tuple[str, ...]
    columns: Mapping[str, int]

    def message(self, origin: str) -> str:
        """For people; ``origin`` is the source's table."""
        what = {
            _MISSING: f"{self.rows} rows of {origin} are missing",
            _SURPLUS: f"{self.rows} rows are not in {origin}",
            _OTHER: f"{self.rows} rows have other values than in {origin}, in "
            + ", ".join(f"{name} ({rows})" for name, rows in self.columns.items()),
        }[self.kind]
        some = ", ".join(self.examples) + (", ..." if self.rows > len(self.examples) else "")
        return f"{what}; keys between {self.low} and {self.high}: {some}"


@dataclass(frozen=True)
class Compared:
    """What a comparison found. ``unreadable`` rows of the source have values that the table cannot hold: dead letters.

    ``unknown`` columns of the table are not in the source.
    """

    differences: tuple[Difference, ...]
    unreadable: int
    unknown: tuple[str, ...]


def compared(
    ours: DataFrame,
    theirs: DataFrame,
    table: IcebergTable,
    sink: SinkSpec,
    *,
    sink_id: str,
    transforms: Sequence[TransformSpec] = (),
) -> Compared:
    """Compares the rows of an upsert's table with those that its source has now. A DataError when these do not fit the table.

    What is compared of a history are its current rows, but for the columns that say since when they are.
    """
    shaped = sink_rows(theirs, sink, transforms)
    # Rows that cannot be written are counted, whatever the pipeline does with them.
    lenient = sink.model_copy(update={"on_error": OnError.DEAD_LETTER})
    fit = fit_of(table, lenient, sink_id, shaped)
    applied = fit.applied(shaped)
    if OP in applied.columns:
        applied = applied.where(~functions.col(OP).isin(DELETE, IGNORE))
    wrong = functions.col(ERROR).isNotNull() if ERROR in applied.columns else functions.lit(False)
    versions = () if sink.history is None else sink.history.columns
    names, keys = ([name for name in some if name not in versions] for some in (fit.given, fit.keys))
    left = _hashed(_as_fitted(ours, fit), names, keys)
    right = _hashed(applied, names, keys, wrong)
    here, there = _sums(left), _sums(right)
    unreadable, _ = there.pop(_UNREADABLE, (0, 0))
    groups = [group for group in here.keys() | there.keys() if here.get(group) != there.get(group)]
    differences = _differences(left, right, groups, names) if groups else ()
    unknown = tuple(name for name in fit.names if name not in (*names, *versions))
    return Compared(differences, unreadable, unknown)


def _as_fitted(ours: DataFrame, fit: Fit) -> DataFrame:
    """The table's rows under the names, and with the types, that the source's next rows would give its columns."""
    before = {renamed(column.name, fit.evolution): column.name for column in fit.inputs.table.fields}
    columns = [(functions.col(quoted(before[name])) if name in before else functions.lit(None)).alias(name) for name in fit.names]
    return ours.select(*columns)


def _hashed(frame: DataFrame, names: Sequence[str], keys: Sequence[str], wrong: Column | None = None) -> DataFrame:
    """The group of each row, its key, and the hashes of its values. Rows that are ``wrong`` are a group of their own."""
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    key = functions.struct(*[functions.col(quoted(name)).alias(name) for name in keys])
    values = [_hash_of(functions.col(quoted(name)), nested=isinstance(kinds[name], _NESTED)) for name in names]
    group = functions.pmod(functions.xxhash64(*[functions.col(quoted(name)) for name in keys]), functions.lit(GROUPS))
    if wrong is not None:
        group = functions.when(wrong, _UNREADABLE).otherwise(group)
    return frame.select(group.alias(_GROUP), key.alias(_KEY), functions.array(*values).alias("hashes"))


def _hash_of(value: Column, *, nested: bool) -> Column:
    """Equal only for equal values: hashing a null returns the seed, so the positions of nulls are hashed, too."""
    shown = functions.to_json(functions.struct(value), {"ignoreNullFields": "false"}) if nested else value
    return functions.xxhash64(value.isNull(), shown)


def _sums(frame: DataFrame) -> dict[int, tuple[int, int]]:
    row = functions.xxhash64(_KEY, "hashes").cast("decimal(38, 0)")
    summed = frame.groupBy(_GROUP).agg(functions.count(functions.lit(1)).alias("rows"), functions.sum(row).alias("sum"))
    return {int(found[_GROUP]): (int(found["rows"]), int(found["sum"])) for found in summed.collect()}


def _differences(left: DataFrame, right: DataFrame, groups: Collection[int], names: Sequence[str]) -> tuple[Difference, ...]:
    among = functions.col(_GROUP).isin(*groups)
    ours = left.where(among).select(_KEY, functions.col("hashes").alias(_OURS))
    theirs = right.where(among).select(_KEY, functions.col("hashes").alias(_THEIRS))
    joined = ours.join(theirs, _KEY, "full")
    kind = functions.when(functions.col(_OURS).isNull(), _MISSING).when(functions.col(_THEIRS).isNull(), _SURPLUS)
    differing = joined.withColumn("kind", kind.otherwise(_OTHER)).where(~functions.col(_OURS).eqNullSafe(functions.col(_THEIRS)))
    differing.persist()
    try:
        return tuple(_summed(differing, names))
    finally:
        differing.unpersist()


def _summed(differing: DataFrame, names: Sequence[str]) -> Iterator[Difference]:
    counts = [
        functions.count_if(~functions.col(_OURS)[at].eqNullSafe(functions.col(_THEIRS)[at])).alias(f"c{at}")
        for at in range(len(names))
    ]
    found = differing.groupBy("kind").agg(
        functions.count(functions.lit(1)).alias("rows"),
        functions.min(_KEY).alias("low"),
        functions.max(_KEY).alias("high"),
        *counts,
    )
    for row in sorted(found.collect(), key=lambda one: (_MISSING, _SURPLUS, _OTHER).index(one["kind"])):
        columns = {name: int(row[f"c{at}"]) for at, name in enumerate(names) if row[f"c{at}"]} if row["kind"] == _OTHER else {}
        lowest = differing.where(functions.col("kind") == row["kind"]).orderBy(_KEY).limit(EXAMPLES)
        examples = tuple(_shown(one[_KEY]) for one in lowest.select(_KEY).collect())
        yield Difference(row["kind"], int(row["rows"]), _shown(row["low"]), _shown(row["high"]), examples, columns)


def _shown(key: Any) -> str:
    """A key as people write it: `id=7`, `(shop=a, id=7)`."""
    parts = [f"{name}={value}" for name, value in key.asDict().items()]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
