"""A lake of its own for each test: a catalog under a name that no other test has, and the doors into it."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import frazil
from frazil.model.events import Committed, Event, Listener
from frazil.model.pipeline import PipelineSpec, ProjectSpec
from frazil.model.settings import RetrySettings, Settings
from frazil.model.sink import SinkSpec

# A service that does not answer is given up soon.
IMPATIENT = Settings(retry=RetrySettings(max_retries=1, initial_backoff_ms=10))


def doomed(table: Path) -> dict[Path, int]:
    """What is on the lists of files to delete of the table in a folder, and from when on."""
    lists = [*(table / "metadata").glob("frazil-expired.json"), *(table / "metadata").glob("frazil-expired/*.json")]
    entries = [entry for one in lists for entry in json.loads(one.read_text())["files"]]
    return {Path(unquote(urlsplit(path).path)): due for due, path in entries}


def is_list(path: Path) -> bool:
    """Whether a file is a list of files to delete."""
    return path.name == "frazil-expired.json" or path.parent.name == "frazil-expired"


def let_all_be_due(table: Path) -> None:
    """Lets the grace of readers be over for all that is on a list."""
    for one in (table / "metadata").glob("frazil-expired/*.json"):
        found = json.loads(one.read_text())
        one.write_text(json.dumps(found | {"files": [[0, path] for _, path in found["files"]]}))
        one.with_name(f".{one.name}.crc").unlink(missing_ok=True)


@dataclass(frozen=True)
class Lake:
    """A catalog, and the Spark session to look at it with. ``given``: what each of its sinks is given besides."""

    spark: SparkSession
    catalog: dict[str, Any]
    folder: Path
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def table_folder(self) -> Path:
        """The folder of the table `db.t`, where the warehouse is one on the disk."""
        return self.folder / "warehouse" / "db" / "t"

    @property
    def name(self) -> str:
        """The catalog's name in Spark."""
        return str(self.catalog["name"])

    def with_catalog(self, catalog: dict[str, Any]) -> Lake:
        """A lake in this folder with another catalog."""
        return replace(self, catalog={"name": fresh_name()} | catalog)

    def introduced(self) -> Lake:
        """The lake, known to the test's own session: a stream gets a copy of it, where what it learns is lost."""
        from frazil.spark.catalogs import catalog_settings

        for key, value in catalog_settings(self.sink().spec).spark_conf.items():
            self.spark.conf.set(key, value)
        return self

    def frame(self, query: str) -> DataFrame:
        """A data frame of a query."""
        return self.spark.sql(query)

    def sink(self, frame: DataFrame | str | None = None, table: str = "db.t", **options: Any) -> frazil.Sink:
        """The Python door to a table of this lake."""
        given = self.frame(frame) if isinstance(frame, str) else frame
        return frazil.sink(given).catalog(**self.catalog).to(f"{self.name}.{table}").options(**self.given, **options)

    def pipeline(self, source: dict[str, Any], table: str = "db.t", name: str = "p", **options: Any) -> PipelineSpec:
        """A pipeline into a table of this lake. Options of the pipeline itself are kept apart from the sink's."""
        namespace, _, short = table.rpartition(".")
        own = {key: options.pop(key) for key in ("transforms", "rate_limit") if key in options}
        named = {} if "route" in options else {"table": short}
        sink = SinkSpec.model_validate({"catalog": self.catalog, "namespace": namespace, **named, **self.given, **options})
        given = {"name": name, "source_name": "source", "source": source, "sink_name": "lake", "sink": sink, **own}
        return PipelineSpec.model_validate(given)

    def table(self, table: str = "db.t", at: int | None = None) -> DataFrame:
        """The table as Spark reads it, now or at a snapshot."""
        reader = self.spark.read if at is None else self.spark.read.option("versionAsOf", at)
        return reader.table(f"{self.name}.{table}")

    def rows(self, columns: str = "*", table: str = "db.t", at: int | None = None) -> list[tuple[Any, ...]]:
        """The rows in the order of the columns asked for."""
        return sorted((tuple(row) for row in self.table(table, at).selectExpr(*columns.split(", ")).collect()), key=repr)

    def count(self, table: str = "db.t") -> int:
        """How many rows there are."""
        return self.table(table).count()

    def exists(self, table: str = "db.t") -> bool:
        """Whether the catalog knows the table."""
        known = f"spark.sql.catalog.{self.name}" in self.spark.conf.getAll
        return known and self.spark.catalog.tableExists(f"{self.name}.{table}")

    def meta(self, kind: str, table: str = "db.t") -> list[Row]:
        """One of Iceberg's metadata tables: files, snapshots, history, partitions."""
        return self.spark.table(f"{self.name}.{table}.{kind}").collect()

    def data_snapshots(self, table: str = "db.t") -> list[Row]:
        """The snapshots that brought rows, from old to new; a claim of a sink brings none."""
        found = self.spark.table(f"{self.name}.{table}.snapshots").orderBy("committed_at").collect()
        return [row for row in found if row.summary.get("frazil.kind") == "data"]

    def files(self, table: str = "db.t") -> list[Path]:
        """The data files."""
        return [Path(urlsplit(row.file_path).path) for row in self.meta("files", table)]

    def metadata(self, table: str = "db.t") -> dict[str, Any]:
        """The table's current metadata file."""
        newest = self.spark.table(f"{self.name}.{table}.metadata_log_entries").orderBy("timestamp").collect()[-1].file
        found: dict[str, Any] = json.loads(Path(urlsplit(newest).path).read_text())
        return found

    def nothing_written(self) -> bool:
        """Whether there is no table, and no file in the warehouse either."""
        return not self.exists() and not [path for path in (self.folder / "warehouse").rglob("*") if path.is_file()]

    def properties(self, table: str = "db.t") -> dict[str, str]:
        """The table's properties."""
        return {row.key: row.value for row in self.spark.sql(f"show tblproperties {self.name}.{table}").collect()}


def sqlite_lake(spark: SparkSession, folder: Path) -> Lake:
    """A lake of one folder: a SQLite catalog, and the warehouse beside it."""
    sql = {"uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": str(folder / "warehouse")}
    return Lake(spark, {"type": "sql", "name": fresh_name(), "sql": sql}, folder)


def fresh_name() -> str:
    """A catalog's name that no other test has."""
    return f"lake_{uuid.uuid4().hex[:8]}"


def run(
    *pipelines: PipelineSpec,
    once: bool = False,
    settings: Settings = IMPATIENT,
    stop: StopAfter | None = None,
    events: list[Event] | None = None,
    listeners: Sequence[Listener] = (),
) -> list[Event]:
    """Runs pipelines to their end, as `frazil run` does, and tells what happened; in ``events`` also when it raises."""
    from frazil.runtime.runner import run_project

    heard = [] if events is None else events
    project = ProjectSpec(file="test.yaml", pipelines=pipelines, settings=settings)
    every = [heard.append, *listeners, *([stop] if stop else [])]
    run_project(project, once=once, listeners=every, stop=stop.event if stop else None)
    return heard


class StopAfter:
    """A listener that asks a run to stop after so many commits."""

    def __init__(self, commits: int) -> None:
        self.event = threading.Event()
        self._left = commits

    def __call__(self, event: Event) -> None:
        if isinstance(event, Committed):
            self._left -= 1
            if self._left <= 0:
                self.event.set()


def commits(events: Sequence[Event]) -> list[Committed]:
    """Those of the events that are commits."""
    return [event for event in events if isinstance(event, Committed)]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """An empty lake of one folder, whose name has a blank in it as many have."""
    folder = tmp_path / "a lake"
    folder.mkdir()
    return sqlite_lake(spark, folder)
