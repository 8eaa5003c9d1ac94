"""Which snapshots of a table expire with a commit, and which files nobody needs afterwards.

Files are found by what snapshots say that they removed, never by a listing: what is not known stays. Nothing is deleted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frazil.iceberg.branches import head_of
from frazil.iceberg.jvm import Jvm, items
from frazil.iceberg.statistics import paths
from frazil.model.ledger import ledger_entries
from frazil.model.maintenance import PastSnapshot, References, Retention, expired
from frazil.model.publishing import MAIN

_PUFFIN = ".puffin"


def expired_in(jvm: Jvm, metadata: Any, retention: Retention, now_ms: int, branch: str = MAIN) -> tuple[int, ...]:
    """The snapshots of the metadata that a sink on a branch may let go.

    Most commits look only at how many there are, and at the oldest.
    """
    listed = metadata.snapshots()
    count = int(listed.size())
    if retention.history and count < retention.max_snapshots + retention.step:
        oldest_ms = now_ms - retention.max_age_ms
        if count == 0 or int(listed.get(0).timestampMillis()) >= oldest_ms:
            return ()
    return expired(_snapshots(jvm, metadata), _references(jvm, metadata, branch), retention, now_ms)


def _snapshots(jvm: Jvm, metadata: Any) -> list[PastSnapshot]:
    listed = metadata.snapshots()
    ids, parents = jvm.each(listed, "Snapshot.snapshotId"), jvm.each(listed, "Snapshot.parentId")
    times = jvm.each(listed, "Snapshot.timestampMillis")
    return [PastSnapshot(*one) for one in zip(ids, parents, times, strict=True)]


def _references(jvm: Jvm, metadata: Any, branch: str) -> References:
    refs = [(int(ref.snapshotId()), bool(ref.isBranch())) for ref in metadata.refs().values()]
    main, own = head_of(metadata, MAIN), head_of(metadata, branch)
    ledgers = ledger_entries(jvm.texts(metadata.properties())).values()
    return References(
        head=main,
        own=own,
        branches=frozenset(one for one, is_branch in refs if is_branch and one not in (main, own)),
        pinned=frozenset({*(one for one, _ in refs), *(state.snapshot for state in ledgers)}),
        others=frozenset(int(one.getValue().snapshotId()) for one in items(metadata.refs().entrySet()) if one.getKey() != MAIN),
    )


@dataclass(frozen=True)
class Expired:
    """Snapshots that a commit has removed from a table, and the metadata before and after it, as the sink's branch sees them."""

    snapshots: tuple[int, ...]
    before: Any
    after: Any

    def dead_files(self, jvm: Jvm, io: Any) -> list[str]:
        """The files that only the expired snapshots need.

        All snapshots that stay come after the oldest of the sink's branch that stays, but for those that a branch, a tag or a
        ledger keeps: whatever such a snapshot may need is left.
        """
        oldest, kept = self._kept(jvm)
        of_oldest = set(_manifests(jvm, oldest, io))
        of_kept = {path: manifest for one in kept for path, manifest in _manifests(jvm, one, io).items()}
        gone = [snapshot for one in self.snapshots if (snapshot := self.before.snapshot(one)) is not None]
        lists = [str(snapshot.manifestListLocation()) for snapshot in gone]
        manifests = {path for snapshot in gone for path in _manifests(jvm, snapshot, io)} - of_oldest - set(of_kept)
        files = self._removed_files(jvm, io, oldest, gone)
        for path, manifest in of_kept.items():
            if files and path not in of_oldest:
                files -= _live_files(jvm, self.after, manifest, io, files)
        statistics = set(paths(self.before)) - set(paths(self.after))
        return [*sorted(files), *sorted(manifests), *lists, *sorted(statistics)]

    def _kept(self, jvm: Jvm) -> tuple[Any, list[Any]]:
        """The oldest snapshot that stays of the sink's branch, back to a gap; and those that are not among its descendants."""
        left = set(jvm.each(self.after.snapshots(), "Snapshot.snapshotId"))
        at = self.after.currentSnapshot()
        chain = {int(at.snapshotId())}
        while at.parentId() is not None and int(at.parentId()) in left:
            at = self.after.snapshot(at.parentId())
            chain.add(int(at.snapshotId()))
        return at, [self.after.snapshot(one) for one in left - chain]

    def _removed_files(self, jvm: Jvm, io: Any, oldest: Any, gone: Sequence[Any]) -> set[str]:
        """Data and delete files that were removed up to the oldest snapshot, and that it does not have."""
        chain = self._before(oldest)
        found: set[str] = set()
        for snapshot in (oldest, *(one for one in gone if int(one.snapshotId()) in chain)):
            if str(snapshot.operation()) == "append":
                continue
            for files in (snapshot.removedDataFiles(io), snapshot.removedDeleteFiles(io)):
                found |= set(jvm.each(files, "ContentFile.location"))
        # Many deletion vectors share one file: it is needed as long as one of them is.
        if any(path.endswith(_PUFFIN) for path in found):
            for manifest in items(oldest.deleteManifests(io)):
                found -= _live_files(jvm, self.after, manifest, io, found)
        return found

    def _before(self, oldest: Any) -> set[int]:
        """The ancestors of a snapshot, of those that were there before the commit."""
        found: set[int] = set()
        parent = oldest.parentId()
        while parent is not None and (snapshot := self.before.snapshot(parent)) is not None:
            found.add(int(parent))
            parent = snapshot.parentId()
        return found


def _manifests(jvm: Jvm, snapshot: Any, io: Any) -> dict[str, Any]:
    """The manifests of a snapshot by their paths."""
    found = snapshot.allManifests(io)
    return dict(zip(jvm.each(found, "ManifestFile.path"), items(found), strict=True))


def _live_files(jvm: Jvm, metadata: Any, manifest: Any, io: Any, wanted: set[str]) -> set[str]:
    """The wanted files that a manifest has."""
    files = jvm.iceberg.ManifestFiles
    of_data = str(manifest.content().toString()) == "DATA"
    reader = (files.read if of_data else files.readDeleteManifest)(manifest, io, metadata.specsById())
    try:
        return jvm.among(wanted, reader, "ContentFile.location")
    finally:
        reader.close()
