"""Loads: Parquet files that somebody else has made, into tables that belong together, each table in one commit.

Delivery: exactly once for every table of a load, by the load's key, whatever fails in between. A load that is repeated skips the
tables that have it. Nested tables are written before the root: what they lose is found through the root's old rows, which must
still be there when a load that was cut off is repeated.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, TypeVar

import pyarrow
import pyarrow.parquet
from pyspark.sql import Column, DataFrame, SparkSession, Window, functions
from pyspark.sql.types import TimeType

from frazil.engine.catalogs import CatalogSettings, catalog_settings, sqlite_file
from frazil.engine.commit import FailureKind, patiently
from frazil.engine.iceberg import Lake, active, fault_of
from frazil.engine.schema import quoted, require_data
from frazil.engine.session import session_for, spark_session, with_settings
from frazil.engine.staging_faults import explain_staging
from frazil.engine.stream import write_once
from frazil.engine.target import created
from frazil.engine.types import spark_schema
from frazil.engine.writer import SinkWriter
from frazil.errors import DataError, FrazilError, Retryable
from frazil.model.events import CommitFailed, Committed, Listener
from frazil.model.hidden import DELETE, HIDDEN, OP
from frazil.model.load import Disposition, Load, TableLoad
from frazil.model.settings import RetrySettings, SparkSettings
from frazil.model.sink import SinkSpec
from frazil.model.types import StructType

_FILE_TIME, _FILE, _ROW, _RANK = (f"{HIDDEN}{name}" for name in ("file_time", "file_name", "row_index", "rank"))
_INSERT = "insert"
_GLOB = re.compile(r"([\\*?{}\[\]])")

T = TypeVar("T")

_lakes: dict[tuple[tuple[str, str], ...], Lake] = {}
_opening = Lock()


def load_lake(sink: SinkSpec, settings: SparkSettings, retry: RetrySettings, listen: Listener) -> Lake:
    """The sink's catalog in a session of its own of the process's Spark, which is started when there is none."""
    catalog = catalog_settings(sink)
    key = tuple(sorted((catalog.spark_conf | settings.conf | {"spark.master": settings.master or ""}).items()))
    with _opening:
        known = _lakes.get(key)
        if known is None or known.spark.sparkContext._jsc is None:
            session = _session(catalog, settings)
            opened = partial(Lake, session, catalog.name, sink.catalog.address)
            _lakes[key] = known = patiently(opened, retry, partial(_tell, listen, sink.catalog.address))
        return known


def _tell(listen: Listener, what: str, error: Retryable, failures: int, final: bool) -> None:
    listen(CommitFailed(what, FailureKind.UNREACHABLE.value, error.message, failures, will_retry=not final))


def _session(catalog: CatalogSettings, settings: SparkSettings) -> SparkSession:
    if file := sqlite_file(catalog):
        file.parent.mkdir(parents=True, exist_ok=True)  # SQLite makes the file, not its folder
    session = with_settings(spark_session(settings, catalog.components).newSession(), settings)
    session = session_for(session, catalog)
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
                return tuple(self._each(seen))
        except FrazilError:
            raise
        except Exception as error:
            raise explain_staging(fault_of(error)) from error

    def _each(self, load: Load) -> Iterator[Committed]:
        frames = _Frames(self.session, load)
        for table in reversed(load.tables):
            sink = load.sink_of(table)
            there = self.columns(sink)
            if table.files or there is not None:  # otherwise there is nothing to write, and nothing to take away
                frame = frames.of(table)
                _require_complete(sink, there, frame)
                yield self._write(sink, load.sink_id, frame, load.key)

    def append_rows(self, sink: SinkSpec, sink_id: str, rows: Sequence[Mapping[str, Any]], key: str | None = None) -> Committed:
        """Adds a few rows of declared columns to a table; with a key, once."""
        schema = sink.declared_schema or StructType(())
        names = [column.name for column in schema.fields]
        values = [tuple(row.get(name) for name in names) for row in rows]
        with active(self.session):  # to make a frame would leave the session active, in the program of somebody else
            # One task writes them: Spark would begin one for each core of the cluster.
            frame = self.session.createDataFrame(values, spark_schema(schema)).coalesce(1)
        return self._write(sink, sink_id, frame, key)

    def remove(self, sink: SinkSpec, sink_id: str, condition: str) -> None:
        """Takes the rows of a table away for which a condition holds."""
        if not self._exists(sink):
            return
        writer = self._writer(sink, sink_id)
        writer.open()
        writer.remove(condition, condition)

    def create(self, sink: SinkSpec) -> None:
        """Makes a table of declared columns, unless it is there."""
        if not self._exists(sink):
            self._patiently(sink, lambda: created(self._lake, sink, sink.declared_schema or StructType(())))

    def columns(self, sink: SinkSpec) -> StructType | None:
        """The columns of a table; None when it is not there."""
        table = self._patiently(sink, lambda: self._lake.load(sink.namespace_levels, sink.table or ""))
        return None if table is None else table.schema

    def drop(self, sink: SinkSpec) -> None:
        """Drops a table with its files, if it is there."""
        self._patiently(sink, lambda: self._lake.drop(sink.namespace_levels, sink.table or ""))

    def ensure_namespace(self, sink: SinkSpec) -> None:
        """Makes the sink's namespace, if it is not there."""
        self._patiently(sink, lambda: self._lake.ensure_namespace(sink.namespace_levels))

    def has_namespace(self, sink: SinkSpec) -> bool:
        """Whether the sink's namespace is there."""
        return not self._patiently(sink, lambda: self._lake.missing_namespaces(sink.namespace_levels))

    def drop_namespace(self, sink: SinkSpec) -> None:
        """Drops the namespace when nothing is left in it."""
        self._patiently(sink, lambda: self._lake.drop_empty_namespace(sink.namespace_levels))

    def register(self, sink: SinkSpec, metadata: str) -> bool:
        """Makes a table known to the catalog that is there in files alone; whether it was not known before."""
        if self._exists(sink):
            return False

        def known() -> None:
            # One that was registered by a call whose answer was lost is there.
            if self._lake.load(sink.namespace_levels, sink.table or "") is None:
                self._lake.register(sink.namespace_levels, sink.table or "", metadata)

        self._patiently(sink, known)
        return True

    def _exists(self, sink: SinkSpec) -> bool:
        return self.columns(sink) is not None

    def _patiently(self, sink: SinkSpec, call: Callable[[], T]) -> T:
        """A call to the catalog that does the same when it is made again."""
        return patiently(call, self._retry, partial(_tell, self._listen, sink.full_name))

    def _write(self, sink: SinkSpec, sink_id: str, frame: DataFrame, key: str | None) -> Committed:
        return write_once(self._writer(sink, sink_id), frame, key)

    def _writer(self, sink: SinkSpec, sink_id: str) -> SinkWriter:
        return SinkWriter(self.session, sink, sink_id, name=sink_id, retry=self._retry, listen=self._listen)


def table_name(sink: SinkSpec) -> str:
    """The table's name in Spark's SQL."""
    return ".".join(quoted(part) for part in (sink.catalog.name, *sink.namespace_levels, sink.table or ""))


def _require_complete(sink: SinkSpec, table: StructType | None, frame: DataFrame) -> None:
    """Files have all columns that their maker knows: one that the table requires beside them is somebody else's."""
    required = [column.name for column in table.fields if column.required] if table is not None else []
    if missing := [name for name in required if name not in frame.columns]:
        raise DataError(
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
    """Writes a file anew with another schema. Its age says which of two rows came later, and stays."""
    with pyarrow.parquet.ParquetFile(path) as file, pyarrow.parquet.ParquetWriter(name, schema) as writer:
        for batch in file.iter_batches():
            writer.write_table(pyarrow.Table.from_batches([batch]).cast(schema))
    at = Path(path).stat()
    os.utime(name, ns=(at.st_atime_ns, at.st_mtime_ns))


class _Frames:
    """The rows of a load's tables with what they do, made when they are asked for."""

    def __init__(self, session: SparkSession, load: Load) -> None:
        self._session = session
        self._load = load
        self._read_frames: dict[str, DataFrame] = {}

    def of(self, table: TableLoad) -> DataFrame:
        """The frame of one table."""
        load = self._load
        if not load.disposition.merges:
            return self._read(table)
        frame = self._merged_root() if table is load.root else self._merged_nested(table)
        if load.rows_a_task is not None:
            frame = frame.repartition(max(1, math.ceil(table.rows / load.rows_a_task)))
        return frame.drop(_FILE_TIME, _FILE, _ROW)

    def _merged_root(self) -> DataFrame:
        """The rows of the root: those that count are inserted, the others only take away what has their keys."""
        load = self._load
        marked = self._marked_root()
        if load.disposition is Disposition.DELETE_INSERT:
            return marked.drop(_RANK)
        last = marked.where(functions.col(_RANK) == 1).drop(_RANK)
        return last.where(functions.col(OP) != DELETE) if load.disposition is Disposition.INSERT_ONLY else last

    def _marked_root(self) -> DataFrame:
        """All rows with their place among those of the same key, the newest first, and with what they do."""
        load = self._load
        rows = self._read(load.root)
        rank = functions.lit(1)
        if load.primary_key and not load.deduplicated:
            newest = [] if load.newest is None else [_ordered(load.newest.column, load.newest.order)]
            # Of rows that nothing else tells apart, the one that was written last.
            written = [functions.col(name).desc() for name in (_FILE_TIME, _FILE, _ROW)]
            same_key = Window.partitionBy(*[functions.col(quoted(name)) for name in load.primary_key])
            rank = functions.row_number().over(same_key.orderBy(*newest, *written))
        rows = rows.withColumn(_RANK, rank)
        gone = functions.col(_RANK) > 1
        if load.delete_mark is not None and load.delete_mark.column in rows.columns:
            mark = functions.col(quoted(load.delete_mark.column))
            gone |= functions.coalesce(mark, functions.lit(False)) if load.delete_mark.flag else mark.isNotNull()
        return rows.withColumn(OP, functions.when(gone, DELETE).otherwise(_INSERT))

    def _merged_nested(self, table: TableLoad) -> DataFrame:
        """The rows that belong to rows of the root that count, and a delete for each row of the root that is replaced."""
        load = self._load
        rows = self._read(table)
        root_key = quoted(_required(table.root_key, table, "root_key"))
        row_key = _required(load.root.row_key, load.root, "row_key")
        counting = self._marked_root().where(functions.col(OP) == _INSERT).select(functions.col(quoted(row_key)).alias(_RANK))
        if load.primary_key or load.delete_mark is not None:
            rows = rows.join(counting, functions.col(root_key) == functions.col(_RANK), "left_semi")
        if table.row_key is not None and load.disposition is not Disposition.DELETE_INSERT:
            # Here rows are named after their place in the row that they belong to: several of that have nested rows of one name.
            written = [functions.col(name).desc() for name in (_FILE_TIME, _FILE, _ROW)]
            rank = functions.row_number().over(Window.partitionBy(quoted(table.row_key)).orderBy(*written))
            rows = rows.withColumn(_RANK, rank).where(functions.col(_RANK) == 1).drop(_RANK)
        if load.disposition is Disposition.INSERT_ONLY:
            return rows
        replaced = functions.col(quoted(row_key)).alias(table.root_key or "")
        gone = self._replaced_roots(row_key).select(replaced, functions.lit(DELETE).alias(OP))
        return rows.withColumn(OP, functions.lit(_INSERT)).unionByName(gone, allowMissingColumns=True)

    def _replaced_roots(self, row_key: str) -> DataFrame:
        """The keys of the root's rows that the load replaces: those that are there, and those that it brings."""
        load = self._load
        batch = self._read(load.root)
        found = batch.select(quoted(row_key))
        name = table_name(load.root.sink)
        if not self._session.catalog.tableExists(name):
            return found
        there = self._session.table(name)
        if row_key not in there.columns:
            return found
        for key in load.keys:
            if not set(key) <= set(there.columns):
                continue
            old, new = there.alias("old"), batch.alias("new")
            same = [functions.col(f"old.{quoted(column)}") == functions.col(f"new.{quoted(column)}") for column in key]
            found = found.unionByName(old.join(new, reduce(Column.__and__, same), "left_semi").select(quoted(row_key)))
        return found.distinct()

    def _read(self, table: TableLoad) -> DataFrame:
        name = table.sink.full_name
        if name not in self._read_frames:
            self._read_frames[name] = self._rows_of(table)
        return self._read_frames[name]

    def _rows_of(self, table: TableLoad) -> DataFrame:
        """The rows of the files, with their places when they may have to be told apart; none when there is no file."""
        if not table.files:
            hidden = (_FILE_TIME, _FILE, _ROW) if self._load.disposition.merges else ()
            none = self._session.table(table_name(table.sink)).limit(0)
            return none.select("*", *[functions.lit(None).alias(name) for name in hidden])
        paths = [_GLOB.sub(r"\\\1", path) for path in table.files]
        rows = self._session.read.option("mergeSchema", "true").parquet(*paths)
        require_data(rows.columns, f"Table {table.sink.table}")
        columns = [functions.col(quoted(field.name)) for field in rows.schema.fields]
        columns = [
            column.cast("string").alias(field.name) if isinstance(field.dataType, TimeType) else column
            for column, field in zip(columns, rows.schema.fields, strict=True)
        ]
        if self._load.disposition.merges:
            places = {_FILE_TIME: "file_modification_time", _FILE: "file_name", _ROW: "row_index"}
            columns += [functions.col(f"_metadata.{inner}").alias(name) for name, inner in places.items()]
        return rows.select(*columns)


def _ordered(column: str, order: str) -> Column:
    value = functions.col(quoted(column))
    return value.asc_nulls_last() if order == "asc" else value.desc_nulls_last()


def _required(column: str | None, table: TableLoad, what: str) -> str:
    if column is None:
        raise DataError(
            "nested-without-keys",
            f"The table {table.sink.full_name} has no {what} column, by which rows of nested tables are found.",
            fix="Let the source add it, or turn nesting off.",
        )
    return column
