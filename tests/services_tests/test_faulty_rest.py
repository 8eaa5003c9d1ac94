"""Every fault does to the catalog and tells the client just what its name says."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, RESTError
from pyiceberg.table import Table

from services.faults import (
    APPLIED_FAULTS,
    COMMIT_FAULTS,
    LATE_FAULTS,
    LOAD_FAULTS,
    REFUSED_FAULTS,
    Cut,
    Delivery,
    Fault,
    FromService,
    Status,
    applied_late,
    applied_then,
    applied_then_cut_off,
    cut_off,
    delivered_twice,
    refused,
    slow,
)
from services.faulty_rest import FaultyRest
from services.rest_catalog import RestCatalog

pytestmark = pytest.mark.slow

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
FAILURES = (RESTError, CommitFailedException, requests.RequestException)


@pytest.fixture
def direct(rest_catalog: RestCatalog) -> Catalog:
    """The catalog without the proxy: what it really holds."""
    return load_catalog("direct", type="rest", uri=rest_catalog.uri)


@pytest.fixture
def table(direct: Catalog, faulty_rest: FaultyRest) -> Table:
    """An empty table as a client of the proxy has it, a client that does not try a commit again by itself."""
    direct.create_namespace_if_not_exists("faults")
    name = f"faults.t{uuid4().hex}"
    direct.create_table(name, schema=ROWS.schema, properties={"commit.retry.num-retries": "0"})
    return load_catalog("faulty", type="rest", uri=faulty_rest.uri).load_table(name)


def rows_held(direct: Catalog, table: Table) -> int:
    """The rows by the catalog's metadata: PyIceberg deletes its files after any conflict, also of a commit that was applied."""
    snapshot = direct.load_table(table.name()).current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary["total-records"] or 0)


def append_and_fail(table: Table) -> None:
    with pytest.raises(FAILURES):
        table.append(ROWS)


def statuses(proxy: FaultyRest) -> list[tuple[list[int], int | None]]:
    """What the catalog answered, and what the client was told, of each commit."""
    return [([answer.status for answer in c.from_service], c.to_client) for c in proxy.commits]


def test_without_faults_everything_passes(table: Table, direct: Catalog, faulty_rest: FaultyRest) -> None:
    table.append(ROWS)
    assert rows_held(direct, table) == 3
    assert statuses(faulty_rest) == [([200], 200)]
    assert [exchange.kind for exchange in faulty_rest.log] == ["load", "commit"]
    assert [update["action"] for update in faulty_rest.commits[0].content["updates"]] == ["add-snapshot", "set-snapshot-ref"]


@pytest.mark.parametrize("fault", [f for f in APPLIED_FAULTS if f.answer != FromService()], ids=str)
def test_applied_though_the_client_is_reported_otherwise(
    fault: Fault, table: Table, direct: Catalog, faulty_rest: FaultyRest
) -> None:
    faulty_rest.fault_next(fault)
    append_and_fail(table)
    assert rows_held(direct, table) == 3
    assert faulty_rest.commits[0].applied
    assert faulty_rest.commits[0].fault == fault
    assert faulty_rest.unused == ()


@pytest.mark.parametrize("fault", REFUSED_FAULTS, ids=str)
def test_refused_without_reaching_the_catalog(fault: Fault, table: Table, direct: Catalog, faulty_rest: FaultyRest) -> None:
    faulty_rest.fault_next(fault)
    append_and_fail(table)
    assert rows_held(direct, table) == 0
    assert faulty_rest.commits[0].from_service == ()
    table.append(ROWS)
    assert rows_held(direct, table) == 3


@pytest.mark.parametrize("fault", LATE_FAULTS, ids=str)
def test_applied_after_the_client_was_told_that_it_failed(
    fault: Fault, table: Table, direct: Catalog, faulty_rest: FaultyRest
) -> None:
    faulty_rest.fault_next(fault)
    append_and_fail(table)
    faulty_rest.settle()
    assert rows_held(direct, table) == 3


def test_a_held_commit_waits_for_its_release(table: Table, direct: Catalog, faulty_rest: FaultyRest) -> None:
    faulty_rest.fault_next(applied_late(504))
    append_and_fail(table)
    faulty_rest.settle()
    assert rows_held(direct, table) == 0
    faulty_rest.release()
    assert rows_held(direct, table) == 3
    assert statuses(faulty_rest) == [([200], 504)]


def test_a_held_commit_is_refused_by_the_catalog_when_the_table_has_moved_on(
    table: Table, direct: Catalog, faulty_rest: FaultyRest
) -> None:
    faulty_rest.fault_next(applied_late(504))
    append_and_fail(table)
    direct.load_table(table.name()).append(ROWS)
    faulty_rest.release()
    assert rows_held(direct, table) == 3
    assert statuses(faulty_rest) == [([409], 504)]


def test_a_held_commit_is_never_made_when_the_proxy_ends(table: Table, direct: Catalog, rest_catalog: RestCatalog) -> None:
    proxy = FaultyRest(rest_catalog.uri)
    proxy.fault_next(applied_late(504))
    append_and_fail(load_catalog("faulty", type="rest", uri=proxy.uri).load_table(table.name()))
    proxy.close()
    assert rows_held(direct, table) == 0


@pytest.mark.parametrize(("nth", "status"), [(0, 200), (1, 409)])
def test_the_second_delivery_of_a_commit_is_a_conflict(
    nth: int, status: int, table: Table, direct: Catalog, faulty_rest: FaultyRest
) -> None:
    faulty_rest.fault_next(delivered_twice(nth))
    if status == 200:
        table.append(ROWS)
    else:
        append_and_fail(table)
    assert statuses(faulty_rest) == [([200, 409], status)]
    assert rows_held(direct, table) == 3


def test_a_slow_answer_is_a_whole_answer(table: Table, direct: Catalog, faulty_rest: FaultyRest) -> None:
    faulty_rest.fault_next(slow(0.5))
    before = time.monotonic()
    table.append(ROWS)
    assert time.monotonic() - before >= 0.5
    assert rows_held(direct, table) == 3


def test_another_writer_can_take_its_turn_before_the_answer(table: Table, direct: Catalog, faulty_rest: FaultyRest) -> None:
    faulty_rest.fault_next(applied_then(503, retry_after=0, meanwhile=lambda: direct.load_table(table.name()).append(ROWS)))
    append_and_fail(table)
    assert rows_held(direct, table) == 6


def test_a_script_meets_the_commits_in_order(table: Table, direct: Catalog, faulty_rest: FaultyRest) -> None:
    faulty_rest.script([None, refused(409), applied_then_cut_off()])
    table.append(ROWS)
    append_and_fail(table)
    append_and_fail(table)
    table.refresh().append(ROWS)
    assert statuses(faulty_rest) == [([200], 200), ([], 409), ([200], None), ([200], 200)]
    assert rows_held(direct, table) == 9


def test_commits_of_several_tables_are_met_too(table: Table, direct: Catalog, faulty_rest: FaultyRest) -> None:
    namespace, name = table.name()
    change: dict[str, Any] = {
        "identifier": {"namespace": [namespace], "name": name},
        "requirements": [],
        "updates": [{"action": "set-properties", "updates": {"owner": "someone"}}],
    }
    faulty_rest.fault_next(applied_then(502, html=True))
    answer = requests.post(f"{faulty_rest.uri}/v1/transactions/commit", json={"table-changes": [change]}, timeout=30)
    assert (answer.status_code, answer.headers["Content-Type"]) == (502, "text/html")
    assert direct.load_table(table.name()).properties["owner"] == "someone"


@pytest.mark.parametrize("fault", LOAD_FAULTS, ids=str)
def test_loads_fail_too(fault: Fault, table: Table, faulty_rest: FaultyRest) -> None:
    faulty_rest.fault_next(fault, on="load")
    with pytest.raises(FAILURES):
        table.refresh()
    table.refresh()
    assert [exchange.fault for exchange in faulty_rest.log] == [None, fault, None]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (refused(409), {"message": "injected: Conflict", "type": "CommitFailedException", "code": 409}),
        (
            refused(503, retry_after=1),
            {"message": "injected: Service Unavailable", "type": "ServiceUnavailableException", "code": 503},
        ),
    ],
    ids=str,
)
def test_made_up_errors_have_the_format_of_a_catalog(fault: Fault, error: dict[str, object], faulty_rest: FaultyRest) -> None:
    faulty_rest.fault_next(fault)
    answer = requests.post(f"{faulty_rest.uri}/v1/namespaces/a/tables/b", json={}, timeout=30)
    assert answer.json() == {"error": error}
    assert answer.headers.get("Retry-After") == (None if error["code"] == 409 else "1")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (cut_off(Cut.CLOSED), "without response"),
        (cut_off(Cut.RESET), "reset by peer"),
        (applied_then_cut_off(Cut.TRUNCATED), "IncompleteRead"),
    ],
    ids=str,
)
def test_connections_end_in_three_ways(fault: Fault, message: str, table: Table, faulty_rest: FaultyRest) -> None:
    faulty_rest.fault_next(fault)
    namespace, name = table.name()
    with pytest.raises(requests.RequestException, match=message):
        requests.post(
            f"{faulty_rest.uri}/v1/namespaces/{namespace}/tables/{name}",
            json={"requirements": [], "updates": []},
            headers={"Accept-Encoding": "identity"},
            timeout=30,
        )


def test_an_unreachable_catalog_is_a_bad_gateway() -> None:
    proxy = FaultyRest("http://127.0.0.1:1")
    try:
        with pytest.raises(urllib.error.HTTPError, match="502"):
            urllib.request.urlopen(f"{proxy.uri}/v1/config", timeout=30)
    finally:
        proxy.close()


def test_a_failure_of_the_other_writer_is_not_lost(table: Table, rest_catalog: RestCatalog) -> None:
    proxy = FaultyRest(rest_catalog.uri)
    proxy.fault_next(applied_then(500, meanwhile=_raise(ArithmeticError("the other writer failed"))))
    append_and_fail(load_catalog("faulty", type="rest", uri=proxy.uri).load_table(table.name()))
    with pytest.raises(ArithmeticError, match="the other writer failed"):
        proxy.close()


def test_the_proxy_leaves_no_thread_behind(rest_catalog: RestCatalog) -> None:
    before = set(threading.enumerate())
    proxy = FaultyRest(rest_catalog.uri)
    with requests.Session() as kept_open:
        assert kept_open.get(f"{proxy.uri}/v1/config", timeout=30).ok
        proxy.close()
        left = set(threading.enumerate()) - before
        for thread in left:
            thread.join(10)
        assert not any(thread.is_alive() for thread in left)


def test_faults_have_names_of_their_own() -> None:
    assert len({fault.name for fault in COMMIT_FAULTS}) == len(COMMIT_FAULTS)


@pytest.mark.parametrize("answer", [FromService(), Cut.TRUNCATED], ids=str)
def test_a_fault_cannot_pass_on_an_answer_that_was_never_given(answer: FromService | Status | Cut) -> None:
    with pytest.raises(ValueError, match="no such answer"):
        Fault("impossible", Delivery.NEVER, answer)


def _raise(failure: Exception) -> Callable[[], None]:
    def call() -> None:
        raise failure

    return call
