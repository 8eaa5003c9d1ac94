"""What a table holds, read by PyIceberg: neither Spark nor frazil has a say in it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow.parquet
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

OURS, FOREIGN = "ours", "foreign"
"""The values of the column `writer`."""

Row = tuple[Any, ...]
"""The values of the columns that a truth looks at, `writer` and `id` unless told otherwise."""


@dataclass
class Truth:
    """A table, and every snapshot that its metadata names."""

    table: Table
    columns: tuple[str, ...] = ("writer", "id")
    _manifests: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _files: dict[str, tuple[Row, ...]] = field(default_factory=dict)

    def rows_at(self, snapshot: Snapshot) -> Counter[Row]:
        """The rows of a snapshot, from its manifest list down to the data files; a file that is gone raises."""
        files = [path for manifest in snapshot.manifests(self.table.io) for path in self._data_files(manifest)]
        return Counter(row for path in files for row in self._rows_in(path))

    @cached_property
    def history(self) -> list[Snapshot]:
        """The snapshots of the main branch that have not expired, the oldest first."""
        found = []
        at = self.table.current_snapshot()
        while at is not None:
            found.append(at)
            at = self.table.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None
        return found[::-1]

    @cached_property
    def rows(self) -> Counter[Row]:
        """The rows as they are now, by an ordinary scan."""
        return Counter(self._tuples(self.table.scan(selected_fields=self.columns).to_arrow()))

    def ledger(self, sink_id: str) -> dict[str, Any] | None:
        """The table property of a sink."""
        text = self.table.properties.get(f"frazil.sink.{sink_id}")
        return None if text is None else json.loads(text)

    def entries(self, sink_id: str) -> Iterator[tuple[Snapshot, dict[str, str]]]:
        """The batches of a sink in the history of the main branch, the oldest first."""
        for snapshot in self.history:
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            if (summary.get("frazil.sink"), summary.get("frazil.kind")) == (sink_id, "data"):
                yield snapshot, summary

    def _data_files(self, manifest: Any) -> tuple[str, ...]:
        if manifest.manifest_path not in self._manifests:
            entries = manifest.fetch_manifest_entry(self.table.io, discard_deleted=True)
            self._manifests[manifest.manifest_path] = tuple(entry.data_file.file_path for entry in entries)
        return self._manifests[manifest.manifest_path]

    def _rows_in(self, path: str) -> tuple[Row, ...]:
        if path not in self._files:
            with self.table.io.new_input(path).open() as opened:
                self._files[path] = tuple(self._tuples(pyarrow.parquet.read_table(opened, columns=list(self.columns))))
        return self._files[path]

    def _tuples(self, rows: pyarrow.Table) -> Iterable[Row]:
        return zip(*(rows[column].to_pylist() for column in self.columns), strict=True)


def rows_of(writer: str, ids: Iterable[int]) -> Counter[Row]:
    """Rows as a truth counts them."""
    return Counter((writer, number) for number in ids)


def assert_exactly_once(table: Table, sink_id: str, ours: Iterable[int], foreign: Iterable[int] = ()) -> None:
    """Nothing lost, nothing doubled, nothing unreadable, foreign rows intact, and the ledger tells of the rows that are there."""
    truth = Truth(table)
    assert truth.rows == rows_of(OURS, ours) + rows_of(FOREIGN, foreign)
    assert_every_snapshot_readable(truth)
    assert_ledger_agrees(truth, sink_id, sum(times for (writer, _), times in truth.rows.items() if writer == OURS))


def assert_every_snapshot_readable(truth: Truth) -> None:
    """Also those that are no longer part of the branch: somebody may be reading them."""
    held = {snapshot.snapshot_id: truth.rows_at(snapshot) for snapshot in truth.table.snapshots()}
    for earlier, later in zip(truth.history, truth.history[1:], strict=False):
        assert held[earlier.snapshot_id] <= held[later.snapshot_id], "an append took rows away"
    assert truth.rows == (held[truth.history[-1].snapshot_id] if truth.history else Counter())


def assert_ledger_agrees(truth: Truth, sink_id: str, rows: int) -> None:
    """The property, the summaries and the so many rows of a sink whose snapshots have not expired tell the same story."""
    entries = [summary for _, summary in truth.entries(sink_id)]
    ledger = truth.ledger(sink_id)
    assert ledger is not None
    assert [int(entry["frazil.batch"]) for entry in entries] == list(range(1, len(entries) + 1))
    assert ledger["batch"] == len(entries)
    starts = [entry["frazil.start"] for entry in entries]
    ends = [entry["frazil.end"] for entry in entries]
    assert starts[1:] == ends[:-1], "the batches do not follow one another"
    assert ledger["end"] == (json.loads(ends[-1]) if ends else None)
    assert sum(int(entry["frazil.rows-out"]) for entry in entries) == rows
    for snapshot, entry in truth.entries(sink_id):
        parent = truth.table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
        before = truth.rows_at(parent) if parent else Counter[Row]()
        assert (truth.rows_at(snapshot) - before).total() == int(entry["frazil.rows-out"])
    assert ledger["snapshot"] in {snapshot.snapshot_id for snapshot in truth.history}
