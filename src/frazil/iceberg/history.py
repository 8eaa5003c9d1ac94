"""The history of a table: its snapshots, and what their summaries say of the batches of sinks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil.iceberg.branches import Seen, steps_between
from frazil.iceberg.jvm import Jvm, items
from frazil.model.commit import DIGEST, Position, short_range
from frazil.model.publishing import Step

TAKEN_BACK_TO = "frazil.taken-back-to"
"""In the summary of a snapshot that took batches back: the end of the last one that stayed."""


@dataclass(frozen=True)
class Added:
    """The data files that the last batches of a sink have added, and where the sink was before them."""

    files: tuple[Any, ...]
    batches: int
    start: Position | None


class History:
    """The snapshots of one branch of a table, from its head back to the first that has not expired."""

    def __init__(self, jvm: Jvm, seen: Seen) -> None:
        self._jvm = jvm
        self._seen = seen

    def committed_ends(self, sink_id: str) -> frozenset[str]:
        """Where the batches of a sink ended, by the summaries of the snapshots that are still there."""
        metadata = json.loads(self._jvm.iceberg.TableMetadataParser.toJson(self._seen.original))
        summaries = [snapshot.get("summary", {}) for snapshot in metadata.get("snapshots", ())]
        return frozenset(s.get("frazil.end", "") for s in summaries if s.get("frazil.sink") == sink_id)

    def added_since(self, sink_id: str, end: Position | None, kept: Callable[[Position | None], bool]) -> Added | None:
        """What the batches of a sink have added, from the last one, which ended at ``end``, back to a position that is ``kept``.

        None if that is not known: a snapshot on the way has expired, or a batch did more than add files.
        """
        files: list[Any] = []
        batches, at, io = 0, end, self._seen.table.io()
        snapshot = self._seen.metadata.currentSnapshot()
        while not kept(at):
            if snapshot is None:
                return None
            summary = self._jvm.texts(snapshot.summary())
            # A position occurs twice if batches were taken back and written again: the latest of them counts.
            own = summary.get("frazil.sink") == sink_id and summary.get("frazil.kind") == "data"
            if own and at is not None and summary["frazil.end"] == short_range(at):
                start = summary["frazil.start"]
                if start.startswith(DIGEST) or snapshot.operation() != "append":
                    return None
                files += [file.copy() for file in items(snapshot.addedDataFiles(io))]
                batches, at = batches + 1, start or None
            elif summary.get("frazil.sink") == sink_id and TAKEN_BACK_TO in summary and summary["frazil.end"] == short_range(at):
                # The position is the one that batches were taken back to.
                start = summary[TAKEN_BACK_TO]
                if start.startswith(DIGEST):
                    return None
                at = start or None
            parent = snapshot.parentId()
            snapshot = None if parent is None else self._seen.table.snapshot(parent)
        return Added(tuple(files), batches, at)

    def summaries(self, sink_id: str | None) -> list[tuple[int, dict[str, str]]]:
        """The snapshots from the first that is still there to the head, those of a sink or all, with what their summaries say."""
        found: list[tuple[int, dict[str, str]]] = []
        at = self._seen.metadata.currentSnapshot()
        while at is not None:
            summary = self._jvm.texts(at.summary())
            if sink_id is None or summary.get("frazil.sink") == sink_id:
                found.append((int(at.snapshotId()), summary))
            parent = at.parentId()
            at = None if parent is None else self._seen.table.snapshot(parent)
        return list(reversed(found))

    def end_at(self, sink_id: str, snapshot: int) -> str | None:
        """Where the last batch of a sink ended that was in the table at a snapshot; None when none was, or it is not known."""
        at = self._seen.table.snapshot(snapshot)
        while at is not None:
            summary = at.summary()
            if summary.get("frazil.sink") == sink_id and summary.get("frazil.end"):
                return str(summary.get("frazil.end"))
            parent = at.parentId()
            at = None if parent is None else self._seen.table.snapshot(parent)
        return None

    def snapshots_since(self, kind: str, most: int) -> int:
        """How many snapshots came after the last one of a kind of upkeep, up to ``most``."""
        at = self._seen.metadata.currentSnapshot()
        for count in range(most):
            if at is None or at.summary().get("frazil.kind") == kind:
                return count
            at = None if at.parentId() is None else self._seen.table.snapshot(at.parentId())
        return most

    def steps(self, older: int | None, newer: int) -> list[Step]:
        """The snapshots after one up to another, from old to new."""
        return steps_between(self._jvm, self._seen.original, older, newer)
