"""Transfers: each is a row of the table of debits and one of the table of credits, and both come with one batch."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession

from exactly_once.ground import COLUMNS, QUICK, Foreign, Ground, row_of, row_position, run_together, sqlite_ground
from exactly_once.truth import OURS, Truth, assert_exactly_once
from frazil.model.catalog import CatalogSpec
from frazil.model.events import Event
from frazil.model.settings import RetrySettings
from frazil.model.sink import SinkSpec
from frazil.write.many_tables import RoutedWriter
from frazil.write.part import Part
from frazil.write.setup import WriterSetup
from services.postgres import Postgres

SINK_ID = "transfers/lake"
DEBIT, CREDIT, HOME = "debit", "credit", "frazil__ledger"
BATCH = 10
BOTH_AT_ONCE = "select table_name, metadata_location from iceberg_tables where table_namespace = '{}'"

Locations = Callable[[], list[tuple[str, str]]]
"""The metadata of all tables, as one query of the catalog's database finds them."""


@dataclass
class Bank:
    """Two tables of one catalog, and their home. ``spec`` is the way that frazil takes to it."""

    ground: Ground
    locations: Locations | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def table(self, name: str) -> Ground:
        """One of the tables by itself."""
        ground = self.ground
        return _Named(ground.spark, ground.spec, ground.direct, ground.namespace, ground.given, name)

    def sink(self, *, atomic: bool = True, **options: Any) -> SinkSpec:
        """A sink to both tables."""
        route = {"field": "kind", "remove_field": True, "atomic": atomic, "tables": {DEBIT: DEBIT, CREDIT: CREDIT}, "parallel": 1}
        given = {"catalog": self.ground.spec, "namespace": self.ground.namespace, "route": route, "schema": COLUMNS}
        return SinkSpec.model_validate(given | self.options | options)

    def writer(self, retry: RetrySettings = QUICK, **options: Any) -> Teller:
        """A new instance of the sink."""
        return Teller(self, retry, self.sink(**options))

    def batches(self) -> dict[str, int]:
        """The last batch of each table, by its ledger; of one moment where one query finds all of them."""
        if self.locations is None:
            return {name: _last(self.table(name).table().properties) for name in (DEBIT, CREDIT, HOME)}
        found = {name: json.loads(Path(urlsplit(file).path).read_text()) for name, file in self.locations()}
        return {name: _last(metadata["properties"]) for name, metadata in found.items()}

    def assert_exactly_once(self, rows: int, foreign: dict[str, Foreign] | None = None) -> None:
        """Each transfer is in both tables once, and what others have written is there."""
        for name in (DEBIT, CREDIT):
            others = foreign[name].ids if foreign and name in foreign else ()
            assert_exactly_once(self.table(name).table(), SINK_ID, range(rows), others)

    def history(self, name: str) -> list[int]:
        """The numbers at home of the batches in a table's history."""
        return [int(entry["frazil.batch"]) for _, entry in Truth(self.table(name).table()).entries(SINK_ID)]


@dataclass(frozen=True)
class _Named(Ground):
    """One table of several."""

    short: str = "t"

    @property
    def name(self) -> str:
        return f"{self.namespace}.{self.short}"


def _last(properties: dict[str, str]) -> int:
    ledger = json.loads(properties.get(f"frazil.sink.{SINK_ID}", "{}"))
    return int(ledger.get("lead", ledger.get("batch", 0)))


class Teller:
    """A :class:`RoutedWriter` and what it reported."""

    def __init__(self, bank: Bank, retry: RetrySettings, sink: SinkSpec) -> None:
        self.session = bank.ground.session()
        self.events: list[Event] = []
        self.writer = RoutedWriter(WriterSetup(self.session, SINK_ID, "transfers", retry, self.events.append), sink)

    def open(self) -> int:
        """Claims the sink; how many transfers the tables hold."""
        return row_of((state := self.writer.open()) and state.end)

    def write(self, first: int, last: int) -> None:
        """Commits the transfers from one number up to another."""
        part = Part("transfers", row_position(first), row_position(last) or "", 2 * (last - first))
        self.writer.write(transfers(self.session, first, last), part)


def transfers(session: SparkSession, first: int, last: int) -> DataFrame:
    """Two rows each."""
    numbers = session.range(first, last, 1, 1)
    return numbers.selectExpr(f"'{OURS}' as writer", "id", f"explode(array('{DEBIT}', '{CREDIT}')) as kind")


def sqlite_bank(spark: SparkSession, folder: Path) -> Bank:
    """In a SQLite file."""
    ground = sqlite_ground(spark, folder)

    def locations() -> list[tuple[str, str]]:
        with sqlite3.connect(folder / "catalog.db", timeout=20) as database:
            return database.execute(BOTH_AT_ONCE.format(ground.namespace)).fetchall()

    return Bank(ground, locations)


def postgres_bank(spark: SparkSession, folder: Path, server: Postgres) -> Bank:
    """In a database of its own."""
    uri, warehouse = server.create_database(f"bank_{folder.name}".replace("-", "_")[:60]), (folder / "warehouse").as_uri()
    sql = {"uri": uri, "user": server.user, "password": server.password, "warehouse": warehouse}
    spec = CatalogSpec.model_validate({"type": "sql", "sql": sql})
    address = uri.replace("postgresql://", f"postgresql+psycopg2://{server.user}:{server.password}@")
    ground = replace(sqlite_ground(spark, folder), spec=spec, direct=load_catalog("lake", type="sql", uri=address))

    def locations() -> list[tuple[str, str]]:
        with psycopg.connect(uri, user=server.user, password=server.password) as database:
            return database.execute(BOTH_AT_ONCE.format(ground.namespace)).fetchall()  # type: ignore[arg-type]

    return Bank(ground, locations)


@contextmanager
def watched(bank: Bank) -> Iterator[list[dict[str, int]]]:
    """What a reader sees of the ledgers, again and again, as long as the block."""
    seen: list[dict[str, int]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if len(found := bank.batches()) >= len((DEBIT, CREDIT, HOME)) and (not seen or seen[-1] != found):
                seen.append(found)
            time.sleep(0.01)

    reader = threading.Thread(target=run_together, args=([watch],))
    reader.start()
    try:
        yield seen
    finally:
        over.set()
        reader.join()


def apart(seen: list[dict[str, int]]) -> list[dict[str, int]]:
    """The moments at which one table had a batch and another did not."""
    return [found for found in seen if len(set(found.values())) > 1]
