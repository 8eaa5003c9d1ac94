"""Finds the rows of a table by their keys without reading the table: by an index in a folder of this machine.

The index is only a cache. It says which snapshot it describes, and is brought up to date from the files that came and went since
then, whoever committed them; where that cannot be found out, it is built anew from the key columns. A key is known by 128 bits of
hash under a seed that each index draws for itself. What keeps the entries is Java: see ``jvm/KeyIndex.java``.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from threading import Lock
from typing import Any

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import DataType, DecimalType, IntegerType

from frazil.columns.schema import quoted
from frazil.errors import Retryable
from frazil.iceberg.branches import head_of, seen_from, steps_between
from frazil.iceberg.changes import DeletesWritten, Restage
from frazil.iceberg.index_folders import look_after
from frazil.iceberg.jvm import Jvm, fault_of
from frazil.iceberg.small import rows_of_tasks
from frazil.iceberg.splits import OPEN_BYTES, TASK_BYTES
from frazil.model.publishing import MAIN
from frazil.spark.running_java import java_class

_INDEX, _PLACES = "frazil.KeyIndex", "frazil.Places"
_FAILED, _DAMAGED = f"{_INDEX}$Failed", f"{_INDEX}$Damaged"
_FILE, _POSITION = "_file", "_pos"
# The file of the folder that says what the index describes.
_STATE = "state"
_MOST_DIGITS = 38
_log = logging.getLogger("frazil")
# The ways of an upsert after which the files that it added have the only rows with their keys.
_REPLACING = frozenset({"append", "equality_delete", "position"})


class IndexFailed(Retryable):
    """The index cannot be used. The table is as good as without it: rows are found in another way."""


class IndexDamaged(IndexFailed):
    """Its files are not what was written. They were deleted: the next batch finds no index, and may build one."""


@dataclass(frozen=True)
class _Described:
    """What an index describes: a snapshot of a table, by columns whose hashes have these seeds."""

    table: str
    keys: tuple[tuple[int, str], ...]
    snapshot: int | None
    seeds: tuple[int, int]

    @classmethod
    def read(cls, text: str) -> _Described | None:
        """None when there is none."""
        if not text:
            return None
        fields = json.loads(text)
        keys = tuple((number, kind) for number, kind in fields["keys"])
        return cls(fields["table"], keys, fields["snapshot"], (fields["seeds"][0], fields["seeds"][1]))

    @property
    def text(self) -> str:
        """As it is kept with the entries."""
        return json.dumps(asdict(self))

    def is_of(self, table: str, keys: tuple[tuple[int, str], ...]) -> bool:
        """Whether it is the index of a table by these columns."""
        return (self.table, self.keys) == (table, keys)


@dataclass(frozen=True)
class HashedKeys:
    """The keys of a batch: the columns that they are in, and their hashes, which Java has sorted."""

    names: tuple[str, ...]
    hashes: Any


class KeyIndex:
    """The index of the table of one sink, in a folder of its own."""

    def __init__(self, folder: Path, sink_id: str) -> None:
        self._folder = folder
        self._sink_id = sink_id
        self._java: Any = None
        # Fresh ones unless the folder has an index: what was built with them may be built anew while keys wait to be looked up.
        self._seeds = (secrets.randbits(63), secrets.randbits(63))
        # The next batch may be staged while one is committed.
        self._one_at_a_time = Lock()
        self._given_up: str | None = None
        self._passed_over: str | None = None

    @property
    def is_there(self) -> bool:
        """Whether there is an index that need not be built first."""
        return (self._folder / _STATE).exists()

    def open(self, jvm: Jvm) -> None:
        """Opens the folder, unless it is open. Another process that has it may let go of it: it is asked for again then."""
        if self._java is not None:
            return
        look_after(self._folder.parent)
        index = java_class(jvm.spark, _INDEX)
        with self._usable():
            self._java = None if index is None else index.open(str(self._folder))
            if self._java is not None and (known := self._described()) is not None:
                self._seeds = known.seeds
        if self._java is None:
            why = "another process has it" if index is not None else "Spark was started without frazil's jar"
            raise IndexFailed("key-index-failed", f"The key index in {self._folder} cannot be used: {why}.")

    def why_unused(self) -> str | None:
        """Why it is not used any more, or not for the batch that is staged now."""
        why, self._passed_over = self._given_up or self._passed_over, None
        return why

    def pass_over(self, failed: IndexFailed) -> None:
        """Has the batch that is staged next go another way: it failed in its commit."""
        self._passed_over = failed.message

    def _give_up(self, failed: IndexFailed) -> None:
        """It is not tried again, unless it was only damaged: a disk that is full most likely still is with the next batch."""
        if isinstance(failed, IndexDamaged):
            _log.warning("%s The rows to replace are found in another way; a later batch builds the index anew.", failed.message)
            return
        self._given_up = failed.message
        _log.warning("%s The rows to replace are found in another way from now on.", failed.message)

    def hashed(self, jvm: Jvm, keys: DataFrame) -> HashedKeys:
        """The keys of a batch, to be looked up with its commit; their columns have the names that the table will have."""
        names = keys.columns
        with self._usable():
            return HashedKeys(tuple(names), java_class(jvm.spark, _INDEX).sorted(_hashed(keys, names, self._seeds)._jdf))

    def catch_up(self, jvm: Jvm, table: Any, names: Sequence[str]) -> None:
        """Adds what came into the table, or builds the index, so that a commit has little left to add.

        An index that is ahead of the table is left to the commit.
        """
        with self._one_at_a_time, self._usable():
            if not self._is_ahead(table):
                self._updated(jvm, table, _live(jvm, table), names)

    def tasks(self, jvm: Jvm, table: Any, keys: HashedKeys) -> Any:
        """What reads the files of the table that may have rows with one of the keys; None if the index is ahead of the table."""
        with self._one_at_a_time, self._usable():
            if self._is_ahead(table):
                return None
            live = _live(jvm, table)
            self._updated(jvm, table, live, keys.names)
            return self._java.find(keys.hashes).tasks(live)

    def _is_ahead(self, table: Any) -> bool:
        """Whether it describes a snapshot that the table does not know, as it may when that was loaded before a commit."""
        known = self._described()
        return known is not None and known.snapshot is not None and table.snapshot(known.snapshot) is None

    def delete(self, jvm: Jvm, table: Any, keys: HashedKeys) -> DeletesWritten:
        """Writes files that delete the rows of the table's head with one of the keys."""
        with self._one_at_a_time:
            live = _live(jvm, table)
            with self._usable():
                self._updated(jvm, table, live, keys.names)
                found = self._java.find(keys.hashes)
            head = head_of(table.operations().current(), MAIN)
            if found.files().isEmpty():
                return DeletesWritten(head)
            several, rows = (int(number) for number in found.duplicates(table, live))
            result = found.delete(table, live)
        if several:
            _log.warning(
                "%s has %d rows with %d keys of the batch, which others must have added. The batch leaves one row of each key.",
                table.name(), rows, several,
            )  # fmt: skip
        return DeletesWritten(head, tuple(result.deleteFiles()), tuple(result.rewrittenDeleteFiles()), rows - several)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """An index that fails is given up."""
        try:
            with _failures():
                yield
        except IndexFailed as failed:
            self._give_up(failed)
            raise

    def _described(self) -> _Described | None:
        described = _Described.read(str(self._java.state()))
        if lost := str(self._java.lost()):
            _log.warning("The key index in %s is built anew: %s.", self._folder, lost)
        return described

    def _updated(self, jvm: Jvm, table: Any, live: Any, names: Sequence[str]) -> None:
        metadata = table.operations().current()
        now, uuid = head_of(metadata, MAIN), str(metadata.uuid())
        fields = [metadata.schema().findField(name) for name in names]
        keys = tuple((int(field.fieldId()), _kind(str(field.type().typeId()))) for field in fields)
        known = self._described()
        if known is None or not known.is_of(uuid, keys) or not _comes_from(jvm, table, now, known.snapshot):
            self._java.clear()
            known = _Described(uuid, keys, None, self._seeds)
        elif known.snapshot == now:
            return
        gone = jvm.root.java.util.HashSet(self._java.files())
        gone.removeAll(live.keySet())
        self._java.remove(gone)
        alone = jvm.text_list(_replacing(jvm, metadata, known.snapshot, now, self._sink_id))
        places = java_class(jvm.spark, _PLACES)
        for group in places.fresh(table, live, self._java.files(), alone):
            rows, size = (int(number) for number in group.size())
            # A task sorts its entries in memory, and the driver takes them: files with many rows to a byte are divided further.
            split = size * int(java_class(jvm.spark, _INDEX).rowsOfTask(jvm.spark._jsparkSession)) // max(1, rows)
            options = {"split-size": max(1, min(TASK_BYTES, split)), "file-open-cost": OPEN_BYTES}
            with rows_of_tasks(jvm, jvm.spark, table, group.tasks(), options) as read:
                self._add(read, names, group)
        self._save(replace(known, snapshot=now))

    def _add(self, read: DataFrame, names: Sequence[str], group: Any) -> None:
        """Rows that lack a part of their key are left out: no row of a batch does."""
        complete = read.where(reduce(Column.__and__, (functions.col(quoted(name)).isNotNull() for name in names)))
        self._java.add(_hashed(complete, names, self._seeds, _FILE, _POSITION)._jdf, group.paths(), group.replaces())

    def _save(self, described: _Described) -> None:
        self._java.save(described.text)


@dataclass(frozen=True)
class Lookup:
    """Deletes the rows with the keys of a batch from the table that a commit finds."""

    jvm: Jvm
    index: KeyIndex
    keys: HashedKeys
    table: Any
    branch: str

    def __call__(self, transaction: Any) -> DeletesWritten:
        """The files, for the table that a transaction is on. If the index fails, the batch is staged in another way."""
        metadata = seen_from(self.jvm, transaction.table().operations().current(), self.branch)
        try:
            return self.index.delete(self.jvm, self.jvm.view(self.table, metadata), self.keys)
        except IndexFailed as failed:
            self.index.pass_over(failed)
            raise Restage(failed.code, failed.message, fix=failed.fix) from failed


def _live(jvm: Jvm, table: Any) -> Any:
    """The table's data files by their paths."""
    return java_class(jvm.spark, _PLACES).live(table)


@contextmanager
def _failures() -> Iterator[None]:
    """A failure of the index itself has a type of its own; those of the table stay what they are."""
    try:
        yield
    except Exception as error:
        failed = fault_of(error).find(_FAILED)
        if failed is None:
            raise
        fix = "Make room there, or set settings.state_dir to another folder of this machine."
        kind = IndexDamaged if failed.is_of(_DAMAGED) else IndexFailed
        raise kind("key-index-failed", f"{failed.message}.", fix=fix) from error


def _comes_from(jvm: Jvm, table: Any, now: int | None, then: int | None) -> bool:
    """Whether a snapshot is an ancestor of the head, or the head. Otherwise rows that were deleted may live again."""
    if then is None or now is None or then == now:
        return then == now or then is None
    return bool(jvm.iceberg.util.SnapshotUtil.isAncestorOf(table, now, then))


def _replacing(jvm: Jvm, metadata: Any, then: int | None, now: int | None, sink_id: str) -> list[str]:
    """The sequence numbers of the snapshots since then in which the sink replaced all rows with the keys that it added."""
    if then is None or now is None:
        return []
    steps = steps_between(jvm, metadata, then, now)
    own = [one for one in steps if one.summary.get("frazil.sink") == sink_id and one.summary.get("frazil.kind") == "data"]
    return [
        str(metadata.snapshot(one.snapshot).sequenceNumber())
        for one in own
        if one.summary.get("frazil.upsert-strategy") in _REPLACING
    ]


def _hashed(rows: DataFrame, names: Sequence[str], seeds: tuple[int, int], *others: str) -> DataFrame:
    """Both halves of the hashes of keys, and other columns."""
    keys = [_same_when_widened(functions.col(quoted(name)), rows.schema[name].dataType) for name in names]
    hashes = [functions.xxhash64(functions.lit(seed), *keys).alias(f"hash{half}") for half, seed in enumerate(seeds)]
    return rows.select(*hashes, *others)


def _kind(name: str) -> str:
    """A type by its name, which is that of the type that it may be widened to."""
    return "LONG" if name == "INTEGER" else name


def _same_when_widened(key: Column, kind: DataType) -> Column:
    """A key in the widest type that its column can get: files are not rewritten when a type is widened."""
    match kind:
        case IntegerType():
            return key.cast("long")
        case DecimalType():
            return key.cast(DecimalType(_MOST_DIGITS, kind.scale))
        case _:
            return key
