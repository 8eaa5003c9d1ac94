"""The example files, run as they are but for the names of hosts: Kafka, catalogs in PostgreSQL and by REST, BigQuery's double."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bizon_cases import EXAMPLES, Lake, run
from pyspark.sql import DataFrame

from frazil.doors.bizon import load_text
from frazil.errors import Retryable
from frazil.model.events import CommitFailed, Committed, Published
from frazil.model.pipeline import PipelineSpec
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for
from services.bigquery import BigQuery
from services.faults import refused
from services.faulty_rest import FaultyRest
from services.postgres import Postgres
from services.rest_catalog import RestCatalog

SUFFIX = uuid.uuid4().hex[:6]


def example(name: str, bizon: Lake, postgres: Postgres | None = None, **more: str) -> str:
    """An example with the hosts of the tests; its topics and databases belong to the test alone."""
    text = (EXAMPLES / name).read_text()
    replaced = {"kafka:9092": bizon.kafka.address(), "localhost:9092": bizon.kafka.address()}
    replaced |= {"gs://your-bucket/iceberg": str(bizon.folder / "warehouse"), "./lake": str(bizon.folder)}
    if postgres is not None:
        database = f"bizon_{uuid.uuid4().hex[:8]}"
        postgres.create_database(database)
        address = f"{postgres.user}:{postgres.password}@{postgres.host}:{postgres.port}/{database}"
        replaced["username:password@postgres:5432/iceberg"] = address
    for before, after in (replaced | more).items():
        text = text.replace(before, after)
    return text


def table(bizon: Lake, pipeline: PipelineSpec, kind: str = "") -> DataFrame:
    session = session_for(bizon.spark, catalog_settings(pipeline.sink))
    return session.table(f"{pipeline.sink.catalog.name}.{pipeline.sink.full_name}{kind}")


def test_the_basic_example_and_big_query_is_current(bizon: Lake, postgres: Postgres, bigquery: BigQuery) -> None:
    topic = bizon.kafka.create_topic()
    text = example(
        "example.iceberg.yaml", bizon, postgres, **{"name: ice.thickness": f"name: {topic}", "  default:": f"  basic_{SUFFIX}:"}
    )
    text = text.replace("    dataset_id: arctic", f"    dataset_id: arctic\n    bigquery_endpoint: {bigquery.address}")
    text = text.replace("max_retry_attempts: 5", "max_retry_attempts: 5\n    retry_backoff_base: 0.01")
    row = {"floe": 7, "sea": "Barents Sea", "measured_at": "2026-01-31T12:00:00", "thickness": 1.7}
    bizon.send(topic, [row, row | {"floe": 8}])
    project = load_text(text, "example.iceberg.yaml", {})
    (pipeline,) = project.pipelines
    bigquery.failures = [503, 503]  # a call that may succeed later is made again
    result = run(project)
    assert [type(event) for event in result if isinstance(event, Committed | Published)][-1] is Published
    found = table(bizon, pipeline).select("floe", "sea", "measured_at", "thickness").collect()
    assert sorted(map(tuple, found)) == [
        (7, "Barents Sea", dt.datetime(2026, 1, 31, 12), 1.7), (8, "Barents Sea", dt.datetime(2026, 1, 31, 12), 1.7),
    ]  # fmt: skip
    assert [row.partition.measured_at_day for row in table(bizon, pipeline, ".partitions").collect()] == [dt.date(2026, 1, 31)]
    shown = json.loads(Path(urlsplit(bigquery.metadata_of("arctic.thickness")).path).read_text())
    newest = table(bizon, pipeline, ".snapshots").orderBy("committed_at").collect()[-1]
    assert shown["current-snapshot-id"] == newest.snapshot_id, "BigQuery is not a snapshot behind"
    # Another run finds nothing new, and adds nothing.
    run(project)
    assert table(bizon, pipeline).count() == 2


@pytest.mark.slow
def test_the_advanced_example(bizon: Lake, postgres: Postgres, rest_catalog: RestCatalog) -> None:
    ships, positions, late = (bizon.kafka.create_topic() for _ in range(3))
    topics = {"name: fleet.ships,": f"name: {ships},", "name: fleet.positions,": f"name: {positions},",
              "name: fleet.positions.late,": f"name: {late},"}  # fmt: skip
    rest = {"http://catalog:8181": rest_catalog.uri, "gs://your-bucket/rest": rest_catalog.warehouse}
    names = {"production:": f"production_{SUFFIX}:", "      rest:\n": f"      rest_{SUFFIX}:\n"}
    text = example("example.advanced.yaml", bizon, postgres, **topics, **rest, **names)
    bizon.send(ships, [{"imo": 1, "name": "Fram", "launched": "1892-10-26"}, {"imo": 2, "name": "Gjøa"}, {"imo": "x"},
                       {"imo": 1, "name": "Fram II", "ice_class": {"of": "its own"}}])  # fmt: skip
    bizon.send(positions, [{"ship": 1, "ts": "2026-01-31T12:00:00", "lat": 84.1, "lon": 17}])
    bizon.send(late, [{"ship": 1, "ts": "2026-01-30T12:00:00", "lat": 84, "lon": "16.5"}])
    project = load_text(text, "example.advanced.yaml", {})
    run(project)
    by_name = {pipeline.name: pipeline for pipeline in project.pipelines}
    assert sorted(map(tuple, table(bizon, by_name["ships"]).collect()), key=repr) == [
        (1, "Fram II", '{"of":"its own"}', None), (2, "Gjøa", None, None),
    ]  # fmt: skip
    assert table(bizon, by_name["ships"], "__dead_letters").count() == 1
    found = table(bizon, by_name["positions"]).select("imo", "seen_at", "latitude", "longitude").collect()
    assert sorted(map(tuple, found)) == [
        (1, dt.datetime(2026, 1, 30, 12), 84.0, 16.5), (1, dt.datetime(2026, 1, 31, 12), 84.1, 17.0),
    ]  # fmt: skip
    assert table(bizon, by_name["positions"], ".partitions").count() == 2
    logged = table(bizon, by_name["ships_log"])
    assert logged.count() == 4
    assert {row.file_format for row in table(bizon, by_name["ships_log"], ".files").collect()} == {"ORC"}


@pytest.mark.parametrize("name", ["example.dev.yaml", "../../docs/bizon.md"])
def test_the_example_for_trying_things_out_and_the_first_block_of_the_page(bizon: Lake, name: str) -> None:
    topic = bizon.kafka.create_topic()
    topics = {"name: dev.events": f"name: {topic}", "{name: events,": f"{{name: {topic},"}
    text = example(name, bizon, **topics, **{"  default:": f"  {bizon.catalog}:"})
    text = text.partition("```yaml\n")[2].partition("```")[0] or text
    bizon.send(topic, [{"anything": True}])
    project = load_text(text, "example.dev.yaml", {})
    run(project)
    (row,) = table(bizon, project.pipelines[0]).collect()
    assert json.loads(row._source_data)["value"] == {"anything": True}


@pytest.mark.parametrize(("faults", "attempts"), [(2, 3), (4, 3)])
def test_a_catalog_that_refuses_is_asked_again_as_often_as_the_file_says(
    bizon: Lake, rest_catalog: RestCatalog, faulty_rest: FaultyRest, faults: int, attempts: int
) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1}])
    sql = f'{{type: sql, uri: "sqlite:///{bizon.folder}/catalog.db", warehouse: "{bizon.folder}/warehouse"}}'
    text = bizon.text(f"max_retry_attempts: {attempts - 1}\nretry_backoff_base: 0.001", events=topic)
    text = text.replace(sql, f'{{type: rest, uri: "{faulty_rest.uri}", warehouse: "{rest_catalog.warehouse}"}}')
    project = load_text(text.replace("iceberg_namespace: ns", f"iceberg_namespace: {bizon.catalog}"), "b.yaml", {})
    faulty_rest.script([refused(500)] * faults)
    if faults < attempts:
        result = run(project)
        assert [event.will_retry for event in result if isinstance(event, CommitFailed)] == [True, True]
        assert table(bizon, project.pipelines[0]).count() == 1
    else:
        with pytest.raises(Retryable):
            run(project)
        # Nothing was passed over: the next run has it.
        faulty_rest.script([])
        run(project)
        assert table(bizon, project.pipelines[0]).count() == 1
