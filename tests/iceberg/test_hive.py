"""What can fail at a Hive metastore, in words that say what it was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import frazil
from helpers.lakes import Lake, fresh_name
from services.hive import running_hive
from services.processes import LOCALHOST, free_port

pytestmark = pytest.mark.slow(seconds=60)


def lake_at(spark: SparkSession, folder: Path, uri: str) -> Lake:
    hive = {"uri": uri, "warehouse": str(folder / "warehouse")}
    return Lake(spark, {"type": "hive", "name": fresh_name(), "hive": hive}, folder)


def test_a_metastore_that_cannot_lock_tables_stops_a_run_early(spark: SparkSession, tmp_path: Path) -> None:
    with running_hive(tmp_path, locks=False) as metastore:
        sink = lake_at(spark, tmp_path, metastore.uri).sink("select 1 id")
        began = time.monotonic()
        with pytest.raises(frazil.FrazilError) as stopped:
            sink.write()
    assert time.monotonic() - began < 60, "Iceberg alone asks for three minutes"
    assert stopped.value.code == "locks-failed"
    assert "did not lock the table" in stopped.value.message
    assert "schematool -initSchema" in stopped.value.fix


def test_a_metastore_that_does_not_answer_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_at(spark, tmp_path, f"thrift://{LOCALHOST}:{free_port()}")
    with pytest.raises(frazil.Retryable) as stopped:
        lake.sink("select 1 id").retry(max_retries=0).write()
    assert stopped.value.code == "catalog-unreachable"
    assert "Connection refused" in stopped.value.message
