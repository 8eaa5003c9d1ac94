"""What a run asks of its catalog and its store is counted, and the counts are those of the servers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from catalogs.places import keys_of_amazon
from frazil.observe.metrics import Metrics
from frazil.spark.catalogs import catalog_settings
from frazil.spark.requests import requested
from frazil.spark.session import give_components
from helpers.lakes import Lake, commits, fresh_name, run
from services.aws import Aws
from services.between import Asked, Made, between, s3_error
from services.faults import refused
from services.faulty_rest import FaultyRest
from services.processes import wait_until
from services.rest_catalog import RestCatalog
from services.s3proxy import REGION, S3Store

BATCHES, SIZE = 3, 20
SECONDS = 30
UPSERT: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["user_id"], "order_by": ["event_number"]}

TABLE = re.compile(r"/namespaces/[^/]+/tables/[^/]+$")
GLUE = {
    "GetTable": "load",
    "UpdateTable": "commit",
    "CreateTable": "create",
    "GetDatabase": "namespace",
    "CreateDatabase": "namespace",
}
ON_TABLE = {"GET": "load", "POST": "commit", "DELETE": "drop", "HEAD": "exists"}


def about_catalog(asked: Asked) -> str:
    """What a request to a REST catalog is about, as the specification of its paths says."""
    path = urlsplit(asked.target).path
    if TABLE.search(path):
        return ON_TABLE[asked.method]
    if path.endswith("/tables"):
        return "create" if asked.method == "POST" else "list"
    if path.endswith("/metrics"):
        return "report"
    return "config" if path.endswith("/config") else "namespace"


def about_store(asked: Asked) -> str:
    """What a request to S3 is about, as Amazon documents its operations."""
    parts = urlsplit(asked.target)
    query = parse_qs(parts.query, keep_blank_values=True)
    if query.keys() & {"uploads", "uploadId"}:
        return "multipart"
    if "delete" in query:
        return "delete"
    if asked.method == "GET" and "/" not in parts.path.strip("/"):
        return "list"
    return asked.method.lower()


def store_options(endpoint: str, key: str, secret: str) -> dict[str, Any]:
    """How a sink reaches a store that is not Amazon's."""
    names = {"endpoint": endpoint, "access_key_id": key, "secret_access_key": secret}
    return names | {"path_style_access": True, "region": REGION}


@dataclass
class Seen:
    """The requests that arrived at a server, by what they are about. The first file that is written gets an error back."""

    catalog: Counter[str] = field(default_factory=Counter)
    store: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def at_catalog(self, asked: Asked) -> Asked:
        self.catalog[about_catalog(asked)] += 1
        return asked

    def at_store(self, asked: Asked) -> Asked | Made:
        kind = about_store(asked)
        self.store[kind] += 1
        if kind == "put" and not self.failed:
            self.failed.append(asked.target)
            return s3_error(503, "SlowDown", "Please reduce your request rate.")
        return asked


@dataclass(frozen=True)
class Watched:
    """A lake whose requests pass by ``seen``, and the metrics of its runs."""

    lake: Lake
    seen: Seen
    metrics: Metrics


def counted(metrics: Metrics, whom: str) -> dict[str, float]:
    """The metric of requests as Prometheus reads it."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    (found,) = [family for family in families if family.name == f"frazil_{whom}_requests"]
    return {sample.labels["kind"]: sample.value for sample in found.samples}


@pytest.fixture
def watched(lake: Lake, rest_catalog_s3: RestCatalog, s3: S3Store) -> Iterator[Watched]:
    seen = Seen()
    with between(rest_catalog_s3.uri, seen.at_catalog) as catalog, between(s3.endpoint, seen.at_store) as endpoint:
        store = store_options(endpoint, s3.access_key_id, s3.secret_access_key) | {"retry_min_wait_ms": 10}
        made = lake.with_catalog({"type": "rest", "rest": {"uri": catalog}})
        made = replace(made, given={"s3": store})
        give_components(lake.spark, catalog_settings(made.sink(table="n.t").spec).components)
        yield Watched(made, seen, begun(lake.spark))


def begun(spark: SparkSession) -> Metrics:
    """Metrics that count from now on: other tests have used this Spark before."""
    metrics = Metrics()
    so_far = requested(spark, "before")
    assert so_far is not None
    for whom, counts in (("catalog", so_far.catalog), ("store", so_far.store)):
        metrics._counted |= {(so_far.since_ms, whom, kind): count for kind, count in counts.items()}
    return metrics


def written(lake: Lake, metrics: Metrics, **options: Any) -> None:
    """Some batches, one after the other; files that nobody needs are deleted by no thread that outlives the run."""
    source = {"connector": "generator", "rows": BATCHES * SIZE}
    pipeline = lake.pipeline(source, f"{fresh_name()}.t", batch_size=SIZE, maintenance={"enabled": False}, **options)
    assert len(commits(run(pipeline, once=True, listeners=[metrics]))) == BATCHES


@pytest.mark.parametrize(
    "mode", [pytest.param({}, id="append"), pytest.param(UPSERT, id="upsert", marks=pytest.mark.slow(seconds=25))]
)
def test_the_metrics_are_what_the_servers_saw(watched: Watched, mode: dict[str, Any]) -> None:
    written(watched.lake, watched.metrics, **mode)
    seen, metrics = watched.seen, watched.metrics
    assert seen.failed, "and what is sent again counts again"
    assert seen.catalog["commit"] == counted(metrics, "catalog")["commit"] == BATCHES + 1, "the claim of the sink, and each batch"
    assert seen.store["put"] == counted(metrics, "store")["put"] > 3 * BATCHES, "files, manifests and their lists"

    def equal() -> bool:
        """Iceberg's client reports scans to the catalog when it has time for it."""
        metrics(requested(watched.lake.spark, "after"))  # type: ignore[arg-type]
        return counted(metrics, "catalog") == seen.catalog and counted(metrics, "store") == seen.store

    wait_until(equal, SECONDS, "equal counts")


@pytest.mark.slow(seconds=25)
def test_requests_to_glue_are_counted_as_the_service_sees_them(lake: Lake, aws: Aws) -> None:
    seen: Counter[str] = Counter()

    def note(asked: Asked) -> Asked:
        seen[GLUE[asked.headers["X-Amz-Target"].removeprefix("AWSGlue.")]] += 1
        return asked

    metrics = begun(lake.spark)
    with between(aws.endpoint, note) as endpoint, keys_of_amazon(lake, aws):
        bucket = aws.create_bucket(fresh_name().replace("_", "-"))
        glue = {"region": REGION, "endpoint": endpoint}
        made = lake.with_catalog({"type": "glue", "warehouse": f"{bucket}/warehouse", "glue": glue})
        made = replace(made, given={"s3": store_options(aws.endpoint, aws.access_key_id, aws.secret_access_key)})
        give_components(lake.spark, catalog_settings(made.sink(table="n.t").spec).components)
        written(made, metrics)
    assert seen["commit"] == BATCHES + 1
    assert counted(metrics, "catalog") == seen
    assert counted(metrics, "store")["put"] >= 4 * BATCHES, "files, manifests, their lists and the metadata"


def test_what_the_client_of_a_catalog_repeats_by_itself_counts_once(lake: Lake, faulty_rest: FaultyRest) -> None:
    metrics = begun(lake.spark)
    faulty_rest.script([None, None, refused(503)], on="load")
    written(lake.with_catalog({"type": "rest", "rest": {"uri": faulty_rest.uri}}), metrics)
    assert faulty_rest.unused == ()
    loads = [one for one in faulty_rest.log if one.kind == "load"]
    assert counted(metrics, "catalog")["load"] == len(loads) - 1


def test_a_catalog_without_requests_of_its_own_has_its_calls_counted(lake: Lake) -> None:
    metrics = begun(lake.spark)
    written(lake, metrics)
    calls = counted(metrics, "catalog")
    assert calls["commit"] == BATCHES + 1
    assert calls["load"] >= BATCHES
    assert calls["create"] == 1
    assert calls.keys() <= {"commit", "load", "create", "namespace", "list"}
    assert counted(metrics, "store") == {}, "files of this machine take no requests"
