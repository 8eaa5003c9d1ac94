"""Trino reads what frazil writes, row for row: every mode, every snapshot, every type; or refuses it, in its own words.

Through which catalogs is shown by `test_trino_catalogs.py`; here it is a SQL catalog in SQLite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalogs.beside import Both, both_at, properties_of
from catalogs.places import place
from columns.test_type_matrix import COLUMNS, ROWS, in_order, typed_frame
from helpers.lakes import sqlite_lake
from services.trino import Trino, TrinoError
from write.test_key_types import KEYS as KEYS_BY_TYPE
from write.test_key_types import MERGED, upsert

pytestmark = pytest.mark.slow

KEYS: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["id"], "op_field": "op"}
UPSERTS = (
    "select id, 'a' v, 'insert' op from range(8)",
    "select id, 'b' v, 'update' op from range(2, 5) union all select 6L, null, 'delete' union all select 9L, 'b', 'insert'",
    "select id, 'c' v, 'update' op from range(3, 8) union all select 0L, null, 'delete'",
)
DAYS = (
    "select id, cast(id div 3 as int) day, 'a' v from range(9)",
    "select id + 10 id, 1 day, 'b' v from range(2)",
    "select id + 30 id, 1 day, 'c' v from range(1)",
)
VERSIONED = (
    "select id, 'a' v, timestamp'2026-11-15T10:00:00Z' at, 'insert' op from range(4)",
    "select id, 'b' v, timestamp'2026-11-15T12:00:00Z' at, 'update' op from range(2) "
    "union all select 3L, null, timestamp'2026-11-15T11:00:00Z', 'delete'",
    "select 0L id, 'late' v, timestamp'2026-11-15T11:30:00Z' at, 'update' op",
)


@dataclass(frozen=True)
class Mode:
    """A way of writing, its batches, and how many rows the table has after each of them."""

    options: dict[str, Any]
    batches: tuple[str, ...]
    counts: tuple[int, ...]


def upserts(**options: Any) -> Mode:
    return Mode(KEYS | options, UPSERTS, (8, 8, 8))


MODES = {
    "append": Mode({}, DAYS, (9, 11, 12)),
    "overwrite": Mode({"commit_mode": "overwrite", "partition_by": ["day"]}, DAYS, (9, 8, 7)),
    "overwrite_where": Mode({"commit_mode": "overwrite", "overwrite_where": "day = 1"}, DAYS[1:], (2, 1)),
    "equality_delete": upserts(upsert_strategy="equality_delete"),
    "equality_delete, partitioned": upserts(upsert_strategy="equality_delete", partition_by=["bucket(2, id)"]),
    "equality_delete, settled": upserts(upsert_strategy="equality_delete", max_equality_deletes=0),
    "position": upserts(upsert_strategy="position"),
    "merge": upserts(upsert_strategy="merge"),
    "copy-on-write": upserts(upsert_strategy="merge", merge_mode="copy-on-write"),
    "delete_insert": Mode({"commit_mode": "delete_insert", "replace_by": ["day"]}, DAYS, (9, 8, 7)),
    "history": Mode(KEYS | {"order_by": ["at"], "history": "scd2"}, VERSIONED, (4, 7, 8)),
}
VERSIONS = pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    with both_at("SQLite, local files", sqlite_lake(spark, tmp_path), request.getfixturevalue) as found:
        yield found


@VERSIONS
@pytest.mark.parametrize("mode", MODES)
def test_each_batch_of_each_mode_is_read_row_for_row_now_and_later(both: Both, mode: str, version: int) -> None:
    found = []
    for batch in MODES[mode].batches:
        both.lake.sink(batch, format_version=version, **MODES[mode].options).write()
        found.append(both.rows())
    assert tuple(len(rows) for rows in found) == MODES[mode].counts
    at_snapshots = [both.rows(at=row.snapshot_id) for row in both.lake.meta("snapshots")]
    assert all(rows in at_snapshots for rows in found)


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
    for number, kind in enumerate(kind for kind in KEYS_BY_TYPE if kind not in MERGED):
        table, keys = f"db.t{number}", list(range(len(KEYS_BY_TYPE[kind])))
        for value, of in (("a", keys), ("b", keys[1:])):
            upsert(both.lake, kind, value, of, 2, table=table, upsert_strategy="equality_delete")
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
