"""Pipelines with tables in various states, made by PyIceberg as a sink makes them, and pages about them."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.table import Table

from cli.tables import SCHEMA, make_table, sqlite_catalog
from frazil.files import load_text
from frazil.model.commit import RowCounts, SinkState, position, state_property, summary_of
from frazil.ui.address import access
from frazil.ui.live import Live
from frazil.ui.server import served_ui
from frazil.ui.watched import Watched, watched

HEAD = """\
version: "1.0"
sources:
  numbers: {connector: generator, config: {rows_per_second: 1000}}
"""
SINK = """\
  {name}:
    connector: iceberg
    config:
      catalog: {{type: sql, name: lake, sql: {{uri: "sqlite:///{folder}/catalog.db", warehouse: "{folder}/warehouse"}}}}
      namespace: shop
      table: {table}
      flush_interval_secs: {flush}
      {options}
"""
LETTERS = pa.schema(
    [
        *((name, pa.string()) for name in ("pipeline", "table", "stage", "code", "error", "at")),
        ("raw", pa.binary()),
        ("failed_at", pa.timestamp("us", tz="UTC")),
        ("sink", pa.string()),
        ("batch", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Batch:
    """A batch to be committed: how many rows it has, and how many became dead letters."""

    rows: int
    letters: int = 0


def pipelines(
    folder: Path, tables: Mapping[str, str], options: str = "on_error: dead_letter", more: str = "", flush: int = 10
) -> Mapping[str, Watched]:
    """Pipelines into tables of one SQLite catalog, by name. ``more`` are further sinks, each with a pipeline of its name."""
    own = [SINK.format(name=name, folder=folder, table=table, options=options, flush=flush) for name, table in tables.items()]
    others = [line.strip().rstrip(":") for line in more.splitlines() if line.startswith("  ") and line[2] != " "]
    feeds = "".join(f"  {name}: {{source: numbers, sink: {name}}}\n" for name in [*tables, *others])
    text = f"{HEAD}sinks:\n{''.join(own)}{more}pipelines:\n{feeds}" if feeds else HEAD
    return watched([load_text(text, "frazil.yaml")])


def table(folder: Path, name: str) -> Table:
    """A new table in the catalog of the folder."""
    return make_table(sqlite_catalog(folder), ("shop", name))


@dataclass(frozen=True)
class Made:
    """One snapshot: a batch of a sink, or a claim by an instance where there is none, and how many seconds ago."""

    sink_id: str
    number: int
    ago: float
    batch: Batch | None = None
    epoch: int = 1
    instance: str = "one"


def commit(into: Table, *snapshots: Made) -> None:
    """These snapshots, and in the ledger the last one of each sink. All are one commit of the catalog, which is quick."""
    now_ms, ids, ledger = int(time.time() * 1000), {}, {}
    with into.transaction() as change:
        for one in snapshots:
            batch, at_ms = one.batch or Batch(0), now_ms - int(one.ago * 1000)
            start, end = position({"row": one.number - 1}), position({"row": one.number})
            state = SinkState(one.epoch, one.instance, one.number, "generator:0", start, end, at_ms=at_ms)
            counts = RowCounts(batch.rows + batch.letters, batch.rows, batch.letters) if one.batch is not None else None
            rows = pa.table({"id": range(batch.rows), "name": [f"event {n}" for n in range(batch.rows)]}, schema=SCHEMA)
            change.append(rows, summary_of(one.sink_id, state, counts, "0.1.0"))
            head = change.table_metadata.current_snapshot()
            assert head is not None
            ids[head.snapshot_id] = at_ms
            ledger[state_property(one.sink_id)] = state.in_snapshot(head.snapshot_id, head.sequence_number or 0).to_json()
        change.set_properties(ledger)
    _date(into, ids)


def fill(into: Table, sink_id: str, batches: Sequence[Batch], *, every: float = 10.0, ago: float = 0) -> None:
    """A claim, and commits so many seconds after each other, the last of which is so long ago."""
    claim = Made(sink_id, 0, ago + len(batches) * every)
    made = [Made(sink_id, number, ago + (len(batches) - number) * every, batch) for number, batch in enumerate(batches, 1)]
    commit(into, claim, *made)


def _date(into: Table, times: Mapping[int, int]) -> None:
    """Lets snapshots be of these times, which PyIceberg gives to nobody."""
    path = Path(urlsplit(into.metadata_location).path)
    found = json.loads(path.read_text())
    for one in [*found["snapshots"], *found["snapshot-log"]]:
        one["timestamp-ms"] = times.get(one["snapshot-id"], one["timestamp-ms"])
    path.write_text(json.dumps(found))


def letters(folder: Path, name: str, sink_id: str, reasons: Sequence[tuple[str, str, bytes]], batch: int = 1) -> None:
    """The table of dead letters of a table, with a record for each reason: its code, the words, and the record."""
    catalog = sqlite_catalog(folder)
    into = catalog.create_table(("shop", f"{name}__dead_letters"), LETTERS)
    now = datetime.now(UTC)
    rows = [
        {"pipeline": name, "table": f"shop.{name}", "stage": "decode", "code": code, "error": error, "raw": raw, "batch": batch,
         "at": json.dumps({"topic": name, "partition": number % 3, "offset": 41_200 + number}), "sink": sink_id,
         "failed_at": now - timedelta(seconds=3 * number)}
        for number, (code, error, raw) in enumerate(reasons)
    ]  # fmt: skip
    into.append(pa.Table.from_pylist(rows, schema=LETTERS))


@dataclass(frozen=True)
class Answer:
    """What a server has answered."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Pages:
    """A running web application."""

    url: str

    @property
    def port(self) -> int:
        """Its port."""
        return urlsplit(self.url).port or 0

    def get(self, path: str = "/", *, method: str = "GET", **headers: str) -> Answer:
        """Asks for a page. Redirects are not followed; underscores in names of headers are hyphens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, names, answer.read().decode())
        finally:
            connection.close()


@contextmanager
def served(
    of: Mapping[str, Watched] | None = None, live: Live | None = None, *, listen: str = "127.0.0.1:0", token: str | None = None
) -> Iterator[Pages]:
    """The web application about these pipelines, as long as the block."""
    with served_ui(access("--listen", listen, token), of or {}, live) as url:
        yield Pages(url)
