"""How healthy a table is: what its files, deletes, manifests and snapshots cost readers and writers. Read without a JVM."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.model.ledger import ledger_entries
from frazil.model.maintenance import (
    LARGE_ENOUGH,
    MaintenanceSpec,
    PastSnapshot,
    References,
    SmallFile,
    expired,
    plan_merges,
    read_amplification,
    too_many,
)
from frazil.model.publishing import MAIN
from frazil.observe.lake import head_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

_TARGET_BYTES = 512 * 1024 * 1024
REQUESTS_AT_ONCE = 16
# So many entries of manifest lists are read, which takes a few seconds.
MOST_MANIFESTS = 50_000


@dataclass(frozen=True)
class TableHealth:
    """The state of a table's files.

    ``read_amplification`` is how many files a full scan opens for each that it would have to open if all had their size.
    ``largest_partition`` is that partition's part of all bytes, and ``partition_skew`` how many times the bytes of the median
    partition it has. ``metadata_bytes`` is the size of all metadata files, manifest lists and manifests that the table knows, of
    older snapshots too; ``metadata_files`` is their number. ``metadata_bytes_are_least``: there is more that was not looked at.
    What begins with ``would`` says what maintenance would do, and ``read_amplification_after`` what it would save.
    """

    data_files: int = 0
    data_bytes: int = 0
    small_files: int = 0
    delete_files: int = 0
    equality_deletes: int = 0
    position_deletes: int = 0
    manifests: int = 0
    manifest_bytes: int = 0
    snapshots: int = 0
    partitions: int = 0
    largest_partition: float = 0.0
    partition_skew: float = 1.0
    metadata_files: int = 0
    metadata_bytes: int = 0
    metadata_bytes_are_least: bool = False
    read_amplification: float = 1.0
    read_amplification_after: float = 1.0
    would_merge_files: int = 0
    would_merge_into: int = 0
    would_rewrite_bytes: int = 0
    would_expire_snapshots: int = 0


def health_of(table: Table, spec: MaintenanceSpec, branch: str = MAIN) -> TableHealth:
    """What the manifests of a branch's head say."""
    from pyiceberg.manifest import DataFileContent

    head = head_of(table, branch)
    if head is None:
        return TableHealth()
    target = int(table.properties.get("write.target-file-size-bytes", _TARGET_BYTES))
    manifests = head.manifests(table.io)
    sizes: Counter[str] = Counter()
    small: defaultdict[str, list[SmallFile]] = defaultdict(list)
    files = deletes = by_key = by_position = 0
    for manifest in manifests:
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            if file.content is not DataFileContent.DATA:
                deletes += 1
                by_key += file.record_count if file.content is DataFileContent.EQUALITY_DELETES else 0
                by_position += file.record_count if file.content is DataFileContent.POSITION_DELETES else 0
                continue
            files += 1
            partition = f"{manifest.partition_spec_id}/{file.partition}"
            sizes[partition] += file.file_size_in_bytes
            if file.file_size_in_bytes < LARGE_ENOUGH * target:
                small[partition].append(SmallFile(file.file_size_in_bytes, entry.sequence_number or 0))
    newest = head.sequence_number or 0
    groups = list(small.values())
    merges = plan_merges(groups, newest, spec, target, finish=True)
    surplus, fewer = too_many(groups, target), sum(len(merge.files) - merge.files_after for merge in merges)
    total = sum(sizes.values())
    metadata = _metadata_of(table)
    return TableHealth(
        data_files=files,
        data_bytes=total,
        small_files=sum(map(len, small.values())),
        delete_files=deletes,
        equality_deletes=by_key,
        position_deletes=by_position,
        manifests=len(manifests),
        manifest_bytes=sum(manifest.manifest_length for manifest in manifests),
        snapshots=len(table.metadata.snapshots),
        partitions=len(sizes),
        largest_partition=round(max(sizes.values(), default=0) / total, 3) if total else 0.0,
        partition_skew=round(max(sizes.values()) / max(1, statistics.median(sizes.values())), 1) if sizes else 1.0,
        metadata_files=len(metadata.sizes),
        metadata_bytes=sum(metadata.sizes.values()),
        metadata_bytes_are_least=metadata.cut_off,
        read_amplification=read_amplification(files, deletes, surplus),
        read_amplification_after=read_amplification(files - fewer, deletes, max(0, surplus - fewer)),
        would_merge_files=sum(len(merge.files) for merge in merges),
        would_merge_into=sum(merge.files_after for merge in merges),
        would_rewrite_bytes=sum(merge.bytes for merge in merges),
        would_expire_snapshots=_expirable(table, spec, branch),
    )


@dataclass(frozen=True)
class _Metadata:
    """The sizes of metadata files by their paths. ``cut_off``: there are more."""

    sizes: dict[str, int]
    cut_off: bool


def _metadata_of(table: Table) -> _Metadata:
    """The metadata files, manifest lists and manifests that the table's metadata names.

    Manifests of older snapshots are found in their lists: these are read from the newest on, until there are very many.
    """
    lists = [snapshot.manifest_list for snapshot in table.metadata.snapshots if snapshot.manifest_list]
    paths = [table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log), *lists]

    def size(path: str) -> int:
        try:
            return len(table.io.new_input(path))
        except FileNotFoundError:
            return 0  # another process has deleted it

    with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="frazil-inspect") as pool:
        sizes = dict(zip(paths, pool.map(size, paths), strict=True))
    read = 0
    for snapshot in reversed(table.metadata.snapshots):
        if read > MOST_MANIFESTS:
            return _Metadata(sizes, cut_off=True)
        try:
            manifests = snapshot.manifests(table.io)
        except FileNotFoundError:
            continue
        read += len(manifests)
        sizes |= {manifest.manifest_path: manifest.manifest_length for manifest in manifests}
    return _Metadata(sizes, cut_off=False)


def _expirable(table: Table, spec: MaintenanceSpec, branch: str) -> int:
    snapshots = [PastSnapshot(s.snapshot_id, s.parent_snapshot_id, s.timestamp_ms) for s in table.metadata.snapshots]
    refs = table.metadata.refs
    head = table.metadata.current_snapshot_id
    own = refs[branch].snapshot_id if branch in refs else head
    ledgers = ledger_entries(table.properties).values()
    named = References(
        head=head,
        own=own,
        branches=frozenset(
            ref.snapshot_id for ref in refs.values() if ref.snapshot_ref_type == "branch" and ref.snapshot_id not in (head, own)
        ),
        pinned=frozenset({*(ref.snapshot_id for ref in refs.values()), *(state.snapshot for state in ledgers)}),
    )
    return len(expired(snapshots, named, spec.retention, int(time.time() * 1000)))
