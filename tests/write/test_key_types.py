"""Keys of every type: rows are replaced, and their deletes settled, in whatever order files and Iceberg take the values to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import frazil
from helpers.lakes import Lake, sqlite_lake
from helpers.readers import by_duckdb, by_polars, by_pyiceberg
from iceberg.test_debt import totals

pytestmark = pytest.mark.slow

LONG = "a prefix that is longer than the bounds of files"
TIMES = ("1900-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2026-01-01 00:00:00.000001")
# Values of which some come before others by signed numbers and after them by unsigned bytes, or share all that bounds keep.
KEYS = {
    "boolean": ["true", "false"],
    "int": ["-2147483648", "-1", "0", "2147483647"],
    "long": ["-9223372036854775808", "-1", "0", "9223372036854775807"],
    "decimal(9, 2)": ["-9999999.99", "-0.01", "0.00", "9999999.99"],
    "decimal(38, 2)": [f"-{'9' * 36}.99", "-0.01", "0.00", f"{'9' * 36}.99"],
    "date": ["date'0001-01-01'", "date'1969-12-31'", "date'1970-01-01'", "date'9999-12-31'"],
    "timestamp": [f"timestamp_ntz'{time}'" for time in TIMES],
    "timestamptz": [f"timestamp'{time}Z'" for time in TIMES],
    "string": [f"'{LONG} {n}'" for n in "abc"] + ["''", "'\u00ff'", "'\uffee'", "'\U0001f600'"],
    "uuid": [f"'{first * 8}-0000-0000-0000-00000000000{last}'" for first in "07ef8" for last in "1f"],
    "fixed[4]": ["X'00000000'", "X'7FFFFFFF'", "X'80000000'", "X'FFFFFFFF'"],
    "binary": ["X''", "X'7F'", "X'80'", f"X'{'FF' * 20}'", f"X'{'FF' * 20}01'"],
}
# Iceberg's readers misread equality deletes of these.
MERGED = ("fixed[4]",)


@pytest.fixture(params=[2, 3], ids=lambda version: f"v{version}")
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def upsert(lake: Lake, kind: str, value: str, numbers: list[int], version: int, **options: Any) -> None:
    rows = ", ".join(f"({KEYS[kind][n]}, {n}, '{value}')" for n in numbers)
    given = {"schema": {"id": kind, "n": "int", "v": "string"}, "key_fields": ["id"], "format_version": version}
    lake.sink(f"select * from values {rows} t(id, n, v)", commit_mode="upsert", **given | options).write()


@pytest.mark.parametrize("kind", KEYS)
def test_rows_are_found_by_the_key_index(lake: Lake, kind: str) -> None:
    numbers = list(range(len(KEYS[kind])))
    for value in "abc":
        upsert(lake, kind, value, numbers if value != "c" else numbers[1:], 3, upsert_strategy="position")
    assert lake.data_snapshots()[-1].summary["frazil.upsert-strategy"] == "position"
    assert lake.rows("n, v") == [(n, "c" if n else "b") for n in numbers]


# What becomes of deletes differs by version, and how keys are compared does not: of those that are compared alike one is enough.
ALIKE = ("boolean", "int", "decimal(38, 2)", "date", "timestamp", "fixed[4]")


@pytest.mark.parametrize(("kind", "version"), [*((kind, 3) for kind in KEYS), *((kind, 2) for kind in KEYS if kind not in ALIKE)])
def test_rows_are_replaced_and_their_deletes_settled(lake: Lake, kind: str, version: int) -> None:
    numbers = list(range(len(KEYS[kind])))
    by_key = {} if kind in MERGED else {"upsert_strategy": "equality_delete"}
    upsert(lake, kind, "a", numbers, version, **by_key)
    upsert(lake, kind, "b", numbers, version, **by_key)
    assert lake.rows("n, v") == [(n, "b") for n in numbers]
    assert totals(lake)["total-equality-deletes"] == (0 if kind in MERGED else len(numbers))
    upsert(lake, kind, "c", numbers[1:], version, max_equality_deletes=0, **by_key)
    expected = [(n, "c" if n else "b") for n in numbers]
    assert lake.rows("n, v") == expected
    assert totals(lake)["total-equality-deletes"] == 0
    upsert(lake, kind, "d", numbers[:1], version, upsert_strategy="merge")
    assert lake.rows("n, v") == [(0, "d"), *expected[1:]]


@pytest.mark.parametrize("partition", [["bucket(2, id)"], ["id"]], ids=["bucket", "identity"])
def test_uuids_in_partitions(lake: Lake, partition: list[str], version: int) -> None:
    numbers = list(range(len(KEYS["uuid"])))
    by_key: dict[str, Any] = {"upsert_strategy": "equality_delete"}
    for value, options in (
        ("a", {}),
        ("b", by_key),
        ("c", by_key | {"max_equality_deletes": 0}),
        ("d", {"upsert_strategy": "merge"}),
    ):
        upsert(lake, "uuid", value, numbers, version, partition_by=partition, **options)
        assert lake.rows("n, v") == [(n, value) for n in numbers]


@pytest.mark.parametrize("files", ["orc", "avro"])
@pytest.mark.parametrize("kind", ["uuid", "timestamp", "string"])
def test_files_of_other_formats(lake: Lake, kind: str, files: str) -> None:
    numbers = list(range(len(KEYS[kind])))
    for value, options in (("a", {}), ("b", {}), ("c", {"max_equality_deletes": 0})):
        upsert(lake, kind, value, numbers, 2, file_format=files, **options)
        assert lake.rows("n, v") == [(n, value) for n in numbers]


def test_deletes_that_readers_misread_are_not_written(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match="misread values of type fixed"):
        upsert(lake, "fixed[4]", "a", [0, 1], 3, upsert_strategy="equality_delete")
    schema = {"id": "fixed[4]", "n": "int"}
    for first in (0, 10):
        rows = ", ".join(f"({key}, {first + n})" for n, key in enumerate(KEYS["fixed[4]"]))
        options = {"commit_mode": "delete_insert", "replace_by": [["id"], ["n"]], "schema": schema}
        lake.sink(f"select * from values {rows} t(id, n)", **options).write()
    assert lake.rows("n") == [(10,), (11,), (12,), (13,)]


def test_other_readers_find_the_rows_of_uuids(lake: Lake, tmp_path: Path, version: int) -> None:
    # DuckDB and Polars read no addresses with a blank in them.
    lake = sqlite_lake(lake.spark, tmp_path)
    numbers = list(range(len(KEYS["uuid"])))
    for value in "ab":
        upsert(lake, "uuid", value, numbers, version)
    assert sorted((row["n"], row["v"]) for row in by_duckdb(lake)) == [(n, "b") for n in numbers]
    upsert(lake, "uuid", "c", numbers, version, max_equality_deletes=0)
    for read in (by_duckdb, by_pyiceberg, by_polars):
        assert sorted((row["n"], row["v"]) for row in read(lake)) == [(n, "c") for n in numbers]
