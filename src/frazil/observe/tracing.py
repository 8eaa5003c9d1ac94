"""Traces of batches by OpenTelemetry, made from the engine's events: a batch, with its files, its commit and what followed it.

Where traces go is said by OpenTelemetry's own variables, such as ``OTEL_EXPORTER_OTLP_ENDPOINT``, as for every other program.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.errors import EnvironmentFault
from frazil.model.events import CommitFailed, Committed, Event, Maintained, Settled, Staged, Stopped
from frazil.model.secrets import scrub
from frazil.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

SERVICE = "frazil"
# How long the end of a run waits for a collector that does not answer.
FLUSH_MS = 5_000
_NS = 1_000_000_000


@contextmanager
def exported() -> Iterator[Traces]:
    """A listener whose traces are sent away, until the block ends."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        raise EnvironmentFault.package("Traces (settings.tracing)", missing.name, "tracing") from missing
    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):  # no variable says it
        resource = resource.merge(Resource({"service.name": SERVICE}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield Traces(provider)
    finally:
        provider.force_flush(FLUSH_MS)
        provider.shutdown()


@dataclass(frozen=True)
class _Begun:
    """A batch whose files are written: its span, and when they were."""

    span: Span
    staged_ns: int


class Traces:
    """Listens to events, from any thread, and makes spans of them."""

    def __init__(self, provider: TracerProvider, clock: Callable[[], int] = time.time_ns) -> None:
        self._tracer = provider.get_tracer(SERVICE, __version__)
        self._clock = clock
        self._lock = threading.Lock()
        # By pipeline and table: the files of a batch may be written while the one before it is committed.
        self._begun: dict[tuple[str, str], deque[_Begun]] = defaultdict(deque)
        self._last: dict[tuple[str, str], Span] = {}

    def __call__(self, event: Event) -> None:
        """Takes note of one event."""
        now = self._clock()
        with self._lock:
            match event:
                case Staged():
                    self._stage(event, now)
                case CommitFailed():
                    self._fail(event, now)
                case Committed():
                    self._commit(event, now)
                case Settled() | Maintained():
                    self._maintain(event, now)
                case Stopped():
                    self._stop(event, now)

    def _stage(self, event: Staged, now: int) -> None:
        began = now - int(event.seconds * _NS)
        whole = self._tracer.start_span("batch", start_time=began, attributes=_names(event.pipeline, event.table))
        counts = {"frazil.rows": event.rows, "frazil.files": event.files, "frazil.bytes": event.bytes}
        self._child(whole, "stage", began, counts).end(now)
        self._begun[event.pipeline, event.table].append(_Begun(whole, now))

    def _commit(self, event: Committed, now: int) -> None:
        begun = self._begun[event.pipeline, event.table]
        if not begun:
            return  # a batch that the table had already
        one = begun.popleft()
        counts = {f"frazil.rows_{name}": getattr(event.counts, name) for name in ("read", "written", "dead_lettered", "filtered")}
        self._child(one.span, "commit", one.staged_ns, {"frazil.attempts": event.attempts}).end(now)
        one.span.set_attributes({"frazil.batch": event.batch, "frazil.snapshot": str(event.snapshot), **counts})
        one.span.end(now)
        self._last[event.pipeline, event.table] = one.span

    def _fail(self, event: CommitFailed, now: int) -> None:
        said: dict[str, Any] = {"frazil.kind": event.kind, "frazil.attempt": event.attempt}
        said["exception.message"] = scrub(event.message)
        for (pipeline, _), begun in self._begun.items():
            if pipeline == event.pipeline and begun:
                begun[0].span.add_event("commit failed", said, now)

    def _maintain(self, event: Settled | Maintained, now: int) -> None:
        """Below the batch that it followed, whoever waits for it."""
        began = now - int(event.seconds * _NS)
        said = _names(event.pipeline, event.table) | {"frazil.kind": event.kind}
        last = self._last.get((event.pipeline, event.table))
        span = self._tracer.start_span("maintain", start_time=began, attributes=said) if last is None else None
        (span or self._child(last, "maintain", began, said)).end(now)  # type: ignore[arg-type]

    def _stop(self, event: Stopped, now: int) -> None:
        from opentelemetry.trace import Status, StatusCode

        for (pipeline, _), begun in self._begun.items():
            while pipeline == event.pipeline and begun:
                span = begun.popleft().span
                span.set_status(Status(StatusCode.ERROR, scrub(event.error or "the pipeline was stopped before the commit")))
                span.end(now)

    def _child(self, parent: Span, name: str, began: int, attributes: dict[str, Any]) -> Span:
        from opentelemetry.trace import set_span_in_context

        return self._tracer.start_span(name, set_span_in_context(parent), start_time=began, attributes=attributes)


def _names(pipeline: str, table: str) -> dict[str, Any]:
    return {"frazil.pipeline": pipeline, "frazil.table": table}
