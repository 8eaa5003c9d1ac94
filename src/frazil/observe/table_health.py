"""How healthy a table is: what its files, deletes, manifests and snapshots cost readers and writers. Read without a JVM."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.model.doomed import FOLDER, NAME, Doomed, listed_in
from frazil.model.ledger import ledger_entries
from frazil.model.maintenance import (
    LARGE_ENOUGH,
    STATISTICS_ROWS,
    MaintenanceSpec,
    PastSnapshot,
    References,
    SmallFile,
    expired,
    plan_merges,
    read_amplification,
    statistics_due,
    too_many,
)
from frazil.model.manifests import Clustering, Manifest, cluster, worth_reading
from frazil.model.publishing import MAIN
from frazil.observe.lake import head_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table import Table

# What Iceberg takes where a table has no properties for them: the sizes of data files and of manifests, and the part of deleted
# rows from which on a file is rewritten, whatever its size.
_TARGET_BYTES, _MANIFEST_BYTES, _MOSTLY = 512 * 1024 * 1024, 8 * 1024 * 1024, 0.3
# The version of the table format whose manifests have all fields, and the column of files of positions that has the paths.
_NEWEST, _PATH_ID = 3, 2147483546
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
    ``mostly_deleted_files`` are large files that are rewritten because of their deletes. ``files_to_delete`` is how many files of
    expired snapshots are on the list for that, also those that queries may still read.
    ``manifests_opened`` is how many manifests a scan of one partition opens. What begins with ``would`` says what maintenance
    would do, what ends with ``after`` what it would save, and ``not_known`` what takes Spark to find out, in words.
    """

    data_files: int = 0
    data_bytes: int = 0
    small_files: int = 0
    mostly_deleted_files: int = 0
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
    manifests_opened: float = 1.0
    manifests_opened_after: float = 1.0
    files_to_delete: int = 0
    would_settle_deletes: int = 0
    would_merge_files: int = 0
    would_merge_into: int = 0
    would_rewrite_bytes: int = 0
    would_rewrite_manifests: int = 0
    would_write_statistics: bool = False
    would_expire_snapshots: int = 0
    would_delete_files: int = 0
    not_known: tuple[str, ...] = ()


def health_of(table: Table, spec: MaintenanceSpec, branch: str = MAIN) -> TableHealth:
    """What the metadata of a table, and the manifests of a branch's head, say."""
    head = head_of(table, branch)
    if head is None:
        return TableHealth()
    target = int(table.properties.get("write.target-file-size-bytes", _TARGET_BYTES))
    manifests = head.manifests(table.io)
    files = _files_of(table, manifests, target)
    newest = head.sequence_number or 0
    groups = list(files.to_rewrite.values())
    merges = plan_merges(groups, newest, spec, target, finish=True)
    surplus, fewer = too_many(groups, target), sum(len(merge.files) - merge.files_after for merge in merges)
    # Iceberg rewrites the manifests of main alone.
    plans = _clusterings(table, manifests, files.by_manifest) if branch == MAIN else []
    sizes, deletes = files.sizes, files.delete_files
    total, summary = sum(sizes.values()), head.summary.additional_properties if head.summary else {}
    metadata, now_ms = _metadata_of(table), int(time.time() * 1000)
    doomed, all_lists = _files_to_delete(table)
    expire = _expirable(table, spec, branch, now_ms)
    rows, counted = int(summary.get("total-records", 0)), table.properties.get(STATISTICS_ROWS)
    return TableHealth(
        data_files=files.data_files,
        data_bytes=total,
        small_files=sum(not one.deleted for group in groups for one in group),
        mostly_deleted_files=sum(one.deleted for group in groups for one in group),
        delete_files=deletes,
        equality_deletes=files.equality_deletes,
        position_deletes=files.position_deletes,
        manifests=len(manifests),
        manifest_bytes=sum(manifest.manifest_length for manifest in manifests),
        snapshots=len(table.metadata.snapshots),
        partitions=len(sizes),
        largest_partition=round(max(sizes.values(), default=0) / total, 3) if total else 0.0,
        partition_skew=round(max(sizes.values()) / max(1, statistics.median(sizes.values())), 1) if sizes else 1.0,
        metadata_files=len(metadata.sizes),
        metadata_bytes=sum(metadata.sizes.values()),
        metadata_bytes_are_least=metadata.cut_off,
        read_amplification=read_amplification(files.data_files, deletes, surplus),
        read_amplification_after=read_amplification(files.data_files - fewer, deletes, max(0, surplus - fewer)),
        manifests_opened=max((plan.before for plan in plans), default=1.0),
        manifests_opened_after=max((plan.after for plan in plans), default=1.0),
        files_to_delete=len(doomed),
        would_settle_deletes=files.equality_deletes,
        would_merge_files=sum(len(merge.files) for merge in merges),
        would_merge_into=sum(merge.files_after for merge in merges),
        would_rewrite_bytes=sum(merge.bytes for merge in merges),
        would_rewrite_manifests=sum(len(plan.paths) for plan in plans),
        would_write_statistics=spec.statistics and statistics_due(rows, counted),
        would_expire_snapshots=expire,
        would_delete_files=sum(one.due_ms <= now_ms for one in doomed),
        not_known=tuple(_not_known(files.equality_deletes, expire, all_lists)),
    )


def _not_known(equality_deletes: int, expire: int, all_lists: bool) -> Iterator[str]:
    if not all_lists:
        yield "how many files of expired snapshots wait to be deleted, since this store cannot be listed here"
    if equality_deletes:
        yield "how many rows the equality deletes delete, and what settling them rewrites"
    if expire:
        yield "how many files only the snapshots need that would expire"
    yield "orphan files: frazil maintain --only orphans --dry-run lists them"


@dataclass
class _Files:
    """What the manifests of a snapshot list. ``to_rewrite``: by partition, the files that merging would look at; ``by_manifest``:
    how many files of each partition a manifest has.
    """

    data_files: int = 0
    delete_files: int = 0
    equality_deletes: int = 0
    position_deletes: int = 0
    sizes: Counter[str] = field(default_factory=Counter)
    to_rewrite: defaultdict[str, list[SmallFile]] = field(default_factory=lambda: defaultdict(list))
    by_manifest: dict[str, Counter[str]] = field(default_factory=dict)


def _files_of(table: Table, manifests: Sequence[ManifestFile], target: int) -> _Files:
    """What manifests list; those of deletes are read first, so that each data file meets its own."""
    from pyiceberg.manifest import DataFileContent, ManifestContent

    found = _Files()
    deletes = [
        entry.data_file
        for manifest in manifests
        if manifest.content is ManifestContent.DELETES
        for entry in _live_entries(table, manifest)
    ]
    found.delete_files = len(deletes)
    found.equality_deletes = sum(one.record_count for one in deletes if one.content is DataFileContent.EQUALITY_DELETES)
    found.position_deletes = sum(one.record_count for one in deletes if one.content is DataFileContent.POSITION_DELETES)
    dead = _dead_rows(deletes)
    for manifest in manifests:
        if manifest.content is not ManifestContent.DATA:
            continue
        partitions = found.by_manifest.setdefault(manifest.manifest_path, Counter())
        for entry in _live_entries(table, manifest):
            file, partition = entry.data_file, f"{manifest.partition_spec_id}/{entry.data_file.partition}"
            size, is_small = file.file_size_in_bytes, file.file_size_in_bytes < LARGE_ENOUGH * target
            found.data_files += 1
            found.sizes[partition] += size
            partitions[partition] += 1
            if is_small or dead[file.file_path] >= _MOSTLY * file.record_count > 0:
                found.to_rewrite[partition].append(SmallFile(size, entry.sequence_number or 0, deleted=not is_small))
    return found


def _live_entries(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    """The entries of files that were not removed, with the fields of the newest version: PyIceberg itself reads those of version
    2, which do not say what a deletion vector is about.
    """
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus
    from pyiceberg.manifest import FileFormat as Format

    with AvroFile[ManifestEntry](
        table.io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[_NEWEST],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: Format, 134: DataFileContent},
    ) as reader:
        live = [entry for entry in reader if entry.status is not ManifestEntryStatus.DELETED]
    for entry in live:
        if entry.sequence_number is None:
            entry.sequence_number = manifest.sequence_number
    return live


def _dead_rows(deletes: Sequence[DataFile]) -> Counter[str]:
    """How many rows of each data file are deleted, as far as deletes by position are about one file alone. A deletion vector has
    all of them.
    """
    positions: Counter[str] = Counter()
    vectors: Counter[str] = Counter()
    for one in deletes:
        path, is_vector = _only_file(one)
        if path is not None:
            (vectors if is_vector else positions)[path] += one.record_count
    return Counter({**positions, **vectors})


def _only_file(delete: DataFile) -> tuple[str | None, bool]:
    """The one data file that deletes by position are about, None if it may be several; and whether they are a vector of it."""
    from pyiceberg.manifest import DATA_FILE_TYPE, DataFileContent

    if delete.content is not DataFileContent.POSITION_DELETES:
        return None, False
    values = dict(zip((one.name for one in DATA_FILE_TYPE[_NEWEST].fields), delete._data, strict=True))
    if (path := values["referenced_data_file"]) is not None:
        return str(path), values["content_offset"] is not None
    low, high = ((bounds or {}).get(_PATH_ID) for bounds in (delete.lower_bounds, delete.upper_bounds))
    return (low.decode() if low is not None and low == high else None), False


def _clusterings(table: Table, manifests: Sequence[ManifestFile], files: Mapping[str, Mapping[str, int]]) -> list[Clustering]:
    """How manifests would be rewritten by partition."""
    target = int(table.properties.get("commit.manifest.target-size-bytes", _MANIFEST_BYTES))
    divided = {spec.spec_id for spec in table.metadata.partition_specs if not spec.is_unpartitioned()}
    by_spec: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for one in manifests:
        if one.manifest_path in files and one.partition_spec_id in divided:
            by_spec[one.partition_spec_id][one.manifest_path] = one.manifest_length
    plans = []
    for sizes in by_spec.values():
        plan = cluster([Manifest(path, sizes[path], files[path]) for path in worth_reading(sizes, target)], target)
        plans += [] if plan is None else [plan]
    return plans


def _files_to_delete(table: Table) -> tuple[tuple[Doomed, ...], bool]:
    """The files on the lists of those that nobody needs any longer, and whether these are all lists."""
    metadata = f"{table.location().rstrip('/')}/metadata"
    found: list[Doomed] = []
    lists = _lists_in(table.io, f"{metadata}/{FOLDER}")
    for path, at_ms in [(f"{metadata}/{NAME}", 0), *(lists or ())]:
        try:
            with table.io.new_input(path).open() as stream:
                found += listed_in(stream.read().decode(), at_ms)
        except FileNotFoundError:
            continue  # there is none, or another process has just deleted it
    return tuple(found), lists is not None


def _lists_in(io: FileIO, folder: str) -> list[tuple[str, int]] | None:
    """The lists in a folder, and when each was written; None where the store cannot be listed."""
    from pyarrow.fs import FileSelector
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if not isinstance(io, PyArrowFileIO):
        return None
    scheme, host, path = io.parse_location(folder, io.properties)
    try:
        listed = io.fs_by_scheme(scheme, host).get_file_info(FileSelector(path, allow_not_found=True))
    except OSError:
        return None
    return [(f"{folder}/{one.base_name}", (one.mtime_ns or 0) // 1_000_000) for one in listed if one.base_name.endswith(".json")]


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


def _expirable(table: Table, spec: MaintenanceSpec, branch: str, now_ms: int) -> int:
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
    return len(expired(snapshots, named, spec.retention, now_ms))
