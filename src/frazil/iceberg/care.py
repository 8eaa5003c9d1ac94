"""What maintenance finds out about a table, and the files that it writes for it. Nothing is committed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from frazil.errors import ConfigError
from frazil.iceberg.branches import Seen
from frazil.iceberg.changes import ManifestsWithoutRemoved, StagedFiles
from frazil.iceberg.compaction import SmallFiles, merged_files, small_files_of
from frazil.iceberg.contents import Wanted
from frazil.iceberg.debt import LiveFile, Rewrite
from frazil.iceberg.disposal import FilesToDelete
from frazil.iceberg.expiry import Expired, expired_in
from frazil.iceberg.faults import clock_off
from frazil.iceberg.folder import Folder
from frazil.iceberg.jvm import Jvm, active, items, java_errors
from frazil.iceberg.manifests import ClusteredManifests, clusterings_of, manifests_worth_reading
from frazil.iceberg.remains import Manifest, Remains, key_of
from frazil.iceberg.small import merged, target_bytes
from frazil.iceberg.statistics import computed, paths
from frazil.iceberg.zorder import ZOrder
from frazil.model.doomed import is_list
from frazil.model.maintenance import Retention
from frazil.model.manifests import Clustering
from frazil.model.publishing import MAIN

if TYPE_CHECKING:
    from pyroaring import BitMap64


class TableCare:
    """One table as those see it who look after its files. Its rows are those of one branch."""

    def __init__(self, jvm: Jvm, address: str, table: Any, seen: Seen, sql_name: str) -> None:
        self._jvm = jvm
        self._address = address
        self._table = table
        self._seen = seen
        self._sql_name = sql_name

    def dead_files(self, expired: Expired) -> list[str]:
        """The files that only expired snapshots need."""
        with java_errors(self._address):
            return expired.dead_files(self._jvm, self._table.io())

    def expirable(self, retention: Retention, now_ms: int) -> int:
        """How many snapshots would expire with a commit."""
        return len(expired_in(self._jvm, self._seen.original, retention, now_ms, self._seen.branch))

    def orphans(self, older_than_ms: int) -> list[str]:
        """Files in the table's folder that no metadata of the table names, nor a list, and that are older than a time.

        Iceberg's own search, which only lists them. What waits for readers to finish is on a list.
        """
        catalog = self._sql_name.partition(".")[0]
        moment = f"timestamp_millis({older_than_ms})"
        with java_errors(self._address), active(self._jvm.spark):
            # Otherwise it lists by Hadoop's file systems, which object stores do not have here.
            by_store = str(self._jvm.is_a(self._table.io(), "io.SupportsPrefixOperations")).lower()
            options = f"older_than => {moment}, dry_run => true, prefix_listing => {by_store}"
            call = f"CALL {catalog}.system.remove_orphan_files(table => ?, {options})"
            found = self._jvm.spark.sql(call, [self._sql_name]).collect()
            known = {key_of(one.path) for one in self.files_to_delete.read()}
        paths = [str(row.orphan_file_location) for row in found]
        return [path for path in paths if key_of(path) not in known and not is_list(path)]

    def require_own_folder(self) -> None:
        """Raises when another table has its metadata in this table's folder, or below it: what is in there may be its files."""
        metadata = self._seen.original
        own = [str(metadata.metadataFileLocation()), *(str(entry.file()) for entry in items(metadata.previousFiles()))]
        with java_errors(self._address):
            other = Folder(self._jvm, self._table.io(), self._location).metadata_of_others(str(self._seen.original.uuid()), own)
        if other is not None:
            raise ConfigError(
                "folders-nested",
                f"The folder of {self._sql_name}, {self._location}, is not its own: {other} is metadata of another table, and "
                "what looks like an orphan may be a file of that one.",
                fix="Move one of the tables to a folder of its own. If the other one was dropped, delete its metadata by hand.",
            )

    def require_clock(self, now_ms: int) -> None:
        """Raises when this machine's clock is far from the store's: by it, files of this minute may look old."""
        with java_errors(self._address):
            store_ms = Folder(self._jvm, self._table.io(), self._location).time_ms()
        if store_ms is not None and (off := clock_off(store_ms, now_ms)) is not None:
            raise off

    def remains(self, wanted: Wanted) -> Remains:
        """What is left of some rows in all files of the table."""
        return Remains(self._jvm, self._table, self._address, wanted)

    @property
    def files_to_delete(self) -> FilesToDelete:
        """The lists of files that nobody needs any longer."""
        return FilesToDelete(self._jvm, self._table.io(), self._location)

    def small_files(self) -> list[SmallFiles]:
        """The data files that are smaller than they should be, or mostly deleted, by partition."""
        with java_errors(self._address):
            return small_files_of(self._jvm, self._seen.table)

    def manifests_worth_reading(self) -> dict[str, Any]:
        """The manifests that may be worth rewriting, by their paths; it takes a look at their list.

        None on a branch: Iceberg rewrites the manifests of main alone.
        """
        if self._seen.branch != MAIN:
            return {}
        with java_errors(self._address):
            return manifests_worth_reading(self._jvm, self._seen.table)

    def clusterings(self, manifests: Sequence[Any]) -> tuple[Clustering, ...]:
        """How these manifests are rewritten where scans of one partition gain by it."""
        with java_errors(self._address):
            return clusterings_of(self._jvm, self._seen.table, manifests)

    def clustered(self, clusterings: tuple[Clustering, ...]) -> ClusteredManifests:
        """The change of the table that rewrites manifests."""
        return ClusteredManifests(self._jvm, clusterings)

    @property
    def statistics_paths(self) -> list[str]:
        """The files with statistics of values."""
        return paths(self._seen.original)

    def count_values(self) -> Any:
        """Counts the values of every column of the table, and writes a file of statistics; commits nothing."""
        with java_errors(self._address):
            return computed(self._jvm, self._jvm.spark, self._table, self._seen.head)

    @property
    def target_bytes(self) -> int:
        """The size that its data files should have."""
        return target_bytes(self._table)

    def metadata_sizes(self) -> tuple[int, int] | None:
        """The bytes of the current snapshot's manifests with their list, and of the metadata file. It takes a few requests."""
        head, io = self._seen.metadata.currentSnapshot(), self._table.io()
        location = self._seen.original.metadataFileLocation()
        if head is None or location is None:
            return None
        with java_errors(self._address):
            manifests = sum(self._jvm.each(head.allManifests(io), "ManifestFile.length"))
            listed = int(io.newInputFile(head.manifestListLocation()).getLength()) if head.manifestListLocation() else 0
            return manifests + listed, int(io.newInputFile(location).getLength())

    def merge(self, files: Sequence[LiveFile], sequence: int, order: ZOrder | None = None) -> Rewrite:
        """Lets the executors write the rows of files into fewer; commits nothing. They were found at a sequence number."""
        return merged_files(self._jvm, self._seen.table, files, sequence, order)

    def without(self, files: Sequence[LiveFile], dead: Mapping[str, BitMap64]) -> StagedFiles:
        """Lets the executors write the rows of files again, but for those at dead positions; commits nothing."""
        return merged(self._jvm, self._jvm.spark, self._table, files, dead)

    def without_removed(self, remains: Remains, manifests: Sequence[Manifest]) -> ManifestsWithoutRemoved:
        """Manifests of deletes written anew, and all manifests of rows, without what was removed from the table."""
        with java_errors(self._address):
            anew = [remains.without_removed(one) for one in manifests]
        jvm = self._jvm
        return ManifestsWithoutRemoved(
            jvm.function("ContentFile.specId"),
            jvm.predicate("ManifestFile.hasDeletedFiles"),
            tuple(one.handle for one in manifests),
            tuple(one for one in anew if one is not None),
        )

    @property
    def _location(self) -> str:
        return str(self._seen.original.location())
