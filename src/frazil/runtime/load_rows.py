"""The rows of a load's files, with what they do to its tables: which of them count, and which rows they take away."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property, partial, reduce

import pyarrow
import pyarrow.parquet
from pyspark.sql import Column, DataFrame, SparkSession, Window, functions
from pyspark.sql import types as spark

from frazil.columns.common_type import common_decimal, common_type
from frazil.columns.schema import hidden_columns, quoted, require_data, table_name
from frazil.errors import DataError
from frazil.model.hidden import DELETE, HIDDEN, OP
from frazil.model.load import Disposition, Load, TableLoad
from frazil.model.sink import SinkSpec
from frazil.runtime.load_keys import keys_differ

_FILE_TIME, _FILE, _ROW, _RANK, _COPIES = (
    f"{HIDDEN}{name}" for name in ("file_time", "file_name", "row_index", "rank", "copies")
)
_INSERT = "insert"
_log = logging.getLogger("frazil")
_GLOB = re.compile(r"([\\*?{}\[\]])")

# The types that Spark gives to columns of files, as far as files of one table may differ in them.
_SPARK_TYPES: dict[pyarrow.DataType, spark.DataType] = {
    pyarrow.int8(): spark.ByteType(),
    pyarrow.int16(): spark.ShortType(),
    pyarrow.int32(): spark.IntegerType(),
    pyarrow.int64(): spark.LongType(),
    pyarrow.uint8(): spark.ShortType(),
    pyarrow.uint16(): spark.IntegerType(),
    pyarrow.uint32(): spark.LongType(),
    pyarrow.uint64(): spark.DecimalType(20, 0),
    pyarrow.float32(): spark.FloatType(),
    pyarrow.float64(): spark.DoubleType(),
    pyarrow.bool_(): spark.BooleanType(),
    pyarrow.string(): spark.StringType(),
    pyarrow.large_string(): spark.StringType(),
    pyarrow.binary(): spark.BinaryType(),
    pyarrow.large_binary(): spark.BinaryType(),
    pyarrow.date32(): spark.DateType(),
}
_DIGITS = 38


def name_of(sink: SinkSpec) -> str:
    """The name of a sink's table in Spark's SQL."""
    return table_name(sink.catalog.name, sink.namespace_levels, sink.table or "")


class LoadRows:
    """The rows of a load's tables with what they do, made when they are asked for."""

    def __init__(self, session: SparkSession, load: Load) -> None:
        self._session = session
        self._load = load
        self._read_frames: dict[str, DataFrame] = {}
        self._differ: dict[str, bool] = {}

    def of(self, table: TableLoad, *, empty: bool = False) -> DataFrame:
        """The frame of one table. From an ``empty`` table nothing has to be taken away."""
        load = self._load
        if not load.disposition.merges:
            return self._read(table) if self._all_count else self._unmarked(table)
        if table is load.root:
            self._warn_of_scattered_keys()
        frame = self._merged_root() if table is load.root else self._merged_nested(table, empty=empty)
        return frame.drop(_FILE_TIME, _FILE, _ROW)

    def keys_differ(self, table: TableLoad) -> bool:
        """Whether each key of a table is known to come once: the root's primary key, and the name of a nested row.

        Rows need not be compared then to find the one that counts.
        """
        load = self._load
        if not load.disposition.merges:
            return False
        name = table.sink.full_name
        if name not in self._differ:
            nested = () if table.row_key is None else (table.row_key,)
            self._differ[name] = keys_differ(table.files, load.primary_key if table is load.root else nested)
        return self._differ[name]

    @cached_property
    def _all_count(self) -> bool:
        """Whether every row of the root counts: no key comes twice, and no row is marked as deleted."""
        load = self._load
        marked = load.delete_mark is not None and load.delete_mark.column in self._read(load.root).columns
        return not marked and (not load.primary_key or load.deduplicated or self.keys_differ(load.root))

    @cached_property
    def _has_places(self) -> bool:
        """Whether rows are read with their positions in the files, which distinguish rows of the same key."""
        load = self._load
        by_name = load.tables if load.disposition is not Disposition.DELETE_INSERT else (load.root,)
        compared = any(table.files and not self.keys_differ(table) for table in by_name)
        return load.disposition.merges and bool(load.primary_key) and compared

    def _warn_of_scattered_keys(self) -> None:
        """Tells of keys whose rows are in several files, which need not have been written in the order in which the rows came."""
        load = self._load
        if len(load.root.files) < 2 or not load.primary_key or load.deduplicated or load.newest is not None:
            return
        if self.keys_differ(load.root):
            return
        files = self._read(load.root).groupBy(*[quoted(name) for name in load.primary_key])
        scattered = files.agg(functions.min(_FILE).alias(_FILE), functions.max(_FILE).alias(_RANK))
        if keys := scattered.where(functions.col(_FILE) != functions.col(_RANK)).count():
            _log.warning(
                f"{load.root.sink.full_name}: rows of one primary key are in more than one file of the load, for {keys} keys. "
                "Files are in no certain order, and neither is which of these rows counts: say it by dedup_sort, a hint of the "
                "column that orders them."
            )

    def require_distinguishable(self) -> None:
        """Refuses several rows of one key that have different nested rows, where rows are named after their keys.

        Nested rows are then named after the row that they belong to, so that those of all rows of a key have the same name: the
        files do not show which of them belong to the row that counts. If all rows have the same nested rows, any are right.
        """
        load = self._load
        nested = [table for table in load.tables[1:] if table.files]
        named_by_key = load.disposition in (Disposition.UPSERT, Disposition.INSERT_ONLY)
        if not named_by_key or not nested or load.deduplicated or self.keys_differ(load.root):
            return
        if self._marked_root().where(functions.col(_RANK) > 1).isEmpty():
            return
        for table in nested:
            if (parent := self._with_other_copies(table)) is not None:
                raise DataError(
                    "versions-mixed",
                    f"The load has several rows with one key ({self._shown_key(table, parent)}) whose nested rows differ. It "
                    f"is not known which rows of {table.sink.full_name} belong to the one that counts.",
                    fix="Bring one row of each key in a load.",
                )

    def _with_other_copies(self, table: TableLoad) -> str | None:
        """A row of the table above that has come repeated times, and a row nested in it not as often."""
        above = self._load.tables[table.parent]
        parent_key, row_key = _parent_key(table), _row_key(above)
        rows = self._read(table)
        own = [quoted(name) for name in rows.columns if name not in hidden_columns(rows)]
        copies = self._counting(above).groupBy(functions.col(quoted(row_key)).alias(_RANK)).agg(_rows(_COPIES))
        repeated = copies.where(functions.col(_COPIES) > 1)
        counted = rows.join(repeated, functions.col(quoted(parent_key)) == functions.col(_RANK)).groupBy(*own, _COPIES)
        odd = counted.agg(_rows(_ROW)).where(functions.col(_ROW) != functions.col(_COPIES)).select(quoted(parent_key)).first()
        return None if odd is None else str(odd[0])

    def _shown_key(self, table: TableLoad, parent: str) -> str:
        """The primary key of the root's row that a row belongs to, found by the name of the row above that."""
        at = table
        while True:
            at = self._load.tables[at.parent]
            row = self._read(at).where(functions.col(quoted(_row_key(at))) == functions.lit(parent)).first()
            assert row is not None, "its nested rows were found by it"
            if at is self._load.root:
                return ", ".join(f"{name} = {row[name]}" for name in self._load.primary_key)
            parent = row[_parent_key(at)]

    def _unmarked(self, table: TableLoad) -> DataFrame:
        """The rows that are not marked as deleted, and do not belong to one that is."""
        if table is not self._load.root:
            return self._counting(table)
        return self._marked_root().where(functions.col(OP) == _INSERT).drop(_RANK, OP)

    def _merged_root(self) -> DataFrame:
        """The rows of the root: those that count are inserted, the others only take away what has their keys."""
        load = self._load
        if self._all_count:
            return self._read(load.root)
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
        if load.primary_key and not load.deduplicated and not self.keys_differ(load.root):
            newest = [] if load.newest is None else [_ordered(load.newest.column, load.newest.order)]
            # Of rows that are otherwise equal in order, the one that was written last.
            same_key = Window.partitionBy(*[functions.col(quoted(name)) for name in load.primary_key])
            rank = functions.row_number().over(same_key.orderBy(*newest, *_last_written()))
        rows = rows.withColumn(_RANK, rank)
        gone = functions.col(_RANK) > 1
        if load.delete_mark is not None and load.delete_mark.column in rows.columns:
            mark = functions.col(quoted(load.delete_mark.column))
            gone |= functions.coalesce(mark, functions.lit(False)) if load.delete_mark.flag else mark.isNotNull()
        return rows.withColumn(OP, functions.when(gone, DELETE).otherwise(_INSERT))

    def _merged_nested(self, table: TableLoad, *, empty: bool) -> DataFrame:
        """The rows that belong to rows of the root that count, and a delete for each row of the root that is replaced."""
        load = self._load
        if load.disposition is Disposition.INSERT_ONLY:
            return self._one_of_each(self._counting(table), table)
        rows = self._read(table)
        root_key, row_key = _required(table.root_key, table, "root_key"), _row_key(load.root)
        if not self._all_count:
            rows = rows.join(self._counting_names(), functions.col(quoted(root_key)) == functions.col(_RANK), "left_semi")
        if load.disposition is Disposition.UPSERT:
            rows = self._one_of_each(rows, table)
        if empty:
            return rows
        replaced = functions.col(quoted(row_key)).alias(root_key)
        gone = self._replaced_roots(row_key).select(replaced, functions.lit(DELETE).alias(OP))
        return rows.withColumn(OP, functions.lit(_INSERT)).unionByName(gone, allowMissingColumns=True)

    def _counting_names(self) -> DataFrame:
        """The names of the root's rows that count."""
        row_key, key = _row_key(self._load.root), self._load.primary_key
        counting = self._marked_root().where(functions.col(OP) == _INSERT)
        if self._load.disposition is Disposition.INSERT_ONLY and {*key, row_key} <= set((there := self._there()).columns):
            # A row that is there under the same name takes new nested rows. Under another name, as rows have it that were not
            # merged by their keys, nothing in the load belongs to it.
            renamed = ~functions.col(f"old.{quoted(row_key)}").eqNullSafe(functions.col(f"new.{quoted(row_key)}"))
            same_row = reduce(Column.__and__, [*_same(key), renamed])
            counting = counting.alias("new").join(there.alias("old"), same_row, "left_anti")
        return counting.select(functions.col(quoted(row_key)).alias(_RANK))

    def _counting(self, table: TableLoad) -> DataFrame:
        """The rows of a table that belong to a row of the root that counts, as often as they came."""
        if table is self._load.root:
            mine, names = _row_key(table), self._counting_names()
        else:
            above = self._load.tables[table.parent]
            mine, names = _parent_key(table), self._counting(above).select(functions.col(quoted(_row_key(above))).alias(_RANK))
        return self._read(table).join(names, functions.col(quoted(mine)) == functions.col(_RANK), "left_semi")

    def _one_of_each(self, rows: DataFrame, table: TableLoad) -> DataFrame:
        """One row of each name. Rows that came more than once have nested rows of the same names, which are the same."""
        if table.row_key is None or not table.files or self.keys_differ(table):
            return rows
        rank = functions.row_number().over(Window.partitionBy(quoted(table.row_key)).orderBy(*_last_written()))
        return rows.withColumn(_RANK, rank).where(functions.col(_RANK) == 1).drop(_RANK)

    def _replaced_roots(self, row_key: str) -> DataFrame:
        """The keys of the root's rows that the load replaces: those that are there, and those that it brings."""
        batch = self._read(self._load.root)
        found = batch.select(quoted(row_key))
        there = self._there()
        if row_key not in there.columns:
            return found
        for key in self._load.keys:
            if not set(key) <= set(there.columns):
                continue
            old, new = there.alias("old"), batch.alias("new")
            found = found.unionByName(old.join(new, reduce(Column.__and__, _same(key)), "left_semi").select(quoted(row_key)))
        return found.distinct()

    def _there(self) -> DataFrame:
        """The root's rows that are in the table; a frame without columns when there is no table."""
        name = name_of(self._load.root.sink)
        return self._session.table(name) if self._session.catalog.tableExists(name) else self._session.range(0).select()

    def _read(self, table: TableLoad) -> DataFrame:
        name = table.sink.full_name
        if name not in self._read_frames:
            self._read_frames[name] = self._rows_of(table)
        return self._read_frames[name]

    def _rows_of(self, table: TableLoad) -> DataFrame:
        """The rows of the files, with their positions if rows may have to be distinguished; none if there is no file."""
        if not table.files:
            hidden = (_FILE_TIME, _FILE, _ROW) if self._has_places else ()
            none = self._session.table(name_of(table.sink)).limit(0)
            return none.select("*", *[functions.lit(None).alias(name) for name in hidden])
        if len(table.files) == 1:
            return self._rows_of_files(table, table.files, {})
        types = {path: _types_of(path) for path in table.files}
        wider = _wider_types(table, types.values())
        groups: dict[tuple[spark.DataType | None, ...], list[str]] = defaultdict(list)
        for path in table.files:
            groups[tuple(types[path].get(name) for name in wider)].append(path)
        frames = [self._rows_of_files(table, files, wider) for files in groups.values()]
        return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)

    def _rows_of_files(self, table: TableLoad, files: Iterable[str], wider: Mapping[str, spark.DataType]) -> DataFrame:
        """The rows of files that agree in the types of their columns, with some of these as other files need them."""
        paths = [_GLOB.sub(r"\\\1", path) for path in files]
        rows = self._session.read.option("mergeSchema", "true").parquet(*paths)
        require_data(rows.columns, f"Table {table.sink.table}")
        columns = [_column_as(field, wider) for field in rows.schema.fields]
        if self._has_places:
            places = {_FILE_TIME: "file_modification_time", _FILE: "file_name", _ROW: "row_index"}
            # The data may have a column of this name, too.
            metadata = rows.metadataColumn("_metadata")
            columns += [metadata[inner].alias(name) for name, inner in places.items()]
        return rows.select(*columns)


def _column_as(field: spark.StructField, wider: Mapping[str, spark.DataType]) -> Column:
    """A column of files as it is read; times of day become text, which is what tables have."""
    column = functions.col(quoted(field.name))
    kind = spark.StringType() if isinstance(field.dataType, spark.TimeType) else wider.get(field.name)
    return column if kind is None else column.cast(kind).alias(field.name)


def _types_of(path: str) -> dict[str, spark.DataType]:
    """The types of a file's columns as Spark reads them, without what is inside of structs and lists, which it merges itself."""
    found = {field.name: _spark_type(field.type) for field in pyarrow.parquet.read_schema(path)}
    return {name: kind for name, kind in found.items() if kind is not None}


def _spark_type(kind: pyarrow.DataType) -> spark.DataType | None:
    if pyarrow.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if pyarrow.types.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale) if kind.precision <= _DIGITS else None
    if pyarrow.types.is_timestamp(kind):
        return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()
    if pyarrow.types.is_struct(kind):
        return spark.StructType()
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return spark.ArrayType(spark.NullType())
    return _SPARK_TYPES.get(kind)


def _wider_types(table: TableLoad, files: Iterable[Mapping[str, spark.DataType]]) -> dict[str, spark.DataType]:
    """The columns whose types differ from file to file, with the type that holds the values of all."""
    found: dict[str, dict[spark.DataType, None]] = defaultdict(dict)
    for types in files:
        for name, kind in types.items():
            found[name][kind] = None
    return {name: reduce(partial(_wider_of, table, name), kinds) for name, kinds in found.items() if len(kinds) > 1}


def _wider_of(table: TableLoad, column: str, one: spark.DataType, other: spark.DataType) -> spark.DataType:
    wider = common_type(one, other, common_decimal)
    if wider is None:
        here, there = (kind.simpleString().partition("<")[0] for kind in (one, other))
        raise DataError(
            "types-mixed",
            f"The column {column!r} of {table.sink.full_name} has the type {here} in some files of the load and {there} in "
            "others, and no type holds the values of both.",
            fix="Bring the column in one type: cast it at the source.",
        )
    return wider


def _last_written() -> list[Column]:
    return [functions.col(name).desc() for name in (_FILE_TIME, _FILE, _ROW)]


def _same(key: tuple[str, ...]) -> list[Column]:
    return [functions.col(f"old.{quoted(column)}") == functions.col(f"new.{quoted(column)}") for column in key]


def _rows(name: str) -> Column:
    return functions.count(functions.lit(1)).alias(name)


def _ordered(column: str, order: str) -> Column:
    value = functions.col(quoted(column))
    return value.asc_nulls_last() if order == "asc" else value.desc_nulls_last()


def _row_key(table: TableLoad) -> str:
    return _required(table.row_key, table, "row_key")


def _parent_key(table: TableLoad) -> str:
    return _required(table.parent_key, table, "parent_key")


def _required(column: str | None, table: TableLoad, what: str) -> str:
    if column is None:
        raise DataError(
            "nested-without-keys",
            f"The table {table.sink.full_name} has no {what} column, by which rows of nested tables are found.",
            fix="Let the source add it, or turn nesting off.",
        )
    return column
