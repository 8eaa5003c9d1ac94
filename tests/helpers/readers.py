"""Readers that frazil did not write."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from helpers.lakes import Lake

EXTENSIONS = ("avro", "httpfs", "iceberg")

Rows = list[dict[str, Any]]


def by_spark(lake: Lake, snapshot: int | None = None) -> Rows:
    """Spark, which is no stranger, for comparison."""
    return [row.asDict(recursive=True) for row in lake.table(at=snapshot).collect()]


def by_pyiceberg(lake: Lake, snapshot: int | None = None) -> Rows:
    """PyIceberg, through the catalog."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog(lake.name, uri=f"sqlite:///{lake.folder / 'catalog.db'}")
    try:
        found: Rows = catalog.load_table("db.t").scan(snapshot_id=snapshot).to_arrow().to_pylist()
        return found
    finally:
        catalog.engine.dispose()


def by_polars(lake: Lake, snapshot: int | None = None) -> Rows:
    """Polars, from the metadata file."""
    import polars

    return polars.scan_iceberg(newest_metadata(lake), snapshot_id=snapshot).collect().to_dicts()


def by_duckdb(lake: Lake, snapshot: int | None = None) -> Rows:
    """DuckDB, from the metadata file."""
    import duckdb

    past = f", snapshot_from_id={snapshot}::ubigint" if snapshot else ""
    with duckdb.connect() as connection:
        for name in EXTENSIONS:
            connection.load_extension(str(extension_file(name)))
        query = f"select * from iceberg_scan('{newest_metadata(lake)}'{past})"
        found: Rows = connection.sql(query).to_arrow_table().to_pylist()
        return found


def tuples(rows: Rows) -> list[tuple[Any, ...]]:
    """The rows' values, in order."""
    return sorted((tuple(row.values()) for row in rows), key=repr)


def extension_file(name: str) -> Path:
    """Where a package has put an extension of DuckDB."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.rglob(f"{name}.duckdb_extension"))


def newest_metadata(lake: Lake) -> str:
    """The path of the table's current metadata file."""
    log = lake.spark.table(f"{lake.name}.db.t.metadata_log_entries").orderBy("timestamp").collect()
    return str(log[-1].file).removeprefix("file://")
