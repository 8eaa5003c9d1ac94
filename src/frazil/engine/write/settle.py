"""Settles the debt that deletes by key leave to readers: each is looked up once, here, and from then on is a position.

The keys of the deletes are looked up in the key columns of the data files that can hold them; no other column is read, and what
is kept in memory grows with the deletes, not with the table. Before the old deletes go, the table is read again under the new
ones, and must hold the same keys, row for row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, functions

from frazil.engine.iceberg import Change, FileFacts, IcebergTable, LiveFile, Rewrite
from frazil.engine.schema import quoted
from frazil.engine.write.ground import together
from frazil.engine.write.lookup import Rows, Search, digest_of, records
from frazil.errors import Halted
from frazil.model.changes import ChangeOptions


@dataclass(frozen=True)
class Settlement:
    """A settlement that is ready to be committed: how many deletes (or files of them) it ends, of how many rows."""

    change: Change
    deletes: int
    rows: int


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
        search = Search(scratch, deletes, scratch.facts(deletes))

        def opened() -> tuple[list[LiveFile], list[FileFacts], DataFrame]:
            scratch.without(deletes)
            live = scratch.live_files()
            return live, scratch.data_facts(live), scratch.rows

        # To look through the table's files keeps the driver busy, and the executors have nothing else to do meanwhile.
        (live, facts, whole), keys = together(opened, search.gathering(), session=scratch.spark)
        bounds = {name: both for name, both in search.bounds(keys).items() if not whole.schema[name].nullable}
        found = search.found(keys, Rows(_within(whole, bounds), facts, bounds))
        small = scratch.small_files(live, facts, since=min(fact.sequence for fact in search.held))
        paths = {one.path for one in small}
        here = {path: dead for path, dead in found.dead.items() if path in paths}
        elsewhere = {path: dead for path, dead in found.dead.items() if path not in paths}
        (added, replaced), merged = together(
            lambda: scratch.positions(elsewhere, live), lambda: scratch.merged(small, here), session=scratch.spark
        )
        vectors = [one.vector for one in small if one.vector is not None]
        rewrite = Rewrite(merged, tuple(one.file for one in small), tuple(added), (*replaced, *vectors))
        scratch.apply(rewrite)
        after = digest_of(_within(scratch.rows, bounds), deletes.columns)
    expected = found.before - found.gone
    # Between the bounds the same keys must be left. As many positions as rows that went leave none over for rows outside of them.
    dead_here = sum(map(len, here.values()))
    left = sum(one.rows or 0 for one in small) - dead_here
    if after != expected or records(added) - records(replaced) + dead_here != found.gone.rows or merged.rows != left:
        raise _audit_failed(expected.rows, after.rows)
    count = records(deletes.files)
    summary = {
        "frazil.kind": "settle",
        "frazil.settled-equality-deletes": str(count),
        "frazil.settled-rows": str(found.gone.rows),
    }
    if small:
        summary["frazil.merged-files"] = str(len(small))
    operation = replace(rewrite, removed_deletes=(*rewrite.removed_deletes, *deletes.files))
    return Settlement(Change(operation, base, summary=summary), count, found.gone.rows)


def _audit_failed(expected: int, found: int) -> Halted:
    return Halted(
        "audit-failed",
        f"The table's deletes were put in another form, but it would not hold the same rows then: {found} instead of {expected}, "
        "or others. Nothing was changed.",
        fix="Report this. Set max_equality_deletes and max_delete_files to null to go on without it.",
    )


def _within(rows: DataFrame, bounds: Mapping[str, tuple[Any, Any]]) -> DataFrame:
    """The rows whose keys lie between the least and the greatest deleted: files and row groups outside need not be read."""
    for column, (low, high) in bounds.items():
        rows = rows.where(functions.col(quoted(column)).between(low, high))
    return rows
