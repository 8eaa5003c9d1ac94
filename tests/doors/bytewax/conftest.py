from __future__ import annotations

from pathlib import Path

import pytest
from flows import Pond
from pyspark.sql import SparkSession

from frazil.model import secrets


@pytest.fixture(autouse=True)
def _own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets that one test brings are not scrubbed from the messages of another."""
    monkeypatch.setattr(secrets, "_remembered", set())


@pytest.fixture
def pond(spark: SparkSession, tmp_path: Path) -> Pond:
    """An empty lake; the sinks of a test process use the Spark that runs in it."""
    return Pond(tmp_path)
