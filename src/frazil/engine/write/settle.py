"""Settles the debt that deletes by key leave to readers: each is looked up once, here, and from then on is a position.

The keys of the deletes are joined with the key columns of the data files that can hold them; no other column is read, and what
is kept in memory grows with the deletes, not with the table. Before the old deletes go, the table is read again under the new
ones, and must hold the same keys, row for row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import xor
from threading import Lock
from typing import Any

import pyarrow
from pyarrow import compute
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, Row, SparkSession, functions

from frazil.engine.iceberg import Change, Deletes, FileFacts, IcebergTable, Rewrite, Scratch, StagedFiles, bitmap_of
from frazil.engine.schema import quoted
from frazil.engine.write.ground import together
from frazil.errors import Halted
from frazil.model.changes import ChangeOptions

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
class Settlement:
    """A settlement that is ready to be committed: how many deletes (or files of them) it ends, of how many rows."""

    change: Change
    deletes: int
    rows: int


@dataclass(frozen=True)
class Digest:
    """How many rows there are, and all their keys in one number."""

    rows: int
    keys: int

    @classmethod
    def of(cls, row: Row) -> Digest:
        """As Spark has summed it up."""
        return cls(int(row["rows"]), int(row["keys"] or 0))

    def __sub__(self, other: Digest) -> Digest:
        return Digest(self.rows - other.rows, self.keys ^ other.keys)


def too_many_keys(table: IcebergTable, options: ChangeOptions) -> bool:
    """Whether the table holds more deletes by key than the sink allows, or some among more files of deletes than it allows."""
    keys = table.total("equality-deletes")
    over = options.max_equality_deletes is not None and keys > options.max_equality_deletes
    return over or (keys > 0 and too_many_files(table, options))


def too_many_files(table: IcebergTable, options: ChangeOptions) -> bool:
    """Whether the table holds more files of deletes than the sink allows."""
    files = table.total("delete-files")
    return options.max_delete_files is not None and files > options.max_delete_files


def compact(table: IcebergTable) -> Settlement | None:
    """Writes the data files that have deletes anew, without the rows that those delete."""
    base = table.base
    with table.scratch() as scratch:
        before = scratch.rows.count()
        scratch.compact_files_with_deletes()
        operation = scratch.rewrite()
        after = scratch.rows.count()
    if not operation.removed:
        return None
    if before != after:
        raise _audit_failed(before, after)
    ended = len(operation.removed_deletes)
    summary = {"frazil.kind": "compact", "frazil.compacted-files": str(len(operation.removed))}
    return Settlement(Change(operation, base, summary=summary), ended, after)


def settle(table: IcebergTable) -> Settlement | None:
    """Turns the live equality deletes of the table into positions; None when there are none.

    Small files that came with the deletes are written anew in few. Deletes that compare different columns are settled one kind
    at a time.
    """
    base = table.base
    with table.scratch() as scratch:
        kinds = scratch.equality_deletes
        if not kinds:
            return None
        deletes = kinds[0]
        scratch.without(deletes)
        bounds = scratch.bounds(deletes)
        rows = _within(scratch.rows, bounds)
        live = scratch.live_files()
        held, have = scratch.facts(deletes), scratch.data_facts(live)
        small = scratch.small_files(live, have, since=min(fact.sequence for fact in held))
        gone, dead = _looked_up(scratch, rows, deletes, held, have)

        def changed() -> tuple[list[Any], list[Any], StagedFiles]:
            return *scratch.add_positions(dead, live), scratch.merge(small)

        # To write the positions keeps the driver busy, and the executors have nothing else to do meanwhile.
        (added, replaced, merged), before = together(changed, lambda: _digest(rows, deletes.columns), session=scratch.spark)
        after = _digest(_within(scratch.rows, bounds), deletes.columns)
        merged_paths = {one.path for one in small}
        kept = tuple(file for file in added if str(file.referencedDataFile()) not in merged_paths)
        scratch.delete_files({str(file.location()) for file in added} - {str(file.location()) for file in kept})
    # Between the bounds the same keys must be left. As many positions as rows that went leave none over for rows outside of them.
    left = sum((one.rows or 0) - len(dead.get(one.path, ())) for one in small)
    if after != before - gone or _records(added) - _records(replaced) != gone.rows or merged.rows != left:
        raise _audit_failed(before.rows - gone.rows, after.rows)
    count = _records(deletes.files)
    summary = {"frazil.kind": "settle", "frazil.settled-equality-deletes": str(count), "frazil.settled-rows": str(gone.rows)}
    if small:
        summary["frazil.merged-files"] = str(len(small))
    vectors = (one.vector for one in small if one.vector is not None and one.path not in dead)
    operation = Rewrite(merged, tuple(one.file for one in small), kept, (*replaced, *vectors, *deletes.files))
    return Settlement(Change(operation, base, summary=summary), count, gone.rows)


def _records(deletes: Sequence[Any]) -> int:
    return sum(int(file.recordCount()) for file in deletes)


def _audit_failed(expected: int, found: int) -> Halted:
    return Halted(
        "audit-failed",
        f"The table's deletes were put in another form, but it would not hold the same rows then: {found} instead of {expected}, "
        "or others. Nothing was changed.",
        fix="Report this. Set max_equality_deletes and max_delete_files to null to go on without it.",
    )


@dataclass(frozen=True)
class _Places:
    """Where files stand, as numbers: those of scopes are short to carry along with every key and row."""

    scopes: dict[str, int]

    @classmethod
    def of(cls, *files: Sequence[FileFacts]) -> _Places:
        """The scopes of the files. That of all partitions is 0."""
        named = dict.fromkeys(one.scope for facts in files for one in facts if one.scope)
        return cls({"": 0} | {scope: number for number, scope in enumerate(named, start=1)})

    def frame(self, scratch: Scratch, facts: Sequence[FileFacts]) -> DataFrame:
        """The files with the number of each, when it came and in which scope."""
        columns = {
            _FILE: pyarrow.array([one.path for one in facts], pyarrow.string()),
            _NUMBER: pyarrow.array(range(len(facts)), pyarrow.int32()),
            _SINCE: pyarrow.array([one.sequence for one in facts], pyarrow.int64()),
            _SCOPE: pyarrow.array([self.scopes[one.scope] for one in facts], pyarrow.int32()),
        }
        return scratch.spark.createDataFrame(pyarrow.table(columns))


def _keys(scratch: Scratch, deletes: Deletes, files: DataFrame) -> DataFrame:
    """Each key once for every scope that it is deleted in, with the last time that it was."""
    held = scratch.keys_of(deletes)
    named = held.select(*[quoted(column) for column in deletes.columns], functions.col("_file").alias(_FILE))
    by_key = named.join(functions.broadcast(files), _FILE).groupBy(*[quoted(c) for c in deletes.columns], _SCOPE)
    return by_key.agg(functions.max(_SINCE).alias(_SINCE))


def _within(rows: DataFrame, bounds: Mapping[str, tuple[Any, Any]]) -> DataFrame:
    """The rows whose keys lie between the least and the greatest deleted: files and row groups outside need not be read."""
    for column, (low, high) in bounds.items():
        if not rows.schema[column].nullable:
            rows = rows.where(functions.col(quoted(column)).between(low, high))
    return rows


def _looked_up(
    scratch: Scratch, rows: DataFrame, deletes: Deletes, held: Sequence[FileFacts], have: Sequence[FileFacts]
) -> tuple[Digest, dict[str, BitMap64]]:
    """What the rows are that came before a delete of their key, and their positions in their files.

    ``held`` are the files of the deletes, ``have`` those of the rows. Executors put positions together, so that little is left to
    bring here. To sum all rows up in a pass of its own takes less than to do it on their way to the join.
    """
    columns = deletes.columns
    places = _Places.of(held, have)
    keys = _keys(scratch, deletes, places.frame(scratch, held))
    few = _records(deletes.files) <= MOST_KEYS_TO_BROADCAST
    wanted = functions.broadcast(keys) if few else keys
    files = places.frame(scratch, have).withColumnsRenamed({_SINCE: "__came", _SCOPE: "__in"})
    here = rows.select(
        *[quoted(column) for column in columns],
        functions.col("_file").alias(_FILE),
        functions.col("_pos").alias(_POSITION),
    )
    same_key = reduce(Column.__and__, (_same(here, wanted, column) for column in columns))
    hashed = functions.xxhash64(*[here[quoted(column)] for column in columns])
    met = here.join(wanted, same_key).select(_FILE, _POSITION, hashed.alias(_HASH), _SINCE, _SCOPE)
    applies = (functions.col("__came") < functions.col(_SINCE)) & functions.col(_SCOPE).isin(0, functions.col("__in"))
    dead = met.join(functions.broadcast(files), _FILE).where(applies).select(_NUMBER, _POSITION, _HASH)
    # A row can meet its key twice only if deletes of one partition and deletes of all are there together.
    if len({fact.scope == "" for fact in held}) > 1:
        dead = dead.dropDuplicates([_NUMBER, _POSITION])

    with _pruning(scratch.spark, _records(deletes.files) <= MOST_KEYS_TO_PRUNE_BY):
        found = _in_words(dead).toArrow()
    gone = Digest(compute.sum(found["rows"]).as_py() or 0, reduce(xor, found["keys"].to_pylist(), 0))
    bitmaps = {have[number].path: bitmap_of(words[_WORD], words[_BITS]) for number, words in _by_number(found)}
    return gone, bitmaps


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


def _hash(columns: Sequence[str]) -> Column:
    return functions.xxhash64(*[functions.col(quoted(column)) for column in columns])


def _summed(hashed: Column) -> tuple[Column, Column]:
    return functions.count(functions.lit(1)).alias("rows"), functions.bit_xor(hashed).alias("keys")


def _digest(rows: DataFrame, columns: Sequence[str]) -> Digest:
    row = rows.agg(*_summed(_hash(columns))).first()
    assert row is not None, "an aggregate has one row"
    return Digest.of(row)
