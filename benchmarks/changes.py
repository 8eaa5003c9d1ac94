"""Changes of a PostgreSQL table into Iceberg: read and decoded alone, and the whole way into a table that is upserted.

The load is that of `pgbench` with more kinds: two inserts, two updates and a delete in turn, in transactions of a thousand. The
reference is what Debezium's makers have published for their server, on another machine: nothing of it runs here.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import psycopg

from benchmarks.lab import CATALOG, NAMESPACE, Lab, cpu_seconds
from benchmarks.summary import Finding
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import Settings
from frazil.model.source import PostgresCdcSource
from frazil.runtime.runner import SharedSpark, run_pipeline
from frazil.sources.postgres.source import PostgresCdc
from services.postgres import Postgres, running_postgres

REFERENCE = "Debezium Server, as published"
REFERENCE_RATE = 13_800.0
OURS = "frazil"
TABLE = "create table t (id bigint primary key, name text, at timestamptz default now(), amount numeric(12, 2), note text)"
PER_TRANSACTION = 1_000


class Database:
    """A database with one table, which changes when it is told to."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.name = f"bench_{uuid.uuid4().hex[:8]}"
        server.create_database(self.name)
        login = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        self.connection = psycopg.connect(**login, dbname=self.name, autocommit=True)  # type: ignore[arg-type]
        self.connection.execute(TABLE)
        self._next = 0

    def spec(self) -> PostgresCdcSource:
        place = {"host": self.server.host, "port": self.server.port, "user": self.server.user, "password": self.server.password}
        return PostgresCdcSource.model_validate({**place, "database": self.name, "streams": [{"name": "t"}]})

    def change(self, changes: int) -> None:
        """Makes so many changes: of five, two insert, two update what was inserted, and one deletes."""
        per = min(PER_TRANSACTION, changes)
        for _ in range(changes // per):
            first, two = self._next, 2 * per // 5
            self._next += two
            with self.connection.transaction():
                rows = f"generate_series({first}, {first + two - 1}) i"
                self.connection.execute(
                    f"insert into t select i, 'name ' || i, now(), i / 7.0, repeat('x', 50) from {rows}".encode()
                )
                self.connection.execute(f"update t set amount = amount + 1 where id >= {first}".encode())
                self.connection.execute(f"delete from t where id >= {first} and id % 2 = 0".encode())

    def rows(self) -> int:
        found = self.connection.execute("select count(*) from t").fetchone()
        return int(found[0]) if found else 0


@contextmanager
def opened(server: Postgres) -> Iterator[Database]:
    database = Database(server)
    with database.connection:
        yield database
        database.connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database()"
        )


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """Decoding by the processor second, and the whole way by the clock."""
    decoded: list[float] = []
    whole: list[float] = []
    with running_postgres() as server:
        for number in range(lab.sizes.warm_up + lab.sizes.rounds):
            one, other = _decoded(lab, server), _whole(lab, server)
            tell(f"round {number} ({lab.sizes.warm_up} to warm up): decoded {one:,.0f}/s, whole way {other:,.0f}/s")
            if number >= lab.sizes.warm_up:
                decoded.append(round(one, 1))
                whole.append(round(other, 1))
    return [
        _finding("decoded", "changes of a database decoded, for each core", decoded, 60_000),
        _finding("end to end", "changes of a database into a table that is upserted", whole, 30_000),
    ]


def _decoded(lab: Lab, server: Postgres) -> float:
    """Changes for each processor second of this process, from the slot into files that Spark reads."""
    changes = lab.sizes.changes
    with opened(server) as database:
        source = PostgresCdc(database.spec(), lab.spark)
        try:
            first = source.plan(None, changes)
            assert first is not None, "the snapshot"
            database.change(changes)
            before = cpu_seconds(os.getpid())
            part = source.plan(first.end, changes)
            used = cpu_seconds(os.getpid()) - before
            assert part is not None, "the changes"
            return (part.rows or 0) / max(used, 0.001)
        finally:
            source.close()


def _whole(lab: Lab, server: Postgres) -> float:
    """Changes a second by the clock, from the slot into the table."""
    with opened(server) as database:
        name = f"{CATALOG}.{NAMESPACE}.changes"
        size = {"batch_size": lab.sizes.changes, "max_batch_size": lab.sizes.changes}
        sink = lab.sink(None, name).options(commit_mode="upsert", key_fields=["id"], **size).spec
        given = {"name": "bench", "source_name": "db", "source": database.spec(), "sink_name": "lake", "sink": sink}
        pipeline = PipelineSpec.model_validate(given)

        def run() -> None:
            run_pipeline(pipeline, Settings(), SharedSpark([pipeline], Settings()), lambda _: None, threading.Event(), once=True)

        run()  # the snapshot of an empty table
        database.change(lab.sizes.changes)
        began = time.perf_counter()
        run()
        seconds = time.perf_counter() - began
        held = lab.spark.table(name).count()
        if held != database.rows():
            raise RuntimeError(f"{name} holds {held} rows, and the database {database.rows()}")
        lab.spark.sql(f"DROP TABLE {name}")
        shutil.rmtree(lab.table_folder(name))
        return lab.sizes.changes / seconds


def _finding(case: str, what: str, rates: list[float], at_least: float) -> Finding:
    return Finding(
        benchmark="changes",
        case=case,
        goal=f"{what}: changes a second",
        value=round(median(rates), 3),
        at_least=at_least,
        against=REFERENCE,
        unit="changes a second",
        runs={OURS: rates, REFERENCE: [REFERENCE_RATE] * len(rates)},
    )
