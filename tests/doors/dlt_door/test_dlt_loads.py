"""Loads of dlt pipelines: every disposition and merge strategy, nested tables, schemas that grow, what dlt keeps of itself."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import dlt
import pytest
from dlt.common import logger
from dlt.common.libs.pyiceberg import get_iceberg_tables
from dlt.common.pendulum import pendulum
from dlt_lakes import DltLake, loaded, resource

ROWS = [
    {"id": 1, "v": "a", "parts": [{"n": 1, "bits": [{"b": 1}]}, {"n": 2}]},
    {"id": 2, "v": "b", "parts": [{"n": 3, "bits": [{"b": 2}]}]},
    {"id": 3, "v": "c"},
]


def of_roots(lake: DltLake, table: str = "t") -> list[tuple[Any, ...]]:
    """The rows of the nested table, each with the id of the row that it belongs to: one that belongs to none is seen."""
    roots = dict(lake.rows(table, "_dlt_id", "id"))
    return sorted((roots.get(parent, "nobody"), n) for parent, n in lake.rows(f"{table}__parts", "_dlt_parent_id", "n"))


def test_append_adds_rows_one_snapshot_a_table_a_load(lake: DltLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_WRITER__FILE_MAX_ITEMS", "1")  # each row a file of its own
    monkeypatch.setenv("DATA_WRITER__BUFFER_MAX_ITEMS", "1")
    pipeline = lake.pipeline()
    first = loaded(pipeline.run(resource(ROWS)))
    files = [job for job in first.load_packages[0].jobs["completed_jobs"] if job.job_file_info.file_format == "parquet"]
    assert len([job for job in files if job.job_file_info.table_name == "t"]) == 3
    required = {"w": {"nullable": False}}
    second = loaded(pipeline.run(resource([{"id": 4, "v": "d", "w": 1.5, "parts": [{"n": 4}]}], columns=required)))
    assert lake.rows("t", "id", "v", "w") == [(1, "a", None), (2, "b", None), (3, "c", None), (4, "d", 1.5)]
    assert of_roots(lake) == [(1, 1), (1, 2), (2, 3), (4, 4)]
    assert [summary["added-records"] for summary in lake.snapshots("t")] == ["3", "1"]
    assert [summary["added-records"] for summary in lake.snapshots("t__parts")] == ["3", "1"]
    # What dlt keeps of itself.
    loads = [*first.loads_ids, *second.loads_ids]
    assert lake.rows("_dlt_loads", "load_id", "status") == [(load, 0) for load in loads]
    assert [row[0] for row in lake.rows("_dlt_pipeline_state", "pipeline_name")] == ["p"]
    assert len(lake.rows("_dlt_version", "version_hash")) == 2
    fields = {field.name: field.required for field in lake.table("t").schema().fields}
    assert (fields["_dlt_id"], fields["_dlt_load_id"], fields["v"]) == (True, True, False)
    assert not fields["w"], "rows of before have no value in a column that came later"
    # Reading.
    dataset = pipeline.dataset()
    assert dataset.t[["id", "v"]].where("id", "gt", 2).order_by("id").fetchall() == [(3, "c"), (4, "d")]
    assert dataset("SELECT count(*) AS n FROM t JOIN t__parts p ON p._dlt_parent_id = t._dlt_id").arrow().to_pylist() == [
        {"n": 4}
    ]
    assert sorted(dataset.row_counts().fetchall()) == [("t", 4), ("t__parts", 4), ("t__parts__bits", 2)]
    assert dataset.load_ids() == loads
    opened = get_iceberg_tables(pipeline, "t")["t"]
    assert opened.scan(row_filter="id = 4").to_arrow()["v"].to_pylist() == ["d"]
    # Another machine finds schema and state in the catalog.
    again = dlt.pipeline("p", destination=lake.destination(), dataset_name="ds", pipelines_dir=str(lake.folder / "elsewhere"))
    again.sync_destination()
    assert again.default_schema.tables["t"]["columns"].keys() == pipeline.default_schema.tables["t"]["columns"].keys()
    assert again.state["_version_hash"] == pipeline.state["_version_hash"]


@pytest.mark.slow
def test_replace_takes_the_place_of_all_rows_and_keeps_history(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    hints = {"write_disposition": "replace", "columns": {"v": {"x-partition": True}}}
    loaded(pipeline.run(resource(ROWS, **hints)))
    loaded(pipeline.run(resource([{"id": 9, "v": "z"}], **hints)))
    assert lake.rows("t", "id") == [(9,)]
    assert lake.rows("t__parts", "n") == []
    before = lake.table("t").snapshots()[-2].snapshot_id
    assert len(lake.table("t").scan(snapshot_id=before).to_arrow()) == 3
    assert len(lake.snapshots("t")) == 2
    loaded(pipeline.run(resource([], **hints)))
    assert lake.rows("t", "id") == []


CHANGES = [
    {"id": 1, "v": "A", "at": 1, "parts": [{"n": 9}], "gone": None},
    {"id": 1, "v": "AA", "at": 2, "parts": [{"n": 10, "bits": [{"b": 8}, {"b": 9}]}], "gone": None, "new": "column"},
    {"id": 1, "v": "AAA", "at": 0, "parts": [{"n": 11}], "gone": None},
    {"id": 3, "v": "x", "at": 1, "parts": [{"n": 12}], "gone": True},
    {"id": 4, "v": "D", "at": 1, "parts": [], "gone": False},
    {"id": 5, "v": "E", "at": 1, "parts": [{"n": 13}, {"n": 14}], "gone": None},
]
COLUMNS = {"gone": {"data_type": "bool", "hard_delete": True}, "at": {"data_type": "bigint", "dedup_sort": "desc"}}
# What a merge of the changes leaves, by the strategy.
MERGED = {
    "delete-insert": ([(1, "AA"), (2, "b"), (4, "D"), (5, "E")], [(1, 10), (2, 3), (5, 13), (5, 14)], [(3, 2), (10, 8), (10, 9)]),
    "upsert": ([(1, "AA"), (2, "b"), (4, "D"), (5, "E")], [(1, 10), (2, 3), (5, 13), (5, 14)], [(3, 2), (10, 8), (10, 9)]),
    "insert-only": (
        [(1, "a"), (2, "b"), (3, "c"), (4, "D"), (5, "E")],
        [(1, 1), (1, 2), (2, 3), (5, 13), (5, 14)],
        [(1, 1), (1, 9), (3, 2)],  # the second of a list that had one
    ),
}


@pytest.mark.parametrize(
    ("strategy", "readers"),
    [("delete-insert", ["pyiceberg"]), ("upsert", ["spark"]), ("insert-only", ["pyiceberg"])],
)
def test_merge_by_primary_key(lake: DltLake, strategy: str, readers: list[str]) -> None:
    pipeline = lake.pipeline(readers=readers)
    hints = {"write_disposition": {"disposition": "merge", "strategy": strategy}, "primary_key": "id", "columns": COLUMNS}
    loaded(pipeline.run(resource(ROWS, **hints)))
    # Rows of one key with different nested rows are refused in the two other strategies, which give these the same names.
    changes = CHANGES if strategy == "delete-insert" else [row for row in CHANGES if row["v"] not in ("A", "AAA")]
    loaded(pipeline.run(resource(changes, **hints)))
    rows, parts, bits = MERGED[strategy]
    with pipeline.dataset() as dataset:
        assert sorted(dataset("SELECT id, v FROM t").fetchall()) == rows
        nested = dataset("SELECT t.id, p.n FROM t__parts p LEFT JOIN t ON p._dlt_parent_id = t._dlt_id").fetchall()
        assert sorted(nested, key=repr) == parts
        deep = dataset("SELECT p.n, b.b FROM t__parts__bits b LEFT JOIN t__parts p ON b._dlt_parent_id = p._dlt_id").fetchall()
        assert sorted(deep, key=lambda row: (row[0] or 0, row[1])) == bits
        assert dataset("SELECT new FROM t WHERE id = 1").fetchall() == [(None if strategy == "insert-only" else "column",)]
    if readers == ["pyiceberg"]:
        assert (lake.rows("t", "id", "v"), of_roots(lake)) == (rows, parts)
    else:
        assert (lake.snapshots("t")[-1]["total-equality-deletes"] != "0") == (strategy != "insert-only")
    assert len(lake.snapshots("t")) == 2
    assert lake.table("t").schema().identifier_field_names() == {"id"}


@pytest.mark.slow
def test_merge_key_replaces_whole_days_and_primary_key_single_rows(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    days = [{"id": n, "day": f"d{n // 2}", "parts": [{"n": n}]} for n in range(6)]
    by_day = {"write_disposition": "merge", "merge_key": "day"}
    by_both = {**by_day, "primary_key": "id"}
    loaded(pipeline.run([resource(days, "one", **by_day), resource(days, "both", **by_both)]))
    new = [{"id": 10, "day": "d0", "parts": [{"n": 10}]}, {"id": 10, "day": "d0"}, {"id": 5, "day": "d7"}]
    loaded(pipeline.run([resource(new, "one", **by_day), resource(new, "both", **by_both)]))
    assert lake.rows("one", "id", "day") == [(10, "d0"), (10, "d0"), (2, "d1"), (3, "d1"), (4, "d2"), (5, "d2"), (5, "d7")]
    assert lake.rows("both", "id", "day") == [(10, "d0"), (2, "d1"), (3, "d1"), (4, "d2"), (5, "d7")]
    assert of_roots(lake, "one") == [(2, 2), (3, 3), (4, 4), (5, 5), (10, 10)]
    assert of_roots(lake, "both") == [(2, 2), (3, 3), (4, 4)]  # the last of the two rows 10 has no parts


@pytest.mark.slow
def test_a_merge_without_keys_appends_and_rows_are_marked_as_gone_by_the_destination_s_column(
    lake: DltLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(logger, "warning", lambda text, *_: warned.append(text))
    pipeline = lake.pipeline()
    merge = {"write_disposition": "merge"}
    gone = {"gone": {"data_type": "bool", "hard_delete": True}}
    marked = [{"id": n, "gone": n == 2, "parts": [{"n": n}]} for n in (1, 2, 3)]
    sorted_up = {"v": {"dedup_sort": "asc"}}
    loaded(pipeline.run([resource(ROWS, "plain", **merge), resource(ROWS, "keyed", primary_key="id", **merge)]))
    now = pendulum.now()
    changes = [
        {"id": 1, "v": "m", "_dlt_deleted_at": None},
        {"id": 1, "v": "k", "_dlt_deleted_at": None},
        {"id": 2, "_dlt_deleted_at": now},
    ]
    keyed = resource(changes, "keyed", primary_key="id", columns=sorted_up, **merge)
    keyless = resource(marked, "keyless", columns=gone, **merge)
    loaded(pipeline.run([resource([{"id": 1, "v": "z"}], "plain", **merge), keyed, keyless]))
    assert (lake.rows("keyless", "id"), of_roots(lake, "keyless")) == ([(1,), (3,)], [(1, 1), (3, 3)])
    assert any("Table 'keyless': without a primary_key or a merge_key" in text for text in warned)
    assert lake.rows("plain", "id", "v") == [(1, "a"), (1, "z"), (2, "b"), (3, "c")]
    assert lake.rows("keyed", "id", "v", "_dlt_deleted_at") == [(1, "k", None), (3, "c", None)]


@pytest.mark.slow
def test_times_of_day_of_every_precision(lake: DltLake) -> None:
    at = dt.time(1, 2, 3, 456000)
    names = {"ms": 3, "us": 6, "ns": 9}
    columns = {name: {"data_type": "time", "precision": precision} for name, precision in names.items()}
    loaded(lake.pipeline(format_version=3).run(resource([dict.fromkeys(names, at)], columns=columns)))
    assert lake.table("t").format_version == 3
    (row,) = lake.rows("t", *names)
    assert [dt.time.fromisoformat(text) for text in row] == [at] * 3


def test_every_type_of_dlt_has_its_type_in_the_table(lake: DltLake) -> None:
    at = dt.datetime(2026, 11, 16, 1, 2, 3, 456789, tzinfo=dt.UTC)
    row = {
        "text": "t", "double": 1.5, "bool": True, "timestamp": at, "naive": at.replace(tzinfo=None), "date": at.date(),
        "time": at.time(), "bigint": 2**40, "small": 7, "binary": b"\x00\x01", "json": {"a": [1]},
        "decimal": Decimal("1.5"), "price": Decimal("12.34"), "wei": Decimal(2**100),
    }  # fmt: skip
    columns = {
        "naive": {"data_type": "timestamp", "timezone": False}, "small": {"data_type": "bigint", "precision": 16},
        "json": {"data_type": "json"}, "price": {"data_type": "decimal", "precision": 10, "scale": 2},
        "wei": {"data_type": "wei"},
        "text": {"data_type": "text", "description": "what it says"},
    }  # fmt: skip
    pipeline = lake.pipeline()
    loaded(pipeline.run(resource([row], columns=columns)))
    schema = lake.table("t").schema()
    assert {name: str(schema.find_field(name).field_type) for name in row} == {
        "text": "string", "double": "double", "bool": "boolean", "timestamp": "timestamptz", "naive": "timestamp", "date": "date",
        "time": "string", "bigint": "long", "small": "int", "binary": "binary", "json": "string",
        "decimal": "decimal(38, 9)", "price": "decimal(10, 2)", "wei": "decimal(38, 0)",
    }  # fmt: skip
    expected = row | {"time": "01:02:03.456789", "json": '{"a":[1]}', "decimal": Decimal("1.500000000")}
    assert lake.rows("t", *row) == [tuple(expected.values())]
    assert schema.find_field("text").doc == "what it says"
    assert pipeline.dataset().t[["timestamp", "naive", "price"]].fetchall() == [(at, row["naive"], row["price"])]
