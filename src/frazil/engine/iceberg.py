"""Iceberg's Java library driven from Python: the only module that touches py4j.

Tables are loaded and made through the catalog that a Spark session knows; executors write files with Iceberg's own writers
without committing them (*staging*); and snapshots are built and swapped in one compare-and-swap each, without the retry of
Iceberg's own commits, which rolls back or deletes what it cannot know the outcome of.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.engine.commit import Ancestor, AttemptFailed, FailureKind, Intent, Lineage, NewSnapshot, TableView, lineage_of
from frazil.engine.faults import ICEBERG, JavaFault, attempt_failed, explain
from frazil.errors import ConfigError, DataError, FrazilError, Halted, Retryable
from frazil.model.commit import SinkState, state_property, summary_of
from frazil.model.evolution import AddColumn
from frazil.model.types import Column, StructType, schema_json, type_from_json
from frazil.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BRANCH = "main"


@dataclass(frozen=True)
class StagedFiles:
    """Data files that executors have written and no snapshot names yet."""

    files: tuple[Any, ...]
    rows: int
    bytes: int


@dataclass(frozen=True)
class AppendFiles:
    """The change of an append: files, and the columns that they need. The ids say on which schema it was staged."""

    staged: StagedFiles
    added: tuple[AddColumn, ...] = ()
    schema_id: int = 0
    last_column_id: int = 0


@dataclass(frozen=True)
class SetProperties:
    """The change of a claim: table properties that the sink asks for and the table lacks."""

    properties: Mapping[str, str]


class SchemaMoved(Retryable):
    """The table's schema changed between staging and commit, so that the files must be written again."""


class _Statics:
    """What is static in Iceberg's library, looked up once: each name on the way to a class is a call of its own to the JVM."""

    def __init__(self, jvm: Any, gateway: Any) -> None:
        iceberg = jvm.org.apache.iceberg
        self.schema_to_json = iceberg.SchemaParser.toJson
        self.build_metadata_from = iceberg.TableMetadata.buildFrom
        self.coordinator = iceberg.spark.FileRewriteCoordinator.get()
        # `SparkTableCache.get()` is static, and py4j finds the instance method of the same name first: hence reflection.
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        java_class = jvm.java.lang.Class.forName("org.apache.iceberg.spark.SparkTableCache", True, loader)
        method = java_class.getMethod("get", gateway.new_array(jvm.java.lang.Class, 0))
        self.table_cache = method.invoke(None, gateway.new_array(jvm.java.lang.Object, 0))


class Lake:
    """One catalog through one Spark session."""

    def __init__(self, spark: SparkSession, catalog_name: str, address: str) -> None:
        self.spark = spark
        self.address = address
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        with java_errors(address), active(spark):
            load = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog
            try:
                self._catalog = load(spark._jsparkSession, catalog_name)
            except Exception as error:
                # The tables of a new SQL catalog, which somebody else has just made.
                if "already exists" not in fault_of(error).text:
                    raise
                self._catalog = load(spark._jsparkSession, catalog_name)
            self._statics = _Statics(jvm, self._gateway)

    def load(self, levels: tuple[str, ...], table: str) -> IcebergTable | None:
        """The table, or None when it does not exist."""
        with java_errors(self.address):
            try:
                return IcebergTable(self, self._catalog.loadTable(self._identifier(levels, table)))
            except Exception as error:
                if fault_of(error).find(f"{ICEBERG}NoSuchTableException", f"{ICEBERG}NoSuchNamespaceException"):
                    return None
                raise

    def missing_namespaces(self, levels: tuple[str, ...]) -> tuple[str, ...]:
        """Which of the nested namespaces do not exist yet, from the outermost."""
        with java_errors(self.address):
            prefixes = [levels[: depth + 1] for depth in range(len(levels))]
            return tuple(".".join(p) for p in prefixes if not self._catalog.namespaceExists(self._namespace(p)))

    def ensure_namespace(self, levels: tuple[str, ...]) -> None:
        """Makes the nested namespaces that are missing; one that somebody else made meanwhile is as good."""
        with java_errors(self.address):
            for depth in range(len(levels)):
                namespace = self._namespace(levels[: depth + 1])
                if self._catalog.namespaceExists(namespace):
                    continue
                try:
                    self._catalog.createNamespace(namespace)
                except Exception:
                    # Not every catalog says that it is there already: a SQL catalog lets the database complain.
                    if not self._catalog.namespaceExists(namespace):
                        raise

    def create(
        self,
        levels: tuple[str, ...],
        table: str,
        schema: StructType,
        *,
        keys: tuple[str, ...],
        partition: Mapping[str, Any],
        properties: Mapping[str, str],
        location: str | None,
    ) -> IcebergTable:
        """Makes the table; when somebody else made it meanwhile, that one is returned."""
        iceberg = self._jvm.org.apache.iceberg
        with java_errors(self.address):
            java_schema = iceberg.SchemaParser.fromJson(json.dumps(schema_json(schema, keys)))
            spec = iceberg.PartitionSpecParser.fromJson(java_schema, json.dumps(partition))
            builder = self._catalog.buildTable(self._identifier(levels, table), java_schema).withPartitionSpec(spec)
            builder = builder.withProperties(dict(properties))
            if location:
                builder = builder.withLocation(location)
            try:
                return IcebergTable(self, builder.create())
            except Exception as error:
                if not fault_of(error).find(f"{ICEBERG}AlreadyExistsException"):
                    raise
                return IcebergTable(self, self._catalog.loadTable(self._identifier(levels, table)))

    def _namespace(self, levels: tuple[str, ...]) -> Any:
        names = self._gateway.new_array(self._jvm.java.lang.String, len(levels))
        for index, level in enumerate(levels):
            names[index] = level
        return self._jvm.org.apache.iceberg.catalog.Namespace.of(names)

    def _identifier(self, levels: tuple[str, ...], table: str) -> Any:
        return self._jvm.org.apache.iceberg.catalog.TableIdentifier.of(self._namespace(levels), table)


@dataclass(frozen=True)
class _Layout:
    """The columns and the partitioning of a table, under the ids that the table has given them."""

    ids: tuple[int, int]
    schema: StructType
    partition: tuple[tuple[str, str], ...]


class IcebergTable:
    """One table: what it is, staging of files for it, and the port of the commit loop."""

    def __init__(self, lake: Lake, table: Any) -> None:
        self.lake = lake
        self._jvm = lake._jvm
        self._table = table
        self._operations = table.operations()
        self._read_layout: _Layout | None = None
        self.uuid = str(self._operations.current().uuid())
        """Which table this is, whatever its name."""

    @property
    def schema(self) -> StructType:
        """The current columns."""
        return self._layout.schema

    @property
    def partition(self) -> tuple[tuple[str, str], ...]:
        """The current partition spec: source column and transform, e.g. `("id", "bucket[16]")`."""
        return self._layout.partition

    @property
    def _layout(self) -> _Layout:
        """Read again only when another schema or spec is the current one: a schema or spec never changes under its id."""
        metadata = self._operations.current()
        ids = (int(metadata.currentSchemaId()), int(metadata.defaultSpecId()))
        if self._read_layout is None or self._read_layout.ids != ids:
            schema = metadata.schema()
            columns = type_from_json(json.loads(self.lake._statics.schema_to_json(schema)))
            if not isinstance(columns, StructType):
                raise TypeError(columns)
            fields = _items(metadata.spec().fields())
            partition = tuple((str(schema.findColumnName(f.sourceId())), str(f.transform().toString())) for f in fields)
            self._read_layout = _Layout(ids, columns, partition)
        return self._read_layout

    @property
    def identifier_fields(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return tuple(sorted(str(name) for name in _items(self._table.schema().identifierFieldNames())))

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return {str(key): str(value) for key, value in dict(self._table.properties()).items()}

    @property
    def format_version(self) -> int:
        """Version of the table format."""
        return int(self._operations.current().formatVersion())

    def committed_ends(self, sink_id: str) -> frozenset[str]:
        """Where the batches of a sink ended, by the summaries of the snapshots that are still there."""
        summaries = [snapshot.summary() for snapshot in _items(self._table.snapshots())]
        return frozenset(str(s.get("frazil.end")) for s in summaries if s.get("frazil.sink") == sink_id)

    def refresh(self) -> None:
        """Looks at the table again."""
        with java_errors(self.lake.address):
            self._table.refresh()

    def look(self) -> None:
        """Makes sure that the metadata is at hand: some catalogs' clients forget it with a commit, and ask again when needed."""
        with java_errors(self.lake.address):
            self._operations.current()

    def port(self, sink_id: str) -> IcebergPort:
        """The commit loop's side of this table for one sink."""
        return IcebergPort(self, sink_id)

    def stage(
        self,
        frame: DataFrame,
        options: Mapping[str, str],
        added: tuple[AddColumn, ...] = (),
        defaults: Mapping[str, str] | None = None,
    ) -> AppendFiles:
        """Lets the executors write the frame as data files of this table, with the columns that it will get; commits nothing.

        ``defaults`` are table properties that hold for this write where the table does not say otherwise.

        Iceberg's own machinery for rewrites hands the files back: a table put into its cache under a fresh id can be
        written to by that id, and the files are left with a coordinator instead of being committed.
        """
        metadata = self._operations.current()
        target = self._staged_as(added, defaults or {})
        group = str(uuid.uuid4())
        cache, coordinator = self.lake._statics.table_cache, self.lake._statics.coordinator
        cache.add(group, target)
        try:
            with active(frame.sparkSession):
                frame.write.format("iceberg").options(**options).mode("append").save(group)
            files = tuple(_items(coordinator.fetchNewFiles(target, group)))
        finally:
            coordinator.clearRewrite(target, group)
            cache.remove(group)
        staged = StagedFiles(files, sum(f.recordCount() for f in files), sum(f.fileSizeInBytes() for f in files))
        return AppendFiles(staged, added, int(metadata.currentSchemaId()), int(metadata.lastColumnId()))

    def _staged_as(self, added: tuple[AddColumn, ...], defaults: Mapping[str, str]) -> Any:
        """A view of the table that already has the columns and the properties; the table itself is not changed."""
        metadata = self._operations.current()
        own = metadata.properties()
        lacking = {name: value for name, value in defaults.items() if not own.containsKey(name)}
        if not added and not lacking:
            return self._table
        if added:
            transaction = self._table.newTransaction()
            self._add_columns(transaction, added)
            metadata = transaction.table().operations().current()
        if lacking:
            builder = self.lake._statics.build_metadata_from(metadata).setProperties(lacking)
            metadata = builder.discardChanges().build()
        iceberg = self._jvm.org.apache.iceberg
        operations = iceberg.StaticTableOperations(metadata, self._table.io(), self._table.locationProvider())
        return iceberg.BaseTable(operations, self._table.name())

    def _add_columns(self, transaction: Any, added: tuple[AddColumn, ...]) -> None:
        update = transaction.updateSchema()
        for addition in added:
            java_type = self._java_type(addition.column)
            doc = addition.column.doc
            # With a parent, even none: without one a dot in the name would be taken for the way to a nested column.
            update.addColumn(addition.parent or None, addition.column.name, java_type, doc)
        update.commit()

    def _java_type(self, column: Column) -> Any:
        text = json.dumps(schema_json(StructType((column,))))
        return self._jvm.org.apache.iceberg.SchemaParser.fromJson(text).findType(1)


class IcebergPort:
    """The commit loop's side of one table for one sink (see :class:`frazil.engine.commit.TablePort`).

    Each refresh opens a transaction, which is never committed: its operations work on exactly the metadata that the refresh
    saw, so that a snapshot built in it has that metadata's head as its parent.
    """

    def __init__(self, table: IcebergTable, sink_id: str) -> None:
        self._table = table
        self._sink_id = sink_id
        self._property = state_property(sink_id)

    def refresh(self) -> TableView:
        """Step 1."""
        with attempt_errors(self._table.lake.address):
            transaction = self._table._table.newTransaction()
            metadata = self._table._operations.current()
            head = metadata.currentSnapshot()
            text = metadata.properties().get(self._property)
            state = self._read_state(text) if text is not None else None
            return TableView(
                table_uuid=str(metadata.uuid()),
                head=None if head is None else int(head.snapshotId()),
                head_sequence=0 if head is None else int(head.sequenceNumber()),
                state=state,
                lineage=Lineage.CURRENT if state is None else lineage_of(state, self._branch(metadata, head)),
                base=(metadata, transaction),
                next_sequence=int(metadata.nextSequenceNumber()),
            )

    def apply(self, view: TableView, intent: Intent, state: SinkState) -> NewSnapshot:
        """Step 6."""
        metadata, transaction = view.base
        with attempt_errors(self._table.lake.address):
            operation = self._operation(metadata, transaction, intent.change)
            counts = intent.batch.counts if intent.batch is not None else None
            for key, value in summary_of(self._sink_id, state, counts, __version__).items():
                operation.set(key, value)
            snapshot = operation.apply()
            parent = snapshot.parentId()
            return NewSnapshot(
                int(snapshot.snapshotId()), int(snapshot.sequenceNumber()), None if parent is None else int(parent), snapshot
            )

    def swap(self, view: TableView, snapshot: NewSnapshot, intent: Intent, state: SinkState) -> None:
        """Step 7."""
        metadata, transaction = view.base
        properties = dict(intent.change.properties) if isinstance(intent.change, SetProperties) else {}
        with attempt_errors(self._table.lake.address):
            # The transaction's metadata has the columns that `apply` added to it, if any.
            builder = self._table.lake._statics.build_metadata_from(transaction.table().operations().current())
            builder = builder.setBranchSnapshot(snapshot.handle, BRANCH)
            builder = builder.setProperties(properties | {self._property: state.to_json()})
            self._table._operations.commit(metadata, builder.build())

    def _operation(self, metadata: Any, transaction: Any, change: AppendFiles | SetProperties | None) -> Any:
        """The fresh operation of step 6. A claim is an append of nothing."""
        if not isinstance(change, AppendFiles):
            return transaction.newFastAppend()
        if change.added:
            self._require_same_schema(metadata, change)
            self._table._add_columns(transaction, change.added)
        operation = transaction.newFastAppend()
        for file in change.staged.files:
            operation.appendFile(file)
        return operation

    def _read_state(self, text: str) -> SinkState:
        try:
            return SinkState.from_json(text)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                "ledger-unreadable",
                f"The table property {self._property} cannot be read: {error}",
                fix="It was written by a newer frazil or changed by hand. Restore it from an older metadata file.",
            ) from None

    def _branch(self, metadata: Any, head: Any) -> Iterator[Ancestor]:
        """The head and its ancestors, as far back as they have not expired."""
        at = head
        while at is not None:
            parent = at.parentId()
            yield Ancestor(int(at.snapshotId()), int(at.sequenceNumber()), None if parent is None else int(parent))
            at = None if parent is None else metadata.snapshot(parent)

    def _require_same_schema(self, metadata: Any, change: AppendFiles) -> None:
        """The field ids in the staged files are those that the columns get only if nobody else has added any meanwhile."""
        if int(metadata.currentSchemaId()) != change.schema_id or int(metadata.lastColumnId()) != change.last_column_id:
            moved = SchemaMoved(
                "schema-moved", "The table's schema was changed by somebody else while a batch was being written."
            )
            raise AttemptFailed(FailureKind.CONFLICT, moved, final=True)


def _items(iterable: Any) -> Iterator[Any]:
    """What a Java iterable holds. Python's own way to the end goes through an exception, which takes dozens of calls."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Makes the session the active one of the thread: there Spark finds a catalog's settings, whichever session is asked."""
    sessions = spark._get_j_spark_session_class(spark._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def fault_of(error: BaseException) -> JavaFault:
    """The Java exception behind a Python one, or the Python one itself in the same form."""
    java = getattr(error, "java_exception", None)
    if java is None:
        java = getattr(error, "_origin", None)
    if java is None:
        return JavaFault((type(error).__name__,), str(error))
    return _read_fault(java, depth=8)


def _read_fault(java: Any, depth: int) -> JavaFault:
    classes = []
    java_class = java.getClass()
    while java_class is not None:
        classes.append(str(java_class.getName()))
        java_class = java_class.getSuperclass()
    cause = java.getCause()
    deeper = _read_fault(cause, depth - 1) if cause is not None and depth > 0 else None
    state = str(java.getSQLState() or "") if "java.sql.SQLException" in classes else ""
    return JavaFault(tuple(classes), str(java.getMessage() or ""), deeper, state)


@contextmanager
def java_errors(address: str) -> Iterator[None]:
    """Turns the JVM's exceptions into frazil's."""
    try:
        yield
    except FrazilError:
        raise
    except Exception as error:
        fault = fault_of(error)
        known = explain(fault, address)
        raise known or ConfigError("catalog-error", f"The catalog at {address} failed: {fault.line}") from error


@contextmanager
def attempt_errors(address: str) -> Iterator[None]:
    """Turns the JVM's exceptions into outcomes of an attempt, or into what stops the sink at once."""
    try:
        yield
    except (FrazilError, AttemptFailed):
        raise
    except Exception as error:
        failed = attempt_failed(fault_of(error), address)
        if isinstance(failed.outcome.error, Halted):
            raise failed.outcome.error from error
        raise failed from error
