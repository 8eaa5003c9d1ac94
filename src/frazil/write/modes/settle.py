"""Settles the debt that equality deletes leave to readers: each is looked up once, here, and becomes position deletes.

The keys of the deletes are looked up in the key columns of the data files that can contain them; no other column is read.
Memory grows with the deletes and, by a few kilobytes each, with the data files, not with the rows of the table. Before the old
deletes are removed, the table is read again with the new ones, and must have the same keys, row for row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, functions

from frazil.columns.schema import quoted
from frazil.errors import Halted
from frazil.iceberg import Change, Digest, FileFacts, IcebergTable, LiveFile, Rewrite, WorkingCopy
from frazil.model.changes import WITHOUT_EQUALITY_DELETES, ChangeOptions
from frazil.write.modes.lookup import DeadPositions, Search, digest_of, records
from frazil.write.modes.table_context import together

if TYPE_CHECKING:
    from pyroaring import BitMap64


@dataclass(frozen=True)
class Settlement:
    """A settlement that is ready to be committed: how many deletes (or delete files) it removes, and how many rows they delete.

    ``kinds_left``: how many other sets of columns live equality deletes use.
    """

    change: Change
    deletes: int
    rows: int
    kinds_left: int = 0


def too_many_keys(table: IcebergTable, options: ChangeOptions) -> bool:
    """Whether the table has more equality deletes than the sink allows, or more files of them than it allows delete files.

    If readers cannot read them, a single one is too many: they may have been written before ``readers`` was set.
    """
    keys = table.total("equality-deletes")
    if any(reader in WITHOUT_EQUALITY_DELETES for reader in options.readers):
        return keys > 0
    if keys == 0:
        return False
    over = options.max_equality_deletes is not None and keys > options.max_equality_deletes
    return over or (_more_files(table, options) and table.equality_delete_files > (options.max_delete_files or 0))


def too_many_files(table: IcebergTable, options: ChangeOptions) -> bool:
    """Whether the table holds more files of deletes than the sink allows, and more than one for each of its data files.

    To read a data file with one of them costs little, and to rewrite all of these costs much: only for a sink that allows none.
    """
    more = _more_files(table, options)
    return more and (options.max_delete_files == 0 or table.total("delete-files") > table.total("data-files"))


def _more_files(table: IcebergTable, options: ChangeOptions) -> bool:
    return options.max_delete_files is not None and table.total("delete-files") > options.max_delete_files


def compact(table: IcebergTable) -> Settlement | None:
    """Rewrites the data files that have deletes, without the deleted rows."""
    base = table.base
    columns = [column.name for column in table.schema.fields]
    with table.working_copy() as copy:
        live = copy.live_files()
        before = copy.rows.count()
        copy.compact_files_with_deletes()
        operation = copy.rewrite()
        if not operation.removed:
            return None
        after = copy.rows.count()
        old = _digest_of(copy, _among(live, operation.removed), columns)
        new = _digest_of(copy, _among(copy.live_files(), operation.staged.files), columns)
    # The new files have the rows of those that they replace, and no delete was removed that other files need.
    if before != after or old != new:
        raise _audit_failed(before, after)
    ended = len(operation.removed_deletes)
    summary = {"frazil.kind": "compact", "frazil.compacted-files": str(len(operation.removed))}
    return Settlement(Change(operation, base, summary=summary), ended, after)


def settle(table: IcebergTable) -> Settlement | None:
    """Turns the live equality deletes of the table into positions; None when there are none.

    Small files that came with the deletes are merged into fewer. Deletes on different columns are settled one kind at a time;
    the settlement has the number of kinds that are left.
    """
    base = table.base
    with table.working_copy() as copy:
        kinds = copy.equality_deletes()
        if not kinds:
            return None
        deletes = kinds[0]
        search = Search(copy, deletes, copy.facts(deletes))

        def opened() -> tuple[list[LiveFile], list[FileFacts], DataFrame]:
            copy.without(deletes)
            live = copy.live_files()
            return live, copy.data_facts(live), copy.rows

        # To look through the table's files keeps the driver busy, and the executors have nothing else to do meanwhile.
        (live, facts, whole), keys = together(opened, search.gathering(), session=copy.spark)
        bounds = {name: both for name, both in search.bounds(keys).items() if not whole.schema[name].nullable}
        found = search.found(keys, DeadPositions(_within(whole, bounds), facts, bounds))
        small = copy.small_files(live, facts, since=min(fact.sequence for fact in search.facts))
        paths = {one.path for one in small}
        here = {path: dead for path, dead in found.dead.items() if path in paths}
        elsewhere = {path: dead for path, dead in found.dead.items() if path not in paths}

        def without_dead() -> tuple[Rewrite, int]:
            marked = copy.positions(elsewhere, live)
            ended = (*marked.replaced, *(one.vector for one in small if one.vector is not None))
            rewrite = Rewrite(removed=tuple(one.file for one in small), deletes=marked.added, removed_deletes=ended)
            copy.apply(rewrite)
            return rewrite, marked.rows

        # The driver has nothing else to do while executors write: of all changes only the merged files are left for later.
        (rewrite, marked), merged = together(without_dead, lambda: copy.merged(small, here), session=copy.spark)
        copy.apply(Rewrite(merged))
        after = digest_of(_within(copy.rows, bounds), deletes.columns)
        upgraded = _rows_of_upgraded(copy, live, elsewhere, deletes.columns)
    expected = found.before - found.gone
    # Between the bounds the same keys must be left. As many positions as rows that went leave none over for rows outside of them.
    dead_here = sum(map(len, here.values()))
    left = sum(one.rows or 0 for one in small) - dead_here
    if after != expected or marked + dead_here != found.gone.rows or merged.rows != left or upgraded[0] != upgraded[1]:
        raise _audit_failed(expected.rows, after.rows)
    count = records(deletes.files)
    summary = {
        "frazil.kind": "settle",
        "frazil.settled-equality-deletes": str(count),
        "frazil.settled-rows": str(found.gone.rows),
    }
    if small:
        summary["frazil.merged-files"] = str(len(small))
    operation = replace(rewrite, staged=merged, removed_deletes=(*rewrite.removed_deletes, *deletes.files))
    return Settlement(Change(operation, base, summary=summary), count, found.gone.rows, len(kinds) - 1)


def _rows_of_upgraded(
    copy: WorkingCopy, live: Sequence[LiveFile], dead: Mapping[str, BitMap64], columns: Sequence[str]
) -> tuple[int, int]:
    """How many rows must be left of files that had position delete files and have vectors now; and how many are.

    A table has such files that was upgraded from version 2. A vector makes the position deletes void, those of keys out of all
    bounds, too, so that these files are counted as a whole.
    """
    had = [one for one in live if one.path in dead and one.position_files] if copy.keeps_vectors else []
    if not had:
        return 0, 0
    have = _among(copy.live_files(), [one.file for one in had])
    gone = sum(len(dead[one.path]) for one in had)
    return _digest_of(copy, had, columns).rows - gone, _digest_of(copy, have, columns).rows


def _among(live: Sequence[LiveFile], files: Sequence[Any]) -> list[LiveFile]:
    paths = {str(file.location()) for file in files}
    return [one for one in live if one.path in paths]


def _digest_of(copy: WorkingCopy, files: Sequence[LiveFile], columns: Sequence[str]) -> Digest:
    if not files:
        return Digest(0, 0)
    with copy.rows_of(files) as rows:
        return digest_of(rows, columns)


def _audit_failed(expected: int, found: int) -> Halted:
    return Halted(
        "audit-failed",
        f"Settling the table's equality deletes would have changed its rows: it would hold {found} instead of {expected}, or "
        "other ones. Nothing was committed.",
        fix="Report this. Set max_equality_deletes and max_delete_files to null to go on without it.",
    )


def _within(rows: DataFrame, bounds: Mapping[str, tuple[Any, Any]]) -> DataFrame:
    """The rows whose keys lie between the least and the greatest deleted: files and row groups outside need not be read."""
    for column, (low, high) in bounds.items():
        rows = rows.where(functions.col(quoted(column)).between(low, high))
    return rows
