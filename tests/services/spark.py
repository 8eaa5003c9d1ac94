"""The Spark session that the tests of one process share: starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from frazil.model.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPONENTS = ("core", "avro", "postgres", "kafka")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session with two local cores, started by the first test that asks for it."""
    from frazil.engine.session import spark_session

    settings = SparkSettings(
        master="local[2]",
        app_name="frazil-tests",
        conf={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.warehouse.dir": tmp_path_factory.mktemp("spark-warehouse").as_uri(),
        },
    )
    session = spark_session(settings, COMPONENTS)
    yield session
    session.stop()
