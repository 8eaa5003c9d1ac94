"""A lake for dlt pipelines: a SQLite catalog in a folder, the pipelines that write to it, and a reader that is not frazil's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dlt
from dlt.common.pipeline import LoadInfo
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from frazil.dlt import iceberg_rest

NAMESPACE = "analytics"


@dataclass(frozen=True)
class DltLake:
    """A catalog and a warehouse in one folder, and the folder in which dlt keeps its pipelines."""

    folder: Path

    def destination(self, **options: Any) -> iceberg_rest:
        """The destination, as users write it."""
        return iceberg_rest(**self.settings | options)

    @property
    def settings(self) -> dict[str, Any]:
        """What every destination of this lake needs."""
        uri = f"sqlite:///{self.folder / 'catalog.db'}"
        return {"catalog_uri": uri, "warehouse": str(self.folder / "warehouse"), "namespace": NAMESPACE}

    def pipeline(self, name: str = "p", **options: Any) -> dlt.Pipeline:
        """A pipeline into this lake."""
        return dlt.pipeline(
            name, destination=self.destination(**options), dataset_name="ds", pipelines_dir=str(self.folder / "dlt")
        )

    @property
    def catalog(self) -> SqlCatalog:
        """The catalog as PyIceberg sees it."""
        warehouse = (self.folder / "warehouse").as_uri()
        return SqlCatalog("dlt_catalog", uri=f"sqlite:///{self.folder / 'catalog.db'}", warehouse=warehouse)

    def table(self, name: str) -> Table:
        """A table as PyIceberg sees it."""
        return self.catalog.load_table((NAMESPACE, name))

    def tables(self) -> set[str]:
        """The tables that the catalog knows."""
        return {name for _, name in self.catalog.list_tables(NAMESPACE)}

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows of a table in the order of their columns."""
        found = self.table(table).scan(selected_fields=columns or ("*",)).to_arrow().to_pylist()
        return sorted((tuple(row[name] for name in columns) if columns else tuple(row.values()) for row in found), key=repr)

    def snapshots(self, table: str) -> list[dict[str, str]]:
        """What the snapshots of a table that brought rows say of themselves, from old to new."""
        every = [dict(one.summary.additional_properties) for one in self.table(table).snapshots() if one.summary]
        return [summary for summary in every if summary.get("frazil.kind") == "data"]


def resource(rows: Sequence[dict[str, Any]], name: str = "t", **hints: Any) -> Any:
    """A resource of some rows."""
    return dlt.resource(list(rows), name=name, **hints)


def loaded(info: LoadInfo) -> LoadInfo:
    """The load, which has left nothing undone."""
    info.raise_on_failed_jobs()
    return info
