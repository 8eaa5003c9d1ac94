"""A table of a catalog of its own, and what runs statements on it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sources.table.feed import Sql


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """The name of an Iceberg table that does not exist yet. Its catalog caches, as a user's may."""
    name = f"src_{uuid.uuid4().hex[:8]}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{name}.warehouse", tmp_path.as_uri())
    return f"{name}.db.t"


@pytest.fixture
def sql(spark: SparkSession, table: str) -> Sql:
    """Runs a statement; `t` is the table."""

    def run(text: str) -> None:
        catalog, _, name = table.partition(".")
        spark.sql(text.format(t=table, catalog=catalog, name=name))

    return run
