"""The lake that dlt's pipelines write to."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlt_lakes import DltLake
from pyspark.sql import SparkSession

from frazil.runtime import loads


@pytest.fixture(autouse=True)
def _dlt_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """dlt keeps pipelines and settings in folders of the user, and reports home: here it does neither."""
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt-data"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("LOAD__RAISE_ON_MAX_RETRIES", "1")
    # A test that needs Spark asks for that of the tests.
    monkeypatch.setattr(loads, "start_ahead", lambda *_: None)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> DltLake:
    """An empty lake. Spark, which the destination would start, is that of the tests."""
    return DltLake(tmp_path)
