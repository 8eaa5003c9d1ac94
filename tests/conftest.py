"""Registers the fixtures of the services; each service has its own module."""

from __future__ import annotations

import os
import tempfile

import pytest

from frazil.model import secrets

# Modules whose few tests take minutes. They begin first, so that no worker is left with one when the others are done.
LONG = (
    "catalogs/test_contract.py",
    "catalogs/test_trino_catalogs.py",
    "catalogs/test_trino_modes.py",
    "catalogs/test_trino_writing.py",
    "sources/postgres/test_tables.py",
    "exactly_once/test_topics.py",
    "sources/postgres/test_debezium.py",
    "exactly_once/test_kill.py",
    "exactly_once/test_recovery.py",
    "exactly_once/test_modes.py",
    "sources/postgres/test_pipeline.py",
    "benchmarks/test_summary.py",
    "exactly_once/test_many_tables.py",
    "spark/test_cluster.py",
    "doors/sql/test_sql_run.py",
    "doors/dlt_door/test_dlt_loads.py",
    "doors/dlt_door/test_dlt_options.py",
    "doors/dlt_door/test_dlt_retries.py",
    "doors/bytewax/test_bytewax_kill.py",
    "cli/test_demo.py",
    "runtime/test_replay.py",
)

# For every Spark of a process that a test starts: it lives for seconds, beside another on few cores. To compile what is hot as
# well as Java can, or to collect garbage in threads of its own, takes longer than it gains.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# What may be lost is not left on the machine.
_STATE = tempfile.TemporaryDirectory(prefix="frazil-state-")
os.environ["FRAZIL_STATE_DIR"] = _STATE.name

pytest_plugins = [
    "tiers",
    "whole_run",
    "helpers.lakes",
    "services.s3proxy",
    "services.aws",
    "services.gcs",
    "services.azure",
    "services.hdfs",
    "services.versitygw",
    "services.hive",
    "services.mariadb",
    "services.nessie",
    "services.rest_catalog",
    "services.faulty_rest",
    "services.faulty_s3",
    "services.postgres",
    "services.kafka",
    "services.bigquery",
    "services.spark",
    "services.standalone",
    "services.trino",
    "services.chromium",
]


@pytest.fixture(autouse=True)
def no_secrets_of_others() -> None:
    """A process remembers all secrets that it has seen, to mask them: those of another test may be plain words of this one."""
    secrets._remembered.clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((n for n, name in enumerate(LONG) if item.path.as_posix().endswith(name)), len(LONG)))
