"""Trino reads what frazil writes: types, formats, deletes, branches, earlier columns. What it refuses, it refuses by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalogs.beside import Both, both_at, properties_of
from catalogs.places import place
from catalogs.test_trino_modes import KEYS, UPSERTS, VERSIONS
from columns.test_type_matrix import COLUMNS, ROWS, in_order, typed_frame
from helpers.lakes import sqlite_lake
from services.trino import Trino, TrinoError
from write import test_key_types as by_type

pytestmark = pytest.mark.slow(seconds=4)


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    with both_at("SQLite, local files", sqlite_lake(spark, tmp_path), request.getfixturevalue) as found:
        yield found


@VERSIONS
@pytest.mark.parametrize("strategy", ["equality_delete", "position"])
@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_deletes_are_read_beside_files_of_each_format(both: Both, file_format: str, strategy: str, version: int) -> None:
    for batch in UPSERTS:
        both.lake.sink(batch, **KEYS, upsert_strategy=strategy, file_format=file_format, format_version=version).write()
    assert {row.file_format.lower() for row in both.lake.meta("data_files")} == {file_format}
    assert len(both.rows()) == 8


@VERSIONS
def test_every_type_comes_back_as_it_was(both: Both, version: int) -> None:
    both.lake.sink(typed_frame(both.lake.spark), schema=COLUMNS, format_version=version).write()
    found = [dict(zip(COLUMNS, row, strict=True)) for row in both.trino.run("select * from db.t")]
    for row, wanted in zip(in_order(found), in_order(ROWS), strict=True):
        for name in COLUMNS:
            assert row[name] == wanted[name], f"{name} of row {wanted['n']}"


def test_a_table_is_read_at_each_snapshot_with_the_columns_that_it_had(both: Both) -> None:
    full: dict[str, Any] = {"schema_evolution": "full", "aliases": {"full_name": "name"}}
    both.lake.sink("select 1 id, 'a' name, 1 n", partition_by=["id"], **full).write()
    both.lake.sink("select 2 id, 'b' full_name, 2L n", partition_by=["id"], **full).write()
    both.lake.sink("select 3 id, 'c' full_name, 3L n, true new", partition_by=["bucket(2, n)"], **full).write()
    assert both.rows() == [(1, "a", 1, None), (2, "b", 2, None), (3, "c", 3, True)]
    assert [len(both.rows(at=row.snapshot_id)) for row in both.lake.data_snapshots()] == [1, 2, 3]


def test_branches_tags_and_times_are_read(both: Both) -> None:
    first = both.lake.sink("select 1 id", id="main").write()
    both.lake.spark.sql(f"alter table {both.lake.name}.db.t create tag early")
    both.lake.sink("select 2 id", id="audit", branch="audit").write()
    both.lake.sink("select 3 id", id="main").write()
    assert both.rows() == [(1,), (3,)]
    assert both.trino.rows(at="audit") == [(1,), (2,)]
    assert both.trino.rows(at="early") == [(1,)]
    (committed,) = (row.committed_at for row in both.lake.meta("snapshots") if row.snapshot_id == first.snapshot)
    time = committed.astimezone().isoformat(sep=" ")
    assert both.trino.run(f"select * from db.t for timestamp as of timestamp '{time}'") == [(1,)]


def test_equality_deletes_are_read_whatever_their_columns_are(both: Both) -> None:
    for number, kind in enumerate(kind for kind in by_type.KEYS if kind not in by_type.MERGED):
        table, keys = f"db.t{number}", list(range(len(by_type.KEYS[kind])))
        for value, of in (("a", keys), ("b", keys[1:])):
            by_type.upsert(both.lake, kind, value, of, 2, table=table, upsert_strategy="equality_delete")
        assert sorted(both.trino.run(f"select n, v from {table}")) == [(0, "a"), *((n, "b") for n in keys[1:])], kind


def test_equality_deletes_are_read_where_a_column_of_theirs_is_null_or_has_the_partition(both: Both) -> None:
    replaced: dict[str, Any] = {"commit_mode": "delete_insert", "replace_by": [["day"], ["id", "v"]], "partition_by": ["day"]}
    both.lake.sink("select id, cast(id div 2 as int) day, 'a' v from range(4) union all select 9L, null, 'a'", **replaced).write()
    both.lake.sink("select 5L id, 1 day, 'b' v union all select 9L, 3, 'a' union all select null, null, 'b'", **replaced).write()
    assert both.lake.data_snapshots()[-1].summary["total-equality-deletes"] != "0"
    assert both.rows() == [(0, 0, "a"), (1, 0, "a"), (5, 1, "b"), (9, 3, "a"), (None, None, "b")]


def test_variants_are_read_and_written(both: Both) -> None:
    rows = 'select 1 n, parse_json(\'{"a": [1, null, "x"]}\') v'
    both.lake.sink(rows, schema={"n": "int", "v": "variant"}, format_version=3).write()
    assert both.trino.rows() == [(1, '{"a":[1,null,"x"]}')]
    both.trino.run("insert into db.t values (2, cast(json '{\"b\": 7}' as variant))")
    assert both.lake.rows("n, to_json(v)") == [(1, '{"a":[1,null,"x"]}'), (2, '{"b":7}')]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_files_are_read_however_they_are_compressed(both: Both, file_format: str) -> None:
    codecs = ["none", "snappy", "gzip", "zstd", *(["lz4"] if file_format == "orc" else [])]
    for codec in codecs:
        options = {"file_format": file_format, "compression": codec}
        both.lake.sink("select id, repeat('x', 1000) v from range(100)", f"db.{codec}", **options).write()
        assert len(both.rows(f"db.{codec}")) == 100


def test_parquet_with_lz4_or_brotli_is_refused(both: Both) -> None:
    """When it is not, the page on catalogs is to say so."""
    both.lake.sink("select id, repeat('x', 1000) v from range(100)", compression="lz4").write()
    with pytest.raises(TrinoError, match="INVALID_TABLE_PROPERTY: Unsupported compression codec: LZ4_RAW"):
        both.trino.rows()
    name = f"{both.lake.name}.db.t"
    both.lake.spark.sql(f"alter table {name} set tblproperties ('write.parquet.compression-codec' = 'brotli')")
    with pytest.raises(TrinoError, match="INVALID_TABLE_PROPERTY: Unsupported compression codec: BROTLI"):
        both.trino.rows()
    both.lake.spark.sql(f"alter table {name} unset tblproperties ('write.parquet.compression-codec')")
    with pytest.raises(TrinoError, match="GENERIC_INTERNAL_ERROR: Could not decompress page"):
        both.trino.rows()


def test_a_table_whose_name_has_capitals_is_not_found(both: Both) -> None:
    both.lake.sink("select 1 `Id`", "db.Orders").write()
    with pytest.raises(TrinoError, match="TABLE_NOT_FOUND"):
        both.trino.rows('db."Orders"')
    both.lake.sink("select 1 `Id`", "db.orders").write()
    assert both.rows("db.orders") == [(1,)]


def test_a_sql_catalog_is_opened_when_its_tables_are_there(spark: SparkSession, tmp_path: Path, trino: Trino) -> None:
    with place("SQLite, local files", sqlite_lake(spark, tmp_path), lambda _: None) as found:
        with (
            pytest.raises(TrinoError, match="Cannot check and eventually update SQL schema"),
            trino.catalog(properties_of(found)),
        ):
            pass
        found.lake.sink("select 1 id").write()
        with trino.catalog(properties_of(found)) as catalog:
            assert catalog.rows() == [(1,)]
