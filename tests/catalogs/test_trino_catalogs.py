"""Trino and frazil in one catalog: each reads, and writes into, what the other has made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalogs.beside import Both, blocks, both_at, properties_of, warehouse_of
from frazil.errors import Halted
from helpers.lakes import StopAfter, fresh_name, run, sqlite_lake
from services.trino import TrinoError

pytestmark = pytest.mark.slow(seconds=3)

# Places, and the titles of Trino's catalogs where they have others.
PLACES = {
    "SQLite, local files": "",
    "SQLite, S3": "",
    "PostgreSQL, local files": "",
    "PostgreSQL, S3": "",
    "MariaDB, local files": "",
    "REST, local files": "",
    "REST, S3": "",
    "Nessie, S3": "",
    "Nessie, S3, by its own protocol": "Nessie by its own protocol",
    "Hive metastore, local files": "",
    "Hive metastore, S3": "",
    "Glue, S3": "",
}
UPSERT: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["id"]}


@pytest.fixture(params=PLACES)
def both(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Both]:
    title = request.param.removesuffix(", by its own protocol")
    with both_at(title, sqlite_lake(spark, tmp_path), request.getfixturevalue, PLACES[request.param]) as found:
        yield found


def test_every_block_of_the_page_is_run() -> None:
    stores = {"local files", "S3"}
    assert blocks().keys() == stores | {catalog or place.partition(", ")[0] for place, catalog in PLACES.items()}


def test_what_frazil_writes_is_read_at_every_snapshot(both: Both) -> None:
    table = f"{fresh_name()}.t"
    for strategy, batch in (
        ("append", "select id, 'a' v from range(6)"),
        ("equality_delete", "select id, 'b' v from range(2, 4)"),
        ("position", "select id, 'c' v from range(3, 8)"),
    ):
        options = {} if strategy == "append" else UPSERT | {"upsert_strategy": strategy}
        both.lake.sink(batch, table, **options, format_version=3).write()
        both.rows(table)
    assert both.rows(table) == [(0, "a"), (1, "a"), (2, "b"), *[(n, "c") for n in range(3, 8)]]
    assert all(both.rows(table, row.snapshot_id) is not None for row in both.lake.meta("snapshots", table))


def test_a_table_of_trino_is_a_sink(both: Both) -> None:
    namespace = fresh_name()
    table = f"{namespace}.t"
    # A metastore puts those that do not say where into its own folder.
    where = (
        f" with (location = '{warehouse_of(both.place)}/{namespace}.db')"
        if not {"hive", "glue"}.isdisjoint(both.lake.catalog)
        else ""
    )
    both.trino.run(f"create schema {namespace}{where}")
    both.trino.run(f"create table {table} (id bigint, v varchar)")
    both.trino.run(f"insert into {table} values (1, 'trino'), (2, 'trino')")
    both.lake.sink("select 3L id, 'a' v", table).write()
    both.lake.sink("select 2L id, 'b' v", table, **UPSERT, id="upserts").write()
    assert both.rows(table) == [(1, "trino"), (2, "b"), (3, "a")]


def test_a_pipeline_goes_on_after_trino_has_written(both: Both) -> None:
    table = f"{fresh_name()}.events"
    pipeline = both.lake.pipeline({"connector": "generator", "rows": 30}, table, batch_size=10)
    run(pipeline, once=True, stop=StopAfter(1))
    both.trino.run(f"insert into {table} (event_number, event_type) values (100, 'trino')")
    both.trino.run(f"update {table} set country = 'trino' where event_number = 1")
    both.trino.run(f"delete from {table} where event_number = 0")
    if not both.place.remembers:
        with pytest.raises(Halted) as stopped:
            run(pipeline, once=True)
        assert stopped.value.code == "rolled-back"
        return
    run(pipeline, once=True)
    found = both.trino.run(f"select event_number, country = 'trino' from {table}")
    assert sorted(n for n, _ in found) == [*range(1, 30), 100]
    assert [n for n, by_trino in found if by_trino] == [1]


def test_a_namespace_of_several_levels_is_one_name(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    namespace = f"{fresh_name()}.eu"
    table = f'"{namespace}".t'
    with both_at("SQLite, local files", sqlite_lake(spark, tmp_path), request.getfixturevalue) as both:
        both.lake.sink("select 1 id", f"{namespace}.t").write()
        assert both.trino.rows(table) == [(1,)]
    lake, nested = sqlite_lake(spark, tmp_path), {"iceberg.rest-catalog.nested-namespace-enabled": "true"}
    with both_at("REST, local files", lake, request.getfixturevalue) as both:
        both.lake.sink("select 1 id", f"{namespace}.t").write()
        with pytest.raises(TrinoError, match="NOT_SUPPORTED: Nested namespace is not enabled for this catalog"):
            both.trino.rows(table)
        with both.trino.server.catalog(properties_of(both.place) | nested) as catalog:
            assert catalog.rows(table) == [(1,)]


def test_a_rest_catalog_finds_names_with_capitals_if_it_is_told_to(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    namespace, told = fresh_name(), {"iceberg.rest-catalog.case-insensitive-name-matching": "true"}
    with both_at("REST, local files", sqlite_lake(spark, tmp_path), request.getfixturevalue) as both:
        both.lake.sink("select 1 id", f"{namespace}.Orders").write()
        with pytest.raises(TrinoError, match="TABLE_NOT_FOUND"):
            both.trino.rows(f"{namespace}.orders")
        with both.trino.server.catalog(properties_of(both.place) | told) as catalog:
            assert catalog.rows(f"{namespace}.orders") == [(1,)]
