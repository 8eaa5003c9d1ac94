"""The Spark session that the tests of one process share: starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from frazil.model.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What frazil itself keeps for later use.
_OWN = "frazil_"

COMPONENTS = ("core", "avro", "postgres", "kafka")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session with two local cores, started by the first test that asks for it."""
    from frazil.spark.session import spark_session

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
    with pytest.MonkeyPatch.context() as environment:
        # This one lives for as long as all tests: what is hot in it is worth the better compiler.
        environment.delenv("SPARK_SUBMIT_OPTS", raising=False)
        session = spark_session(settings, COMPONENTS)
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def catalogs_of_others() -> Iterator[None]:
    """Lets Spark forget the catalogs of a module: it never does by itself, and each configuration names all of them."""
    yield
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if session is None or session.sparkContext._jsc is None:
        return
    manager = session._jsparkSession.sessionState().catalogManager()  # type: ignore[union-attr]
    field = manager.getClass().getDeclaredField("catalogs")
    field.setAccessible(True)
    known = field.get(manager)
    for key in session.conf.getAll:
        if key.startswith("spark.sql.catalog.") and not key.startswith(f"spark.sql.catalog.{_OWN}"):
            session.conf.unset(key)
            known.remove(key.split(".")[3])
