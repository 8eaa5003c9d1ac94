"""Debezium: its connector for PostgreSQL in a worker of Kafka Connect."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from services.connect import locked, running_worker
from services.kafka import Kafka
from services.postgres import Postgres

READY_SECONDS = 120


@contextmanager
def running_debezium(folder: Path, kafka: Kafka, server: Postgres, database: str, tables: Sequence[str]) -> Iterator[str]:
    """Follows tables of `public` as long as the block; gives what the names of the topics begin with, and that of its slot.

    Messages are JSON with the schema inside.
    """
    name = f"dbz_{uuid.uuid4().hex[:8]}"
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.dbname": database,
        "topic.prefix": name,
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "table.include.list": ",".join(f"public.{table}" for table in tables),
        "poll.interval.ms": "50",
    }
    for table in tables:
        kafka.create_topic(f"{name}.public.{table}")  # the broker makes none by itself
    with running_worker(folder, kafka, locked("debezium-3.6.1")) as worker:
        worker.create(name, config)
        worker.child.await_line("Processing messages", READY_SECONDS)
        yield name
