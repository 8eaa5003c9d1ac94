"""The shared Spark session computes, and reaches the REST catalog through Iceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from services.rest_catalog import RestCatalog

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_it_writes_and_reads_a_table_of_the_rest_catalog(spark: SparkSession, rest_catalog: RestCatalog) -> None:
    name = f"c{uuid4().hex}"
    session = spark.newSession()
    session.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set(f"spark.sql.catalog.{name}.type", "rest")
    session.conf.set(f"spark.sql.catalog.{name}.uri", rest_catalog.uri)
    session.sql(f"create namespace {name}.{name}")
    session.range(3).writeTo(f"{name}.{name}.t").create()
    assert sorted(row.id for row in session.table(f"{name}.{name}.t").collect()) == [0, 1, 2]


def test_it_has_two_cores(spark: SparkSession) -> None:
    assert spark.sparkContext.defaultParallelism == 2
