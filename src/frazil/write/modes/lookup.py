"""Finds the rows that equality deletes have deleted: which rows there were, which of them are deleted, and where they are.

Keys of one integer are looked up by frazil's own Java, in one pass over the rows. All others, and all keys in a session that
was started without frazil's jar, are joined with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import xor
from threading import Lock
from typing import Any

import pyarrow
from pyarrow import compute
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.types import IntegerType, LongType

from frazil.columns.digest import hashable
from frazil.columns.schema import quoted
from frazil.iceberg import DeadRows, DeletedKeys, Deletes, Digest, FileFacts, WorkingCopy, bitmap_of, scopes_of
from frazil.write.modes.table_context import together

# So many keys are handed to Iceberg, which leaves files unread by them; it takes longer to look at more than to read the files.
MOST_KEYS_TO_PRUNE_BY = 10_000
_PRUNING = "spark.sql.optimizer.dynamicPartitionPruning.enabled"
_pruning_lock = Lock()

# So many keys are sent to every executor; more are shuffled to where the rows are.
MOST_KEYS_TO_BROADCAST = 5_000_000

_FILE, _NUMBER, _POSITION, _SINCE, _SCOPE, _WORD, _BITS, _HASH = (
    f"__{name}" for name in ("file", "number", "pos", "since", "scope", "word", "bits", "hash")
)


@dataclass(frozen=True)
class DeadPositions:
    """The rows of a table that can be dead: those between ``bounds``, the least and the greatest key, where both are known."""

    frame: DataFrame
    files: Sequence[FileFacts]
    bounds: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Search:
    """Deletes by key, in files of which something is known, that are to be looked up in rows."""

    copy: WorkingCopy
    deletes: Deletes
    facts: Sequence[FileFacts]

    def gathering(self) -> Callable[[], DeletedKeys | None]:
        """What reads the keys for the quick way, in whichever thread; it brings none when they are to be joined."""
        schema = self.copy.schema
        kinds = [schema[column].dataType for column in self.deletes.columns]
        if len(kinds) != 1 or not isinstance(kinds[0], IntegerType | LongType) or not self._few:
            return lambda: None
        number = functions.col(quoted(self.deletes.columns[0])).cast("long")
        return lambda: DeletedKeys.gathered(self.copy.keys_of(self.deletes).select(number, "_file"), self.facts)

    def bounds(self, keys: DeletedKeys | None) -> dict[str, tuple[Any, Any]]:
        """The least and the greatest key of each column, where they are known."""
        if keys is None:
            return self.copy.bounds(self.deletes)
        both = keys.range()
        return {} if both is None else {self.deletes.columns[0]: both}

    def found(self, keys: DeletedKeys | None, rows: DeadPositions) -> DeadRows:
        """Looks every row up."""
        return (None if keys is None else self._passed(keys, rows)) or self._joined(rows)

    @property
    def _few(self) -> bool:
        return records(self.deletes.files) <= MOST_KEYS_TO_BROADCAST

    def _passed(self, keys: DeletedKeys, rows: DeadPositions) -> DeadRows | None:
        """In one pass over the rows, which sums them up as well."""
        (column,) = self.deletes.columns
        return keys.looked_up(rows.frame.select(quoted(column), "_file", "_pos"), rows.files, rows.bounds.get(column))

    def _joined(self, rows: DeadPositions) -> DeadRows:
        """By a join. To sum all rows up in a pass of its own takes less than to do it on their way there."""
        columns, spark = self.deletes.columns, self.copy.spark
        (gone, dead), before = together(lambda: self._met(rows), lambda: digest_of(rows.frame, columns), session=spark)
        return DeadRows(before, gone, dead)

    def _met(self, rows: DeadPositions) -> tuple[Digest, dict[str, BitMap64]]:
        """What the dead rows are, and their positions, which executors put together, so that little is left to bring here."""
        columns = self.deletes.columns
        scopes = scopes_of(rows.files, scopes_of(self.facts))
        keys = self._keys(scopes)
        wanted = functions.broadcast(keys) if self._few else keys
        files = self._frame(rows.files, scopes).withColumnsRenamed({_SINCE: "__came", _SCOPE: "__in"})
        here = rows.frame.select(
            *[quoted(column) for column in columns],
            functions.col("_file").alias(_FILE),
            functions.col("_pos").alias(_POSITION),
        )
        same_key = reduce(Column.__and__, (_same(here, wanted, column) for column in columns))
        met = here.join(wanted, same_key).select(_FILE, _POSITION, _hash(here, columns).alias(_HASH), _SINCE, _SCOPE)
        applies = (functions.col("__came") < functions.col(_SINCE)) & functions.col(_SCOPE).isin(0, functions.col("__in"))
        dead = met.join(functions.broadcast(files), _FILE).where(applies).select(_NUMBER, _POSITION, _HASH)
        # A row can meet its key twice only if deletes of one partition and deletes of all are there together.
        if len({fact.scope == "" for fact in self.facts}) > 1:
            dead = dead.dropDuplicates([_NUMBER, _POSITION])

        with _pruning(self.copy.spark, records(self.deletes.files) <= MOST_KEYS_TO_PRUNE_BY):
            found = _in_words(dead).toArrow()
        gone = Digest(compute.sum(found["rows"]).as_py() or 0, reduce(xor, found["keys"].to_pylist(), 0))
        bitmaps = {rows.files[number].path: bitmap_of(words[_WORD], words[_BITS]) for number, words in _by_number(found)}
        return gone, bitmaps

    def _frame(self, files: Sequence[FileFacts], scopes: Mapping[str, int]) -> DataFrame:
        """The files with the number of each, when it came and in which scope."""
        columns = {
            _FILE: pyarrow.array([one.path for one in files], pyarrow.string()),
            _NUMBER: pyarrow.array(range(len(files)), pyarrow.int32()),
            _SINCE: pyarrow.array([one.sequence for one in files], pyarrow.int64()),
            _SCOPE: pyarrow.array([scopes[one.scope] for one in files], pyarrow.int32()),
        }
        return self.copy.spark.createDataFrame(pyarrow.table(columns))

    def _keys(self, scopes: Mapping[str, int]) -> DataFrame:
        """Each key once for every scope that it is deleted in, with the last time that it was."""
        columns = [quoted(column) for column in self.deletes.columns]
        named = self.copy.keys_of(self.deletes).select(*columns, functions.col("_file").alias(_FILE))
        by_key = named.join(functions.broadcast(self._frame(self.facts, scopes)), _FILE).groupBy(*columns, _SCOPE)
        return by_key.agg(functions.max(_SINCE).alias(_SINCE))


def digest_of(rows: DataFrame, columns: Sequence[str]) -> Digest:
    """The rows, and their keys, or whatever columns are asked for."""
    row = rows.agg(*_summed(_hash(rows, columns))).first()
    assert row is not None, "an aggregate has one row"
    return Digest(int(row["rows"]), int(row["keys"] or 0))


def records(deletes: Sequence[Any]) -> int:
    """How many keys or positions there are in files of deletes."""
    return sum(int(file.recordCount()) for file in deletes)


def _in_words(dead: DataFrame) -> DataFrame:
    """Positions as words of 64 bits, which Spark adds up without sorting, and which are less to bring here than rows."""
    position = functions.col(_POSITION)
    bit = functions.call_function("shiftleft", functions.lit(1).cast("long"), position.bitwiseAND(63).cast("int"))
    words = dead.groupBy(_NUMBER, functions.shiftright(position, 6).alias(_WORD))
    return words.agg(functions.bit_or(bit).alias(_BITS), *_summed(functions.col(_HASH)))


def _by_number(found: pyarrow.Table) -> Iterator[tuple[int, pyarrow.Table]]:
    ordered = found.sort_by(_NUMBER)
    counts = compute.value_counts(ordered[_NUMBER]).to_pylist()
    first = 0
    for one in counts:
        yield one["values"], ordered.slice(first, one["counts"])
        first += one["counts"]


@contextmanager
def _pruning(spark: SparkSession, wanted: bool) -> Iterator[None]:
    """Lets Spark hand keys that it joins with to the scan, or not. Several sinks of a session may settle at once."""
    if wanted:
        yield
        return
    with _pruning_lock:
        before = spark.conf.get(_PRUNING)
        spark.conf.set(_PRUNING, "false")
        try:
            yield
        finally:
            spark.conf.set(_PRUNING, before or "true")


def _same(here: DataFrame, wanted: DataFrame, column: str) -> Column:
    """Whether the key is the same. Null is a value, too, but asking for it costs, and where it cannot be it is not asked for."""
    one, other = here[quoted(column)], wanted[quoted(column)]
    return one.eqNullSafe(other) if here.schema[column].nullable else one == other


def _hash(rows: DataFrame, columns: Sequence[str]) -> Column:
    return functions.xxhash64(*[hashable(rows[quoted(column)], rows.schema[column].dataType) for column in columns])


def _summed(hashed: Column) -> tuple[Column, Column]:
    return functions.count(functions.lit(1)).alias("rows"), functions.bit_xor(hashed).alias("keys")
