"""A database of a test, and a reader that does with its source what a pipeline does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Row, SparkSession

from frazil.model.source import PostgresCdcSource
from frazil.sources.base import Slice
from frazil.sources.postgres.source import PostgresCdc, SnapshotPart
from frazil.sources.postgres.spool import META
from services.postgres import Postgres
from services.processes import wait_until


@dataclass(frozen=True)
class Database:
    """A database of its own on the server of the test run."""

    server: Postgres
    name: str
    connection: psycopg.Connection[tuple[Any, ...]]

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode()).fetchall()

    def value(self, query: str) -> Any:
        return self.rows(query)[0][0]

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return connect(self.server, self.name)

    def spec(self, *tables: str, **options: Any) -> PostgresCdcSource:
        """A source of these tables of `public`."""
        streams = [{"name": table} for table in tables]
        login = {"host": self.server.host, "port": self.server.port, "user": self.server.user, "password": self.server.password}
        return PostgresCdcSource.model_validate({**login, "database": self.name, "streams": streams, **options})


def connect(server: Postgres, name: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, dbname=name, autocommit=True
    )


@contextmanager
def database_on(server: Postgres) -> Iterator[Database]:
    """A new database; its slots are gone after the block."""
    name = f"cdc_{uuid4().hex[:10]}"
    server.create_database(name)
    with connect(server, name) as connection:
        yield Database(server, name, connection)
        drop_slots(connection)


def drop_slots(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Drops the slots of the connection's database, whoever reads them."""
    mine = "from pg_replication_slots where database = current_database()"
    connection.execute(f"select pg_terminate_backend(active_pid) {mine} and active".encode())
    wait_until(lambda: not connection.execute(f"select 1 {mine} and active".encode()).fetchall(), 10, "the slots to be free")
    connection.execute(f"select pg_drop_replication_slot(slot_name) {mine}".encode())


class Reader:
    """What a pipeline does with a source. ``ledger`` is where the last batch ended."""

    def __init__(self, spark: SparkSession, spec: PostgresCdcSource, ledger: str | None = None) -> None:
        self.source = PostgresCdc(spec, spark)
        self.ledger = ledger

    def plan(self, limit: int = 100_000) -> Slice | None:
        return self.source.plan(self.ledger, limit)

    def commit(self, part: Slice) -> None:
        self.ledger = part.end
        self.source.committed(part.end)

    def batch(self, limit: int = 100_000, table: str | None = None) -> list[Row] | None:
        """The next slice's rows, in their order, and committed; of one table when it is named."""
        part = self.plan(limit)
        if part is None:
            return None
        frame = self.source.read(part) if table is None else self.source.read_table(part, table)
        rows = frame.orderBy("__frazil_order").collect()
        self.commit(part)
        return rows

    def drain(self, limit: int = 100_000) -> list[Row]:
        """All that is there now."""
        rows: list[Row] = []
        while (more := self.batch(limit)) is not None:
            rows += more
        return rows


class ArrowReader(Reader):
    """A reader without Spark, by what its executors call: for tests of what is read, not of the frame around it."""

    def __init__(self, spec: PostgresCdcSource, ledger: str | None = None) -> None:
        alone = spec.model_copy(update={"snapshot_connections": spec.snapshot_connections or 2})
        super().__init__(None, alone, ledger)  # type: ignore[arg-type]

    def table_rows(self, part: Slice, table: str) -> list[tuple[Any, ...]]:
        """The rows of one table in a slice, in their order: what they do, and their values."""
        if isinstance(part.detail, SnapshotPart):
            own = part.detail.job.table == table
            tables = [
                pa.Table.from_batches([batch]) for hand in part.detail.hands for batch in part.detail.job.batches(hand) if own
            ]
        else:
            reader = self.source._reader
            assert reader is not None
            tables = [pq.read_table(file.path) for file in reader.files() if file.table == table]
        rows = [row for one in tables for row in one.to_pylist()]
        rows.sort(key=lambda row: (row["lsn"], row["seq"], not row["extra"]))
        return [(row["op"], *(value for name, value in row.items() if name not in META_NAMES)) for row in rows]

    def changes(self, limit: int = 100_000) -> list[tuple[Any, ...]] | None:
        """The next slice's rows, of all its tables, committed."""
        part = self.plan(limit)
        if part is None:
            return None
        rows = [row for table in self.source.tables(part) for row in self.table_rows(part, table)]
        self.commit(part)
        return rows

    def all_changes(self, limit: int = 100_000) -> list[tuple[Any, ...]]:
        """All that is there now."""
        rows: list[tuple[Any, ...]] = []
        while (more := self.changes(limit)) is not None:
            rows += more
        return rows


META_NAMES = {name for name, _, _ in META}


def data(row: Row) -> dict[str, Any]:
    """The row's own columns."""
    return {name: value for name, value in row.asDict().items() if not name.startswith("__frazil_")}


def changes(rows: list[Row] | None) -> list[tuple[Any, ...]]:
    """What the rows do, and their values."""
    return [(row["__frazil_op"], *data(row).values()) for row in rows or ()]
