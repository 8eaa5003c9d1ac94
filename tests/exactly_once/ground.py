"""Where the tests write: a catalog as frazil sees it and as others do, another writer, and a source of numbered rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from exactly_once.children import started
from exactly_once.programs.appending import append
from exactly_once.truth import FOREIGN, OURS
from frazil.errors import FrazilError
from frazil.iceberg import active
from frazil.model.catalog import CatalogSpec
from frazil.model.commit import Position, position
from frazil.model.events import CommitFailed, Committed, Event, FencedOut
from frazil.model.settings import RetrySettings
from frazil.model.sink import SinkSpec
from frazil.runtime.pump import Pump
from frazil.sources.base import Slice
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for
from frazil.write.part import Part
from frazil.write.setup import WriterSetup
from frazil.write.writer import SinkWriter
from services.processes import Child

SINK_ID = "numbers/lake"
QUICK = RetrySettings(max_retries=20, initial_backoff_ms=5, max_backoff_ms=50)
COLUMNS = {"writer": "string", "id": "long"}
FAR_FUTURE_MS = 4_102_444_800_000


@dataclass(frozen=True)
class Ground:
    """One table of a catalog: ``spec`` is the way that frazil takes to it, ``direct`` the way of everybody else.

    ``given`` is what each sink is given besides.
    """

    spark: SparkSession
    spec: CatalogSpec
    direct: Catalog
    namespace: str
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The table's name in the catalog."""
        return f"{self.namespace}.t"

    def table(self) -> Table:
        """The table as it is now."""
        return self.direct.load_table(self.name)

    def sink(self, **options: Any) -> SinkSpec:
        """A sink to the table."""
        return SinkSpec.model_validate(
            {"catalog": self.spec, "namespace": self.namespace, "table": "t", "schema": COLUMNS, "batch_size": 10}
            | self.given
            | options
        )

    def writer(self, sink_id: str = SINK_ID, retry: RetrySettings = QUICK, **options: Any) -> Recorded:
        """A new instance of the sink, as a process that starts makes one."""
        return Recorded(self, sink_id, retry, self.sink(**options))

    def session(self) -> SparkSession:
        """A Spark session that knows the catalog."""
        return session_for(self.spark.newSession(), catalog_settings(self.sink()))

    def head(self) -> int:
        """The id of the current snapshot."""
        snapshot = self.table().current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    @cached_property
    def administrator(self) -> SparkSession:
        """The session of somebody who looks after the table."""
        return self.session()

    def expire(self, retain_last: int = 1) -> None:
        """Removes all snapshots but the last, however young, with their files. By the library: a procedure takes seconds."""
        session: Any = self.administrator
        with active(session):
            util = session._jvm.org.apache.iceberg.spark.Spark3Util
            table = util.loadIcebergTable(session._jsparkSession, f"lake.{self.name}")
        table.expireSnapshots().expireOlderThan(FAR_FUTURE_MS).retainLast(retain_last).commit()

    def procedure(self, call: str) -> None:
        """Runs one of Iceberg's procedures on the table."""
        self.administrator.sql(f"CALL lake.system.{call}").collect()


def sqlite_ground(spark: SparkSession, folder: Path) -> Ground:
    """A catalog of its own in a SQLite file."""
    uri, warehouse = f"sqlite:///{folder}/catalog.db", (folder / "warehouse").as_uri()
    spec = CatalogSpec.model_validate({"type": "sql", "sql": {"uri": uri, "warehouse": warehouse}})
    return Ground(spark, spec, load_catalog("lake", type="sql", uri=uri, warehouse=warehouse), f"n{uuid4().hex}")


def rest_ground(spark: SparkSession, uri: str, behind: str, **properties: str) -> Ground:
    """A namespace of its own in a REST catalog that frazil reaches at one address and others at another."""
    # The client's own retries of a load wait for seconds; one is enough to have it tried.
    properties = {"rest.client.max-retries": "1"} | properties
    spec = CatalogSpec.model_validate({"type": "rest", "rest": {"uri": uri, "properties": properties}})
    return Ground(spark, spec, load_catalog("behind", type="rest", uri=behind), f"n{uuid4().hex}")


class Recorded:
    """A :class:`SinkWriter` and what it reported."""

    def __init__(self, ground: Ground, sink_id: str, retry: RetrySettings, sink: SinkSpec) -> None:
        self.ground = ground
        self.events: list[Event] = []
        self.session = ground.session()
        self.writer = SinkWriter(WriterSetup(self.session, sink_id, "numbers", retry, self.events.append), sink)

    def open(self) -> int:
        """Claims the sink, and says how many rows the table holds of it."""
        return row_of((state := self.writer.open()) and state.end)

    def write(self, first: int, last: int) -> Committed:
        """Commits the rows from one number up to another."""
        part = Part("numbers", row_position(first), row_position(last) or "", last - first)
        return self.writer.write(numbers(self.session, first, last), part)

    def pump(self, rows: int) -> None:
        """Runs a pipeline from where the table ends up to so many rows."""
        Pump(self.writer, Numbers(rows, self.session), self.events.append).run(threading.Event(), once=True)

    def heard(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def committed(self) -> list[Committed]:
        """The batches that this instance believes to have written."""
        return [event for event in self.heard(Committed) if not event.skipped]

    @property
    def failures(self) -> list[CommitFailed]:
        """The attempts that did not succeed."""
        return self.heard(CommitFailed)

    @property
    def fenced(self) -> list[FencedOut]:
        """How often this instance found that another had taken over."""
        return self.heard(FencedOut)


@dataclass
class Foreign:
    """Somebody else who appends to the table."""

    ground: Ground
    ids: list[int] = field(default_factory=list)

    def append(self) -> None:
        """Adds a row. PyIceberg does, or Spark where the table has format version 3, which PyIceberg does not write."""
        number = len(self.ids)
        if self.ground.table().format_version < 3:
            append(self.ground.table, number)
        else:
            row = f"(writer, id) VALUES ('{FOREIGN}', {number})"
            self.ground.administrator.sql(f"INSERT INTO lake.{self.ground.name} {row}").collect()
        self.ids.append(number)

    @contextmanager
    def storm(self, log: Path) -> Iterator[Child]:
        """Appends without pause, as long as the block, from a process of its own; its log has a line for each row."""
        assert not self.ids, "its rows are numbered from 0"
        catalog = self.ground.direct
        child = started("appending", self.ground.name, catalog.name, json.dumps(catalog.properties), log=log)
        try:
            child.await_line(r"(?m)^0$", 60)
            yield child
        finally:
            code = child.stop()
        assert code == 0, child.log_text()
        self.ids.extend(int(line) for line in child.log_text().splitlines() if line.isdigit())


class Numbers:
    """Rows numbered from 0, as a source."""

    fingerprint = "numbers"
    poll_seconds = 0.01

    def __init__(self, rows: int, session: SparkSession) -> None:
        self._rows = rows
        self._session = session

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        first = row_of(start)
        left = self._rows - first
        count = min(limit, left)
        return Slice(start, row_position(first + count) or "", count, full=left > limit) if count > 0 else None

    def finished(self, position: Position | None) -> bool:
        return row_of(position) >= self._rows

    def total_rows(self, start: Position | None) -> int | None:
        return self._rows - row_of(start)

    def read(self, part: Slice) -> DataFrame:
        return numbers(self._session, row_of(part.start), row_of(part.end))

    def between(self, start: Position | None, end: Position) -> Slice:
        return Slice(start, end, row_of(end) - row_of(start))

    def observed(self, part: Slice, rows: int) -> None:
        """The counts are exact."""

    def committed(self, position: Position) -> None:
        """Numbers are not kept."""

    def close(self) -> None:
        """Nothing is held open."""

    def explain(self, error: Exception) -> FrazilError | None:
        return None

    def check(self) -> None:
        """Nothing outside is needed."""


def numbers(session: SparkSession, first: int, last: int) -> DataFrame:
    """Our rows from one number up to another."""
    return session.range(first, last, 1, 1).selectExpr(f"'{OURS}' AS writer", "id")


def row_position(row: int) -> Position | None:
    """The position after so many rows."""
    return position({"row": row}) if row else None


def row_of(at: Position | None) -> int:
    """How many rows lie before a position."""
    return int(json.loads(at)["row"]) if at else 0


def run_together(work: Sequence[Callable[[], None]]) -> None:
    """Runs each in a thread of its own, and raises what one of them raised."""
    problems: list[BaseException] = []

    def guarded(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for problem in problems:
        raise problem
