"""One table: what it is, and files written for it that no snapshot names yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from frazil.commit.fast_forward import Goal
from frazil.iceberg.branches import BranchesPort, Seen, head_of, seen_from
from frazil.iceberg.care import TableCare
from frazil.iceberg.changes import Base, StagedFiles, base_of
from frazil.iceberg.debt import counted, equality_deletes
from frazil.iceberg.evolve import evolve
from frazil.iceberg.faults import too_early
from frazil.iceberg.history import History
from frazil.iceberg.jvm import Jvm, active, fault_of, items, java_errors
from frazil.iceberg.key_index import KeyIndex, Lookup
from frazil.iceberg.port import IcebergPort
from frazil.iceberg.small import no_rows, rows_of_tasks
from frazil.iceberg.splits import USUAL_TASKS
from frazil.iceberg.staging import metrics_of, stage_files
from frazil.iceberg.working_copy import FIRST_WITH_VECTORS, WorkingCopy, scratch_of
from frazil.model.commit import SinkState
from frazil.model.evolution import TableChange
from frazil.model.ledger import ledger_entries
from frazil.model.maintenance import Retention
from frazil.model.publishing import MAIN
from frazil.model.types import StructType, type_from_json
from frazil.spark.running_java import task_memory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# A look at the statistics of more files than this would cost more than it can save.
MOST_FILES_TO_LOOK_AT = 2_000
# Of these types Iceberg compares bounds as they were made.
_WITH_BOUNDS = ("int", "long", "string")
# Iceberg compares UUIDs as two signed numbers, and bounds of files are the least and the greatest by unsigned bytes: between them
# it finds nothing, and would leave out deletes that apply (apache/iceberg#14216). Without bounds it leaves out none.
_WITHOUT_BOUNDS = "uuid"


@dataclass(frozen=True)
class _Layout:
    """The columns and the partitioning of a table, under the ids that the table has given them."""

    ids: tuple[int, int]
    schema: StructType
    field_ids: Mapping[str, int]
    partition: tuple[tuple[str, str], ...]


class IcebergTable:
    """One table: what it is, staging of files for it, and the port of the commit loop. Its rows are those of one branch."""

    def __init__(self, jvm: Jvm, address: str, table: Any, sql_name: str, branch: str = MAIN) -> None:
        self._jvm = jvm
        self._address = address
        self._table = table
        self._seen = Seen(jvm, table, branch)
        self.sql_name = sql_name
        """The table's name in Spark's SQL."""
        self.history = History(jvm, self._seen)
        self.care = TableCare(jvm, address, table, self._seen, sql_name)
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
    def layout_columns(self) -> frozenset[str]:
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

    @property
    def keeps_vectors(self) -> bool:
        """Whether rows are deleted by deletion vectors."""
        return self.format_version >= FIRST_WITH_VECTORS

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
    def equality_delete_files(self) -> int:
        """How many files of equality deletes there are; all manifests of deletes are read for that."""
        return sum(map(len, equality_deletes(self._jvm, self._seen.table).values()))

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

    def states(self, beginning: str) -> dict[str, SinkState]:
        """The ledger's entries of all sinks whose ids begin like this."""
        return ledger_entries(self.properties, beginning)

    def as_it_is(self) -> IcebergTable:
        """The table as it is known now, for as long as that is needed: files can be staged on it while the table is changed."""
        still = self._jvm.view(self._table, self._operations.current())
        return IcebergTable(self._jvm, self._address, still, self.sql_name, self._seen.branch)

    def refresh(self) -> None:
        """Looks at the table again."""
        with java_errors(self._address):
            self._jvm.asks("load")
            self._table.refresh()

    def set_property(self, name: str, value: str | None) -> None:
        """Sets one of the table's properties, or takes it away, whatever others commit meanwhile. No snapshot is made."""
        with java_errors(self._address):
            self._jvm.asks("commit")
            update = self._table.updateProperties()
            (update.remove(name) if value is None else update.set(name, value)).commit()

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

    def rows_at(self, session: SparkSession, snapshot: int) -> DataFrame:
        """The rows that a snapshot has."""
        return session.read.option("versionAsOf", snapshot).table(self.sql_name)

    @property
    def head_sequence(self) -> int:
        """The sequence number of the current snapshot."""
        head = self._seen.metadata.currentSnapshot()
        return 0 if head is None else int(head.sequenceNumber())

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

    def lookup(self, index: KeyIndex, keys: DataFrame, evolution: Sequence[TableChange]) -> Lookup:
        """Prepares to delete the rows with some keys, whose columns have the names that they get by the changes.

        The index is brought up to date with the table as it is now.
        """
        with java_errors(self._address):
            index.open(self._jvm)
            hashed = index.hashed(self._jvm, keys)
            index.catch_up(self._jvm, self._after(evolution), keys.columns)
            return Lookup(self._jvm, index, hashed, self._table, self._seen.branch)

    @contextmanager
    def rows_beside(self, index: KeyIndex, keys: DataFrame, evolution: Sequence[TableChange]) -> Iterator[DataFrame | None]:
        """The rows of the files that may have some keys, whose columns have the names that they get by the changes.

        None if the index cannot say which files these are, as it knows a later snapshot than this object.
        """
        with ExitStack() as opened:
            with java_errors(self._address):
                index.open(self._jvm)
                table = self._after(evolution)
                tasks = index.tasks(self._jvm, table, index.hashed(self._jvm, keys))
                if tasks is None:
                    rows = None
                elif tasks.isEmpty():
                    rows = no_rows(self._jvm, keys.sparkSession, table)
                else:
                    read = opened.enter_context(rows_of_tasks(self._jvm, keys.sparkSession, table, tasks, USUAL_TASKS))
                    rows = read.drop("_file", "_pos")
            yield rows

    def _after(self, evolution: Sequence[TableChange]) -> Any:
        """The table as it will be after the changes."""
        if not evolution:
            return self._seen.table
        return self._jvm.view(self._table, seen_from(self._jvm, self._evolved(evolution), self._seen.branch))

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

    def _evolved(self, evolution: Sequence[TableChange]) -> Any:
        """The table's metadata after the changes."""
        self._jvm.asks("load")
        transaction = self._table.newTransaction()
        evolve(self._jvm, transaction, evolution)
        return transaction.table().operations().current()

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
            metadata = self._evolved(evolution)
        if lacking:
            metadata = self._jvm.build_metadata_from(metadata).setProperties(lacking).discardChanges().build()
        return self._jvm.view(self._table, metadata)


def _partition(schema: Any, spec: Any) -> tuple[tuple[str, str], ...]:
    return tuple((str(schema.findColumnName(f.sourceId())), str(f.transform().toString())) for f in items(spec.fields()))


def _metrics_of_deletes(schema: Any) -> dict[str, str]:
    """The properties by which writers leave out bounds that would be taken for others."""
    unordered = [field for field in items(schema.columns()) if str(field.type().toString()) == _WITHOUT_BOUNDS]
    return {f"write.metadata.metrics.column.{field.name()}": "counts" for field in unordered}
