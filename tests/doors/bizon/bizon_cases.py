"""Bizon files of tests, and the lakes that they are run against."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from frazil.doors.bizon import load_text
from frazil.model.events import Event
from frazil.model.pipeline import ProjectSpec
from frazil.runtime.runner import run_project
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for
from services.kafka import Kafka, Message

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "bizon"

DESTINATION = """\
destination:
  name: bigquery_iceberg
  config:
    project_id: proj
    dataset_id: lake
    gcs_warehouse_bucket: bucket
    iceberg_namespace: ns
    catalog_config:
      {catalog}: {{type: sql, uri: "sqlite:///{folder}/catalog.db", warehouse: "{folder}/warehouse"}}
{config}
"""

WHOLE = (
    """\
name: {name}
source:
  name: kafka
  sync_mode: incremental
  bootstrap_servers: {servers}
  message_encoding: utf-8
  topics: {topics}
{source}
"""
    + DESTINATION
)


@dataclass
class Lake:
    """A Kafka, a folder, and Bizon files that lead from one into the other."""

    spark: SparkSession
    kafka: Kafka
    folder: Path
    catalog: str = field(default_factory=lambda: f"c{uuid.uuid4().hex[:8]}")
    name: str = "bizon"

    def send(self, topic: str, rows: Iterable[Any]) -> None:
        """Messages of a topic, JSON unless they are messages already."""
        made = [row if isinstance(row, Message | bytes) or row is None else json.dumps(row) for row in rows]
        self.kafka.produce(topic, made)

    def text(self, config: str, source: str = "", **topics: str) -> str:
        """A whole file: the topics with the tables that they are led to."""
        led = [{"name": topic, "destination_id": table} for table, topic in topics.items()]
        return WHOLE.format(
            name=self.name,
            servers=self.kafka.address(),
            topics=json.dumps(led),
            source=indent(source, "  "),
            catalog=self.catalog,
            folder=self.folder,
            config=indent(config, "    "),
        )

    def run(self, text: str, only: Iterable[str] = ()) -> list[Event]:
        """Runs the pipelines of a file until all that is there was read."""
        return run(load_text(text, "bizon.yaml", {}), only)

    def table(self, name: str) -> DataFrame:
        """A table as Spark reads it."""
        return self.session.read.table(f"{self.catalog}.ns.{name}")

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Its rows in order."""
        return sorted((tuple(row) for row in self.table(name).select(*columns).collect()), key=repr)

    def meta(self, name: str, kind: str) -> list[Row]:
        """One of Iceberg's metadata tables."""
        return self.session.table(f"{self.catalog}.ns.{name}.{kind}").collect()

    def data_snapshots(self, name: str) -> int:
        """How many commits brought rows."""
        return sum(row.summary.get("frazil.kind") == "data" for row in self.meta(name, "snapshots"))

    @property
    def session(self) -> SparkSession:
        """A session that knows the catalog."""
        project = load_text(self.text("destination_id: any", any="any"), "bizon.yaml", {})
        return session_for(self.spark, catalog_settings(project.pipelines[0].sink))


def run(project: ProjectSpec, only: Iterable[str] = (), *, once: bool = True) -> list[Event]:
    """Runs pipelines once, or as the file says; what they said."""
    events: list[Event] = []
    run_project(project, once=once, listeners=[events.append], stop=threading.Event(), only=tuple(only))
    return events
