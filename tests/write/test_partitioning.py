"""Partitions: every strategy and transform, from source columns only; and when rows are shuffled to them."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet
import pytest

import frazil
from helpers.lakes import Lake, run

GENERATOR = {"connector": "generator", "rows": 60}
EVERY_TYPE = (
    "select id, concat('name-', id) name, cast(id % 3 as string) region, timestamp_seconds(id * 4000000) y,"
    " timestamp_seconds(id * 400000) m, timestamp_seconds(id * 40000) d, timestamp_seconds(id * 1800) h, id % 2 unused"
    " from range(20)"
)


def spec(lake: Lake) -> list[tuple[str, str]]:
    """The fields of the table's partition spec: name and transform."""
    metadata = lake.metadata()
    found = next(one for one in metadata["partition-specs"] if one["spec-id"] == metadata["default-spec-id"])
    return [(field["name"], field["transform"]) for field in found["fields"]]


def partitions(lake: Lake) -> list[dict[str, Any]]:
    return [row.partition.asDict() for row in lake.meta("partitions")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"partitioning": "none"}, []),
        ({"partitioning": "table_default"}, []),
        (
            {"partitioning": "identity", "partition_fields": ["country", "event_type"]},
            [("country", "identity"), ("event_type", "identity")],
        ),
        (
            {"partitioning": "bucket", "partition_fields": ["user_id"], "num_buckets": 4},
            [("user_id_bucket_4", "bucket[4]")],
        ),
        ({"partitioning": "time", "partition_fields": ["event_time"]}, [("event_time_day", "day")]),
        (
            {"partitioning": "time", "partition_fields": ["event_time"], "time_granularity": "hour"},
            [("event_time_hour", "hour")],
        ),
        ({"partition_by": ["product.category"]}, [("product_category", "identity")]),
        (
            {"partition_by": [{"source": "event_time", "transform": "month", "name": "month"}]},
            [("month", "month")],
        ),
    ],
    ids=lambda value: ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_a_new_table_is_partitioned_as_asked(lake: Lake, options: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    run(lake.pipeline(GENERATOR, batch_size=40, **options), once=True)
    assert spec(lake) == expected
    assert lake.count() == 60


def test_every_transform_gives_the_values_that_iceberg_gives(lake: Lake) -> None:
    fields = ("region", "bucket(16, id)", "truncate(6, name)", "year(y)", "month(m)", "day(d)", "hour(h)", "void(unused)")
    lake.sink(EVERY_TYPE).partition_by(*fields).write()
    assert spec(lake) == [
        ("region", "identity"), ("id_bucket_16", "bucket[16]"), ("name_trunc_6", "truncate[6]"), ("y_year", "year"),
        ("m_month", "month"), ("d_day", "day"), ("h_hour", "hour"), ("unused_void", "void"),
    ]  # fmt: skip
    system = f"{lake.name}.system"
    by_iceberg = lake.table().selectExpr(
        "region", f"{system}.bucket(16, id)", f"{system}.truncate(6, name)", f"{system}.years(y)", f"{system}.months(m)",
        f"{system}.days(d)", f"{system}.hours(h)", "null",
    )  # fmt: skip
    expected = {tuple(map(str, row)) for row in by_iceberg.collect()}
    assert {tuple(map(str, found.values())) for found in partitions(lake)} == expected
    assert lake.rows("count(*), sum(id)") == [(20, 190)]


def test_the_values_of_a_nested_column_are_partitions(lake: Lake) -> None:
    lake.sink("select id, named_struct('kind', id % 2, 'at', named_struct('place', id)) item from range(4)").partition_by(
        "item.kind", "bucket(2, item.at.place)"
    ).write()
    assert {found["item_kind"] for found in partitions(lake)} == {0, 1}
    assert spec(lake)[1] == ("item_at_place_bucket_2", "bucket[2]")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["day(name)"], r"day\(name\) cannot be applied: column 'name' has type string"),
        (["hour(born)"], r"hour\(born\) cannot be applied: column 'born' has type date"),
        (["bucket(4, ratio)"], r"column 'ratio' has type double"),
        (["truncate(4, at)"], r"column 'at' has type timestamptz"),
        (["tags"], r"column 'tags' has type list"),
        (["day(nothing)"], r"there is no column 'nothing'. Columns: id, name, born, ratio, at, tags"),
        (["name.first"], r"there is no column 'name.first'"),
    ],
)
def test_a_transform_that_cannot_be_applied_is_reported_and_nothing_is_written(
    lake: Lake, fields: list[str], message: str
) -> None:
    frame = lake.frame("select 1 id, 'a' name, current_date() born, 0.5D ratio, current_timestamp() at, array('x') tags")
    with pytest.raises(frazil.ConfigError, match=message):
        lake.sink(frame).partition_by(*fields).write()
    assert lake.nothing_written()


def test_table_default_writes_by_the_tables_own_spec(lake: Lake) -> None:
    lake.sink("select 1 id, 'de' country").partition_by("country").write()
    lake.sink("select 2 id, 'fr' country", partitioning="table_default").write()
    assert {found["country"] for found in partitions(lake)} == {"de", "fr"}


def files_of_four_tasks(lake: Lake, partition_by: str, **options: Any) -> int:
    """So many files are written when four tasks each hold rows of four partitions: 16, or 4 when these are brought together."""
    frame = lake.spark.range(0, 400, 1, 4).selectExpr("id", "id % 4 as part", "timestamp_seconds(id % 4 * 86400) as at")
    return lake.sink(frame, **options).partition_by(*partition_by.split("; ")).write().files


def test_few_partitions_are_written_without_a_shuffle(lake: Lake) -> None:
    assert files_of_four_tasks(lake, "day(at)") == 16


def test_rows_of_many_partitions_are_brought_together_first(lake: Lake) -> None:
    assert files_of_four_tasks(lake, "part; day(at)") == 4


@pytest.mark.parametrize(("distribution", "files"), [("none", 16), ("hash", 4), ("range", 4)])
def test_the_user_may_decide(lake: Lake, distribution: str, files: int) -> None:
    assert files_of_four_tasks(lake, "part", distribution=distribution) == files


def test_a_property_of_the_table_may_decide_too(lake: Lake) -> None:
    assert files_of_four_tasks(lake, "day(at)", write_properties={"write.distribution-mode": "hash"}) == 4


@pytest.mark.parametrize(
    ("partition", "properties", "plain"),
    [
        (["bucket(2, part)"], {}, True),
        (["bucket(2, part)"], {"write.parquet.dict-size-bytes": str(4 * 1024 * 1024)}, False),
        ([], {}, False),
        (["part"], {}, False),
        (["part"], {"write.spark.fanout.enabled": "true"}, False),
    ],
    ids=["many-files-at-once", "as-the-table-says", "one-file", "one-partition-at-a-time", "the-user-decides"],
)
def test_dictionaries_are_smaller_where_many_files_are_open_at_once(
    lake: Lake, partition: list[str], properties: dict[str, str], plain: bool
) -> None:
    """5,000 texts make a dictionary of half a megabyte: more than each of several files gets, less than one file does."""
    rows = "select id % 20 part, lpad(id div 20 % 5000, 100, 'x') text from range(0, 200000, 1, 1)"
    lake.sink(rows, partition_by=partition, write_properties=properties, distribution="none").write()
    encodings = {
        encoding
        for file in lake.files()
        for encoding in pyarrow.parquet.ParquetFile(file).metadata.row_group(0).column(1).encodings
    }
    assert ("PLAIN" in encodings) == plain


def test_files_are_sorted_as_asked_and_another_order_is_refused(lake: Lake) -> None:
    rows = "select id % 5 a, id b from range(20)"
    lake.sink(rows, partition_by=["bucket(2, b)"], sort_by=["a desc", "b"]).write()
    for file in lake.files():
        found = [(-row["a"], row["b"]) for row in pyarrow.parquet.read_table(file).to_pylist()]
        assert found == sorted(found)
    lake.sink(rows, sort_by=["a DESC NULLS LAST", {"of": "b"}]).write()
    with pytest.raises(frazil.Halted, match=r"is sorted .* but the sink asks for b asc nulls first") as caught:
        lake.sink(rows, sort_by=["b"]).write()
    assert caught.value.code == "order-differs"
    with pytest.raises(frazil.ConfigError, match="sort_by: there is no column 'c'"):
        lake.sink(rows, table="db.other", sort_by=["bucket(4, c)"]).write()
