"""Traces: what an OpenTelemetry collector gets of batches, sent by the real SDK to a collector of this test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from frazil.model.commit import RowCounts
from frazil.model.events import CommitFailed, Committed, Event, Maintained, Staged, Stopped
from frazil.observe.tracing import Traces, exported

trace_service_pb2 = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")


class Collector:
    """Takes spans as a collector does, by OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.service = ""
        spans = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = trace_service_pb2.ExportTraceServiceRequest()
                request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                for one in request.resource_spans:
                    names = {pair.key: pair.value.string_value for pair in one.resource.attributes}
                    spans.service = names["service.name"]
                    spans.spans += [span for scope in one.scope_spans for span in scope.spans]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, name: str) -> list[Any]:
        """The spans of this name."""
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that traces are sent to."""
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{made.server.server_port}")
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    yield made
    made.server.shutdown()
    made.server.server_close()


def staged(table: str = "db.t") -> Staged:
    return Staged("p", 10, 1, 100, 0.5, table)


def committed(batch: int, table: str = "db.t") -> Committed:
    return Committed("p", table, batch, 70 + batch, RowCounts(12, 10, dead_lettered=2), 1, 100, 0.7, 2, 0)


def attributes(span: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}


def test_a_batch_is_a_trace_with_its_files_its_commit_and_what_followed(collector: Collector) -> None:
    with exported() as traces:
        for event in (staged(), CommitFailed("p", "conflict", "lost", 1, will_retry=True), committed(1)):
            traces(event)
        traces(Maintained("p", "db.t", "merge_files", 3, 10, 0.2))
    (batch,), (stage,), (commit,), (maintain,) = (collector.of(name) for name in ("batch", "stage", "commit", "maintain"))
    assert {one.parent_span_id for one in (stage, commit, maintain)} == {batch.span_id}
    assert {one.trace_id for one in (stage, commit, maintain)} == {batch.trace_id}
    assert batch.start_time_unix_nano == stage.start_time_unix_nano
    assert stage.end_time_unix_nano - stage.start_time_unix_nano == 500_000_000
    assert batch.end_time_unix_nano == commit.end_time_unix_nano >= commit.start_time_unix_nano == stage.end_time_unix_nano
    found = attributes(batch)
    assert (found["frazil.pipeline"], found["frazil.table"], found["frazil.batch"]) == ("p", "db.t", 1)
    assert (found["frazil.snapshot"], found["frazil.rows_written"], found["frazil.rows_dead_lettered"]) == ("71", 10, 2)
    assert [event.name for event in batch.events] == ["commit failed"]
    assert attributes(maintain)["frazil.kind"] == "merge_files"
    assert collector.service == "frazil"


def test_batches_that_are_written_ahead_and_tables_side_by_side_are_kept_apart(collector: Collector) -> None:
    events: list[Event] = [staged(), staged(), staged("db.u"), committed(7, "db.u"), committed(1), committed(2)]
    with exported() as traces:
        for event in events:
            traces(event)
    found = [(attributes(span)["frazil.table"], attributes(span)["frazil.batch"]) for span in collector.of("batch")]
    assert found == [("db.u", 7), ("db.t", 1), ("db.t", 2)]
    assert len({span.trace_id for span in collector.of("batch")}) == 3


def test_a_batch_that_is_never_committed_is_a_failed_one(collector: Collector) -> None:
    with exported() as traces:
        traces(staged())
        traces(Stopped("p", 0, 0, "no room, postgresql://u:secret@h/d"))
    (batch,) = collector.of("batch")
    assert batch.status.code == 2
    assert "no room" in batch.status.message
    assert "secret" not in batch.status.message


def test_a_batch_that_the_table_had_already_is_none(collector: Collector) -> None:
    with exported() as traces:
        traces(committed(1))
    assert collector.spans == []


def test_a_collector_that_is_away_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with exported() as traces:
        assert isinstance(traces, Traces)
        traces(staged())
        traces(committed(1))
