"""Trino in the places of the matrix: its catalogs are those of `docs/catalogs.md`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from string import Template
from typing import Any

from catalogs.places import PAGE, Place, place
from helpers.lakes import Lake
from services.trino import Trino, TrinoCatalog

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Both:
    """A place, and Trino's way to it."""

    place: Place
    trino: TrinoCatalog

    @property
    def lake(self) -> Lake:
        """The place as frazil and Spark see it."""
        return self.place.lake

    def rows(self, table: str = "db.t", at: int | None = None) -> Rows:
        """The rows as Spark reads them, after Trino was found to read the same."""
        rows = self.lake.rows(table=table, at=at)
        assert in_utc(self.trino.rows(table, at)) == in_utc(rows)
        return rows

    def snapshots(self, table: str = "db.t") -> list[int]:
        """The snapshots that are in the history of the table, after Trino was found to read the same rows at each of them."""
        known = [row.snapshot_id for row in self.lake.meta("snapshots", table)]
        for snapshot in known:
            self.rows(table, snapshot)
        return known


@contextmanager
def both_at(title: str, lake: Lake, services: Callable[[str], Any], catalog: str = "", **more: str) -> Iterator[Both]:
    """One of the places, as long as the block, in the folder of a lake. ``services`` starts a service by its fixture's name.

    ``catalog``: the title of Trino's catalog if it is not that of the place. ``more``: further properties of it.
    """
    with place(title, lake, services) as found:
        # Makes the tables of a SQL catalog, which Trino does not.
        found.doors()
        trino: Trino = services("trino")
        with trino.catalog(properties_of(found, catalog) | more) as opened:
            yield Both(found, opened)


def blocks() -> dict[str, str]:
    """What the page has for files of Trino's, by their titles: catalogs, and stores."""
    return dict(re.findall(r"```properties\n# (.*?)\n(.*?)```", PAGE.read_text(), re.DOTALL))


def properties_of(place: Place, catalog: str = "") -> dict[str, str]:
    """The lines that tell Trino of the catalog and the store of a place."""
    of_place, _, store = place.title.partition(", ")
    variables = {**place.variables, "CATALOG": place.lake.name, "WAREHOUSE": warehouse_of(place)}
    text = Template(blocks()[catalog or of_place] + blocks()[store]).substitute(variables)
    return dict(line.split("=", 1) for line in text.splitlines())


def warehouse_of(place: Place) -> str:
    """Where new tables are put, if the catalog does not decide that."""
    given = place.variables
    return f"s3://{given['BUCKET']}/warehouse" if "BUCKET" in given else f"file://{given['FOLDER']}/warehouse"


def in_utc(rows: Rows) -> Rows:
    """The rows in order, with their times in UTC: Spark returns those with a zone in that of the machine."""
    found = [tuple(v.astimezone(datetime.UTC) if isinstance(v, datetime.datetime) else v for v in row) for row in rows]
    return sorted(found, key=repr)
