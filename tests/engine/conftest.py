"""The lake that the engine's tests write to."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.lakes import Lake, sqlite_lake


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """An empty lake of one folder, whose name has a blank in it as many have."""
    folder = tmp_path / "a lake"
    folder.mkdir()
    return sqlite_lake(spark, folder)
