"""A private copy of a table, which SQL can change as it likes: what changed there is committed to the table itself afterwards.

The copy is one of metadata only, in a catalog that lives in this process's memory: it names the same files, and new ones are
written beside them. No other process sees it, and no commit to it can fail half-way.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from frazil.iceberg.branches import Seen
from frazil.iceberg.changes import RowChanges, StagedFiles, with_files
from frazil.iceberg.debt import (
    Deletes,
    FileFacts,
    LiveFile,
    Marked,
    Rewrite,
    bounds_of,
    equality_deletes,
    facts_of,
    live_file,
    position_schema,
    read_positions,
    with_dropped,
    write_positions,
    write_vectors,
)
from frazil.iceberg.evolve import evolve
from frazil.iceberg.jvm import Jvm, fault_of, items
from frazil.iceberg.small import merged, rows_of, small_files
from frazil.iceberg.splits import in_even_tasks
from frazil.model.evolution import TableChange

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_log = logging.getLogger("frazil")

_NAMESPACE = "scratch"
# Some tables delete metadata that is older than their last few commits. A commit to the copy is none of theirs: two of them could
# take the metadata away that the table has now. The copy knows all of its own, so that they can be deleted in the end.
_KEEPS_METADATA = {
    "write.metadata.delete-after-commit.enabled": "false",
    "write.metadata.previous-versions-max": str(2**31 - 1),
}
# Which data files must still be there is known of deletes that are about one each.
_ONE_FILE_EACH = {"write.delete.granularity": "file"}
FIRST_WITH_VECTORS = 3
"""The version of the table format that has deletion vectors."""


class WorkingCopy:
    """The copy under its name in Spark, and what was changed in it."""

    NAME = "frazil_old"

    def __init__(self, jvm: Jvm, spark: SparkSession, catalog: Any, table: Any, name: str) -> None:
        self._jvm = jvm
        self.spark = spark
        self._catalog = catalog
        self._table = table
        self._before = table.currentSnapshot()
        # Copies for the keys are made from this, in any thread, while another thread changes the table's.
        self._begun = table.operations().current().metadataFileLocation()
        self._copies = [table]
        self.name = name

    def delete_where(self, condition: str) -> None:
        """Deletes the rows for which a condition in SQL holds."""
        self.spark.sql(f"DELETE FROM {self.name} WHERE {condition}")

    @property
    def rows(self) -> DataFrame:
        """The copy as it is now: what is changed in it later is not seen."""
        self._table.refresh()
        snapshot = self._table.currentSnapshot()
        reader = self.spark.read if snapshot is None else self.spark.read.option("versionAsOf", str(snapshot.snapshotId()))
        return reader.table(self.name)

    @property
    def evolved_rows(self) -> DataFrame:
        """The rows with the columns that the copy has now, also newer ones than its snapshot: for a copy that stays as it is."""
        return self.spark.table(self.name)

    @property
    def schema(self) -> StructType:
        """The columns of the copy as it is now."""
        return self.evolved_rows.schema

    def equality_deletes(self) -> list[Deletes]:
        """The live equality delete files, by the columns that they compare; dropped ones are put back into the copy for that."""
        found = equality_deletes(self._jvm, self._table)
        operations = self._table.operations()
        metadata = operations.current()
        whole = with_dropped(self._jvm, metadata, (number for ids in found for number in ids))
        if whole is not None:
            builder = self._jvm.build_metadata_from(metadata).setCurrentSchema(whole, metadata.lastColumnId())
            operations.commit(metadata, builder.build())
            self._table.refresh()
            self._begun = operations.current().metadataFileLocation()
        name_of = self._table.schema().findColumnName
        return [Deletes(tuple(str(name_of(number)) for number in ids), tuple(files)) for ids, files in found.items()]

    def without(self, deletes: Deletes) -> None:
        """Drops equality deletes from the copy, which makes the rows live again that they delete."""
        self.apply(Rewrite(removed_deletes=deletes.files))

    def keys_of(self, deletes: Deletes) -> DataFrame:
        """The keys that equality deletes hold, with the file that each is in as `_file`."""
        names = self._jvm.root.java.util.ArrayList()
        for column in deletes.columns:
            names.add(column)
        return self._as_data(deletes.files, lambda schema: schema.select(names))

    def _as_data(self, files: Sequence[Any], columns: Callable[[Any], Any]) -> DataFrame:
        """What delete files hold, read as if they were data.

        They are put into a second copy, which has their ``columns`` alone, under the ids that the files give them.
        """
        identifier = self._jvm.iceberg.catalog.TableIdentifier.of(self._jvm.strings([_NAMESPACE, f"deletes_{uuid.uuid4().hex}"]))
        copy = self._catalog.registerTable(identifier, self._begun)
        self._copies.append(copy)
        operations = copy.operations()
        metadata = operations.current()
        whole = self._jvm.iceberg.PartitionSpec.unpartitioned()
        builder = self._jvm.build_metadata_from(metadata).removeRef("main").setDefaultPartitionSpec(whole)
        builder = builder.setCurrentSchema(columns(metadata.schema()), metadata.lastColumnId())
        operations.commit(metadata, builder.build())
        copy.refresh()
        append, begin, spec = copy.newFastAppend(), self._jvm.iceberg.DataFiles.builder, copy.spec()
        for file in files:
            data = begin(spec).withPath(file.location()).withFormat(file.format())
            append.appendFile(data.withFileSizeInBytes(file.fileSizeInBytes()).withRecordCount(file.recordCount()).build())
        append.commit()
        reader = self.spark.read.options(**in_even_tasks(self.spark, files))
        return reader.table(f"{self.name.rpartition('.')[0]}.{identifier.name()}")

    def facts(self, deletes: Deletes) -> list[FileFacts]:
        """When each file of the deletes came, and where it applies."""
        return facts_of(self._table, deletes.files)

    def live_files(self) -> list[LiveFile]:
        """The data files of the copy."""
        tasks = self._table.newScan().planFiles()
        try:
            return [live_file(task) for task in items(tasks)]
        finally:
            tasks.close()

    def data_facts(self, live: Sequence[LiveFile]) -> list[FileFacts]:
        """When each data file came, and in which partition it is."""
        return facts_of(self._table, (one.file for one in live))

    def small_files(self, live: Sequence[LiveFile], facts: Sequence[FileFacts], since: int) -> list[LiveFile]:
        """Files that were added since then and are small enough to be merged."""
        return small_files(self._table, live, facts, since)

    def merged(self, small: Sequence[LiveFile], dead: Mapping[str, BitMap64]) -> StagedFiles:
        """Few files with the rows of small ones, but for the dead."""
        return merged(self._jvm, self.spark, self._table, small, dead) if small else StagedFiles()

    @property
    def keeps_vectors(self) -> bool:
        """Whether deleted positions are kept as vectors."""
        return int(self._table.operations().current().formatVersion()) >= FIRST_WITH_VECTORS

    def positions(self, dead: Mapping[str, BitMap64], live: Sequence[LiveFile]) -> Marked:
        """Deletes of the dead positions of files."""
        if not dead:
            return Marked()
        files = {one.path: one for one in live if one.path in dead}
        if not self.keeps_vectors:
            return write_positions(self._jvm, self._table, self.spark, dead, files)
        return write_vectors(self._jvm, self._table, dead, files, self._positions_in(list(files.values())))

    def _positions_in(self, files: Sequence[LiveFile]) -> dict[str, BitMap64]:
        """The dead positions of data files that position delete files name."""
        about = [one.path for one in files if one.position_files]
        # One of them may be about many data files.
        deletes = {str(delete.location()): delete for one in files for delete in one.position_files}
        if not deletes:
            return {}
        return read_positions(self._as_data(list(deletes.values()), lambda _: position_schema(self._jvm)), about)

    @contextmanager
    def rows_of(self, files: Sequence[LiveFile]) -> Iterator[DataFrame]:
        """What is left of some files, under the deletes that they had when they were looked for."""
        with rows_of(self._jvm, self.spark, self._table, files) as rows:
            yield rows

    def bounds(self, deletes: Deletes) -> dict[str, tuple[Any, Any]]:
        """The least and the greatest value of key columns, by the statistics of the delete files."""
        return bounds_of(self._jvm, self._table, deletes)

    def apply(self, rewrite: Rewrite) -> None:
        """Puts files in the place of others in the copy."""
        self._table.refresh()
        operation = self._table.newRowDelta().validateFromSnapshot(self._table.currentSnapshot().snapshotId())
        with_files(operation, rewrite.staged.files, rewrite.removed, rewrite.deletes, rewrite.removed_deletes).commit()

    @property
    def summary(self) -> dict[str, str]:
        """What the snapshot that was made in the copy says of itself; nothing when none was."""
        self._table.refresh()
        snapshot = self._table.currentSnapshot()
        return {} if self._unchanged(snapshot) else self._jvm.texts(snapshot.summary())

    def changes(self, *, conflicts: Any) -> RowChanges:
        """The files that were added and removed. ``conflicts``: which rows of others must not have changed meanwhile."""
        files = self._changed_files()
        # A vector names its data file. A file of position deletes has it in its statistics, unless it is about several.
        paths = [self._jvm.iceberg.util.ContentFileUtil.referencedDataFileLocation(file) for file in files.deletes]
        referenced = None if None in paths else tuple(str(path) for path in paths)
        return RowChanges(conflicts, files.staged, files.removed, files.deletes, files.removed_deletes, referenced)

    def rewrite(self) -> Rewrite:
        """What was changed in the copy, as a rewrite: the rows are the same as before."""
        return self._changed_files()

    def compact_files_with_deletes(self) -> None:
        """Lets Iceberg rewrite the data files that have deletes, without the deleted rows."""
        options = {"delete-file-threshold": "1", "min-file-size-bytes": "0", "max-file-size-bytes": str(2**62),
                   "remove-dangling-deletes": "true"}  # fmt: skip
        pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
        catalog, _, table = self.name.partition(".")
        self.spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{table}', options => map({pairs}))").collect()

    def _changed_files(self) -> Rewrite:
        """What all snapshots that were made in the copy have added and removed, but for what came and went in between."""
        self._table.refresh()
        snapshot = self._table.currentSnapshot()
        added: dict[str, Any] = {}
        removed: dict[str, Any] = {}
        io = self._table.io()
        while not self._unchanged(snapshot):
            for file in (*items(snapshot.addedDataFiles(io)), *items(snapshot.addedDeleteFiles(io))):
                if removed.pop(_identity(file), None) is None:
                    added[_identity(file)] = file.copy()
            for file in (*items(snapshot.removedDataFiles(io)), *items(snapshot.removedDeleteFiles(io))):
                removed[_identity(file)] = file.copy()
            parent = snapshot.parentId()
            snapshot = None if parent is None else self._table.snapshot(parent)
        rows = tuple(file for file in added.values() if _holds_rows(file))
        return Rewrite(
            StagedFiles(rows, sum(f.recordCount() for f in rows), sum(f.fileSizeInBytes() for f in rows)),
            removed=tuple(file for file in removed.values() if _holds_rows(file)),
            deletes=tuple(file for file in added.values() if not _holds_rows(file)),
            removed_deletes=tuple(file for file in removed.values() if not _holds_rows(file)),
        )

    def discard(self, original: Any) -> None:
        """Deletes the metadata that only the copies name; data and delete files stay, for whoever commits them."""
        io = self._table.io()
        kept = {int(snapshot.snapshotId()) for snapshot in items(original.snapshots())}
        files: set[str] = set()
        for copy in self._copies:
            copy.refresh()
            metadata = copy.operations().current()
            files |= _metadata_files(metadata)
            for snapshot in items(metadata.snapshots()):
                own = int(snapshot.snapshotId())
                if own not in kept:
                    files.add(str(snapshot.manifestListLocation()))
                    files |= {str(one.path()) for one in items(snapshot.allManifests(io)) if int(one.snapshotId()) == own}
        for file in files - _metadata_files(original):
            io.deleteFile(file)

    def _unchanged(self, snapshot: Any) -> bool:
        if snapshot is None:
            return True
        return self._before is not None and snapshot.snapshotId() == self._before.snapshotId()


@contextmanager
def scratch_of(
    jvm: Jvm, spark: SparkSession, seen: Seen, evolution: Sequence[TableChange], properties: Mapping[str, str]
) -> Iterator[WorkingCopy]:
    """Opens a copy of the table as it is now, with the changes of its columns and the properties, and drops it in the end.

    ``spark``: the session that knows the copy by its name; a batch that is merged into it is of that session too.
    """
    with _catalog(jvm, spark) as (name, catalog):
        _share_files(catalog, seen.table)
        identifier = jvm.iceberg.catalog.TableIdentifier.of(jvm.strings([_NAMESPACE, WorkingCopy.NAME]))
        # This shows which files of the copy are the table's, whatever happens to the table meanwhile.
        original = seen.original
        copy = catalog.registerTable(identifier, _metadata_file(jvm, seen.table, original))
        _prepare(jvm, copy, evolution, properties)
        _to_head(copy, seen.metadata)
        copy.refresh()
        working = WorkingCopy(jvm, spark, catalog, copy, f"{name}.{_NAMESPACE}.{WorkingCopy.NAME}")
        try:
            yield working
        finally:
            _clear_away(working, original)


def _metadata_file(jvm: Jvm, table: Any, metadata: Any) -> str:
    """A file with the metadata. Nessie has none for others, and names an address of its service: the file is then written here.

    It belongs to the copy, and is deleted with what else only the copy names.
    """
    location = str(metadata.metadataFileLocation())
    if not location.startswith(("http://", "https://")):
        return location
    path = str(table.operations().metadataFileLocation(f"{uuid.uuid4()}.metadata.json"))
    jvm.iceberg.TableMetadataParser.write(metadata, table.io().newOutputFile(path))
    return path


def _clear_away(working: WorkingCopy, original: Any) -> None:
    """What is left is a few small files. Some may write to a store and not delete from it: that is no reason to stop a batch."""
    try:
        working.discard(original)
    except Exception as error:  # noqa: BLE001 - whatever it is, the work itself is done or has failed by itself
        _log.warning(
            "metadata of a private copy could not be deleted beside %s: %s",
            original.location(),
            fault_of(error).chain[-1].message,
        )


# The catalogs of each session that hold no copy now.
_free: dict[str, list[str]] = {}


@contextmanager
def _catalog(jvm: Jvm, spark: SparkSession) -> Iterator[tuple[str, Any]]:
    """An empty catalog that nobody else uses meanwhile, under its name in Spark.

    A session keeps every catalog that it has ever known, with a whole configuration each: one for every copy would fill its
    memory in the end. So they are used again.
    """
    free = _free.setdefault(str(spark._jsparkSession.sessionUUID()), [])
    try:
        name = free.pop()
    except IndexError:
        name = _new_catalog(spark)
    catalog = jvm.iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, name)
    namespace = jvm.iceberg.catalog.Namespace.of(jvm.strings([_NAMESPACE]))
    if not catalog.namespaceExists(namespace):
        catalog.createNamespace(namespace)
    try:
        yield name, catalog
    finally:
        for identifier in list(items(catalog.listTables(namespace))):
            catalog.dropTable(identifier, False)
        free.append(name)


def _new_catalog(spark: SparkSession) -> str:
    name = f"frazil_{uuid.uuid4().hex[:12]}"
    options = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
        ".cache-enabled": "false",
    }
    for key, value in options.items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    return name


def _share_files(catalog: Any, table: Any) -> None:
    """Lets the catalog read and write as the table does, with whatever credentials that has: it takes no such thing by itself."""
    field = catalog.getClass().getDeclaredField("io")
    field.setAccessible(True)
    field.set(catalog, table.io())


def _to_head(copy: Any, seen: Any) -> None:
    """Moves the copy's main branch to the head of the branch that the table is seen from."""
    head, current = seen.currentSnapshot(), copy.currentSnapshot()
    if head is not None and (current is None or head.snapshotId() != current.snapshotId()):
        copy.manageSnapshots().setCurrentSnapshot(head.snapshotId()).commit()


def _prepare(jvm: Jvm, copy: Any, evolution: Sequence[TableChange], properties: Mapping[str, str]) -> None:
    transaction = copy.newTransaction()
    evolve(jvm, transaction, evolution)
    update = transaction.updateProperties()
    for key, value in {**properties, **_KEEPS_METADATA, **_ONE_FILE_EACH}.items():
        update.set(key, value)
    update.commit()
    transaction.commitTransaction()


def _identity(file: Any) -> str:
    """A deletion vector shares its file with others."""
    offset = None if _holds_rows(file) else file.contentOffset()
    return f"{file.location()}#{offset}"


def _holds_rows(file: Any) -> bool:
    return int(file.content().id()) == 0


def _metadata_files(metadata: Any) -> set[str]:
    return {str(metadata.metadataFileLocation()), *(str(entry.file()) for entry in items(metadata.previousFiles()))}
