"""One pipeline through every door: what the engine gets is the same, whatever it was written in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

import frazil
from frazil import files
from frazil.model.pipeline import PipelineSpec
from frazil.model.sink import SinkSpec
from frazil.model.source import KafkaSource

SERVERS, TOPIC = "kafka:9092", "orders"
COLUMNS = {"id": "long", "at": "timestamptz", "country": "string"}


@dataclass(frozen=True)
class Lake:
    """Where the table is to be."""

    folder: Path

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/catalog.db"

    @property
    def warehouse(self) -> str:
        return f"{self.folder}/warehouse"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt-data"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    return Lake(tmp_path)


def of_yaml(lake: Lake) -> PipelineSpec:
    columns = ", ".join(f"{name}: {kind}" for name, kind in COLUMNS.items())
    return of_file(
        lake,
        f"""
version: "1.0"
sources:
  orders: {{connector: kafka, config: {{bootstrap_servers: "{SERVERS}", topics: [{TOPIC}], format: {{type: json}}}}}}
sinks:
  lake:
    connector: iceberg
    config:
      catalog: {{type: sql, sql: {{uri: "{lake.uri}", warehouse: {lake.warehouse}}}}}
      namespace: shop
      table: orders
      schema: {{{columns}}}
      commit_mode: upsert
      key_fields: [id]
      partition_by: [day(at)]
      flush_interval_secs: 60
pipelines:
  orders: {{source: orders, sink: lake}}
""",
    )


def of_bizon(lake: Lake) -> PipelineSpec:
    schema = "".join(f"\n          - {{name: {name}, type: {kind}}}" for name, kind in COLUMNS.items())
    return of_file(
        lake,
        f"""
name: orders
source:
  name: kafka
  stream: topic
  sync_mode: stream
  bootstrap_servers: {SERVERS}
  message_encoding: utf-8
  topics: [{{name: {TOPIC}, destination_id: orders}}]
destination:
  name: bigquery_iceberg
  config:
    project_id: p
    dataset_id: d
    gcs_warehouse_bucket: b
    iceberg_namespace: shop
    catalog_config: {{default: {{type: sql, uri: "{lake.uri}", warehouse: {lake.warehouse}}}}}
    buffer_flush_timeout: 60
    time_partitioning: [{{field: at, type: DAY}}]
    destination_table_config:
      - destination_id: orders
        upsert: {{enabled: true, join_cols: [id]}}
        iceberg_schema:{schema}
""",
    )


def of_file(lake: Lake, text: str) -> PipelineSpec:
    path = lake.folder / "pipeline.yaml"
    path.write_text(text)
    (pipeline,) = files.load(path).pipelines
    return pipeline


def of_sql(lake: Lake) -> PipelineSpec:
    from frazil.doors.sql import Definitions, Session

    session = Session(Definitions(lake.folder / "definitions.db"))
    text = f"""
    CREATE CONNECTION lake TO ICEBERG CATALOG (TYPE 'sql', URI '{lake.uri}', WAREHOUSE '{lake.warehouse}');
    CREATE CONNECTION kafka TO KAFKA (BROKER '{SERVERS}');
    CREATE SOURCE orders (id bigint, at timestamptz, country text) FROM KAFKA CONNECTION kafka (TOPIC '{TOPIC}') FORMAT JSON;
    CREATE SINK into_lake FROM orders INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'shop', TABLE 'orders')
      KEY (id) MODE UPSERT PARTITION BY (day(at)) WITH (COMMIT INTERVAL '60s');
    """
    assert len(list(session.run(text))) == 4
    (pipeline,) = session.project().pipelines
    return pipeline


def of_bytewax(lake: Lake) -> SinkSpec:
    """Bytewax appends, so that only the keys of the table are told."""
    from frazil.bytewax import IcebergSinkConfig

    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "at", TimestamptzType()),
        NestedField(3, "country", StringType()),
        identifier_field_ids=[1],
    )
    return IcebergSinkConfig(
        catalog_uri=lake.uri,
        table_name="shop.orders",
        warehouse_path=lake.warehouse,
        catalog_type="sql",
        table_schema=schema,
        partition_spec=PartitionSpec(PartitionField(2, 1000, DayTransform(), "at_day")),
    ).spec


def of_dlt(lake: Lake) -> SinkSpec:
    """What a load would write to, asked of the client before any load."""
    import dlt

    from frazil.dlt import iceberg_adapter, iceberg_partition, iceberg_rest

    @dlt.resource(
        write_disposition={"disposition": "merge", "strategy": "upsert"},
        primary_key="id",
        columns={"id": {"data_type": "bigint"}, "at": {"data_type": "timestamp"}, "country": {"data_type": "text"}},
    )
    def orders() -> Iterator[dict[str, Any]]:
        yield {"id": 1, "at": "2026-01-31T12:00:00Z", "country": "NO"}

    destination = iceberg_rest(catalog_uri=lake.uri, warehouse=lake.warehouse, namespace="shop")
    pipeline = dlt.pipeline("shop", destination=destination, pipelines_dir=str(lake.folder / "dlt"))
    pipeline.extract(iceberg_adapter(orders, partition=[iceberg_partition.day("at")]))
    pipeline.normalize()
    with pipeline.destination_client() as client:
        load = client._planner.load("1", [client.prepare_load_table("orders")], {})
        return load.sink_of(load.root)


def of_python(lake: Lake) -> SinkSpec:
    sink = frazil.sink().catalog(type="sql", sql={"uri": lake.uri, "warehouse": lake.warehouse}).to("lake.shop.orders")
    sink = sink.mode("upsert").keys("id").partition_by("day(at)").options(schema=COLUMNS, flush_interval_secs=60)
    return sink.spec


def of_python_pipeline(lake: Lake) -> PipelineSpec:
    source = {"connector": "kafka", "bootstrap_servers": SERVERS, "topics": [TOPIC], "format": {"type": "json"}}
    return frazil.Pipeline(source, of_python(lake), name="orders").spec


def core(sink: SinkSpec) -> dict[str, Any]:
    """What a user has said, without what each door leaves to its own defaults."""
    sql = sink.catalog.sql
    assert sql is not None
    return {
        "catalog": (sink.catalog.type.value, sql.uri, sink.catalog.location),
        "table": (sink.namespace, sink.table),
        "keys": sink.key_fields,
        "partition": [str(field) for field in sink.partition],
    }


SINKS: dict[str, Callable[[Lake], SinkSpec]] = {
    "bizon": lambda lake: of_bizon(lake).sink,
    "sql": lambda lake: of_sql(lake).sink,
    "dlt": of_dlt,
    "bytewax": of_bytewax,
    "python": of_python,
    "python-pipeline": lambda lake: of_python_pipeline(lake).sink,
}


@pytest.mark.parametrize("door", SINKS)
def test_the_table_is_the_same(lake: Lake, door: str) -> None:
    expected, found = of_yaml(lake).sink, SINKS[door](lake)
    assert core(found) == core(expected)
    if door != "bytewax":  # it appends
        assert found.commit_mode == expected.commit_mode
    if door not in ("bytewax", "dlt"):  # whose flows and loads decide when a commit is made
        assert found.flush_interval_secs == expected.flush_interval_secs
    if door != "sql":  # it declares the columns of the source
        declared = {column.name: column.type for column in found.columns}
        assert {name: kind for name, kind in declared.items() if not name.startswith("_dlt")} == COLUMNS


@pytest.mark.parametrize("of", [of_bizon, of_sql, of_python_pipeline], ids=["bizon", "sql", "python-pipeline"])
def test_the_source_is_the_same(lake: Lake, of: Callable[[Lake], PipelineSpec]) -> None:
    expected, found = of_yaml(lake).source, of(lake).source
    assert isinstance(expected, KafkaSource)
    assert isinstance(found, KafkaSource)
    assert (found.bootstrap_servers, found.topics) == (expected.bootstrap_servers, expected.topics)
    assert found.format.type == expected.format.type
