"""`pipeline.dataset()`: the tables read by Spark, through the catalog and with the credentials that they were written with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlglot
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.dataset import DBApiCursor
from dlt.dataset import lineage
from dlt.destinations.exceptions import DatabaseTerminalException, DatabaseUndefinedRelation
from dlt.destinations.sql_client import DBApiCursorImpl, SqlClientBase, raise_database_error
from dlt.destinations.typing import DBTransaction
from sqlglot import exp
from sqlglot.optimizer.qualify import qualify

from frazil.engine.arrow import ArrowParts

if TYPE_CHECKING:
    from pyarrow import Table as ArrowTable
    from pyspark.sql import DataFrame, SparkSession

    from frazil.doors.dlt.configuration import IcebergRestConfiguration

DIALECT = "spark"
_UNKNOWN = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "NoSuchTable", "NoSuchNamespace")
_FIRST_LINE = 400


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
    """The same with dlt's ways to read it, by way of Arrow and not row by row."""

    native_cursor: SparkCursor  # type: ignore[assignment]

    def iter_arrow(self, chunk_size: int) -> Generator[ArrowTable, None, None]:
        """Arrow tables of so many rows, or one of all."""
        if chunk_size:
            yield from self.native_cursor.arrow_chunks(chunk_size)
        else:
            yield self.native_cursor.arrow()


class SparkSqlClient(SqlClientBase["SparkSession"], DBTransaction):
    """Answers queries of a dataset. Tables are named as dlt names them: alone, or behind the dataset's name."""

    def __init__(
        self,
        dataset_name: str,
        capabilities: DestinationCapabilitiesContext,
        config: IcebergRestConfiguration,
        open_session: Callable[[], SparkSession],
    ) -> None:
        _let_dlt_qualify()
        super().__init__(None, dataset_name, f"{dataset_name}_staging", capabilities)  # type: ignore[arg-type]
        self._config = config
        self._open_session = open_session
        self._session: SparkSession | None = None

    def open_connection(self) -> SparkSession:
        """The session of the process."""
        self._session = self._open_session()
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

    def execute_sql(self, sql: Any, *args: Any, **kwargs: Any) -> Sequence[Sequence[Any]] | None:
        """The rows that a query gives."""
        with self.execute_query(sql, *args, **kwargs) as cursor:
            return cursor.fetchall()

    @contextmanager
    @raise_database_error
    def execute_query(self, query: Any, *args: Any, **kwargs: Any) -> Iterator[DBApiCursor]:
        """Asks Spark. `%s` stands for the arguments, one after the other."""
        # The client of a load has nothing to open: whoever asks through it is answered, too.
        session = self._session or self._open_session()
        if kwargs:
            raise DatabaseTerminalException(ValueError("Arguments by name are not known here; write %s."))
        asked = self.understood(query.replace("%s", "?") if args else query)
        yield SparkCursorImpl(SparkCursor(session.sql(asked, args=list(args) or None)))  # type: ignore[arg-type]

    def understood(self, query: str) -> str:
        """The query with the names that the tables have in the catalog. Only what reads is understood."""
        statement = sqlglot.parse_one(query, read=DIALECT)
        if not isinstance(statement, exp.Query):
            raise DatabaseTerminalException(ValueError(f"Only queries can be asked here, not: {query[:_FIRST_LINE]}"))
        own = {common.alias_or_name for common in statement.find_all(exp.CTE)}
        for table in list(statement.find_all(exp.Table)):
            dataset = table.db.lower() if table.db else ""
            if table.catalog or dataset not in ("", self.dataset_name.lower()) or (not dataset and table.name in own):
                continue
            known = exp.to_table(self._config.qualified(table.name), dialect=DIALECT)
            for part in ("this", "db", "catalog"):
                table.set(part, known.args.get(part))
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name.rpartition(".")[2], quoted=True)))
        return statement.sql(dialect=DIALECT)

    @staticmethod
    def _make_database_exception(ex: Exception) -> Exception:
        told = ValueError(str(ex).partition("\n")[0][:_FIRST_LINE])
        if any(word in str(ex) for word in _UNKNOWN):
            return DatabaseUndefinedRelation(told)
        return ex if isinstance(ex, DatabaseTerminalException) else DatabaseTerminalException(told)
