"""One table: what it is, and files written for it that no snapshot names yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from frazil.commit.fast_forward import Goal
from frazil.errors import ConfigError
from frazil.iceberg.branches import BranchesPort, Seen, head_of, steps_between
from frazil.iceberg.changes import Base, ManifestsWithoutRemoved, StagedFiles, base_of
from frazil.iceberg.compaction import SmallFiles, merged_files, small_files_of
from frazil.iceberg.contents import Wanted
from frazil.iceberg.debt import LiveFile, Rewrite, counted, equality_deletes
from frazil.iceberg.disposal import FilesToDelete
from frazil.iceberg.evolve import evolve
from frazil.iceberg.expiry import Expired, expired_in
from frazil.iceberg.faults import clock_off, too_early
from frazil.iceberg.folder import Folder
from frazil.iceberg.jvm import Jvm, active, fault_of, items, java_errors
from frazil.iceberg.manifests import ClusteredManifests, clusterings_of, manifests_worth_reading
from frazil.iceberg.port import IcebergPort
from frazil.iceberg.remains import Manifest, Remains
from frazil.iceberg.small import merged, target_bytes
from frazil.iceberg.staging import metrics_of, stage_files
from frazil.iceberg.statistics import computed, paths
from frazil.iceberg.working_copy import WorkingCopy, scratch_of
from frazil.model.commit import DIGEST, Position, SinkState, short_range
from frazil.model.evolution import TableChange
from frazil.model.ledger import ledger_entries
from frazil.model.maintenance import Retention
from frazil.model.manifests import Clustering
from frazil.model.publishing import MAIN, Step
from frazil.model.types import StructType, type_from_json
from frazil.spark.running_java import task_memory

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, SparkSession


# A look at the statistics of more files than this would cost more than it can save.
MOST_FILES_TO_LOOK_AT = 2_000
# Of these types Iceberg compares bounds as they were made.
_WITH_BOUNDS = ("int", "long", "string")
# Iceberg compares UUIDs as two signed numbers, and bounds of files are the least and the greatest by unsigned bytes: between them
# it finds nothing, and would leave out deletes that apply (apache/iceberg#14216). Without bounds it leaves out none.
_WITHOUT_BOUNDS = "uuid"

TAKEN_BACK_TO = "frazil.taken-back-to"
"""In the summary of a snapshot that took batches back: the end of the last one that stayed."""


@dataclass(frozen=True)
class _Layout:
    """The columns and the partitioning of a table, under the ids that the table has given them."""

    ids: tuple[int, int]
    schema: StructType
    field_ids: Mapping[str, int]
    partition: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Added:
    """The data files that the last batches of a sink have added, and where the sink was before them."""

    files: tuple[Any, ...]
    batches: int
    start: Position | None


class IcebergTable:
    """One table: what it is, staging of files for it, and the port of the commit loop. Its rows are those of one branch."""

    def __init__(self, jvm: Jvm, address: str, table: Any, sql_name: str, branch: str = MAIN) -> None:
        self._jvm = jvm
        self._address = address
        self._table = table
        self._seen = Seen(jvm, table, branch)
        self.sql_name = sql_name
        """The table's name in Spark's SQL."""
        self._operations = table.operations()
        self._read_layout: _Layout | None = None
        self.uuid = str(self._operations.current().uuid())
        """Which table this is, whatever its name."""

    @property
    def schema(self) -> StructType:
        """The current columns."""
        return self._layout.schema

    @property
    def field_ids(self) -> Mapping[str, int]:
        """The ids of the current columns, by their names."""
        return self._layout.field_ids

    @property
    def partition(self) -> tuple[tuple[str, str], ...]:
        """The current partition spec: source column and transform, e.g. `("id", "bucket[16]")`."""
        return self._layout.partition

    @property
    def sort_order(self) -> tuple[str, ...]:
        """The order of rows within files: `ts desc nulls last`, `bucket[16](id) asc nulls first`."""
        metadata = self._operations.current()
        schema, order = metadata.schema(), metadata.sortOrder()
        found = []
        for field in items(order.fields()):
            name, transform = str(schema.findColumnName(field.sourceId())), str(field.transform().toString())
            ways = f"{field.direction().toString()} {field.nullOrder().toString()}".lower().replace("_", " ")
            found.append(f"{name if transform == 'identity' else f'{transform}({name})'} {ways}")
        return tuple(found)

    @property
    def one_spec(self) -> bool:
        """Whether all live data files were written under the current partition spec, not under an equal earlier one."""
        metadata = self._seen.metadata
        head = metadata.currentSnapshot()
        manifests = () if head is None else items(head.dataManifests(self._table.io()))
        used = {int(m.partitionSpecId()) for m in manifests if m.hasAddedFiles() or m.hasExistingFiles()}
        return used <= {int(metadata.defaultSpecId())}

    @property
    def held_columns(self) -> frozenset[str]:
        """The columns that the table's specs and sort orders, earlier ones too, are made from."""
        metadata = self._operations.current()
        made = [*items(metadata.specs()), *items(metadata.sortOrders())]
        found = {metadata.schema().findColumnName(field.sourceId()) for one in made for field in items(one.fields())}
        return frozenset(str(name) for name in found if name is not None)

    @property
    def compared_columns(self) -> frozenset[str]:
        """The columns that live equality deletes compare: readers look for their values."""
        head = self._seen.metadata.currentSnapshot()
        if head is None or head.summary().get("total-equality-deletes") == "0":
            return frozenset()
        names = {number: name for name, number in self.field_ids.items()}
        compared = {number for ids in equality_deletes(self._jvm, self._seen.table) for number in ids}
        return frozenset(names[number] for number in compared if number in names)

    @property
    def _layout(self) -> _Layout:
        """Read again only when another schema or spec is the current one: a schema or spec never changes under its id."""
        metadata = self._operations.current()
        ids = (int(metadata.currentSchemaId()), int(metadata.defaultSpecId()))
        if self._read_layout is None or self._read_layout.ids != ids:
            schema = metadata.schema()
            columns = type_from_json(json.loads(self._jvm.schema_to_json(schema)))
            if not isinstance(columns, StructType):
                raise TypeError(columns)
            self._read_layout = _Layout(ids, columns, self._jvm.field_ids(schema), _partition(schema, metadata.spec()))
        return self._read_layout

    @property
    def base(self) -> Base:
        """What files that are staged now are staged on."""
        return base_of(self._seen.metadata)

    @property
    def metadata_location(self) -> str | None:
        """The current metadata file, which other systems need; None if the catalog does not provide it."""
        location = self._operations.current().metadataFileLocation()
        return None if location is None else str(location)

    @property
    def location(self) -> str:
        """The folder of the table."""
        return str(self._operations.current().location())

    @cached_property
    def task_memory(self) -> int:
        """The bytes of heap that a task which writes to the table can count on."""
        return task_memory(self._jvm.spark)

    @property
    def unpartitioned_spec(self) -> int | None:
        """The id of a spec without fields, if the table has one, current or not."""
        specs = items(self._operations.current().specs())
        return next((int(spec.specId()) for spec in specs if spec.isUnpartitioned()), None)

    @property
    def identifier_fields(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return tuple(sorted(str(name) for name in items(self._table.schema().identifierFieldNames())))

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return self._jvm.texts(self._table.properties())

    def property_text(self, name: str) -> str | None:
        """One of the table's properties."""
        value = self._operations.current().properties().get(name)
        return None if value is None else str(value)

    @property
    def format_version(self) -> int:
        """Version of the table format."""
        return int(self._operations.current().formatVersion())

    def total(self, what: str) -> int:
        """A total of the whole table: `records`, `data-files`, `equality-deletes` or `delete-files`.

        It is read from the head's summary. If another writer has committed without totals, they are missing from then on, and
        it is counted.
        """
        head = self._seen.metadata.currentSnapshot()
        if head is None:
            return 0
        value = head.summary().get(f"total-{what}")
        return counted(self._jvm, self._seen.table, what) if value is None else int(value)

    @property
    def holds_no_files(self) -> bool:
        """Whether the table certainly has no rows: there is no snapshot, or its summary counts no data files."""
        head = self._seen.metadata.currentSnapshot()
        return head is None or head.summary().get("total-data-files") == "0"

    def lacks_keys(self, keys: Sequence[str], lowest: Sequence[Any], highest: Sequence[Any]) -> bool:
        """Whether no file can contain a key in these bounds, by the files' statistics. False if that is expensive to find out."""
        head = self._seen.metadata.currentSnapshot()
        if head is None:
            return True
        files = head.summary().get("total-data-files")
        types = {column.name: column.type.name for column in self.schema.fields}
        if files is None or int(files) > MOST_FILES_TO_LOOK_AT or any(types[key] not in _WITH_BOUNDS for key in keys):
            return False
        bounds = list(zip(keys, lowest, highest, strict=True))
        if any(low is None or high is None for _, low, high in bounds):
            return False
        expressions = self._jvm.iceberg.expressions.Expressions
        scan = self._seen.table.newScan()
        for key, low, high in bounds:
            scan = scan.filter(expressions.greaterThanOrEqual(key, low)).filter(expressions.lessThanOrEqual(key, high))
        found = scan.planFiles()
        try:
            return not found.iterator().hasNext()
        finally:
            found.close()

    @property
    def everything(self) -> Any:
        """Iceberg's expression for all rows."""
        return self._jvm.iceberg.expressions.Expressions.alwaysTrue()

    def where(self, condition: str) -> Any:
        """A condition in Spark SQL as Iceberg's expression, which names the same rows or more: it says less than SQL can."""
        converter = self._jvm.root.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
        with active(self._jvm.spark):
            session = self._jvm.spark._jsparkSession
            resolved = converter.collectResolvedSparkExpression(session, self.sql_name, condition)
            try:
                return converter.convertToIcebergExpression(resolved)
            except Exception as error:
                if fault_of(error).find("java.lang.IllegalArgumentException") is None:
                    raise
                return self.everything

    def committed_ends(self, sink_id: str) -> frozenset[str]:
        """Where the batches of a sink ended, by the summaries of the snapshots that are still there."""
        metadata = json.loads(self._jvm.iceberg.TableMetadataParser.toJson(self._operations.current()))
        summaries = [snapshot.get("summary", {}) for snapshot in metadata.get("snapshots", ())]
        return frozenset(s.get("frazil.end", "") for s in summaries if s.get("frazil.sink") == sink_id)

    def added_since(self, sink_id: str, end: Position | None, kept: Callable[[Position | None], bool]) -> Added | None:
        """What the batches of a sink have added, from the last one, which ended at ``end``, back to a position that is ``kept``.

        None if that is not known: a snapshot on the way has expired, or a batch did more than add files.
        """
        files: list[Any] = []
        batches, at, io = 0, end, self._table.io()
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
            snapshot = None if parent is None else self._table.snapshot(parent)
        return Added(tuple(files), batches, at)

    def states(self, beginning: str) -> dict[str, SinkState]:
        """The ledger's entries of all sinks whose ids begin like this."""
        return ledger_entries(self.properties, beginning)

    def summaries(self, sink_id: str | None) -> list[tuple[int, dict[str, str]]]:
        """The snapshots from the first that is still there to the head, those of a sink or all, with what their summaries say."""
        found: list[tuple[int, dict[str, str]]] = []
        at = self._seen.metadata.currentSnapshot()
        while at is not None:
            summary = self._jvm.texts(at.summary())
            if sink_id is None or summary.get("frazil.sink") == sink_id:
                found.append((int(at.snapshotId()), summary))
            parent = at.parentId()
            at = None if parent is None else self._table.snapshot(parent)
        return list(reversed(found))

    def end_at(self, sink_id: str, snapshot: int) -> str | None:
        """Where the last batch of a sink ended that was in the table at a snapshot; None when none was, or it is not known."""
        at = self._table.snapshot(snapshot)
        while at is not None:
            summary = at.summary()
            if summary.get("frazil.sink") == sink_id and summary.get("frazil.end"):
                return str(summary.get("frazil.end"))
            parent = at.parentId()
            at = None if parent is None else self._table.snapshot(parent)
        return None

    def refresh(self) -> None:
        """Looks at the table again."""
        with java_errors(self._address):
            self._table.refresh()

    def require_past(self) -> None:
        """Raises when the table was last changed too far in the future for anything to be added to it."""
        if (early := too_early(int(self._operations.current().lastUpdatedMillis()))) is not None:
            raise early

    def look(self) -> None:
        """Makes sure that the metadata is loaded: some catalog clients drop it after a commit, and load it again when needed."""
        with java_errors(self._address):
            self._operations.current()

    def port(self, sink_id: str, retention: Retention | None = None) -> IcebergPort:
        """The commit loop's side of this table for one sink. ``retention``: older snapshots expire with the commit."""
        return IcebergPort(self._jvm, self._address, self._table, sink_id, retention=retention, branch=self._seen.branch)

    @property
    def branch_head(self) -> int | None:
        """The head of the sink's branch as it is in the catalog; None if the branch is not there yet."""
        return head_of(self._operations.current(), self._seen.branch)

    def publisher(self, goal: Goal) -> BranchesPort:
        """Moves main to a snapshot of a branch."""
        return BranchesPort(self._jvm, self._address, self._table, goal)

    def steps(self, older: int | None, newer: int) -> list[Step]:
        """The snapshots after one up to another, from old to new."""
        return steps_between(self._jvm, self._operations.current(), older, newer)

    def rows_at(self, session: SparkSession, snapshot: int) -> DataFrame:
        """The rows that a snapshot has."""
        return session.read.option("versionAsOf", snapshot).table(self.sql_name)

    def dead_files(self, expired: Expired) -> list[str]:
        """The files that only expired snapshots need."""
        with java_errors(self._address):
            return expired.dead_files(self._jvm, self._table.io())

    def expirable(self, retention: Retention, now_ms: int) -> int:
        """How many snapshots would expire with a commit."""
        return len(expired_in(self._jvm, self._operations.current(), retention, now_ms, self._seen.branch))

    def orphans(self, older_than_ms: int) -> list[str]:
        """Files in the table's folder that no metadata of the table names, and that are older than a time.

        Iceberg's own search, which only lists them.
        """
        catalog = self.sql_name.partition(".")[0]
        moment = f"timestamp_millis({older_than_ms})"
        with java_errors(self._address), active(self._jvm.spark):
            # Otherwise it lists by Hadoop's file systems, which object stores do not have here.
            by_store = str(self._jvm.is_a(self._table.io(), "io.SupportsPrefixOperations")).lower()
            options = f"older_than => {moment}, dry_run => true, prefix_listing => {by_store}"
            call = f"CALL {catalog}.system.remove_orphan_files(table => ?, {options})"
            found = self._jvm.spark.sql(call, [self.sql_name]).collect()
        return [str(row.orphan_file_location) for row in found]

    def require_own_folder(self) -> None:
        """Raises when another table has its metadata in this table's folder, or below it: what is in there may be its files."""
        metadata = self._operations.current()
        own = [str(metadata.metadataFileLocation()), *(str(entry.file()) for entry in items(metadata.previousFiles()))]
        with java_errors(self._address):
            other = Folder(self._jvm, self._table.io(), self.location).metadata_of_others(self.uuid, own)
        if other is not None:
            raise ConfigError(
                "folders-nested",
                f"The folder of {self.sql_name}, {self.location}, is not its own: {other} is metadata of another table, and what "
                "looks like an orphan may be a file of that one.",
                fix="Move one of the tables to a folder of its own. If the other one was dropped, delete its metadata by hand.",
            )

    def require_clock(self, now_ms: int) -> None:
        """Raises when this machine's clock is far from the store's: by it, files of this minute may look old."""
        with java_errors(self._address):
            store_ms = Folder(self._jvm, self._table.io(), self.location).time_ms()
        if store_ms is not None and (off := clock_off(store_ms, now_ms)) is not None:
            raise off

    def remains(self, wanted: Wanted) -> Remains:
        """What is left of some rows in all files of the table."""
        return Remains(self._jvm, self._table, self._address, wanted)

    @property
    def files_to_delete(self) -> FilesToDelete:
        """The list of files that nobody needs any longer."""
        return FilesToDelete(self._jvm, self._table.io(), self.location)

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
        return paths(self._operations.current())

    def count_values(self) -> Any:
        """Counts the values of every column of the table, and writes a file of statistics; commits nothing."""
        with java_errors(self._address):
            return computed(self._jvm, self._jvm.spark, self._table, self.base.head)

    @property
    def target_bytes(self) -> int:
        """The size that its data files should have."""
        return target_bytes(self._table)

    def metadata_sizes(self) -> tuple[int, int] | None:
        """The bytes of the current snapshot's manifests with their list, and of the metadata file. It takes a few requests."""
        head, io = self._seen.metadata.currentSnapshot(), self._table.io()
        location = self.metadata_location
        if head is None or location is None:
            return None
        with java_errors(self._address):
            manifests = sum(self._jvm.each(head.allManifests(io), "ManifestFile.length"))
            listed = int(io.newInputFile(head.manifestListLocation()).getLength()) if head.manifestListLocation() else 0
            return manifests + listed, int(io.newInputFile(location).getLength())

    @property
    def head_sequence(self) -> int:
        """The sequence number of the current snapshot."""
        head = self._seen.metadata.currentSnapshot()
        return 0 if head is None else int(head.sequenceNumber())

    def snapshots_since(self, kind: str, most: int) -> int:
        """How many snapshots came after the last one of a kind of upkeep, up to ``most``."""
        at = self._seen.metadata.currentSnapshot()
        for count in range(most):
            if at is None or at.summary().get("frazil.kind") == kind:
                return count
            at = None if at.parentId() is None else self._table.snapshot(at.parentId())
        return most

    def merge(self, files: Sequence[LiveFile], sequence: int) -> Rewrite:
        """Lets the executors write the rows of files into fewer; commits nothing. They were found at a sequence number."""
        return merged_files(self._jvm, self._jvm.spark, self._seen.table, files, sequence)

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

    def write_files(
        self,
        frame: DataFrame,
        options: Mapping[str, str],
        evolution: Sequence[TableChange] = (),
        defaults: Mapping[str, str] | None = None,
    ) -> StagedFiles:
        """Lets the executors write the frame as data files of this table as it will be after the changes; commits nothing.

        ``defaults`` are table properties that hold for this write where the table does not say otherwise.
        """
        return stage_files(self._jvm, frame, options, self._as_it_will_be(evolution, defaults or {}))

    def write_deletes(
        self,
        frame: DataFrame,
        options: Mapping[str, str],
        keys: Sequence[str],
        evolution: Sequence[TableChange] = (),
        *,
        everywhere: bool,
    ) -> StagedFiles:
        """Lets the executors write the keys as equality deletes: of the keys' own partitions, or ``everywhere`` in the table.

        The keys are written as data of a view that has the key columns alone, under the ids that they have in the table, and the
        files are declared to be deletes afterwards.
        """
        whole = self._as_it_will_be(evolution, {})
        metadata = whole.operations().current()
        spec = self._spec_of_deletes(metadata, everywhere)
        names = self._jvm.root.java.util.ArrayList()
        for key in keys:
            names.add(key)
        key_schema = whole.schema().select(names)
        # The table may be sorted by columns that are no keys.
        unsorted = self._jvm.iceberg.SortOrder.unsorted()
        builder = self._jvm.build_metadata_from(metadata).setDefaultSortOrder(unsorted).setDefaultPartitionSpec(spec)
        builder = builder.setCurrentSchema(key_schema, metadata.lastColumnId()).setProperties(_metrics_of_deletes(key_schema))
        staged = stage_files(self._jvm, frame, options, self._jvm.view(whole, builder.discardChanges().build()))
        ids = self._jvm.ints([int(key_schema.findField(key).fieldId()) for key in keys])
        return StagedFiles(tuple(self._as_deletes(file, spec, ids) for file in staged.files), staged.rows, staged.bytes)

    @contextmanager
    def working_copy(
        self,
        evolution: Sequence[TableChange] = (),
        properties: Mapping[str, str] | None = None,
        session: SparkSession | None = None,
    ) -> Iterator[WorkingCopy]:
        """A private copy of the table, for SQL of a session to change; without one, of the session that the table is in."""
        spark = session or self._jvm.spark
        with active(spark), scratch_of(self._jvm, spark, self._seen, evolution, properties or {}) as copy:
            yield copy

    def _spec_of_deletes(self, metadata: Any, everywhere: bool) -> Any:
        if not everywhere:
            return metadata.spec()
        return next(spec for spec in items(metadata.specs()) if spec.isUnpartitioned())

    def _as_deletes(self, file: Any, spec: Any, ids: Any) -> Any:
        iceberg = self._jvm.iceberg
        metrics = metrics_of(self._jvm, file)
        builder = iceberg.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(ids).withPath(file.location())
        builder = builder.withFormat(file.format()).withFileSizeInBytes(file.fileSizeInBytes()).withMetrics(metrics)
        return (builder if spec.isUnpartitioned() else builder.withPartition(file.partition())).build()

    def _as_it_will_be(self, evolution: Sequence[TableChange], defaults: Mapping[str, str]) -> Any:
        """A view of the table that has the changes already; the table itself is not changed."""
        metadata = self._operations.current()
        own = metadata.properties()
        lacking = {name: value for name, value in defaults.items() if not own.containsKey(name)}
        if not evolution and not lacking:
            return self._table
        if evolution:
            transaction = self._table.newTransaction()
            evolve(self._jvm, transaction, evolution)
            metadata = transaction.table().operations().current()
        if lacking:
            metadata = self._jvm.build_metadata_from(metadata).setProperties(lacking).discardChanges().build()
        return self._jvm.view(self._table, metadata)


def _partition(schema: Any, spec: Any) -> tuple[tuple[str, str], ...]:
    return tuple((str(schema.findColumnName(f.sourceId())), str(f.transform().toString())) for f in items(spec.fields()))


def _metrics_of_deletes(schema: Any) -> dict[str, str]:
    """The properties by which writers leave out bounds that would be taken for others."""
    unordered = [field for field in items(schema.columns()) if str(field.type().toString()) == _WITHOUT_BOUNDS]
    return {f"write.metadata.metrics.column.{field.name()}": "counts" for field in unordered}
