from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from frazil.model.events import Event, PublishFailed, Requested, Settled, SourceFailed, TableMeasured, Waiting
from frazil.model.maintenance import TableFigures
from frazil.observe.metrics import Metrics

from .samples import COMMITTED_AT_MS, committed, failed, fenced, staged, started, stopped

ORDERS = {"pipeline": "orders", "table": "lake.shop.orders"}


def scraped(metrics: Metrics) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Every sample by its name and labels, as a Prometheus server would read them."""
    samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return samples


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return scraped(metrics).get(name, {}).get(frozenset((ORDERS | labels).items()))


def after(*events: Event) -> Metrics:
    metrics = Metrics()
    for event in events:
        metrics(event)
    return metrics


def test_types_are_those_of_the_documentation() -> None:
    types = {family.name: family.type for family in text_string_to_metric_families(after(started()).exposition().decode())}
    assert types == {
        "iceberg_records_written": "counter",
        "iceberg_batches_committed": "counter",
        "iceberg_bytes_written": "counter",
        "iceberg_files_created": "counter",
        "iceberg_records_failed": "counter",
        "iceberg_commits_failed": "counter",
        "iceberg_commit_retries": "counter",
        "frazil_rows_filtered": "counter",
        "frazil_rows_dead_lettered": "counter",
        "frazil_rows_deleted": "counter",
        "frazil_rows_superseded": "counter",
        "frazil_rows_unmet": "counter",
        "frazil_paused": "gauge",
        "frazil_deletes_settled": "counter",
        "frazil_table_data_files": "gauge",
        "frazil_table_data_bytes": "gauge",
        "frazil_table_small_files": "gauge",
        "frazil_table_delete_files": "gauge",
        "frazil_table_deletes": "gauge",
        "frazil_table_manifests": "gauge",
        "frazil_table_manifest_bytes": "gauge",
        "frazil_table_metadata_file_bytes": "gauge",
        "frazil_table_snapshots": "gauge",
        "frazil_table_read_amplification": "gauge",
        "frazil_table_files_to_delete": "gauge",
        "frazil_maintenance": "counter",
        "frazil_maintenance_seconds": "counter",
        "frazil_catalog_requests": "counter",
        "frazil_store_requests": "counter",
        "frazil_fenced": "counter",
        "frazil_publish_failures": "counter",
        "frazil_source_failures": "counter",
        "frazil_restarts": "counter",
        "frazil_source_lag_rows": "gauge",
        "frazil_source_lag_bytes": "gauge",
        "frazil_source_lag_seconds": "gauge",
        "frazil_commit_failures": "counter",
        "iceberg_commit_duration_seconds": "histogram",
        "iceberg_records_per_batch": "histogram",
        "frazil_last_commit_timestamp_seconds": "gauge",
        "frazil_pending_rows": "gauge",
    }


def test_every_metric_stands_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    documented = dict(re.findall(r"^\| `(\w+)(?:\{\w+\})?` \| (counter|histogram|gauge) \|", page, re.MULTILINE))
    families = text_string_to_metric_families(after(started()).exposition().decode())
    assert documented == {f"{f.name}_total" if f.type == "counter" else f.name: f.type for f in families}


def test_every_alert_of_the_documentation_asks_for_metrics_that_there_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    (block,) = re.findall(r"```yaml\n(groups:.*?)```", page, re.DOTALL)
    rules = [rule for group in YAML(typ="safe").load(block)["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 8
    assert all(rule["annotations"]["summary"] for rule in rules)
    families = text_string_to_metric_families(after(started()).exposition().decode())
    exported = {f"{f.name}_total" if f.type == "counter" else f.name for f in families}
    asked = {name for rule in rules for name in re.findall(r"\b(?:frazil|iceberg)_\w+", rule["expr"])}
    assert asked <= exported
    assert sum(name.startswith("frazil_table_") for name in asked) >= 5


def test_the_state_of_a_table_is_what_is_known_of_it() -> None:
    first = TableFigures(data_files=12, equality_deletes=5, position_deletes=7, read_amplification=1.5)
    metrics = after(started(), TableMeasured("orders", "lake.shop.orders", first))
    assert value(metrics, "frazil_table_data_files") == 12
    assert value(metrics, "frazil_table_deletes", kind="equality") == 5
    assert value(metrics, "frazil_table_deletes", kind="position") == 7
    assert value(metrics, "frazil_table_snapshots") is None, "what is not known is not made up"
    metrics(TableMeasured("orders", "lake.shop.orders", TableFigures(data_files=13)))
    assert value(metrics, "frazil_table_data_files") == 13
    assert value(metrics, "frazil_table_read_amplification") == 1.5, "it keeps its value until there is a newer one"


def test_requests_are_those_of_the_process_whoever_reports_them_first() -> None:
    metrics = after(
        Requested("orders", since_ms=1, catalog={"load": 2, "commit": 1}, store={"put": 3}),
        Requested("users", since_ms=1, catalog={"load": 5, "commit": 2}, store={"put": 6}),
        Requested("orders", since_ms=1, catalog={"load": 4, "commit": 2}, store={"put": 5}),
    )
    assert scraped(metrics)["frazil_catalog_requests_total"] == {
        frozenset({("kind", "load")}): 5,
        frozenset({("kind", "commit")}): 2,
    }
    metrics(Requested("orders", since_ms=2, catalog={"load": 1}, store={}))
    assert scraped(metrics)["frazil_catalog_requests_total"][frozenset({("kind", "load")})] == 6, "another Java counts anew"
    assert scraped(metrics)["frazil_store_requests_total"] == {frozenset({("kind", "put")}): 6}


def test_time_spent_on_deletes_is_maintenance_too() -> None:
    metrics = after(started(), Settled("orders", "lake.shop.orders", "settle", deletes=9, rows=9, seconds=2.5))
    assert value(metrics, "frazil_maintenance_seconds_total", kind="settle") == 2.5


def test_commits_are_counted() -> None:
    metrics = after(
        started(),
        staged(rows=100),
        committed(batch=1, written=90, filtered=7, dead_lettered=3, seconds=0.3),
        staged(rows=50),
        committed(batch=2, written=50, seconds=2.0),
    )
    assert value(metrics, "iceberg_records_written_total") == 140
    assert value(metrics, "iceberg_batches_committed_total") == 2
    assert value(metrics, "iceberg_bytes_written_total") == 8192
    assert value(metrics, "iceberg_files_created_total") == 4
    assert value(metrics, "frazil_rows_filtered_total") == 7
    assert value(metrics, "frazil_rows_dead_lettered_total") == 3
    assert value(metrics, "iceberg_records_failed_total") == 3
    assert value(metrics, "frazil_last_commit_timestamp_seconds") == COMMITTED_AT_MS / 1000
    assert value(metrics, "iceberg_commit_duration_seconds_count") == 2
    assert value(metrics, "iceberg_commit_duration_seconds_sum") == pytest.approx(2.3)
    assert value(metrics, "iceberg_commit_duration_seconds_bucket", le="0.5") == 1
    assert value(metrics, "iceberg_records_per_batch_sum") == 140
    assert value(metrics, "iceberg_records_per_batch_bucket", le="50.0") is None
    assert value(metrics, "iceberg_records_per_batch_bucket", le="100.0") == 2


def test_a_skipped_commit_counts_no_rows_but_is_the_last_commit() -> None:
    metrics = after(started(), committed(written=10, skipped=True, filtered=1, dead_lettered=1))
    for name in ("iceberg_records_written", "iceberg_batches_committed", "iceberg_bytes_written", "iceberg_files_created",
                 "frazil_rows_filtered", "frazil_rows_dead_lettered", "iceberg_records_failed"):  # fmt: skip
        assert value(metrics, f"{name}_total") == 0, name
    assert value(metrics, "iceberg_commit_duration_seconds_count") == 0
    assert value(metrics, "frazil_last_commit_timestamp_seconds") == COMMITTED_AT_MS / 1000


def test_retried_failures_are_no_failed_commits() -> None:
    metrics = after(started(), staged(), failed("conflict"), failed("unknown", attempt=2), committed())
    assert value(metrics, "frazil_commit_failures_total", kind="conflict") == 1
    assert value(metrics, "frazil_commit_failures_total", kind="unknown") == 1
    assert value(metrics, "frazil_commit_failures_total", kind="unreachable") == 0
    assert value(metrics, "iceberg_commit_retries_total") == 2
    assert value(metrics, "iceberg_commits_failed_total") == 0
    assert value(metrics, "iceberg_records_failed_total") == 0


@pytest.mark.parametrize(
    "ending",
    [
        (failed("refused", will_retry=False), stopped(error="refused")),
        (failed("unreachable"), stopped(error="not reachable after 10 retries")),
    ],
    ids=["said by the attempt", "said by the end"],
)
def test_a_batch_that_is_given_up_counts_once(ending: tuple[Event, ...]) -> None:
    metrics = after(started(), staged(rows=100), *ending)
    assert value(metrics, "iceberg_commits_failed_total") == 1
    assert value(metrics, "iceberg_records_failed_total") == 100
    assert value(metrics, "iceberg_records_written_total") == 0


def test_an_end_with_an_error_elsewhere_is_no_failed_commit() -> None:
    metrics = after(started(), failed(), committed(), stopped(error="the source went away"))
    assert value(metrics, "iceberg_commits_failed_total") == 0


def test_fencing_is_counted_and_its_rows_are_the_other_instances() -> None:
    metrics = after(started(), staged(rows=100), failed("conflict"), fenced(), stopped(error="fenced"))
    assert value(metrics, "frazil_fenced_total") == 1
    assert value(metrics, "iceberg_commits_failed_total") == 0
    assert value(metrics, "iceberg_records_failed_total") == 0


def test_pending_rows_follow_the_batch() -> None:
    metrics = after(started(), Waiting("orders", 40))
    assert value(metrics, "frazil_pending_rows") == 40
    metrics(staged(rows=60))
    assert value(metrics, "frazil_pending_rows") == 60
    metrics(committed(written=60))
    assert value(metrics, "frazil_pending_rows") == 0
    metrics(Waiting("orders", None))
    unknown = value(metrics, "frazil_pending_rows")
    assert unknown is not None
    assert math.isnan(unknown)


def test_counters_show_zero_from_the_start() -> None:
    metrics = after(started())
    assert value(metrics, "iceberg_records_written_total") == 0
    assert value(metrics, "frazil_fenced_total") == 0
    assert value(metrics, "frazil_commit_failures_total", kind="refused") == 0
    assert value(metrics, "iceberg_commit_duration_seconds_count") == 0


def test_pipelines_are_apart_and_instances_too() -> None:
    metrics = after(started(), started("users", table="lake.shop.users"), committed(written=5), failed(pipeline="users"))
    users = {"pipeline": "users", "table": "lake.shop.users"}
    assert value(metrics, "iceberg_records_written_total") == 5
    assert value(metrics, "iceberg_records_written_total", **users) == 0
    assert value(metrics, "iceberg_commit_retries_total", **users) == 1
    assert value(metrics, "iceberg_commit_retries_total") == 0
    assert scraped(Metrics()).get("iceberg_records_written_total") is None


def test_events_of_many_threads_are_all_counted() -> None:
    metrics = after(started())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda batch: metrics(committed(batch=batch, written=10)), range(400)))
    assert value(metrics, "iceberg_records_written_total") == 4000
    assert value(metrics, "iceberg_batches_committed_total") == 400


def test_a_source_that_does_not_answer_is_counted() -> None:
    metrics = after(
        started(), SourceFailed("orders", "away", 1, will_retry=True), SourceFailed("orders", "away", 2, will_retry=True)
    )
    assert value(metrics, "frazil_source_failures_total") == 2


def test_a_failed_notice_of_a_commit_is_counted() -> None:
    metrics = Metrics()
    metrics(started())
    metrics(PublishFailed("orders", "p.d.orders", "no answer", 1, will_retry=True))
    assert value(metrics, "frazil_publish_failures_total") == 1
    assert value(metrics, "iceberg_commits_failed_total") == 0
