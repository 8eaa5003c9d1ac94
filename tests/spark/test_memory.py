"""What a pipeline that runs for months must not keep of its batches."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.lakes import Lake
from services.processes import wait_until

FEW = 3
LISTENER = "org.apache.spark.sql.util.ExecutionListenerBus"


def sessions_of(lake: Lake) -> int:
    """How many sessions Spark holds: each listens to what is executed, and stops when it is garbage and Spark has noticed."""
    jvm: Any = lake.spark._jvm
    context: Any = lake.spark.sparkContext
    jvm.java.lang.System.gc()
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName(LISTENER))
    return int(context._jsc.sc().listenerBus().findListenersByClass(kind).size())


@pytest.mark.slow
def test_upserts_leave_no_sessions_behind(lake: Lake) -> None:
    def upsert(value: int) -> None:
        lake.sink(f"select id, {value} v from range(5)", commit_mode="upsert", key_fields=["id"]).write()

    upsert(0)
    before = sessions_of(lake)
    assert before > 0
    for value in range(1, 4 * FEW):
        upsert(value)
    wait_until(lambda: sessions_of(lake) < before + FEW, 30, "the sessions to go")
