"""OpenLineage: what a server of it gets of runs, sent by the real client to a server of this test."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from frazil.model.commit import RowCounts
from frazil.model.events import Committed, Started, Stopped
from frazil.model.pipeline import PipelineSpec
from frazil.model.source import FilesSource, GeneratorSource, KafkaSource, PostgresCdcSource, SourceSpec, TableSource
from frazil.observe.lineage import Named, inputs_of, reported

pytest.importorskip("openlineage.client")

KAFKA = {"connector": "kafka", "bootstrap_servers": "a:9092,b:9092", "topics": ["orders"]}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The events that a server gets."""
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(400 if got[-1]["job"]["namespace"] == "refused" else 201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{made.server_port}")
    yield got
    made.shutdown()
    made.server_close()


def pipeline() -> PipelineSpec:
    catalog = {"type": "sql", "sql": {"uri": "postgresql://u:secret@db/c", "warehouse": "s3://bucket/lake"}}
    sink = {"catalog": catalog, "namespace": "shop", "table": "orders"}
    return PipelineSpec.model_validate({"name": "p", "source_name": "s", "source": KAFKA, "sink_name": "l", "sink": sink})


def committed(rows: int, snapshot: int) -> Committed:
    return Committed("p", "shop.orders", 1, snapshot, RowCounts(rows, rows), 1, 10 * rows, 0.1, 1, 0)


def test_a_run_is_reported_with_what_it_read_and_wrote(server: list[dict[str, Any]]) -> None:
    with reported([pipeline()], "prod") as lineage:
        lineage(Started("p", "shop.orders", 1, None, continuous=True))
        lineage(committed(3, 77))
        lineage(committed(4, 78))
        lineage(Started("p", "shop.orders", 2, None, continuous=True))
        lineage(Stopped("p", 2, 7))
    assert [event["eventType"] for event in server] == ["START", "RUNNING", "COMPLETE"], "not one for each commit"
    assert len({event["run"]["runId"] for event in server}) == 1, "a restart within a run is no run of its own"
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in server} == {("prod", "p")}
    assert {(one["namespace"], one["name"]) for event in server for one in event["inputs"]} == {("kafka://a:9092", "orders")}
    (output,) = server[-1]["outputs"]
    assert output["name"] == "shop.orders"
    assert output["facets"]["version"]["datasetVersion"] == "78"
    statistics = output["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (7, 70)
    assert "secret" not in json.dumps(server)


def test_a_run_that_fails_says_why(server: list[dict[str, Any]]) -> None:
    with reported([pipeline()], "prod") as lineage:
        lineage(Started("p", "shop.orders", 1, None, continuous=True))
        lineage(Stopped("p", 0, 0, "table gone: postgresql://u:secret@db/c"))
    assert server[-1]["eventType"] == "FAIL"
    assert server[-1]["run"]["facets"]["errorMessage"]["message"].startswith("table gone")
    assert "secret" not in json.dumps(server)


def test_a_server_that_is_away_stops_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    with reported([pipeline()], "prod") as lineage:
        lineage(Started("p", "shop.orders", 1, None, continuous=True))
    assert "the server did not answer in time" in caplog.text


def test_an_event_that_is_refused_stops_nothing(server: list[dict[str, Any]], caplog: pytest.LogCaptureFixture) -> None:
    with reported([pipeline()], "refused") as lineage:
        lineage(Started("p", "shop.orders", 1, None, continuous=True))
        lineage(Stopped("p", 0, 0))
    assert len(server) == 2
    assert "p: the run could not be reported as lineage" in caplog.text


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (
            KafkaSource.model_validate(KAFKA | {"topics": ["a", "b"]}),
            [Named("kafka://a:9092", "a"), Named("kafka://a:9092", "b")],
        ),
        (
            PostgresCdcSource.model_validate({"host": "h", "database": "d", "user": "u", "streams": [{"name": "t"}]}),
            [Named("postgres://h:5432", "d.public.t")],
        ),
        (FilesSource(path="s3://bucket/in/box", format="json"), [Named("s3://bucket", "in/box")]),
        (FilesSource(path="/data/in", format="json"), [Named("file", "/data/in")]),
        (TableSource(table="lake.shop.t"), [Named("spark", "lake.shop.t")]),
        (GeneratorSource(), []),
    ],
)
def test_inputs_have_the_names_that_others_give_them(source: SourceSpec, named: list[Named]) -> None:
    assert inputs_of(source) == named
