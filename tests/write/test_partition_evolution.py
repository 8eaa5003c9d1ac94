"""Another partitioning in the sink's file: the table's spec changes for new data, and rows under the old one are still found."""

from __future__ import annotations

from typing import Any

import pytest

import frazil
from helpers.lakes import Lake, commits, run
from write.test_evolution import WAYS, meddle
from write.test_partitioning import spec

ROWS = "select id, timestamp_seconds(id * 86400) at, '{0}' v from range({1}, {2})"


def specs_of_files(lake: Lake) -> list[int]:
    return sorted(row.spec_id for row in lake.meta("files") if row.content == 0)


def specs(lake: Lake) -> list[list[tuple[str, int]]]:
    """The names and ids of the fields of every spec that the table has had."""
    return [[(field["name"], field["field-id"]) for field in one["fields"]] for one in lake.metadata()["partition-specs"]]


def test_the_spec_changes_with_the_first_batch(lake: Lake) -> None:
    before = lake.sink(ROWS.format("a", 0, 4)).partition_by("day(at)").write()
    lake.sink(ROWS.format("b", 4, 8)).partition_by("month(at)", "bucket(2, id)").write()
    assert spec(lake) == [("at_month", "month"), ("id_bucket_2", "bucket[2]")]
    assert set(specs_of_files(lake)) == {0, 1}
    assert (lake.count(), len(lake.data_snapshots())) == (8, 2)
    assert len(lake.rows(at=before.snapshot)) == 4
    metadata = lake.metadata()
    assert metadata["current-snapshot-id"] == lake.data_snapshots()[-1].snapshot_id, "the change came with the rows"
    lake.sink(ROWS.format("c", 8, 9)).partition_by("bucket(2, id)", "month(at)").write()
    assert len(specs(lake)) == 2, "the same fields in another order are the same partitioning"


def test_a_field_that_stays_keeps_its_place_and_one_that_comes_back_its_id(lake: Lake) -> None:
    for fields in (["day(at)", "v"], ["bucket(2, id)", "v"], ["day(at)", "v"]):
        lake.sink(ROWS.format("a", 0, 2), partition_by=fields).write()
    assert specs(lake) == [
        [("at_day", 1000), ("v", 1001)],
        [("v", 1001), ("id_bucket_2", 1002)],
        [("v", 1001), ("at_day", 1000)],
    ]
    assert lake.count() == 6


def test_names_are_those_that_the_sink_gives(lake: Lake) -> None:
    lake.sink(ROWS.format("a", 0, 2)).partition_by("bucket(2, id)").write()
    named = {"source": "at", "transform": "month", "name": "moon"}
    lake.sink(ROWS.format("b", 2, 4), partition_by=[named, "truncate(1, v)"]).write()
    assert spec(lake) == [("moon", "month"), ("v_trunc_1", "truncate[1]")]


def test_a_column_and_a_partition_by_it_at_once(lake: Lake) -> None:
    lake.sink("select 1 id").write()
    lake.sink("select 2 id, 'de' country, named_struct('day', date'2026-01-02') at").partition_by(
        "country", "year(at.day)"
    ).write()
    assert spec(lake) == [("country", "identity"), ("at_day_year", "year")]
    assert lake.rows("id, country") == [(1, None), (2, "de")]


@pytest.mark.parametrize("options", [{}, {"partitioning": "none"}, {"partitioning": "table_default"}])
def test_a_sink_that_says_nothing_leaves_the_spec_alone(lake: Lake, options: dict[str, Any]) -> None:
    lake.sink(ROWS.format("a", 0, 2)).partition_by("day(at)").write()
    lake.sink(ROWS.format("b", 2, 4), **options).write()
    assert specs(lake) == [[("at_day", 1000)]]


def test_it_is_refused_by_option(lake: Lake) -> None:
    lake.sink("select 1 id, 'de' country").partition_by("country").write()
    with pytest.raises(frazil.Halted, match=r"is partitioned identity\(country\), but the sink asks for bucket\(4, id\)"):
        lake.sink("select 2 id, 'fr' country", partition_evolution="refuse").partition_by("bucket(4, id)").write()
    assert lake.count() == 1
    lake.sink("select 2 id, 'fr' country", partition_evolution="refuse").partition_by("country").write()
    assert lake.count() == 2


@pytest.mark.parametrize(
    ("field", "message"),
    [("day(v)", "cannot be applied: column 'v' has type string"), ("day(nothing)", "there is no column 'nothing'")],
)
def test_a_transform_that_cannot_be_applied_is_reported(lake: Lake, field: str, message: str) -> None:
    lake.sink(ROWS.format("a", 0, 2)).write()
    with pytest.raises(frazil.ConfigError, match=message):
        lake.sink(ROWS.format("b", 2, 4)).partition_by(field).write()
    assert (lake.count(), specs(lake)) == (2, [[]])


def test_rows_are_distributed_by_the_new_spec(lake: Lake) -> None:
    frame = lake.spark.range(0, 400, 1, 4).selectExpr("id", "id % 4 as part", "timestamp_seconds(id % 4 * 86400) as at")
    lake.sink(frame).partition_by("bucket(2, id)").write()
    assert lake.sink(frame).partition_by("part", "day(at)").write().files == 4, "many partitions: rows are brought together"


def test_a_run_goes_on_under_the_new_spec(lake: Lake) -> None:
    source = {"connector": "generator", "rows": 60}
    first = run(lake.pipeline(source, batch_size=30, partition_by=["day(event_time)"]), once=True)
    source["rows"] = 120
    second = run(lake.pipeline(source, batch_size=30, partition_by=["bucket(2, user_id)"]), once=True)
    assert [len(commits(events)) for events in (first, second)] == [2, 2]
    assert lake.count() == 120
    assert len(specs(lake)) == 2


def test_another_writer_that_changed_the_spec_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sink(ROWS.format("a", 0, 2)).write()
    meddle(monkeypatch, lambda: lake.sink(ROWS.format("b", 2, 4)).id("other").partition_by("month(at)").write())
    lake.sink(ROWS.format("c", 4, 6)).partition_by("bucket(2, id)").write()
    assert lake.count() == 6
    assert spec(lake) == [("id_bucket_2", "bucket[2]")]


# With keys.

CHANGES = {
    "nothing to bucket": ([], ["bucket(2, id)"]),
    "day to month": (["day(at)"], ["month(at)"]),
    "bucket to bucket": (["bucket(2, id)"], ["bucket(3, id)"]),
    "bucket to nothing": (["bucket(2, id)"], ["void(id)"]),
    "day to nothing": (["day(at)"], ["void(at)"]),
}
# How rows are found does not depend on how they are replaced: every change in two ways, two changes in every way.
EVERY_CHANGE, EVERY_WAY = ("v2-equality-delete", "v3-merge"), ("day to month", "bucket to bucket")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "change"),
    [
        pytest.param(*way.values, change, id=f"{way.id}-{change}")
        for way in WAYS
        for change in CHANGES
        if way.id in EVERY_CHANGE or change in EVERY_WAY
    ],
)
def test_rows_under_the_old_spec_are_replaced(lake: Lake, options: dict[str, Any], change: str) -> None:
    def upsert(query: str, *fields: str) -> frazil.Sink:
        return lake.sink(query, commit_mode="upsert", key_fields=["id"], partition_by=fields, **options)

    before, after = CHANGES[change]
    upsert(ROWS.format("first", 0, 6), *before).write()
    upsert(ROWS.format("second", 0, 2), *before).write()
    upsert(ROWS.format("third", 1, 4), *after).write()
    upsert(ROWS.format("fourth", 3, 5), *after).write()
    upsert("select 5L id, timestamp_seconds(0) at, 'moved' v", *after).write()
    expected = [(0, "second"), (1, "third"), (2, "third"), (3, "fourth"), (4, "fourth"), (5, "moved")]
    assert lake.rows("id, v") == expected
    upsert(ROWS.format("back", 0, 2), *before).write()
    assert lake.rows("id, v") == [(0, "back"), (1, "back"), *expected[2:]]


# Overwrites.


def test_an_overwrite_does_not_leave_rows_of_older_files_in_place(lake: Lake) -> None:
    overwrite = {"commit_mode": "overwrite"}
    lake.sink("select id, id % 2 p from range(4)").write()
    with pytest.raises(frazil.Halted) as caught:
        lake.sink("select 9L id, 1L p", **overwrite).partition_by("p").write()
    assert caught.value.code == "partitioning-mixed"
    assert (lake.count(), specs(lake)) == (4, [[]])
    lake.sink("select 9L id, 1L p", overwrite_where="p = 1", **overwrite).partition_by("p").write()
    assert lake.rows() == [(0, 0), (2, 0), (9, 1)]
    assert spec(lake) == [("p", "identity")]


def test_an_overwrite_under_a_spec_like_one_of_before_leaves_no_rows_of_that_in_place(lake: Lake) -> None:
    overwrite = {"commit_mode": "overwrite", "partitioning": "table_default"}
    lake.sink("select id, id % 2 p, 0 q from range(4)").partition_by("p", "q").write()
    for change in ("drop partition field p", "add partition field p"):
        lake.spark.sql(f"alter table {lake.name}.db.t {change}")
    with pytest.raises(frazil.Halted) as caught:
        lake.sink("select 9L id, 1L p, 0 q", **overwrite).write()
    assert caught.value.code == "partitioning-mixed"


def test_an_overwrite_of_an_empty_table_or_of_all_of_it_takes_any_spec(lake: Lake) -> None:
    lake.sink("select id, id % 2 p from range(0)").write()
    overwrite = {"commit_mode": "overwrite"}
    lake.sink("select id, id % 2 p from range(4)", **overwrite).partition_by("p").write()
    lake.sink("select 9L id, 1L p", **overwrite).partition_by("p").write()
    assert lake.rows() == [(0, 0), (2, 0), (9, 1)]
    lake.sink("select 7L id, 1L p", **overwrite).partition_by("void(p)").write()
    assert lake.rows() == [(7, 1)]
