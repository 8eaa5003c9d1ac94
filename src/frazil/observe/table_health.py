"""How healthy a table is: what its files, deletes, manifests and snapshots cost readers and writers. Read without a JVM."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.model.ledger import ledger_entries
from frazil.model.maintenance import MaintenanceSpec, PastSnapshot, References, SmallFile, expired, to_merge
from frazil.model.publishing import MAIN
from frazil.observe.lake import head_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

_TARGET_BYTES = 512 * 1024 * 1024
# As Iceberg has it: a file that has three quarters of the size that it should have is large enough.
_LARGE_ENOUGH = 0.75


@dataclass(frozen=True)
class TableHealth:
    """The state of a table's files.

    ``read_amplification`` is how many files a full scan opens for each that it would have to open if all had their size.
    ``largest_partition`` is that partition's part of all bytes. The last three say what maintenance would do.
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
    read_amplification: float = 1.0
    would_merge_files: int = 0
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
            if file.file_size_in_bytes < _LARGE_ENOUGH * target:
                small[partition].append(SmallFile(file.file_size_in_bytes, entry.sequence_number or 0))
    newest = head.sequence_number or 0
    merges = [group[place].bytes for group in small.values() for place in to_merge(group, newest, spec, finish=True)]
    total = sum(sizes.values())
    needed = sum(max(1, math.ceil(held / target)) for held in sizes.values())
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
        read_amplification=round((files + deletes) / needed, 2) if needed else 1.0,
        would_merge_files=len(merges),
        would_rewrite_bytes=sum(merges),
        would_expire_snapshots=_expirable(table, spec, branch),
    )


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
