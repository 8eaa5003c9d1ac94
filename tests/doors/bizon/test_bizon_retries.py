"""What fails for a while is tried again as the file says, also before and between commits; the rest is reported in its place."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from bizon_cases import Lake, run
from pyiceberg.catalog.sql import SqlCatalog

from frazil.doors.bizon import load_text
from frazil.errors import FrazilError, Retryable
from frazil.model.events import CommitFailed, Committed, Event
from frazil.model.pipeline import ProjectSpec
from frazil.runtime.runner import run_project
from frazil.write.stager import Stager
from services.faults import refused
from services.faulty_rest import FaultyRest
from services.kafka import Kafka
from services.processes import LOCALHOST, free_port
from services.rest_catalog import RestCatalog

SOON = "max_retry_attempts: 2\nretry_backoff_base: 0.001"
SCHEMA = "iceberg_schema: [{name: id, type: long}, {name: v, type: string}]"


def behind(uri: str, rest_catalog: RestCatalog, bizon: Lake, topic: str, config: str = SOON) -> ProjectSpec:
    """A file whose catalog is asked at an address, by a client that asks twice at most."""
    sql = f'{{type: sql, uri: "sqlite:///{bizon.folder}/catalog.db", warehouse: "{bizon.folder}/warehouse"}}'
    rest = f'{{type: rest, uri: "{uri}", warehouse: "{rest_catalog.warehouse}", rest.client.max-retries: 1}}'
    text = bizon.text(config, events=topic).replace(sql, rest)
    return load_text(text.replace("iceberg_namespace: ns", f"iceberg_namespace: {bizon.catalog}"), "b.yaml", {})


@contextmanager
def reached_at(port: int, catalog: RestCatalog) -> Iterator[None]:
    """The catalog under another port."""
    there = catalog.uri.rpartition("/")[2].partition(":")
    with closing(socket.create_server((LOCALHOST, port))) as server:

        def pass_on(one: socket.socket, other: socket.socket) -> None:
            with one, other:
                while content := one.recv(65536):
                    other.sendall(content)

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return  # closed
                backend = socket.create_connection((there[0], int(there[2])))
                for ends in ((client, backend.dup()), (backend, client.dup())):
                    threading.Thread(target=pass_on, args=ends, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_a_catalog_that_comes_up_late_is_waited_for(bizon: Lake, rest_catalog: RestCatalog) -> None:
    topic, port = bizon.kafka.create_topic(), free_port()
    bizon.send(topic, [{"id": 1}])
    project = behind(f"http://{LOCALHOST}:{port}", rest_catalog, bizon, topic, SOON.replace("0.001", "0.2"))
    with pytest.raises(Retryable) as caught:
        run(project)
    assert caught.value.code == "connection-refused"
    assert caught.value.location is not None
    assert "type: rest" in caught.value.location.text, "reported at the catalog's place in the file"
    events: list[Event] = []
    late = reached_at(port, rest_catalog)

    def listen(event: Event) -> None:
        events.append(event)
        if len(events) == 1:
            late.__enter__()  # type: ignore[no-untyped-call]

    run_project(project, once=True, listeners=[listen], stop=threading.Event())
    late.__exit__(None, None, None)
    first = events[0]
    assert isinstance(first, CommitFailed)
    assert (first.kind, first.attempt, first.will_retry) == ("unreachable", 1, True)
    assert [event.counts.written for event in events if isinstance(event, Committed)] == [1]


@pytest.mark.parametrize("faults", [4, 6])
def test_a_table_that_cannot_be_opened_is_asked_for_as_often_as_the_file_says(
    bizon: Lake, rest_catalog: RestCatalog, faulty_rest: FaultyRest, faults: int
) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1}])
    project = behind(faulty_rest.uri, rest_catalog, bizon, topic)
    faulty_rest.script([refused(500)] * faults, on="load")
    if faults == 6:
        with pytest.raises(Retryable):
            run(project)
        assert not faulty_rest.commits, "nothing was done"
    result = run(project)
    assert [event.will_retry for event in result if isinstance(event, CommitFailed)] == [True] * (2 if faults == 4 else 0)
    assert [event.counts.written for event in result if isinstance(event, Committed)] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("faults", [2, 3])
def test_files_that_the_store_did_not_take_are_written_again_and_committed_once(
    bizon: Lake, monkeypatch: pytest.MonkeyPatch, faults: int
) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1, "v": "a"}, {"id": 1, "v": "b"}, {"id": 2, "v": "c"}])
    config = f"{SOON}\ndestination_table_config:\n  - {{destination_id: t, upsert: {{enabled: true, join_cols: [id]}}, {SCHEMA}}}"
    stage, left = Stager.staging_of, [faults]

    def staged(*arguments: Any) -> Any:
        done = stage(*arguments)
        if left[0]:
            left[0] -= 1
            raise Retryable("batch-not-written", "The store went away when the files were there.")
        return done

    monkeypatch.setattr(Stager, "staging_of", staged)
    if faults == 3:
        with pytest.raises(Retryable) as caught:
            bizon.run(bizon.text(config, t=topic))
        assert caught.value.code == "batch-not-written"
        assert bizon.table("t").count() == 0
    result = bizon.run(bizon.text(config, t=topic))
    assert [event.attempt for event in result if isinstance(event, CommitFailed)] == ([1, 2] if faults == 2 else [])
    assert bizon.rows("t", "id", "v") == [(1, "b"), (2, "c")]
    assert bizon.data_snapshots("t") == 1


def test_what_waiting_does_not_help_is_not_tried_again(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": "one"}])
    events: list[Event] = []
    project = load_text(bizon.text(f"{SOON}\ndestination_table_config: [{{destination_id: t, {SCHEMA}}}]", t=topic), "b.yaml", {})
    with pytest.raises(FrazilError) as caught:
        run_project(project, once=True, listeners=[events.append], stop=threading.Event())
    assert caught.value.code == "value-not-convertible"
    assert not [event for event in events if isinstance(event, CommitFailed)]


def failed(text: str) -> FrazilError:
    with pytest.raises(FrazilError) as caught:
        run(load_text(text, "b.yaml", {}))
    return caught.value


def told_at(error: FrazilError, text: str) -> str:
    """The line of the file that an error is reported at."""
    assert error.location is not None
    return text.splitlines()[error.location.line - 1].strip()


def test_faults_of_the_cluster_are_reported_at_the_source_by_the_names_of_its_keys(bizon: Lake, kafka: Kafka) -> None:
    topic = bizon.kafka.create_topic()
    login = """\
authentication: {params: {username: reader, password: not the one}}
consumer_config: {security.protocol: SASL_PLAINTEXT, sasl.mechanism: scram-sha-256}
"""
    text = bizon.text("max_retry_attempts: 0", login, t=topic).replace(kafka.address(), kafka.address("SASL"))
    refused_login = failed(text)
    assert refused_login.code == "source-not-readable"
    assert told_at(refused_login, text).startswith("authentication:")
    assert "sasl.mechanism in consumer_config" in refused_login.fix
    assert "security." not in refused_login.fix

    text = bizon.text("max_retry_attempts: 0", "consumer_timeout: 1", t=topic)
    text = text.replace(kafka.address(), f"{LOCALHOST}:{free_port()}")
    nobody = failed(text)
    assert nobody.code == "source-unreachable"
    assert told_at(nobody, text).startswith("bootstrap_servers:")
    assert "security.protocol in consumer_config" in nobody.fix

    text = bizon.text("max_retry_attempts: 0", t="there-is-no-such-topic")
    missing = failed(text)
    assert missing.code == "source-missing"
    assert told_at(missing, text).startswith("topics:")


def test_an_order_that_the_table_does_not_have_is_reported_by_the_key_of_the_file(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1}])
    config = f"destination_table_config:\n  - {{destination_id: t, MORE {SCHEMA}}}"
    bizon.run(bizon.text(config.replace("MORE", ""), t=topic))
    text = bizon.text(config.replace("MORE", "clustering_keys: [id],"), t=topic)
    error = failed(text)
    assert (error.code, "Leave clustering_keys out" in error.fix) == ("order-differs", True)
    assert "destination_id: t" in told_at(error, text)


@pytest.mark.slow
def test_a_catalog_with_a_hyphen_in_its_name_is_the_one_that_py_iceberg_knows(bizon: Lake, tmp_path: Path) -> None:
    topic = bizon.kafka.create_topic()
    bizon.catalog = "my-catalog"
    bizon.send(topic, [{"id": 1, "v": "a"}, {"id": 1, "v": "b"}, {"id": "x"}])
    upsert = "upsert: {enabled: true, join_cols: [id]}"
    bizon.run(
        bizon.text(f"on_error: dead_letter\ndestination_table_config: [{{destination_id: t, {upsert}, {SCHEMA}}}]", t=topic)
    )
    catalog = SqlCatalog("my-catalog", uri=f"sqlite:///{tmp_path}/catalog.db")
    assert catalog.load_table("ns.t").scan().to_arrow().to_pylist() == [{"id": 1, "v": "b"}]
    assert catalog.load_table("ns.t__dead_letters").scan().count() == 1
