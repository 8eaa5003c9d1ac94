"""Streams of small batches: the time from commit to commit, as the tables' own snapshots tell it.

Three ways for the same rows: Spark's own streaming sink, frazil called by Spark's streaming (foreachBatch), and frazil's
pump, which needs no checkpoint. The two streams of Spark read its `rate-micro-batch` source, which makes the same numbers
as the pump reads. All run as fast as they can, into a fresh table, one task a batch.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from benchmarks.lab import Lab, Measure, events, interleaved
from benchmarks.summary import Finding, ratio
from frazil.errors import FrazilError
from frazil.model.commit import Position, position
from frazil.model.settings import RetrySettings
from frazil.runtime.pump import Pump
from frazil.sources.base import Slice
from frazil.write.setup import WriterSetup
from frazil.write.writer import SinkWriter

SPARK = "Spark's streaming sink"
PUMP = "frazil's pump"
FOREACH = "frazil in foreachBatch"

STEP_US = 1_000
LONGEST_SECONDS = 300


class Numbers:
    """A replayable source: numbers from 0, made into events."""

    fingerprint = "benchmark"
    poll_seconds = 0.1
    reads_ahead: Literal[True] = True

    def __init__(self, spark: SparkSession, rows: int) -> None:
        self._spark = spark
        self._rows = rows

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        first = _number(start)
        last = min(first + limit, self._rows)
        return Slice(start, position(last), last - first, full=True) if last > first else None

    def between(self, start: Position | None, end: Position) -> Slice:
        return Slice(start, end, _number(end) - _number(start))

    def finished(self, position: Position | None) -> bool:
        return _number(position) >= self._rows

    def total_rows(self, start: Position | None) -> int | None:
        return self._rows - _number(start)

    def read(self, part: Slice) -> DataFrame:
        # An array, not `spark.range`: the bounds of a range are part of the code that Spark compiles, so that each batch would be
        # compiled anew. The source that Spark's streams read has no such cost either.
        numbers = f"SELECT explode(sequence({_number(part.start)}L, {_number(part.end) - 1}L)) AS value"
        return events(self._spark.sql(numbers), STEP_US)

    def observed(self, part: Slice, rows: int) -> None:
        """Nothing to learn: the counts are exact."""

    def explain(self, error: Exception) -> FrazilError | None:  # noqa: ARG002 - the protocol's signature
        return None

    def committed(self, position: Position) -> None:
        """Nothing is kept."""

    def check(self) -> None:
        """Nothing outside is needed."""

    def close(self) -> None:
        """Nothing is open."""


def _number(at: Position | None) -> int:
    return 0 if at is None else int(json.loads(at))


class Streams:
    """One stream by each contestant: seconds a batch."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._sizes = lab.sizes
        self._rows = lab.sizes.batches * lab.sizes.rows_per_batch

    def spark(self) -> float:
        """`writeStream.toTable`, as fast as it can."""

        def start(name: str, checkpoint: Path) -> None:
            writer = self._rate().writeStream.format("iceberg").option("checkpointLocation", str(checkpoint))
            query = writer.trigger(processingTime="0 seconds").toTable(name)
            self._await_commits(name)
            query.stop()

        return self._measured(start)

    def foreach_batch(self) -> float:
        """`writeStream.foreachBatch(frazil.sink().to(table))`; what comes after the last batch that counts is left unread."""

        def start(name: str, checkpoint: Path) -> None:
            into = self._lab.sink(None, name)

            def write(frame: DataFrame, batch: int) -> None:
                if batch < self._sizes.batches:
                    into(frame, batch)

            writer = self._rate().writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
            query = writer.trigger(processingTime="0 seconds").start()
            self._await_commits(name)
            query.stop()

        return self._measured(start)

    def pump(self) -> float:
        """A pipeline as `frazil run` runs it."""

        def start(name: str, _checkpoint: Path) -> None:
            spec = self._lab.sink(None, name).options(batch_size=self._sizes.rows_per_batch).spec
            writer = SinkWriter(WriterSetup(self._lab.spark, "bench", "bench", RetrySettings(), lambda _: None), spec)
            Pump(writer, Numbers(self._lab.spark, self._rows), lambda _: None).run(threading.Event(), once=True)

        return self._measured(start)

    def _rate(self) -> DataFrame:
        options = {"rowsPerBatch": str(self._sizes.rows_per_batch), "numPartitions": "1"}
        return events(self._lab.spark.readStream.format("rate-micro-batch").options(**options).load(), STEP_US)

    def _measured(self, start: Callable[[str, Path], None]) -> float:
        name = self._lab.make_table("streamed", events(self._lab.spark.range(0).withColumnRenamed("id", "value"), STEP_US))
        checkpoint = self._lab.folder / "checkpoint"
        start(name, checkpoint)
        commits = self._commit_times(name)
        shutil.rmtree(checkpoint, ignore_errors=True)
        self._lab.drop_table(name, len(commits) * self._sizes.rows_per_batch)
        counted = commits[self._sizes.first_batches - 1 : self._sizes.batches]
        return (counted[-1] - counted[0]) / (len(counted) - 1)

    def _await_commits(self, name: str) -> None:
        """Waits for the last batch that counts by looking at the table's folder, which costs the contestants nothing."""
        folder = self._lab.table_folder(name) / "metadata"
        deadline = time.monotonic() + LONGEST_SECONDS
        # One file for the table itself; the sink's claim is one commit more.
        while len(list(folder.glob("*.metadata.json"))) < self._sizes.batches + 2:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not get {self._sizes.batches} batches in {LONGEST_SECONDS} s")
            time.sleep(0.02)

    def _commit_times(self, name: str) -> list[float]:
        with_rows = f"summary['added-records'] = '{self._sizes.rows_per_batch}'"
        query = f"SELECT unix_millis(committed_at) FROM {name}.snapshots WHERE {with_rows} ORDER BY committed_at"
        return [row[0] / 1000 for row in self._lab.spark.sql(query).collect()]


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """All streams, interleaved."""
    streams = Streams(lab)
    contestants: dict[str, Measure] = {SPARK: streams.spark, PUMP: streams.pump, FOREACH: streams.foreach_batch}
    runs = interleaved(contestants, lab.sizes, tell)
    details = {"rows_per_batch": lab.sizes.rows_per_batch, "batches": lab.sizes.batches, "codec": "snappy", "catalog": "SQLite"}
    return [
        Finding(
            benchmark="stream",
            case=ours,
            goal=f"a batch of {lab.sizes.rows_per_batch:,} rows end to end, {ours}: time relative to {SPARK}",
            value=ratio(runs[ours], runs[SPARK]),
            at_most=1.15,
            against=SPARK,
            unit="seconds",
            runs={ours: runs[ours], SPARK: runs[SPARK]},
            details=details,
        )
        for ours in (PUMP, FOREACH)
    ]
