"""The matrix: each test of a contract runs in each of these places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from catalogs.places import Place, place
from helpers.lakes import sqlite_lake

# A change runs one of these, another one with each commit; a whole run all of them.
DIAGONAL = ("SQLite, S3", "PostgreSQL, local files", "REST, S3", "Hive metastore, local files", "Glue, S3")
THE_REST = (
    "SQLite, local files",
    "SQLite, GCS",
    "SQLite, Azure",
    "SQLite, HDFS",
    "SQLite, versitygw",
    "PostgreSQL, S3",
    "MariaDB, local files",
    "MariaDB, S3",
    "REST, local files",
    "REST, GCS",
    "Nessie, S3",
    "Nessie by its own protocol, S3",
    "S3 Tables, S3",
    "Glue by REST, S3",
    "Polaris, S3",
    "Lakekeeper, S3",
    "Unity Catalog, S3",
    "Gravitino, S3",
    "Hive metastore, S3",
    "Hadoop, local files",
    "Hadoop, HDFS",
    "Memory, local files",
    "Memory, nothing kept",
)
PLACES = (
    *DIAGONAL,
    *(pytest.param(title, marks=pytest.mark.slow) for title in THE_REST),
)


@pytest.fixture(params=PLACES)
def somewhere(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    """A catalog and a store of the matrix, with nothing of this test in it."""
    with place(request.param, sqlite_lake(spark, tmp_path), request.getfixturevalue) as found:
        yield found
