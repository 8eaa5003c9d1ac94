"""The fixtures of the tests of the PostgreSQL source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql import SparkSession

from services.postgres import Postgres
from sources.postgres.databases import ArrowReader, Database, Reader, database_on


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    with database_on(postgres) as made:
        yield made


@pytest.fixture
def follow(spark: SparkSession, database: Database) -> Iterator[Callable[..., Reader]]:
    """Opens a reader of some tables; it is closed after the test."""
    with ExitStack() as opened:

        def reader(*tables: str, ledger: str | None = None, **options: Any) -> Reader:
            made = Reader(spark, database.spec(*tables, **options), ledger)
            opened.callback(made.source.close)
            return made

        yield reader


@pytest.fixture
def watch(database: Database) -> Iterator[Callable[..., ArrowReader]]:
    """Opens a reader that needs no Spark."""
    with ExitStack() as opened:

        def reader(*tables: str, ledger: str | None = None, **options: Any) -> ArrowReader:
            made = ArrowReader(database.spec(*tables, **options), ledger)
            opened.callback(made.source.close)
            return made

        yield reader
