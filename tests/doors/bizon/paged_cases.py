"""Bizon files whose source is a class of the test, which serves pages out of a file that the test writes."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from bizon_cases import DESTINATION, run
from pyspark.sql import DataFrame, SparkSession

from frazil.doors.bizon import load_text
from frazil.model.events import Event
from frazil.model.pipeline import ProjectSpec
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for

# Serves the pages of `pages.json` beside it, and writes down each call in `calls.jsonl`.
SOURCE = """\
import json
from pathlib import Path

from pydantic import Field
from requests.auth import AuthBase

from bizon.source.config import SourceConfig
from bizon.source.models import SourceIteration, SourceRecord
from bizon.source.source import AbstractSource

HERE = Path(__file__).parent


class ShelfConfig(SourceConfig):
    shelf: str = Field("a", description="Which pages.")
    most: int = Field(100, ge=1)
    options: dict = Field(default_factory=dict)


class Shelf(AbstractSource):
    @staticmethod
    def streams():
        return ["books", "papers"]

    @staticmethod
    def get_config_class():
        return ShelfConfig

    def get_authenticator(self):
        return None

    def check_connection(self):
        return not (HERE / "away").exists(), "the shelf is gone"

    def get_total_records_count(self):
        return None

    def get(self, pagination=None):
        return self._page(pagination, None)

    def get_records_after(self, source_state, pagination=None):
        return self._page(pagination, source_state)

    def commit(self):
        self._note(commit=True)

    def _page(self, pagination, state):
        number = (pagination or {}).get("page", 0)
        since = None if state is None else [state.last_run.isoformat(), state.state, state.cursor_field,
                                           state.run_started_at.isoformat()]
        self._note(page=number, since=since)
        shelf = json.loads((HERE / "pages.json").read_text())
        pages = shelf["pages"]
        records = [
            SourceRecord(id=one["id"], data=one, timestamp=one.get("ts") or "2026-01-31T12:00:00Z", destination_id=one.get("to"))
            for one in (pages[number] if number < len(pages) else [])
        ]
        if any(one.data.get("raise") for one in records):
            raise KeyError("of the shelf")
        more = {"page": number + 1} if number + 1 < len(pages) else {}
        return SourceIteration(next_pagination=more, records=records, next_state=None if more else shelf.get("state"))

    def _note(self, **call):
        with (HERE / "calls.jsonl").open("a") as file:
            file.write(json.dumps(call) + "\\n")
"""

FILE = (
    """\
name: shelf
source:
  name: shelf
  stream: books
  source_file_path: {folder}/shelf.py
{source}
"""
    + DESTINATION
)

COLUMNS = """\
destination_id: books
destination_table_config:
  - destination_id: books
    iceberg_schema: [{name: id, type: long}, {name: title, type: string}]
"""


@dataclass
class Shelf:
    """A folder with a source, its pages, and the tables that they are led to."""

    spark: SparkSession
    folder: Path
    catalog: str = field(default_factory=lambda: f"c{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        (self.folder / "shelf.py").write_text(SOURCE)

    def put(self, *pages: list[dict[str, Any]], state: dict[str, Any] | None = None) -> None:
        """From now on these are the pages."""
        (self.folder / "pages.json").write_text(json.dumps({"pages": pages, "state": state}))

    def text(self, source: str = "", config: str = COLUMNS) -> str:
        """A whole file."""
        return FILE.format(
            folder=self.folder, catalog=self.catalog, source=indent(dedent(source), "  "), config=indent(dedent(config), "    ")
        )

    def project(self, source: str = "", config: str = COLUMNS) -> ProjectSpec:
        """The file as it is loaded."""
        return load_text(self.text(source, config), "shelf.yaml", {})

    def run(self, source: str = "", config: str = COLUMNS) -> list[Event]:
        """Runs it until all that is there was read."""
        return run(self.project(source, config))

    def calls(self) -> list[Any]:
        """What the source was asked for since the last look: pages with what is told of the last run, and commits."""
        file = self.folder / "calls.jsonl"
        found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        file.unlink(missing_ok=True)
        return ["commit" if "commit" in one else (one["page"], one["since"]) for one in found]

    def table(self, name: str = "books", kind: str = "") -> DataFrame:
        """A table as Spark reads it."""
        session = session_for(self.spark, catalog_settings(self.project().pipelines[0].sink))
        return session.read.table(f"{self.catalog}.ns.{name}{kind}")

    def rows(self, name: str = "books", *columns: str) -> list[tuple[Any, ...]]:
        """Its rows in order."""
        return sorted((tuple(row) for row in self.table(name).select(*(columns or ("*",))).collect()), key=repr)

    def data_snapshots(self, name: str = "books") -> int:
        """How many commits brought a batch."""
        return sum(row.summary.get("frazil.kind") == "data" for row in self.table(name, ".snapshots").collect())


def books(*numbers: int, **more: Any) -> list[dict[str, Any]]:
    """A page with these books."""
    return [{"id": number, "title": f"t{number}", **more} for number in numbers]
