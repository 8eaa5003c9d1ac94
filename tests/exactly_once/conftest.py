"""The two kinds of catalogs: a SQL catalog compares the whole metadata of a table, a REST catalog only its branch."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactly_once.ground import Ground, rest_ground, sqlite_ground


@pytest.fixture(params=["sqlite", "rest"])
def either(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Ground:
    """A table to be made in one catalog, then in the other."""
    if request.param == "sqlite":
        return sqlite_ground(spark, tmp_path)
    catalog = request.getfixturevalue("rest_catalog")
    return rest_ground(spark, catalog.uri, catalog.uri)
