"""Loads: Parquet files that somebody else has made, into tables that belong together, each table in one commit.

Delivery: exactly once for every table of a load, by the load's key, whatever fails in between. A load that is repeated skips the
tables that have it. Nested tables are written before the root: what they lose is found through the root's old rows, which must
still be there when a load that was cut off is repeated. All tables are looked at before the first is written: a root that is
refused would leave nested rows behind that belong to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any, TypeVar

import pyarrow
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession, functions

from frazil.columns.schema import quoted, schema_of
from frazil.commit.protocol import FailureKind
from frazil.commit.retry import contended, retried
from frazil.errors import ColumnsRefused, DataError, FrazilError, OverwriteConflict, Retryable
from frazil.iceberg import IcebergTable, Lake, fault_of
from frazil.iceberg.staging_faults import explain_staging
from frazil.model.events import CommitFailed, Committed, Listener
from frazil.model.load import Disposition, Load, TableLoad
from frazil.model.settings import RetrySettings, SparkSettings
from frazil.model.sink import SinkSpec
from frazil.model.types import StructType
from frazil.runtime.arrow import frame_of
from frazil.runtime.load_rows import LoadRows, name_of
from frazil.runtime.single_write import write_once
from frazil.spark.catalogs import CatalogSettings, catalog_settings, sqlite_file
from frazil.spark.running_java import is_stopped, java_died
from frazil.spark.session import give_components, session_for, spark_session, with_settings
from frazil.write import take_back
from frazil.write.fit import Fit, fit_of
from frazil.write.setup import WriterSetup
from frazil.write.stager import Stager
from frazil.write.target import created, existing
from frazil.write.writer import SinkWriter

T = TypeVar("T")

_lakes: dict[tuple[tuple[str, str], ...], Lake] = {}
_opening = Lock()
_start: Future[SparkSession] | None = None


def start_ahead(sink: SinkSpec, settings: SparkSettings) -> None:
    """Starts the process's Spark in the background, with what the sink needs, unless it runs or is being started.

    What keeps it from starting is raised where Spark is needed.
    """
    global _start  # noqa: PLW0603 - a process has one Spark
    with _opening:
        if _start is not None or _runs():
            return
        components = catalog_settings(sink).components
        _start = Future()
        # A daemon: a pipeline that fails while Spark is starting ends at once.
        Thread(target=_begin, args=(_start, settings, components), name="spark-start", daemon=True).start()


def _begin(start: Future[SparkSession], settings: SparkSettings, components: Sequence[str]) -> None:
    try:
        start.set_result(spark_session(settings, components))
    except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
        start.set_exception(error)


def is_starting() -> bool:
    """Whether Spark is being started in the background, so that whoever asks for it must wait."""
    start = _start
    return start is not None and not start.done()


def _runs() -> bool:
    running = SparkSession._instantiatedSession
    return running is not None and not is_stopped(running)


def _started(settings: SparkSettings, components: Sequence[str]) -> SparkSession:
    """The process's Spark, which is waited for when it is being started."""
    global _start
    ahead, _start = _start, None
    if ahead is not None:
        ahead.result()
    return spark_session(settings, components)


def load_lake(sink: SinkSpec, settings: SparkSettings, retry: RetrySettings, listen: Listener) -> Lake:
    """The sink's catalog in a session of its own of the process's Spark, which is started when there is none."""
    catalog = catalog_settings(sink)
    key = tuple(sorted((catalog.spark_conf | settings.conf | {"spark.master": settings.master or ""}).items()))
    with _opening:
        known = _lakes.get(key)
        if known is None or is_stopped(known.spark) or java_died(known.spark):
            session = _session(catalog, settings)
            opened = partial(Lake, session, catalog.name, sink.catalog.address)
            _lakes[key] = known = retried(opened, retry, partial(_tell, listen, sink.catalog.address))
        return known


def _tell(listen: Listener, what: str, error: Retryable, failures: int, final: bool) -> None:
    listen(CommitFailed(what, FailureKind.UNREACHABLE.value, error.message, failures, will_retry=not final))


def _session(catalog: CatalogSettings, settings: SparkSettings) -> SparkSession:
    if file := sqlite_file(catalog):
        file.parent.mkdir(parents=True, exist_ok=True)  # SQLite makes the file, not its folder
    spark = _started(settings, catalog.components)
    # Another destination may have started it, whose tables are in another store.
    give_components(spark, catalog.components)
    session = session_for(with_settings(spark.newSession(), settings), catalog)
    # Files of others have times of day, which are read to be kept as text.
    session.conf.set("spark.sql.timeType.enabled", "true")
    return session


class Loader:
    """Writes loads to the tables of one catalog, and small things beside them."""

    def __init__(self, lake: Lake, retry: RetrySettings, listen: Listener = lambda _: None) -> None:
        self.session = lake.spark
        self._lake = lake
        self._retry = retry
        self._listen = listen

    def commit(self, load: Load) -> tuple[Committed, ...]:
        """Writes all tables of a load, nested ones first; those that have it already are left alone."""
        try:
            with _visible(load) as seen:
                ready = self._ready(seen)
                return tuple(self._write(one.sink, load.sink_id, one.frame, load.key, one.keys_differ) for one in ready)
        except FrazilError:
            raise
        except Exception as error:
            raise explain_staging(fault_of(error)) from error

    def _ready(self, load: Load) -> list[_Ready]:
        """The tables that the load writes, in their order, with their rows. What a look can refuse is refused here."""
        rows = LoadRows(self.session, load)
        rows.require_distinguishable()
        found = [self._ready_one(load, table, rows) for table in reversed(load.tables)]
        ready = [one for one in found if one is not None]
        if len(ready) > 1:
            for one in ready:
                _require_convertible(one)
        return ready

    def _ready_one(self, load: Load, table: TableLoad, rows: LoadRows) -> _Ready | None:
        sink = load.sink_of(table)
        if not table.files and load.disposition.only_adds:
            return None
        # Sort hints are for new tables: one that is there keeps its own order.
        there = self._retried(sink, lambda: existing(self._lake, _in_its_own_order(sink)))
        if there is None:
            if not table.files:
                return None  # there is nothing to write, and nothing to take away
            if sink.declared_schema is None:
                return _Ready(sink, rows.of(table), keys_differ=rows.keys_differ(table))
            there = self._retried(sink, lambda: created(self._lake, sink, sink.declared_schema or StructType(())))
        elif not table.files and load.disposition.merges and there.holds_no_files:
            return None
        sink = _in_its_own_order(sink)
        if load.disposition is Disposition.UPSERT and table is load.root:
            sink = _keeping_others_columns(sink, there.schema)
        frame = rows.of(table, empty=there.holds_no_files)
        _require_complete(sink, there.schema, frame)
        if table.root_key is not None and load.disposition in (Disposition.DELETE_INSERT, Disposition.UPSERT):
            self._require_rooted(sink, there, table.root_key, load.root)
        differ = rows.keys_differ(table) and _keeps_keys(schema_of(frame), there.schema, sink)
        # What does not fit into a single table is refused when it is written: nothing was written before it.
        fit = self._fit(load, sink, there, frame) if len(load.tables) > 1 else None
        return _Ready(sink, frame, fit, keys_differ=differ)

    def _fit(self, load: Load, sink: SinkSpec, there: IcebergTable, frame: DataFrame) -> Fit:
        return fit_of(there, sink, load.sink_id, Stager(sink, load.sink_id, ()).shaped(frame))

    def _require_rooted(self, sink: SinkSpec, there: IcebergTable, root_key: str, root: TableLoad) -> None:
        """Refuses rows of a nested table without a reference to their root row: they would remain when it is replaced."""
        if there.holds_no_files:
            return
        column = next((column for column in there.schema.fields if column.name == root_key), None)
        if column is not None and column.required:
            return
        rows = self.session.table(name_of(sink))
        if column is not None:
            rows = rows.where(functions.col(quoted(root_key)).isNull())  # answered from statistics where no file has nulls
        if not rows.isEmpty():
            raise DataError(
                "nested-without-root",
                f"The table {sink.full_name} has rows without a value in {root_key!r}: it is not known to which row of "
                f"{root.sink.full_name} they belong, and they would stay when that row is replaced.",
                fix="Write both tables anew, or fill the column in.",
            )

    def append_rows(self, sink: SinkSpec, sink_id: str, rows: Sequence[Mapping[str, Any]], key: str | None = None) -> Committed:
        """Adds a few rows of declared columns to a table; with a key, once."""
        schema = sink.declared_schema or StructType(())
        values = [{column.name: row.get(column.name) for column in schema.fields} for row in rows]
        # By way of Arrow: from Python's own values Spark makes a frame with the help of a Python process, which costs more than
        # the write itself.
        frame = frame_of(self.session, pyarrow.Table.from_pylist(values), schema)
        return self._write(sink, sink_id, frame, key)

    def remove(self, sink: SinkSpec, sink_id: str, condition: str) -> None:
        """Takes the rows of a table away for which a condition holds."""
        if not self._exists(sink):
            return
        writer = self._writer(sink, sink_id)
        writer.open()
        take_back.remove(writer.claimed, condition, condition)

    def create(self, sink: SinkSpec) -> None:
        """Makes a table of declared columns, unless it is there."""
        if not self._exists(sink):
            self._retried(sink, lambda: created(self._lake, sink, sink.declared_schema or StructType(())))

    def columns(self, sink: SinkSpec) -> StructType | None:
        """The columns of a table; None when it is not there."""
        table = self._retried(sink, lambda: self._lake.load(sink.namespace_levels, sink.table or ""))
        return None if table is None else table.schema

    def drop(self, sink: SinkSpec) -> None:
        """Drops a table with its files, if it is there."""
        self._retried(sink, lambda: self._lake.drop(sink.namespace_levels, sink.table or ""))

    def ensure_namespace(self, sink: SinkSpec) -> None:
        """Makes the sink's namespace, if it is not there."""
        self._retried(sink, lambda: self._lake.ensure_namespace(sink.namespace_levels))

    def has_namespace(self, sink: SinkSpec) -> bool:
        """Whether the sink's namespace is there."""
        return not self._retried(sink, lambda: self._lake.missing_namespaces(sink.namespace_levels))

    def has_tables(self, sink: SinkSpec) -> bool:
        """Whether any table is in the sink's namespace."""
        return self._retried(sink, lambda: self._lake.has_tables(sink.namespace_levels))

    def drop_namespace(self, sink: SinkSpec) -> None:
        """Drops the namespace when nothing is left in it."""
        self._retried(sink, lambda: self._lake.drop_empty_namespace(sink.namespace_levels))

    def register(self, sink: SinkSpec, metadata: str) -> bool:
        """Makes a table known to the catalog that is there in files alone; whether it was not known before."""
        if self._exists(sink):
            return False

        def known() -> None:
            # One that was registered by a call whose answer was lost is there.
            if self._lake.load(sink.namespace_levels, sink.table or "") is None:
                self._lake.register(sink.namespace_levels, sink.table or "", metadata)

        self._retried(sink, known)
        return True

    def _exists(self, sink: SinkSpec) -> bool:
        return self.columns(sink) is not None

    def _retried(self, sink: SinkSpec, call: Callable[[], T]) -> T:
        """A call to the catalog that does the same when it is made again."""
        return retried(call, self._retry, partial(_tell, self._listen, sink.full_name))

    def _write(self, sink: SinkSpec, sink_id: str, frame: DataFrame, key: str | None, keys_differ: bool = False) -> Committed:
        def write() -> Committed:
            return write_once(self._writer(sink, sink_id), frame, key, keys_differ=keys_differ)

        # A load that replaces all rows replaces those, too, that somebody else has added meanwhile: it looks again.
        return contended(write, self._retry, OverwriteConflict)

    def _writer(self, sink: SinkSpec, sink_id: str) -> SinkWriter:
        return SinkWriter(WriterSetup(self.session, sink_id, sink_id, self._retry, self._listen), sink)


@dataclass(frozen=True)
class _Ready:
    """A table of a load that is ready to be written; with a fit where it was looked at before the first is written."""

    sink: SinkSpec
    frame: DataFrame
    fit: Fit | None = None
    keys_differ: bool = False


def _keeps_keys(data: StructType, table: StructType, sink: SinkSpec) -> bool:
    """Whether keys are written as they come. Texts that differ may be one number."""
    have, wanted = ({column.name: column.type for column in one.fields} for one in (data, table))
    return all(key in have and have[key] == wanted.get(key) for key in sink.key_fields)


def _in_its_own_order(sink: SinkSpec) -> SinkSpec:
    return sink.with_options(sort_by=()) if sink.sort_by else sink


def _keeping_others_columns(sink: SinkSpec, table: StructType) -> SinkSpec:
    """An update sets the columns that the load knows. Only where the table has others it must look at the rows for that."""
    known = {column.name for column in sink.columns}
    return sink.with_options(partial_updates=True) if any(column.name not in known for column in table.fields) else sink


def _require_convertible(ready: _Ready) -> None:
    """Values that do not fit their columns stop the load before its first commit. Only columns of another type are read."""
    if ready.fit is None or ready.fit.columns is None:
        return
    have = {column.name: column.type for column in ready.fit.inputs.data.fields}
    fields = zip(ready.fit.schema.fields, ready.fit.columns, strict=True)
    converted = [column for field, column in fields if have.get(field.name, field.type) != field.type]
    if converted:
        ready.frame.select(*converted).write.format("noop").mode("overwrite").save()


def _require_complete(sink: SinkSpec, table: StructType | None, frame: DataFrame) -> None:
    """Files have all columns that their maker knows: one that the table requires beside them is somebody else's."""
    required = [column.name for column in table.fields if column.required] if table is not None else []
    if missing := [name for name in required if name not in frame.columns]:
        raise ColumnsRefused(
            "required-missing",
            f"The data has no column {missing[0]!r}, which the table requires: {sink.full_name}.",
            fix="Supply the column, or make it optional in the table: ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL.",
        )


@contextmanager
def _visible(load: Load) -> Iterator[Load]:
    """The load with files that Spark can read.

    It takes those whose names begin with `_` or `.` for its own, and leaves them out; and of times of day it knows microseconds
    alone.
    """
    every = [path for table in load.tables for path in table.files]
    hidden = {path for path in every if Path(path).name.startswith(("_", "."))}
    foreign = {path: schema for path in every if (schema := _in_microseconds(path)) is not None}
    if not hidden and not foreign:
        yield load
        return
    # Beside the files, where executors find it if they find those.
    with TemporaryDirectory(prefix="frazil-", dir=Path(every[0]).parents[1]) as folder:
        names = {path: str(Path(folder) / f"file{Path(path).name}") for path in hidden | foreign.keys()}
        for path, name in names.items():
            if path in foreign:
                _rewrite(path, name, foreign[path])
            else:
                Path(name).symlink_to(path)
        tables = [
            table.model_copy(update={"files": tuple(names.get(path, path) for path in table.files)}) for table in load.tables
        ]
        yield load.model_copy(update={"tables": tuple(tables)})


def _in_microseconds(path: str) -> pyarrow.Schema | None:
    """The schema of a file with times of day in microseconds; None when it has no others."""
    schema = pyarrow.parquet.read_schema(path)
    times = [n for n, field in enumerate(schema) if pyarrow.types.is_time(field.type) and field.type != pyarrow.time64("us")]
    for n in times:
        schema = schema.set(n, schema.field(n).with_type(pyarrow.time64("us")))
    return schema if times else None


def _rewrite(path: str, name: str, schema: pyarrow.Schema) -> None:
    """Rewrites a file with another schema. Its age is kept, since it decides which of two rows came later."""
    with pyarrow.parquet.ParquetFile(path) as file, pyarrow.parquet.ParquetWriter(name, schema) as writer:
        for batch in file.iter_batches():
            writer.write_table(pyarrow.Table.from_batches([batch]).cast(schema))
    at = Path(path).stat()
    os.utime(name, ns=(at.st_atime_ns, at.st_mtime_ns))
