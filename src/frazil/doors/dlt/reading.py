"""`pipeline.dataset()`: the tables read by Spark, through the catalog and with the credentials that they were written with."""

from __future__ import annotations

import inspect
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import sqlglot
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.dataset import DBApiCursor
from dlt.dataset import lineage
from dlt.destinations.exceptions import DatabaseTerminalException, DatabaseUndefinedRelation
from dlt.destinations.sql_client import DBApiCursorImpl, SqlClientBase, raise_database_error
from dlt.destinations.typing import DBTransaction
from sqlglot import TokenType, exp
from sqlglot.optimizer.qualify import qualify

from frazil.runtime.arrow import ArrowParts

if TYPE_CHECKING:
    from pyarrow import Table as ArrowTable
    from pyspark.sql import DataFrame, SparkSession

    from frazil.doors.dlt.configuration import IcebergRestConfiguration

DIALECT = "spark"
_UNKNOWN = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "NoSuchTable", "NoSuchNamespace")
_FIRST_LINE = 400
_PLACEHOLDER = re.compile("%%|%s")


def quoted(name: str) -> str:
    """A name in Spark's SQL."""
    return f"`{name.replace('`', '``')}`"


def text(value: str) -> str:
    """A text in Spark's SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _let_dlt_qualify() -> None:
    """dlt asks sqlglot for something that newer versions always do and no longer have an argument for: that is left out then.

    dlt 1.31 allows these versions, and could read no dataset with them.
    """
    if "infer_schema" in inspect.signature(qualify).parameters or vars(lineage)["qualify"] is not qualify:
        return

    def qualified(*args: Any, infer_schema: bool | None = None, **kwargs: Any) -> Any:  # noqa: ARG001 - left out
        return qualify(*args, **kwargs)

    vars(lineage)["qualify"] = qualified


def answer(frame: DataFrame) -> ArrowTable:
    """The rows of a frame. By way of Arrow moments have their zone, which PySpark's own rows have not."""
    return frame.toArrow()


class SparkCursor:
    """The answer to a query. All of it at once is in memory; what is read row by row, or in chunks, is there a part at a time."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._left = ArrowParts(frame)
        self.description = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] or None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return _rows(self._left.take())

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """So many of the rows that are left."""
        return _rows(self._left.take(size))

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row."""
        return next(iter(self.fetchmany(1)), None)

    def arrow(self) -> ArrowTable:
        """All rows as an Arrow table."""
        return answer(self._frame)

    def arrow_chunks(self, size: int) -> Iterator[ArrowTable]:
        """The rows that are left as Arrow tables of so many rows."""
        while (table := self._left.take(size)) is not None:
            yield table

    def close(self) -> None:
        """Nothing is open."""


def _rows(table: ArrowTable | None) -> list[tuple[Any, ...]]:
    return [] if table is None else list(zip(*(column.to_pylist() for column in table.columns), strict=True))


class SparkCursorImpl(DBApiCursorImpl):
    """A :class:`SparkCursor` with dlt's ways to read its rows: by way of Arrow, and not row by row."""

    native_cursor: SparkCursor  # type: ignore[assignment]

    def iter_arrow(self, chunk_size: int) -> Generator[ArrowTable, None, None]:
        """Arrow tables of so many rows, or one of all."""
        if chunk_size:
            yield from self.native_cursor.arrow_chunks(chunk_size)
        else:
            yield self.native_cursor.arrow()


class Storage(Protocol):
    """What queries need of the client of a dataset."""

    config: IcebergRestConfiguration

    @property
    def session(self) -> SparkSession:
        """The session of the process, which knows the catalog."""

    def of_dataset(self, dataset_name: str) -> Storage:
        """The client of another dataset of the same catalog."""

    def is_storage_initialized(self) -> bool:
        """Whether the dataset exists."""

    def initialize_storage(self, truncate_tables: Iterable[str] | None = None) -> None:
        """Creates the dataset, and empties tables."""

    def drop_storage(self) -> None:
        """Drops the dataset."""

    def drop_tables(self, *tables: str, delete_schema: bool = True) -> None:
        """Drops tables."""


class SparkSqlClient(SqlClientBase["SparkSession"], DBTransaction):
    """Answers queries of a dataset. Tables are named as dlt names them: alone, or behind the dataset's name."""

    def __init__(self, dataset_name: str, capabilities: DestinationCapabilitiesContext, client: Storage) -> None:
        _let_dlt_qualify()
        super().__init__(None, dataset_name, f"{dataset_name}_staging", capabilities)  # type: ignore[arg-type]
        self._client = client
        self._own_dataset = dataset_name
        self._session: SparkSession | None = None

    def open_connection(self) -> SparkSession:
        """The session of the process."""
        self._session = self._client.session
        return self._session

    def close_connection(self) -> None:
        """Lets the session go, which itself goes on."""
        self._session = None

    @property
    def native_connection(self) -> SparkSession | None:  # type: ignore[override]
        """The session, when it is open."""
        return self.__dict__.get("_session")

    @contextmanager
    def begin_transaction(self) -> Iterator[DBTransaction]:
        """There are none: each query stands for itself."""
        yield self

    def commit_transaction(self) -> None:
        """There is none."""

    def rollback_transaction(self) -> None:
        """There is none."""

    def has_dataset(self) -> bool:
        """Whether the namespace is there."""
        return self._storage().is_storage_initialized()

    def create_dataset(self) -> None:
        """Makes the namespace."""
        self._storage().initialize_storage()

    def drop_dataset(self) -> None:
        """Drops the tables of the schema and dlt's own, and the namespace when nothing else is in it."""
        self._storage().drop_storage()

    def truncate_tables(self, *tables: str) -> None:
        """Takes all rows of tables away; what they held stays in their history."""
        self._storage().initialize_storage(truncate_tables=tables)

    def drop_tables(self, *tables: str) -> None:
        """Drops tables with their files; those that are not there are as good."""
        self._storage().drop_tables(*tables, delete_schema=False)

    def _storage(self) -> Storage:
        """The client that creates and drops things in the current dataset, which `with_alternative_dataset_name` changes."""
        if self.dataset_name == self._own_dataset:
            return self._client
        other = self._client.of_dataset(self.dataset_name)
        if other.config.namespace == self._client.config.namespace:
            raise DatabaseTerminalException(
                ValueError(
                    f"Only the dataset {self._own_dataset!r} can be made, changed and dropped here, not {self.dataset_name!r}: "
                    f'both have their tables in the namespace {other.config.namespace!r}. With "{{dataset_name}}" in the '
                    "setting `namespace` each dataset has a namespace of its own."
                )
            )
        return other

    def execute_sql(self, sql: Any, *args: Any, **kwargs: Any) -> Sequence[Sequence[Any]] | None:
        """The rows that a query gives."""
        with self.execute_query(sql, *args, **kwargs) as cursor:
            return cursor.fetchall()

    @contextmanager
    @raise_database_error
    def execute_query(self, query: Any, *args: Any, **kwargs: Any) -> Iterator[DBApiCursor]:
        """Asks Spark. `%s` stands for the arguments, one after the other; where there are some, `%%` is a percent sign."""
        # The client of a load has nothing to open: whoever asks through it is answered, too.
        session = self._session or self._client.session
        if kwargs:
            raise DatabaseTerminalException(ValueError("Arguments by name are not known here; write %s."))
        asked = self.understood(_with_marks(query) if args else query)
        yield SparkCursorImpl(SparkCursor(session.sql(asked, args=list(args) or None)))  # type: ignore[arg-type]

    def understood(self, query: str) -> str:
        """The query, as it was written, with the names that the tables have in the catalog. Only what reads is understood."""
        statement = sqlglot.parse_one(query, read=DIALECT)
        if not isinstance(statement, exp.Query):
            raise DatabaseTerminalException(ValueError(f"Only queries can be asked here, not: {query[:_FIRST_LINE]}"))
        names = {_place(table): table for table in statement.find_all(exp.Table) if self._has(table)}
        for (start, end), table in sorted(names.items(), key=lambda one: one[0], reverse=True):
            query = query[:start] + self._qualified(table) + query[end:]
        return query

    def _qualified(self, table: exp.Table) -> str:
        """The name of a table in the catalog; columns are still found by the one that it has in the query."""
        name, config = table.name, self._client.config.of_dataset(self.dataset_name)
        known = config.qualified(name)
        return known if table.alias or config.physical_name(name) == name else f"{known} AS {quoted(name)}"

    def _has(self, table: exp.Table) -> bool:
        """Whether a name of a query is that of a table of the dataset, and not of something that the query itself makes."""
        if table.catalog or not isinstance(table.this, exp.Identifier):
            return False
        return table.db.lower() == self.dataset_name.lower() if table.db else not _is_common(table)

    @staticmethod
    def _make_database_exception(ex: Exception) -> Exception:
        short = ValueError(str(ex).partition("\n")[0][:_FIRST_LINE])
        # Spark has a condition for some of these, and Iceberg a class of Java, which is seen in the text alone.
        if any(word in str(ex) for word in _UNKNOWN):
            return DatabaseUndefinedRelation(short)
        return ex if isinstance(ex, DatabaseTerminalException) else DatabaseTerminalException(short)


def _with_marks(query: str) -> str:
    """The query with Spark's `?` for each `%s`, but for those in texts and comments."""
    tokens = sqlglot.tokenize(query, read=DIALECT)
    operators = {token.start for token in tokens if token.token_type is TokenType.MOD}

    def mark(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        return "?" if found.start() in operators else found[0]

    return _PLACEHOLDER.sub(mark, query)


def _place(table: exp.Table) -> tuple[int, int]:
    """Where the name of a table stands in its query, with the dataset's before it."""
    first = table.args.get("db") or table.this
    return first.meta["start"], table.this.meta["end"] + 1


def _is_common(table: exp.Table) -> bool:
    """Whether a name is that of a common table expression: of the query that it is in, or of one around that.

    Such an expression knows those before it, and itself where they are recursive.
    """
    everything = slice(None)
    known, at = everything, table.parent
    while at is not None:
        if isinstance(at, exp.CTE) and isinstance(at.parent, exp.With):
            known = slice((at.index or 0) + bool(at.parent.recursive))
        elif isinstance(at, exp.Query):
            if table.name.casefold() in (one.alias.casefold() for one in at.ctes[known]):
                return True
            known = everything
        at = at.parent
    return False
