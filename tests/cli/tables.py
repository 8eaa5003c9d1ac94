"""Tables made by PyIceberg, so that looking at them needs no Spark either."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from sqlalchemy import URL

from frazil.model.commit import RowCounts, SinkState, position, state_property, summary_of

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def sqlite_catalog(folder: Path, name: str = "lake") -> SqlCatalog:
    """The catalog that `sql_pipeline` names."""
    uri = URL.create("sqlite", database=str(folder / "catalog.db")).render_as_string()
    return SqlCatalog(name, uri=uri, warehouse=f"file://{folder / 'warehouse'}")


def make_table(catalog: Catalog, name: tuple[str, ...] = ("shop", "events"), properties: dict[str, str] | None = None) -> Table:
    """An empty table; its namespace is made too."""
    catalog.create_namespace_if_not_exists(name[:-1])
    return catalog.create_table(name, SCHEMA, properties=properties or {})


def add_rows(table: Table, count: int, first: int = 0, summary: dict[str, str] | None = None) -> None:
    """One commit."""
    ids = list(range(first, first + count))
    table.append(pa.table({"id": ids, "name": [f"n{number}" for number in ids]}, schema=SCHEMA), summary or {})


def commit(table: Table, batch: int, *, sink_id: str = "load/lake", rows: int = 10, ago_seconds: float = 0) -> SinkState:
    """One commit as frazil makes it: the rows, what the summary says of them, and the ledger's entry."""
    at_ms = int((time.time() - ago_seconds) * 1000)
    start, end = position({"row": (batch - 1) * rows}), position({"row": batch * rows})
    state = SinkState(epoch=3, instance="abc", batch=batch, source="generator:0", start=start, end=end, at_ms=at_ms)
    with table.transaction() as change:
        summary = summary_of(sink_id, state, RowCounts(rows, rows), "0.1.0")
        ids = list(range((batch - 1) * rows, batch * rows))
        change.append(pa.table({"id": ids, "name": [str(number) for number in ids]}, schema=SCHEMA), summary)
    head = table.current_snapshot()
    assert head is not None
    state = state.in_snapshot(head.snapshot_id, head.sequence_number or 0)
    with table.transaction() as change:
        change.set_properties({state_property(sink_id): state.to_json()})
    return state
