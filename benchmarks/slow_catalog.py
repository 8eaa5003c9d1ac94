"""A backlog through a catalog that takes seconds for a commit: the time beside that of a quick catalog.

The catalog is the same SQLite file for both. For the slow one each commit is held back, in this process, before it is sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.lab import Lab, events, interleaved
from benchmarks.stream import STEP_US, Numbers
from benchmarks.summary import Finding, ratio
from frazil.iceberg import IcebergPort
from frazil.model.events import Committed, Event
from frazil.model.settings import RetrySettings
from frazil.model.sink import MOST_ROWS
from frazil.runtime.pump import Pump
from frazil.write.setup import WriterSetup
from frazil.write.writer import SinkWriter

QUICK = "a quick catalog"
SLOW = "a slow catalog"


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """Writes one backlog through each catalog, in turns: the seconds from the first commit to the last."""
    sizes = lab.sizes

    def slow() -> float:
        with _held_back(sizes.backlog_pause):
            return _seconds(lab)

    runs = interleaved({QUICK: lambda: _seconds(lab), SLOW: slow}, sizes, tell)
    return [
        Finding(
            benchmark="slow_catalog",
            case=f"{sizes.backlog_pause:g} s a commit",
            goal=f"a backlog in batches of {sizes.backlog_rows:,} rows, {sizes.backlog_pause:g} s a commit: speed relative to "
            f"{QUICK}",
            value=ratio(runs[QUICK], runs[SLOW]),
            at_least=0.9,
            against=QUICK,
            unit="seconds",
            runs={SLOW: runs[SLOW], QUICK: runs[QUICK]},
            details={"rows_per_batch": sizes.backlog_rows, "batches": sizes.backlog_batches},
        )
    ]


@contextmanager
def _held_back(seconds: float) -> Iterator[None]:
    swap = IcebergPort.swap

    def later(port: IcebergPort, *arguments: Any) -> None:
        time.sleep(seconds)
        swap(port, *arguments)

    IcebergPort.swap = later  # type: ignore[method-assign]
    try:
        yield
    finally:
        IcebergPort.swap = swap  # type: ignore[method-assign]


def _seconds(lab: Lab) -> float:
    rows, batches = lab.sizes.backlog_rows, lab.sizes.backlog_batches
    name = lab.make_table("backlog", events(lab.spark.range(0).withColumnRenamed("id", "value"), STEP_US))
    spec = lab.sink(None, name).options(batch_size=min(rows, MOST_ROWS), max_batch_size=rows).spec
    at: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, Committed):
            at.append(time.perf_counter())

    writer = SinkWriter(WriterSetup(lab.spark, "bench", "bench", RetrySettings(), listen), spec)
    Pump(writer, Numbers(lab.spark, rows * batches), listen).run(threading.Event(), once=True)
    lab.drop_table(name, rows * batches)
    return at[-1] - at[0]
