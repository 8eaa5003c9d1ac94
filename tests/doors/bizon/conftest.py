"""The lake that Bizon files write to."""

from __future__ import annotations

from pathlib import Path

import pytest
from bizon_cases import Lake
from pyspark.sql import SparkSession

from cli.conftest import frazil  # noqa: F401 - a fixture
from services.kafka import Kafka


@pytest.fixture
def bizon(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Lake:
    """An empty lake of one folder, and a Kafka."""
    return Lake(spark, kafka, tmp_path)
