"""All that is left of a table's rows in files: what its snapshots reach, and what else is in its folder."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from frazil.errors import EnvironmentFault, Halted
from frazil.iceberg.changes import Restage
from frazil.iceberg.contents import Found, Wanted, as_data, live_matches, look_into
from frazil.iceberg.debt import LiveFile, live_file
from frazil.iceberg.disposal import FileList, FilesToDelete
from frazil.iceberg.faults import ICEBERG
from frazil.iceberg.jvm import Jvm, fault_of, items, java_errors
from frazil.iceberg.metadata_files import DATA, KEYS, Entry, entries_of
from frazil.model.doomed import Doomed
from frazil.model.publishing import MAIN

if TYPE_CHECKING:
    from pyroaring import BitMap64

# What is wrong with more than the file that is read.
_LASTING = ("OutOfMemoryError", "java.net.ConnectException", "java.net.UnknownHostException", f"{ICEBERG}ForbiddenException",
            f"{ICEBERG}NotAuthorizedException")  # fmt: skip
ERASING = "frazil-erasing.json"
"""The list of files that are to be deleted as soon as no snapshot reaches them: it survives the end of a process."""


@dataclass(frozen=True)
class Manifest:
    """A manifest of a snapshot, and what it names."""

    path: str
    handle: Any
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class SnapshotFiles:
    """A snapshot, and the metadata that is its own."""

    id: int
    sequence: int
    at_ms: int
    list: str
    manifests: tuple[Manifest, ...]

    def live(self, content: int) -> tuple[Entry, ...]:
        """Its files with rows, deleted positions or deleted keys."""
        return tuple(e for manifest in self.manifests for e in manifest.entries if e.live and e.content == content)


@dataclass(frozen=True)
class Reachable:
    """What the metadata of a table reaches. ``kept``: the snapshots that tags and other branches need, by their names."""

    metadata: Any
    head: SnapshotFiles | None
    snapshots: tuple[SnapshotFiles, ...]
    kept: Mapping[str, frozenset[int]]
    current: str
    """The metadata file."""
    previous: frozenset[str]
    """Metadata files of earlier commits that it names."""
    statistics: frozenset[str]

    def named(self, content: int) -> Iterator[tuple[Entry, Manifest]]:
        """The live files of all snapshots with rows or with deleted keys, each once, with a manifest that names it."""
        seen: set[str] = set()
        for manifest in {one.path: one for snapshot in self.snapshots for one in snapshot.manifests}.values():
            for entry in manifest.entries:
                if entry.live and entry.content == content and entry.path not in seen:
                    seen.add(entry.path)
                    yield entry, manifest

    @cached_property
    def paths(self) -> frozenset[str]:
        """Every file that readers of any snapshot may need, the metadata among them."""
        found = {self.current, *self.statistics}
        for snapshot in self.snapshots:
            found.add(snapshot.list)
            for manifest in snapshot.manifests:
                found.add(manifest.path)
                found |= {entry.path for entry in manifest.entries if entry.live}
        return frozenset(found)

    @property
    def heads(self) -> frozenset[int]:
        """The snapshots that another one can be added to."""
        refs = self.metadata.refs().values()
        return frozenset(int(ref.snapshotId()) for ref in refs)

    @cached_property
    def history(self) -> frozenset[int]:
        """The snapshots that are neither the head nor needed by a tag or another branch."""
        kept = {one for ids in self.kept.values() for one in ids} | ({self.head.id} if self.head is not None else set())
        return frozenset(one.id for one in self.snapshots) - kept

    def only_named_by_history(self) -> frozenset[str]:
        """The files that nobody needs when the history has expired."""
        needed = {path for one in self.snapshots if one.id not in self.history for path in _files_of(one)}
        old = {path for one in self.snapshots if one.id in self.history for path in _files_of(one)}
        return frozenset(old | self.statistics) - needed


def _files_of(snapshot: SnapshotFiles) -> Iterable[str]:
    yield snapshot.list
    for manifest in snapshot.manifests:
        yield manifest.path
        yield from (entry.path for entry in manifest.entries if entry.live)


@dataclass(frozen=True)
class Listed:
    """A file in the folder of the table."""

    path: str
    size: int
    at_ms: int

    @property
    def key(self) -> str:
        """What it is compared by."""
        return key_of(self.path)


def _listed_here(folder: Path) -> Iterator[Listed]:
    """The files in a folder of this machine, but for Hadoop's own checksums of them."""

    def unreadable(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise EnvironmentFault(
                "folder-not-listable",
                f"The files at {error.filename} cannot be listed: {error.strerror}. What is left there cannot be found.",
                fix="Let this user read the whole folder of the table.",
            ) from error

    for around, _, names in os.walk(folder, onerror=unreadable):
        for name in names:
            path = Path(around, name)
            if name.startswith(".") and name.endswith(".crc"):
                continue
            try:
                found = path.stat()
            except FileNotFoundError:
                continue  # another process has deleted it
            yield Listed(f"file:{path}", found.st_size, found.st_mtime_ns // 1_000_000)


def key_of(path: str) -> str:
    """A path without what different libraries write in different ways: `file:/a`, `file:///a`, `s3://a`, `s3a://a`.

    Two files of different stores may get the same key. Then the one is taken for the other, and neither is deleted.
    """
    return "/" + "/".join(part for part in urlsplit(path, allow_fragments=False).path.split("/") if part)


@dataclass
class Remains:
    """The files of one table. What was once found in a file is remembered: files never change."""

    jvm: Jvm
    table: Any
    address: str
    wanted: Wanted
    found: dict[str, Found] = field(default_factory=dict)
    """What is in files, by their keys."""
    gone_at: int | None = None
    """The sequence number of a snapshot that had none of the rows in its files."""
    gone_ms: int | None = None
    """When that was."""
    _loose: set[str] = field(default_factory=set)
    _manifests: dict[str, Manifest] = field(default_factory=dict)

    # What there is

    def reachable(self) -> Reachable:
        """What the table's metadata reaches, as it was looked at last."""
        with java_errors(self.address):
            metadata = self.table.operations().current()
            head = metadata.currentSnapshot()
            snapshots = tuple(self._snapshot(one) for one in items(metadata.snapshots()))
            statistics = [*items(metadata.statisticsFiles()), *items(metadata.partitionStatisticsFiles())]
            return Reachable(
                metadata=metadata,
                head=next((s for s in snapshots if head is not None and s.id == int(head.snapshotId())), None),
                snapshots=snapshots,
                kept=self._kept(metadata),
                current=str(metadata.metadataFileLocation()),
                previous=frozenset(str(entry.file()) for entry in items(metadata.previousFiles())),
                statistics=frozenset(str(one.path()) for one in statistics),
            )

    def _kept(self, metadata: Any) -> dict[str, frozenset[int]]:
        """The snapshots that tags and branches need: of a branch its whole history."""
        kept = {}
        for entry in items(metadata.refs().entrySet()):
            name, ref = str(entry.getKey()), entry.getValue()
            if name == MAIN:
                continue
            ids = {int(ref.snapshotId())}
            at = metadata.snapshot(ref.snapshotId())
            while ref.isBranch() and at is not None:
                ids.add(int(at.snapshotId()))
                at = None if at.parentId() is None else metadata.snapshot(at.parentId())
            kept[f"{'branch' if ref.isBranch() else 'tag'} {name}"] = frozenset(ids)
        return kept

    def _snapshot(self, snapshot: Any) -> SnapshotFiles:
        manifests = tuple(self._manifest(one) for one in items(snapshot.allManifests(self.table.io())))
        number, sequence = int(snapshot.snapshotId()), int(snapshot.sequenceNumber())
        return SnapshotFiles(number, sequence, int(snapshot.timestampMillis()), str(snapshot.manifestListLocation()), manifests)

    def _manifest(self, handle: Any) -> Manifest:
        path = str(handle.path())
        if path not in self._manifests:
            sequence = int(handle.sequenceNumber())
            entries = (replace(e, added=sequence) if e.added is None else e for e in entries_of(self.content(path)))
            self._manifests[path] = Manifest(path, handle, tuple(entries))
        return self._manifests[path]

    def content(self, path: str) -> bytes:
        """All of a small file."""
        stream = self.table.io().newInputFile(path).newStream()
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        with java_errors(self.address):
            return bool(self.table.io().newInputFile(path).exists())

    @property
    def location(self) -> str:
        """The folder of the table."""
        return str(self.table.operations().current().location()).rstrip("/")

    def outside(self) -> tuple[str, ...]:
        """Where else than in its folder the table's properties let files be written."""
        names = ("write.data.path", "write.object-storage.path", "write.folder-storage.path", "write.metadata.path")
        properties = self.jvm.texts(self.table.operations().current().properties())
        own = key_of(self.location) + "/"
        places = (properties[name] for name in names if name in properties)
        return tuple(dict.fromkeys(place for place in places if not f"{key_of(place)}/".startswith(own)))

    def listed(self) -> tuple[Listed, ...]:
        """Every file in the folder of the table, as it is while others add and delete some."""
        io = self.table.io()
        if self.location.startswith("file:"):
            # Hadoop fails at a file that is deleted between its listing and a look at its permissions.
            return tuple(_listed_here(Path(key_of(self.location))))
        if not self.jvm.is_a(io, "io.SupportsPrefixOperations"):
            raise EnvironmentFault(
                "folder-not-listable",
                f"The files at {self.location} cannot be listed through {io.getClass().getSimpleName()}: what is left there "
                "cannot be found.",
                fix="Choose another io-impl for the catalog.",
            )
        with java_errors(self.address):
            found = self.jvm.collected(io.listPrefix(f"{self.location}/"))
            paths, sizes = self.jvm.each(found, "io.FileInfo.location"), self.jvm.each(found, "io.FileInfo.size")
            times = self.jvm.each(found, "io.FileInfo.createdAtMillis")
        return tuple(Listed(*one) for one in zip(paths, sizes, times, strict=True))

    def require_same_names(self, stayed: Collection[str], listed: Sequence[Listed]) -> None:
        """Stops when files that were the table's before the listing and after it are not in it: then nothing can be said of the
        others in it. Without any it is listed again.
        """
        if not stayed:
            raise Restage(
                "listing-overtaken",
                f"Others have replaced all files of the table while {self.location} was listed.",
                fix="Run it again.",
            )
        own, keys = key_of(self.location) + "/", {one.key for one in listed}
        missing = next((path for path in stayed if key_of(path).startswith(own) and key_of(path) not in keys), None)
        if missing is not None:
            raise Halted(
                "listing-incomplete",
                f"{missing} is a file of the table, and a listing of {self.location} does not show it: it is not certain which "
                "files are left over.",
                fix="If the file is lost, restore it. Otherwise report this. Nothing was deleted by this listing.",
            )

    # What is in it

    def what(self, path: str) -> Found | None:
        """What was found in a file; None if it was not read yet."""
        return self.found.get(key_of(path))

    def look_into(self, reached: Reachable) -> None:
        """Reads the files with rows that were not read yet, whatever deletes say, and the deleted keys."""
        unread = {entry.path: manifest for entry, manifest in reached.named(DATA) if self.what(entry.path) is None}
        handles = {manifest.path: manifest.handle for manifest in unread.values()}
        with java_errors(self.address):
            files = {str(file.location()): file for one in handles.values() for file in self._files_in(one, unread)}
            self._read(list(files.values()), kinds_known=True)
        self._look_into_unknown({entry.path: entry.size for entry, _ in reached.named(KEYS)})

    def look_into_others(self, files: Mapping[str, int]) -> None:
        """Reads files that no snapshot reaches, by their paths and sizes. They may be of rows or of deletes, and unfinished."""
        self._look_into_unknown(files)
        self._loose |= {key_of(path) for path in files}

    def forget_loose(self) -> None:
        """Forgets what was found in files that no snapshot reached: they may be written on, and become part of the table."""
        for key in self._loose:
            self.found.pop(key, None)
        self._loose.clear()

    def _look_into_unknown(self, files: Mapping[str, int]) -> None:
        unread = [as_data(self.jvm, path, size) for path, size in files.items() if self.what(path) is None]
        with java_errors(self.address):
            self._read(unread, kinds_known=False)

    def _read(self, files: Sequence[Any], *, kinds_known: bool) -> None:
        """Reads them all at once; one by one if that fails, since a file may be missing, or cut off."""
        if not files:
            return
        try:
            found = look_into(self.jvm, self.jvm.spark, self.table, files, self.wanted, kinds_known=kinds_known)
        except Exception as error:
            if not _about_one_file(error):
                raise
            found = {path: one for file in files for path, one in self._read_alone(file, kinds_known=kinds_known).items()}
        self.found |= {key_of(path): one for path, one in found.items()}

    def _read_alone(self, file: Any, *, kinds_known: bool) -> dict[str, Found]:
        try:
            return look_into(self.jvm, self.jvm.spark, self.table, [file], self.wanted, kinds_known=kinds_known)
        except Exception as error:
            if not _about_one_file(error):
                raise
            return {str(file.location()): Found(0, readable=False)}

    def _files_in(self, handle: Any, paths: Collection[str]) -> list[Any]:
        reader = self.jvm.iceberg.ManifestFiles.read(handle, self.table.io(), self.table.operations().current().specsById())
        try:
            return [file.copy() for file in items(reader) if str(file.location()) in paths]
        finally:
            reader.close()

    def clean(self, entry: Entry) -> bool:
        """Whether a manifest's entry, which has the bounds of columns, is about a file without the rows."""
        if entry.content not in (DATA, KEYS):
            return True  # positions only
        found = self.what(entry.path)
        if found is None:
            return not entry.live and self._is_later(entry)
        return found.clean or (found.readable and not found.matches and entry.content == KEYS and self._is_later(entry))

    def _is_later(self, entry: Entry) -> bool:
        """Whether a file was added when the rows were gone: it has the rest of the table, and what came later."""
        return self.gone_at is not None and (entry.added or 0) > self.gone_at

    def live(self, paths: Collection[str]) -> list[LiveFile]:
        """Files of the head with the deletes that apply to them, those of one partition together."""
        with java_errors(self.address):
            planned = self.table.newScan().planFiles()
            try:
                tasks = self.jvm.collected(planned)
            finally:
                planned.close()
            places = [
                n for n, path in enumerate(self.jvm.each(tasks, "ContentScanTask.file", "ContentFile.location")) if path in paths
            ]
            files = [live_file(tasks.get(place)) for place in places]
        return sorted(files, key=lambda one: (int(one.file.specId()), str(one.file.partition()), one.path))

    def live_matches(self, files: Sequence[LiveFile]) -> dict[str, BitMap64]:
        """The positions of the rows in live files that are not deleted yet."""
        return live_matches(self.jvm, self.jvm.spark, self.table, files, self.wanted)

    def without_removed(self, manifest: Manifest) -> Any:
        """A manifest of deletes written anew, without the entries of removed files; None when it has no others."""
        snapshots = {(entry.path, entry.offset): entry.snapshot for entry in manifest.entries if entry.live}
        if not snapshots:
            return None
        operations, handle, files = self.table.operations(), manifest.handle, self.jvm.iceberg.ManifestFiles
        metadata = operations.current()
        specs, io = metadata.specsById(), self.table.io()
        path = operations.metadataFileLocation(f"{uuid.uuid4()}-m0.avro")
        output, spec = io.newOutputFile(path), specs.get(handle.partitionSpecId())
        writer = files.writeDeleteManifest(int(metadata.formatVersion()), spec, output, None)
        reader = files.readDeleteManifest(handle, io, specs)
        try:
            for each in items(reader):
                file = each.copy()
                snapshot = snapshots[(str(file.location()), file.contentOffset())] or handle.snapshotId()
                writer.existing(file, snapshot, file.dataSequenceNumber(), file.fileSequenceNumber())
        finally:
            reader.close()
            writer.close()
        return writer.toManifestFile()

    # What is to go

    @property
    def to_delete(self) -> FilesToDelete:
        """The lists of files to delete that maintenance keeps."""
        return FilesToDelete(self.jvm, self.table.io(), self.location)

    @property
    def erasing(self) -> FileList:
        """The list of an erasure."""
        return FileList(self.table.io(), f"{self.location}/metadata/{ERASING}")

    def remember(self, paths: Collection[str]) -> None:
        """Writes down files that are to be deleted as soon as no snapshot reaches them."""
        with java_errors(self.address):
            known = {one.path for one in self.erasing.read()}
            if not known >= set(paths):
                self.erasing.write([Doomed(path, 0) for path in sorted(known | set(paths))], 0)

    def delete(self, paths: Collection[str]) -> str | None:
        """Deletes files; why not, if that failed."""
        if not paths:
            return None
        try:
            self.to_delete.delete(sorted(paths))
        except Exception as error:  # noqa: BLE001 - what is still there is reported by the caller
            return fault_of(error).line
        return None


def _about_one_file(error: Exception) -> bool:
    """Whether a failed read may be due to one of the files: Java says so, and names none of the faults that all would have."""
    fault = fault_of(error)
    return "." in fault.classes[0] and fault.find(*_LASTING) is None
