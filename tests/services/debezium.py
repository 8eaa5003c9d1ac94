"""Debezium: its connector for PostgreSQL in a worker of Kafka Connect."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.connect import Worker, locked, running_worker
from services.kafka import Kafka
from services.postgres import Postgres
from services.registry import SchemaRegistry

READY_SECONDS = 120
# JSON with the schema inside, as the worker writes by itself.
IN_JSON: Mapping[str, str] = {}


@dataclass(frozen=True)
class Debezium:
    """A worker that has Debezium and converters for JSON and Avro."""

    worker: Worker
    kafka: Kafka

    @contextmanager
    def following(self, server: Postgres, database: str, tables: Sequence[str], converters: Mapping[str, str]) -> Iterator[str]:
        """Follows tables of `public` as long as the block; gives the name of its slot, with which those of the topics begin."""
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
            **converters,
        }
        for table in tables:
            self.kafka.create_topic(f"{name}.public.{table}")  # the broker makes none by itself
        self.worker.create(name, config)
        self.worker.child.await_line(f"{name}.*Processing messages", READY_SECONDS)
        yield name
        self.worker.delete(name)


@contextmanager
def running_debezium(folder: Path, kafka: Kafka) -> Iterator[Debezium]:
    """A worker with Debezium, as long as the block."""
    jars = [*locked("debezium-3.6.1"), *locked("apicurio-converter-2.6.13")]
    with running_worker(folder, kafka, jars, java=["-XX:TieredStopAtLevel=1"]) as worker:
        yield Debezium(worker, kafka)


def in_avro(registry: SchemaRegistry) -> dict[str, str]:
    """Avro by a registry, as Debezium's documentation sets it up: a zero byte, and the id that the registry's `ccompat` knows."""
    settings = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": registry.own_url,
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
        ".apicurio.registry.headers.enabled": "false",
    }
    return {f"{part}.converter{name}": value for part in ("key", "value") for name, value in settings.items()}
