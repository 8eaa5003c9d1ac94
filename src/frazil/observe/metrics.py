"""Prometheus metrics, counted from the engine's events.

Rows, bytes and files count when they are in the table, so that ``iceberg_records_written_total`` is what a reader of the table
could count. A batch that the table already held is not counted: whoever wrote it has done so.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from frazil.model.events import (
    CommitFailed,
    Committed,
    Event,
    FencedOut,
    Lagged,
    Maintained,
    Paused,
    Published,
    PublishFailed,
    Requested,
    Restarting,
    Resumed,
    Settled,
    SourceFailed,
    SourceNoticed,
    Staged,
    Started,
    Stopped,
    TableMeasured,
    Waiting,
)

# From a local catalog's few milliseconds up to a commit that needs every retry.
COMMIT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

# From a trickle up to the largest batch that a sink may ask for.
BATCH_ROWS = (1, 10, 100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000)

FAILURE_KINDS = ("conflict", "unknown", "unreachable", "refused")

_LABELS = ("pipeline", "table")


class _TableGauge(NamedTuple):
    """A gauge of the state of a table, and the kind that its label has if it is one of several."""

    name: str
    text: str
    kind: str | None = None


_DELETES = "Live deletes by kind."
# By the names of the fields of TableFigures.
_TABLE_GAUGES = {
    "data_files": _TableGauge("data_files", "Data files of the table."),
    "data_bytes": _TableGauge("data_bytes", "Bytes of the table's data and delete files."),
    "small_files": _TableGauge("small_files", "Data files that could be merged with others."),
    "delete_files": _TableGauge("delete_files", "Delete files and deletion vectors of the table."),
    "equality_deletes": _TableGauge("deletes", _DELETES, "equality"),
    "position_deletes": _TableGauge("deletes", _DELETES, "position"),
    "manifests": _TableGauge("manifests", "Manifests of the current snapshot."),
    "manifest_bytes": _TableGauge("manifest_bytes", "Bytes of the current snapshot's manifests and their list."),
    "metadata_file_bytes": _TableGauge("metadata_file_bytes", "Bytes of the current metadata file, which each commit rewrites."),
    "snapshots": _TableGauge("snapshots", "Snapshots of the table."),
    "read_amplification": _TableGauge("read_amplification", "Files that a full scan opens for each that it would need."),
    "files_to_delete": _TableGauge("files_to_delete", "Files of expired snapshots that wait to be deleted."),
}


@dataclass
class _Unfinished:
    """What a pipeline has begun: its table, the rows that are staged, and whether the commit has failed so far."""

    table: str = ""
    staged_rows: int = 0
    failing: bool = False

    def settle(self) -> None:
        self.staged_rows, self.failing = 0, False


class _WithoutBirthdays(Collector):
    """A registry without the ``_created`` times, which double the series and stand beside ``iceberg_files_created_total``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if sample.name != f"{family.name}_created"]
            yield family


class Metrics:
    """Listens to events, from any thread, and answers in Prometheus' text format. Each instance has its own registry."""

    content_type: ClassVar[str] = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unfinished: dict[str, _Unfinished] = {}
        self._registry = CollectorRegistry()
        self._written = self._counter("iceberg_records_written", "Rows committed to the table.")
        self._batches = self._counter("iceberg_batches_committed", "Batches committed to the table.")
        self._bytes = self._counter("iceberg_bytes_written", "Bytes of the data files committed to the table.")
        self._files = self._counter("iceberg_files_created", "Data files committed to the table.")
        self._failed_rows = self._counter(
            "iceberg_records_failed", "Rows that did not reach the table: dead-lettered, or of a batch that was given up."
        )
        self._failed_commits = self._counter("iceberg_commits_failed", "Commits that were given up.")
        self._retries = self._counter("iceberg_commit_retries", "Failed commit attempts that were tried again.")
        self._filtered = self._counter("frazil_rows_filtered", "Rows of committed batches that a filter took out.")
        self._dead_lettered = self._counter("frazil_rows_dead_lettered", "Rows of committed batches that were dead-lettered.")
        self._deleted = self._counter("frazil_rows_deleted", "Rows of committed batches that took a key away.")
        self._superseded = self._counter(
            "frazil_rows_superseded",
            "Rows of committed batches that came with a later row of their key, or, with late: ignore, after one.",
        )
        self._unmet = self._counter(
            "frazil_rows_unmet", "Rows of committed batches that did not meet an expectation of the sink.", "expectation"
        )
        self._maintained = self._counter("frazil_maintenance", "What was done for the health of tables.", "kind")
        self._maintenance_seconds = self._counter("frazil_maintenance_seconds", "Time spent on the health of tables.", "kind")
        self._of_tables = self._table_gauges()
        self._settled = self._counter("frazil_deletes_settled", "How often deletes were put in a cheaper form.", "kind")
        self._unpublished = self._counter(
            "frazil_publish_failures", "Times that another system could not be notified of a commit."
        )
        self._fenced = self._counter("frazil_fenced", "How often another instance took the sink.")
        self._failures = self._counter("frazil_commit_failures", "Failed commit attempts by kind.", "kind")
        self._seconds = Histogram(
            "iceberg_commit_duration_seconds",
            "Time of a commit with all its attempts.",
            _LABELS,
            buckets=COMMIT_SECONDS,
            registry=self._registry,
        )
        self._batch_rows = Histogram(
            "iceberg_records_per_batch", "Rows of a committed batch.", _LABELS, buckets=BATCH_ROWS, registry=self._registry
        )
        self._last_commit = Gauge(
            "frazil_last_commit_timestamp_seconds", "When the last batch was committed.", _LABELS, registry=self._registry
        )
        self._source_failures = self._counter("frazil_source_failures_total", "Times that the source did not answer.")
        self._restarts = self._counter("frazil_restarts_total", "Times that the pipeline was started again after a failure.")
        behind = "How far the table is behind the source, where that can say so in"
        self._lags = {
            unit: Gauge(f"frazil_source_lag_{unit}", f"{behind} {unit}.", _LABELS, registry=self._registry)
            for unit in ("rows", "bytes", "seconds")
        }
        self._requests = {
            "catalog": self._requests_of("catalog", "Requests to catalogs by kind, of all pipelines together."),
            "store": self._requests_of("store", "Requests to stores by kind, of all pipelines together."),
        }
        self._counted: dict[tuple[int, str, str], int] = {}
        self._paused = Gauge(
            "frazil_paused", "1 while the pipeline waits because somebody has paused it.", _LABELS, registry=self._registry
        )
        self._pending = Gauge(
            "frazil_pending_rows", "Rows seen but not committed yet; NaN when unknown.", _LABELS, registry=self._registry
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, (*_LABELS, *labels), registry=self._registry)

    def _requests_of(self, whom: str, text: str) -> Counter:
        return Counter(f"frazil_{whom}_requests", text, ("kind",), registry=self._registry)

    def _table_gauges(self) -> dict[str, Gauge]:
        """A gauge for each name, which several figures may share."""
        return {
            one.name: Gauge(
                f"frazil_table_{one.name}", one.text, (*_LABELS, "kind") if one.kind else _LABELS, registry=self._registry
            )
            for one in {one.name: one for one in _TABLE_GAUGES.values()}.values()
        }

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(_WithoutBirthdays(self._registry))

    def __call__(self, event: Event) -> None:  # noqa: PLR0912 - one for each event
        """Counts one event."""
        with self._lock:
            unfinished = self._unfinished.setdefault(event.pipeline, _Unfinished())
            match event:
                case Started():
                    self._start(event, unfinished)
                case Waiting():
                    rows = event.pending_rows
                    self._pending.labels(event.pipeline, unfinished.table).set(float("nan") if rows is None else rows)
                case Staged():
                    unfinished.staged_rows += event.rows
                    self._pending.labels(event.pipeline, unfinished.table).set(unfinished.staged_rows)
                case Committed():
                    self._commit(event, unfinished)
                case CommitFailed():
                    self._fail(event, unfinished)
                case SourceFailed():
                    self._source_failures.labels(event.pipeline, unfinished.table).inc()
                case Paused() | Resumed():
                    self._paused.labels(event.pipeline, unfinished.table).set(isinstance(event, Paused))
                case Lagged():
                    self._lag(event, unfinished.table)
                case Restarting():
                    self._restarts.labels(event.pipeline, unfinished.table).inc()
                    unfinished.settle()
                case Settled():
                    self._settled.labels(event.pipeline, event.table, event.kind).inc()
                    self._maintenance_seconds.labels(event.pipeline, event.table, event.kind).inc(event.seconds)
                case Maintained():
                    self._maintained.labels(event.pipeline, event.table, event.kind).inc()
                    self._maintenance_seconds.labels(event.pipeline, event.table, event.kind).inc(event.seconds)
                case TableMeasured():
                    self._measure(event)
                case Requested():
                    self._count_requests(event)
                case Published() | SourceNoticed():
                    pass
                case PublishFailed():
                    self._unpublished.labels(event.pipeline, unfinished.table).inc()
                case FencedOut():
                    self._fenced.labels(event.pipeline, unfinished.table).inc()
                    unfinished.settle()
                case Stopped():
                    if event.error is not None and unfinished.failing:
                        self._give_up(event.pipeline, unfinished)
                    unfinished.settle()

    def _lag(self, event: Lagged, table: str) -> None:
        for unit, value in (("rows", event.rows), ("bytes", event.bytes), ("seconds", event.seconds)):
            if value is not None:
                self._lags[unit].labels(event.pipeline, table).set(value)

    def _measure(self, event: TableMeasured) -> None:
        """What is not known now keeps its value."""
        for field, gauge in _TABLE_GAUGES.items():
            value = getattr(event.figures, field)
            if value is not None:
                kind = () if gauge.kind is None else (gauge.kind,)
                self._of_tables[gauge.name].labels(event.pipeline, event.table, *kind).set(value)

    def _count_requests(self, event: Requested) -> None:
        """Pipelines report the same counts from threads of their own: an older report may come later."""
        for whom, counts in (("catalog", event.catalog), ("store", event.store)):
            for kind, count in counts.items():
                key = (event.since_ms, whom, kind)
                more = count - self._counted.get(key, 0)
                if more > 0:
                    self._requests[whom].labels(kind).inc(more)
                    self._counted[key] = count

    def _start(self, event: Started, unfinished: _Unfinished) -> None:
        unfinished.table = event.table
        unfinished.settle()
        labels = (event.pipeline, event.table)
        # A counter that shows 0 from the start lets a rate see the first increase.
        for counter in (self._written, self._batches, self._bytes, self._files, self._failed_rows, self._failed_commits,
                        self._retries, self._filtered, self._dead_lettered, self._deleted,
                        self._superseded, self._fenced):  # fmt: skip
            counter.labels(*labels)
        for histogram in (self._seconds, self._batch_rows):
            histogram.labels(*labels)
        for kind in FAILURE_KINDS:
            self._failures.labels(*labels, kind)
        self._paused.labels(*labels).set(0)

    def _commit(self, event: Committed, unfinished: _Unfinished) -> None:
        labels = (event.pipeline, event.table)
        self._last_commit.labels(*labels).set(event.at_ms / 1000)
        self._pending.labels(*labels).set(0)
        unfinished.settle()
        if event.skipped:
            return
        self._batches.labels(*labels).inc()
        self._written.labels(*labels).inc(event.counts.written)
        self._bytes.labels(*labels).inc(event.bytes)
        self._files.labels(*labels).inc(event.files)
        self._seconds.labels(*labels).observe(event.seconds)
        self._batch_rows.labels(*labels).observe(event.counts.written)
        self._filtered.labels(*labels).inc(event.counts.filtered)
        self._dead_lettered.labels(*labels).inc(event.counts.dead_lettered)
        self._deleted.labels(*labels).inc(event.counts.deleted)
        self._superseded.labels(*labels).inc(event.counts.superseded)
        self._failed_rows.labels(*labels).inc(event.counts.dead_lettered)
        for expectation, rows in event.counts.unmet:
            self._unmet.labels(*labels, expectation).inc(rows)

    def _fail(self, event: CommitFailed, unfinished: _Unfinished) -> None:
        self._failures.labels(event.pipeline, unfinished.table, event.kind).inc()
        if event.will_retry:
            self._retries.labels(event.pipeline, unfinished.table).inc()
            unfinished.failing = True
        else:
            self._give_up(event.pipeline, unfinished)

    def _give_up(self, pipeline: str, unfinished: _Unfinished) -> None:
        self._failed_commits.labels(pipeline, unfinished.table).inc()
        self._failed_rows.labels(pipeline, unfinished.table).inc(unfinished.staged_rows)
        unfinished.settle()
