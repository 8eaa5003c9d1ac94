"""External tables of BigQuery follow the sink's table. The server is a small double: BigQuery itself cannot be had here."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from frazil.errors import ConfigError
from frazil.iceberg.biglake import BigLakeTable
from frazil.model.biglake import BigLakeSpec
from frazil.model.events import Committed, Event, Published, PublishFailed
from frazil.model.settings import RetrySettings, Settings
from frazil.runtime.runner import SharedSpark, run_pipeline
from helpers.lakes import Lake
from services.between import Asked, Made, Outcome, Trickled, Truncated, between, passed_on
from services.bigquery import BigQuery
from services.faults import Cut

QUICK = Settings(retry=RetrySettings(max_retries=2, initial_backoff_ms=1, max_backoff_ms=5))


def spec_of(bigquery: BigQuery, **more: Any) -> dict[str, Any]:
    return {"project_id": "proj", "dataset_id": "lake", "endpoint": bigquery.address, "no_auth": True, **more}


def run(lake: Lake, bigquery: BigQuery, rows: int, settings: Settings = QUICK, **more: Any) -> list[Event]:
    events: list[Event] = []
    source = {"connector": "generator", "rows": rows, "rows_per_second": 1_000_000}
    pipeline = lake.pipeline(source, "db.orders", biglake=spec_of(bigquery, **more), batch_size=50)
    run_pipeline(pipeline, settings, SharedSpark([pipeline], settings), events.append, threading.Event(), once=True)
    return events


def shown_rows(bigquery: BigQuery) -> int:
    """The rows of the snapshot that the external table shows."""
    metadata = json.loads(Path(urlsplit(bigquery.metadata_of("lake.orders")).path).read_text())
    head = next(s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"])
    return int(head["summary"]["total-records"])


def test_the_external_table_is_made_with_its_dataset_and_shows_each_commit_at_once(lake: Lake, bigquery: BigQuery) -> None:
    shown: list[tuple[int, int]] = []
    source = {"connector": "generator", "rows": 150, "rows_per_second": 1_000_000}
    pipeline = lake.pipeline(source, "db.orders", biglake=spec_of(bigquery, dataset_location="EU"), batch_size=50)
    written = 0

    def listen(event: Event) -> None:
        nonlocal written
        if isinstance(event, Committed):
            written += event.counts.written
        elif isinstance(event, Published):
            shown.append((written, shown_rows(bigquery)))

    run_pipeline(pipeline, QUICK, SharedSpark([pipeline], QUICK), listen, threading.Event(), once=True)
    assert shown == [(0, 0), (50, 50), (100, 100), (150, 150)]
    assert bigquery.datasets["lake"]["location"] == "EU"
    made = next(body for method, path, body in bigquery.calls if method == "POST" and path.endswith("/tables"))
    assert made["externalDataConfiguration"] | {"sourceUris": []} == {
        "sourceFormat": "ICEBERG", "sourceUris": [], "connectionId": "proj.us.biglake-connection", "autodetect": True,
    }  # fmt: skip
    method, path, body = bigquery.calls[-1]
    assert (method, path) == ("PATCH", "/bigquery/v2/projects/proj/datasets/lake/tables/orders?autodetect_schema=true")
    assert body["schema"] is None
    # Columns, files and snapshots are the table's own: what is shown is the metadata that the catalog has.
    assert bigquery.metadata_of("lake.orders").endswith(".metadata.json")


def test_a_refusal_is_reported_and_the_rows_are_there_and_the_next_start_catches_up(lake: Lake, bigquery: BigQuery) -> None:
    bigquery.failures = [503] * 3 + [403] * 5
    result = run(lake, bigquery, 50)
    failed = [event for event in result if isinstance(event, PublishFailed)]
    assert [event.will_retry for event in failed] == [True, True, False, False]
    assert "403" in failed[-1].message
    assert lake.count("db.orders") == 50
    assert "lake.orders" not in bigquery.tables
    bigquery.failures = []
    assert [event for event in run(lake, bigquery, 50) if isinstance(event, Published)]
    assert shown_rows(bigquery) == 50


# What a service may do to a request: before it is done, and after.
Fault = Callable[[str, Asked], Outcome]
PATIENT = Settings(retry=RetrySettings(max_retries=30, initial_backoff_ms=1, max_backoff_ms=5))
FAULTS: dict[str, Fault] = {
    **{str(status): lambda _, __, status=status: Made(status) for status in (408, 429, 500, 502, 503, 504)},
    "refused": lambda *_: Cut.RESET,
    "answer lost": lambda service, asked: (passed_on(service, asked), Cut.RESET)[1],
    "answer cut off": lambda service, asked: Truncated(passed_on(service, asked)),
    "answer too slow": lambda service, asked: Trickled(passed_on(service, asked), 8),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_becomes_of_half_of_the_requests_the_newest_rows_are_shown(lake: Lake, bigquery: BigQuery, fault: str) -> None:
    chance = random.Random(7)

    def change(asked: Asked) -> Asked | Outcome:
        return asked if chance.random() < 0.5 else FAULTS[fault](bigquery.address, asked)

    with between(bigquery.address, change) as address:
        events = run(lake, bigquery, 150, PATIENT, endpoint=address, timeout_secs=0.5)
    assert [event.will_retry for event in events if isinstance(event, PublishFailed)].count(True) >= 3
    assert [event for event in events if isinstance(event, PublishFailed) and not event.will_retry] == []
    assert (lake.count("db.orders"), shown_rows(bigquery)) == (150, 150)


def test_rights_that_are_lost_for_a_while_cost_nothing_but_the_view(lake: Lake, bigquery: BigQuery) -> None:
    turns = itertools.count()

    def change(asked: Asked) -> Asked | Outcome:
        refused = json.dumps({"error": {"message": "Access Denied"}}).encode()
        return Made(403, refused) if 4 <= next(turns) < 6 else asked

    with between(bigquery.address, change) as address:
        events = run(lake, bigquery, 250, endpoint=address)
    told = [type(event) for event in events if isinstance(event, Published | PublishFailed)]
    assert PublishFailed in told
    assert told[-1] is Published
    assert (lake.count("db.orders"), shown_rows(bigquery)) == (250, 250)


def test_a_service_that_does_not_answer_is_asked_again(bigquery: BigQuery) -> None:
    events: list[Event] = []
    table = BigLakeTable(
        BigLakeSpec(**spec_of(bigquery)), "t", pipeline="p", retry=QUICK.retry, listen=events.append, sleep=lambda _: None
    )
    bigquery.failures = [500, 429]
    table.show("gs://bucket/t/metadata/1.json")
    assert [type(event) for event in events] == [PublishFailed, PublishFailed, Published]
    calls = len(bigquery.calls)
    table.show("gs://bucket/t/metadata/1.json")
    assert len(bigquery.calls) == calls, "nothing new, nothing said"


def test_a_key_that_is_none_is_reported_without_showing_it(bigquery: BigQuery) -> None:
    spec = BigLakeSpec(project_id="p", dataset_id="d", service_account_key="not json at all")
    with pytest.raises(ConfigError) as caught:
        BigLakeTable(spec, "t", pipeline="p", retry=QUICK.retry, listen=lambda _: None, sleep=lambda _: None)
    assert caught.value.code == "biglake-credentials"
    assert "not json" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("us.c", "proj.us.c"), ("other.us.c", "other.us.c"), ("projects/o/locations/us/connections/c",) * 2],
)
def test_a_connection_has_its_project(given: str, meant: str) -> None:
    assert BigLakeSpec(project_id="proj", dataset_id="d", connection_id=given).connection == meant


def test_rows_of_a_file_are_sorted(lake: Lake, spark: SparkSession) -> None:
    frame = spark.sql("select id, cast(hash(id) as int) as h from range(100)").repartition(1)
    lake.sink(frame, sort_by=["h"]).write()
    (file,) = lake.files()
    found = [row.h for row in spark.read.parquet(str(file)).collect()]
    assert found == sorted(found)
    assert [field["transform"] for field in lake.metadata()["sort-orders"][-1]["fields"]] == ["identity"]
