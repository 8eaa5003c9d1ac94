"""OpenLineage events of runs: which tables are made of what, by which pipeline, and how much was written.

Where events go is said by OpenLineage's own settings: ``OPENLINEAGE_URL``, or a file ``openlineage.yml``. Spark's own listener of
OpenLineage sees the jobs of a batch, and not that it was committed to a table.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from frazil.errors import EnvironmentFault
from frazil.model.events import Committed, Event, Started, Stopped
from frazil.model.pipeline import PipelineSpec
from frazil.model.secrets import mask_uri, scrub
from frazil.model.source import FilesSource, KafkaSource, PostgresCdcSource, SourceSpec, TableSource
from frazil.version import __version__

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import OutputDataset, RunEvent

PRODUCER = f"urn:frazil:{__version__}"

# What a run has written so far is reported so often at most; a stream may commit ten times a second.
RUNNING_SECONDS = 30.0
# Events that wait for a slow server, and how long the end of a run waits for it.
MOST_WAITING, CLOSE_SECONDS = 1_000, 5.0

_log = logging.getLogger("frazil")


@dataclass(frozen=True)
class Named:
    """A dataset by the naming of OpenLineage: where it is, and what it is called there."""

    namespace: str
    name: str


@dataclass(frozen=True)
class _Written:
    """What a run has written to a table so far, and the last snapshot that it made."""

    rows: int = 0
    bytes: int = 0
    snapshot: int = 0


@dataclass
class _Run:
    """A run of a pipeline: its id, what it has written to each table, and when that was reported last."""

    id: str
    written: dict[str, _Written] = field(default_factory=dict)
    reported: float | None = None


@contextmanager
def reported(pipelines: Iterable[PipelineSpec], namespace: str) -> Iterator[Lineage]:
    """A listener that reports runs, until the block ends. The pipelines do not wait for the server."""
    try:
        from openlineage.client import OpenLineageClient
    except ImportError as missing:
        raise EnvironmentFault.package("Lineage (settings.lineage)", missing.name, "lineage") from missing
    sender = _Sender(OpenLineageClient())
    try:
        yield Lineage(sender.put, pipelines, namespace)
    finally:
        sender.close()


class _Sender:
    """Sends events in a thread of its own. What cannot be sent is logged, and stops nothing."""

    def __init__(self, client: OpenLineageClient) -> None:
        self._client = client
        self._waiting: queue.Queue[RunEvent | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        self._thread.start()

    def put(self, event: RunEvent) -> None:
        """Sends an event soon."""
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            _log.warning("%s: %s is not reported as lineage: the server is too slow", event.job.name, event.eventType)

    def close(self) -> None:
        """Sends what waits, as far as the server takes it in time."""
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            _log.warning("Not all that is to be reported as lineage was sent: the server did not answer in time")

    def _send_all(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._client.emit(event)
            except Exception as failed:  # noqa: BLE001 - whatever is wrong with it, the rows are in the table
                _log.warning("%s: the run could not be reported as lineage: %s", event.job.name, scrub(str(failed)))


class Lineage:
    """Listens to events, from any thread, and reports runs: when they begin and end, and now and then what they have written."""

    def __init__(
        self,
        send: Callable[[RunEvent], None],
        pipelines: Iterable[PipelineSpec],
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._pipelines = {pipeline.name: pipeline for pipeline in pipelines}
        self._namespace = namespace
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def __call__(self, event: Event) -> None:
        """Reports one event."""
        with self._lock:
            match event:
                case Started() if event.pipeline not in self._runs:
                    self._runs[event.pipeline] = _Run(str(uuid.uuid4()))
                    self._report(event.pipeline, "START")
                case Committed(skipped=False) if event.pipeline in self._runs:
                    self._commit(event, self._runs[event.pipeline])
                case Stopped() if event.pipeline in self._runs:
                    self._report(event.pipeline, "COMPLETE" if event.error is None else "FAIL", event.error)
                    del self._runs[event.pipeline]

    def _commit(self, event: Committed, run: _Run) -> None:
        before = run.written.get(event.table, _Written())
        rows, size = before.rows + event.counts.written, before.bytes + event.bytes
        run.written[event.table] = _Written(rows, size, event.snapshot)
        now = self._clock()
        if run.reported is None or now - run.reported >= RUNNING_SECONDS:
            run.reported = now
            self._report(event.pipeline, "RUNNING")

    def _report(self, pipeline: str, state: str, error: str | None = None) -> None:
        from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import error_message_run, job_type_job, processing_engine_run

        run, spec = self._runs[pipeline], self._pipelines[pipeline]
        facets: dict[str, Any] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(version=__version__, name="frazil")
        }
        if error is not None:
            said = error_message_run.ErrorMessageRunFacet(message=scrub(error), programmingLanguage="python")
            facets["errorMessage"] = said
        kind = job_type_job.JobTypeJobFacet(processingType="STREAMING", integration="FRAZIL", jobType="PIPELINE")
        self._send(
            RunEvent(
                eventType=RunState[state],
                eventTime=datetime.now(UTC).isoformat(),
                run=Run(runId=run.id, facets=facets),
                job=Job(namespace=self._namespace, name=pipeline, facets={"jobType": kind}),
                inputs=[InputDataset(namespace=one.namespace, name=one.name) for one in inputs_of(spec.source)],
                outputs=_outputs(spec, run),
                producer=PRODUCER,
            )
        )


def _outputs(pipeline: PipelineSpec, run: _Run) -> list[OutputDataset]:
    """The tables that were written to, or that of the sink as long as there is none."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset, output_statistics_output_dataset

    where = output_namespace(pipeline)
    if not run.written:
        return [OutputDataset(namespace=where, name=pipeline.sink.full_name)]
    version = dataset_version_dataset.DatasetVersionDatasetFacet
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    return [
        OutputDataset(
            namespace=where,
            name=table,
            facets={"version": version(datasetVersion=str(one.snapshot))},
            outputFacets={"outputStatistics": statistics(rowCount=one.rows, size=one.bytes)},
        )
        for table, one in run.written.items()
    ]


def inputs_of(source: SourceSpec) -> list[Named]:
    """What a source reads, as far as its settings name it."""
    match source:
        case KafkaSource():
            server = source.bootstrap_servers.partition(",")[0].strip()
            return [Named(f"kafka://{server}", topic) for topic in source.topics]
        case PostgresCdcSource():
            where = f"postgres://{source.host}:{source.port}"
            followed = [f"{source.database}.{stream.full_name}" for stream in source.streams]
            return [Named(where, name) for name in followed or [source.database]]
        case FilesSource():
            scheme, found, path = source.path.partition("://")
            bucket, _, rest = path.partition("/")
            return [Named(f"{scheme}://{bucket}", rest or "/")] if found and bucket else [Named("file", source.path)]
        case TableSource():
            return [Named("spark", source.table)]
        case _:
            return []


def output_namespace(pipeline: PipelineSpec) -> str:
    """Where the sink's tables are: the address of their catalog."""
    return mask_uri(pipeline.sink.catalog.address)
