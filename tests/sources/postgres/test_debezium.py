"""The same load as a database's own changes and as Debezium's envelopes in topics: the tables are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engine.lakes import Lake, commits, run, sqlite_lake
from services.debezium import running_debezium
from services.kafka import Kafka
from services.processes import wait_until
from sources.postgres.databases import Database
from sources.postgres.test_pipeline import described
from sources.postgres.test_tables import ROUTED, TABLES, assert_equal, filled, loaded

ENVELOPES = {"type": "json", "infer": "embedded", "envelope": "debezium"}
KEYS = {"type": "json", "infer": "embedded"}


@pytest.fixture
def lakes(spark: SparkSession, tmp_path: Path) -> tuple[Lake, Lake]:
    for name in ("direct", "debezium"):
        (tmp_path / name).mkdir()
    return sqlite_lake(spark, tmp_path / "direct"), sqlite_lake(spark, tmp_path / "debezium")


def from_topics(kafka: Kafka, prefix: str) -> dict[str, Any]:
    topics = [f"{prefix}.public.{table}" for table in TABLES]
    given = {"bootstrap_servers": kafka.address(), "topics": topics, "start_offset": "earliest"}
    return {"connector": "kafka", **given, "format": ENVELOPES, "key_format": KEYS}


def settled(database: Database, slot: str) -> None:
    """Waits until everything that the tables have now is in the topics."""
    position = database.value("select pg_current_wal_insert_lsn()")
    database.run("insert into marks default values")
    reached = f"select 1 from pg_replication_slots where slot_name = '{slot}' and confirmed_flush_lsn >= '{position}'"
    wait_until(lambda: database.rows(reached), 60, "Debezium to have written everything")


def test_the_same_load_gives_the_same_tables(database: Database, lakes: tuple[Lake, Lake], kafka: Kafka, tmp_path: Path) -> None:
    filled(database)
    database.run("create table marks (id serial primary key)")
    direct, debezium = lakes
    own = direct.pipeline(described(database, *TABLES), **ROUTED)
    run(own, once=True)
    with running_debezium(tmp_path, kafka, database.server, database.name, [*TABLES, "marks"]) as prefix:
        enveloped = debezium.pipeline(from_topics(kafka, prefix), **ROUTED, change_format="debezium")
        for seed in (1, 3):
            with loaded(database, seed, seed + 1) as loads:
                wait_until(lambda: all(load.transactions > 60 for load in loads), 60, "some transactions")
            settled(database, prefix)
            run(own, once=True)
            done = commits(run(enveloped, once=True))
            assert_equal(database, direct)
            assert_equal(database, debezium)
            assert sum(commit.counts.deleted for commit in done) > 0
            for table in TABLES:
                name = f"db.public_{table}"
                assert dict(debezium.table(name).dtypes) == dict(direct.table(name).dtypes)
