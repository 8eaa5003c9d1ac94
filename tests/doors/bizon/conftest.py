"""The lake that Bizon files write to."""

from __future__ import annotations

from pathlib import Path

import pytest
from bizon_cases import Lake
from paged_cases import Shelf
from pyspark.sql import SparkSession

from cli.conftest import frazil  # noqa: F401 - a fixture
from services.kafka import Kafka


@pytest.fixture
def bizon(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Lake:
    """An empty lake of one folder, and a Kafka."""
    return Lake(spark, kafka, tmp_path)


@pytest.fixture
def shelf(spark: SparkSession, tmp_path: Path) -> Shelf:
    """A source of the test's own, and a lake of one folder."""
    return Shelf(spark, tmp_path)
