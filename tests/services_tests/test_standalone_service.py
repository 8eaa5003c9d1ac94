"""The standalone cluster is complete when it is handed out."""

from __future__ import annotations

import pytest

from services.standalone import SparkCluster

pytestmark = pytest.mark.slow


def test_two_workers_are_registered(spark_cluster: SparkCluster) -> None:
    assert spark_cluster.master.startswith("spark://127.0.0.1:")
    assert spark_cluster.alive_workers() == 2
