"""Overwrite: a batch takes the place of its partitions, of the whole table, or of the rows that a condition names."""

from __future__ import annotations

from typing import Any

import pytest

import frazil
from frazil.iceberg import WorkingCopy
from frazil.model.commit import position
from frazil.model.hidden import OP
from frazil.write.part import Part
from helpers.lakes import Lake

PARTITIONED = {"partition_by": ["p"]}


def filled(lake: Lake, **options: Any) -> None:
    """Nine rows in three partitions, or in none."""
    lake.sink("select id, id % 3 p from range(9)", **options).write()


def overwriting(lake: Lake, query: str, **options: Any) -> frazil.Sink:
    return lake.sink(query, commit_mode="overwrite", partitioning="table_default", **options)


def test_the_partitions_of_the_batch_are_replaced_and_no_others(lake: Lake) -> None:
    filled(lake, **PARTITIONED)
    done = overwriting(lake, "select id, 1L p from range(100, 102)").write()
    assert (done.counts.read, done.counts.written) == (2, 2)
    assert lake.rows() == [(0, 0), (100, 1), (101, 1), (2, 2), (3, 0), (5, 2), (6, 0), (8, 2)]


def test_a_table_without_partitions_is_replaced_as_a_whole(lake: Lake) -> None:
    filled(lake)
    overwriting(lake, "select id, 1L p from range(100, 102)").write()
    assert lake.rows() == [(100, 1), (101, 1)]


def test_what_is_gone_or_says_nothing_is_not_among_the_rows(lake: Lake) -> None:
    """Kafka's records without a value and the deletes of a database come as rows that say so."""
    filled(lake)
    text = f"select 1L id, 1L p, 'insert' {OP} union all select 2L, 2L, 'delete' union all select 3L, null, 'ignore'"
    frame = lake.frame(text)
    writer = overwriting(lake, "select 1L id, 1L p").id("other")._writer(lake.frame("select 1L id, 1L p"), "python")
    writer.open()
    done = writer.write(frame, Part("test", None, position(1)))
    assert lake.rows() == [(1, 1)]
    assert (done.counts.read, done.counts.written, done.counts.filtered) == (3, 1, 2)


def test_history_stays(lake: Lake) -> None:
    filled(lake)
    before = lake.data_snapshots()[-1].snapshot_id
    overwriting(lake, "select 100L id, 1L p").write()
    assert len(lake.rows(at=before)) == 9


def test_a_condition_names_the_rows_to_replace_whatever_files_they_are_in(lake: Lake) -> None:
    filled(lake)
    overwriting(lake, "select 6L id, -1L p", overwrite_where="id >= 5 and p < 2").write()
    assert lake.rows() == [(0, 0), (1, 1), (2, 2), (3, 0), (4, 1), (5, 2), (6, -1), (8, 2)]
    # What Iceberg has no words for is Spark's to find.
    overwriting(lake, "select 8L id, 9L p", overwrite_where="length(repeat('a', id)) > 5").write()
    assert lake.rows() == [(0, 0), (1, 1), (2, 2), (3, 0), (4, 1), (5, 2), (8, 9)]


def test_a_row_outside_of_the_condition_stops_the_batch(lake: Lake) -> None:
    filled(lake)
    with pytest.raises(frazil.DataError, match="does not meet overwrite_where: p = 0"):
        overwriting(lake, "select 1L id, 1L p", overwrite_where="p = 0").write()
    assert lake.count() == 9


def test_a_batch_without_rows_replaces_no_partition(lake: Lake) -> None:
    filled(lake, **PARTITIONED)
    overwriting(lake, "select id, 1L p from range(0)").write()
    assert lake.count() == 9


def test_rows_that_are_all_wrong_replace_nothing(lake: Lake) -> None:
    filled(lake)
    with pytest.raises(frazil.Halted, match=r"None of the batch.s 3 rows.* as long: x\. Nothing was changed") as caught:
        overwriting(lake, "select 'x' id, 1L p from range(3)", on_error="dead_letter").write()
    assert caught.value.code == "overwritten-by-nothing"
    assert lake.count() == 9


def test_new_columns_come_with_the_rows(lake: Lake) -> None:
    filled(lake, **PARTITIONED)
    overwriting(lake, "select 100L id, 1L p, 'new' note").write()
    assert (100, 1, "new") in lake.rows()
    assert lake.count() == 7


def test_the_same_batch_again_is_skipped_though_others_wrote_meanwhile(lake: Lake) -> None:
    filled(lake)
    overwriting(lake, "select 100L id, 1L p").write(batch="monday")
    lake.sink("select 7L id, 7L p").id("other").write()
    assert overwriting(lake, "select 100L id, 1L p").write(batch="monday").skipped
    assert lake.rows() == [(100, 1), (7, 7)]


@pytest.mark.parametrize(
    ("options", "conflicting"),
    [(PARTITIONED, "1L"), ({}, "0L"), ({"where": "p = 1"}, "1L")],
    ids=["partition", "table", "condition"],
)
def test_rows_that_came_after_the_batch_was_read_are_not_replaced_unseen(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], conflicting: str
) -> None:
    where = {"overwrite_where": options["where"]} if "where" in options else {}
    filled(lake, **(PARTITIONED if options == PARTITIONED else {}))
    meddle_before_the_commit(lake, monkeypatch, f"select 7L id, {conflicting} p")
    with pytest.raises(frazil.Halted) as caught:
        overwriting(lake, "select 100L id, 1L p", **where).write()
    assert caught.value.code == "overwrite-conflict"
    assert lake.count() == 10


def test_what_others_did_before_the_batch_was_read_is_replaced_without_a_stop(lake: Lake) -> None:
    filled(lake)
    writer = overwriting(lake, "select 1L id, 1L p").id("stream")._writer(lake.frame("select 1L id, 1L p"), "python")
    writer.open()
    writer.write(lake.frame("select 1L id, 1L p"), Part("test", None, position(1)))
    lake.sink("select 7L id, 7L p").id("other").write()
    lake.spark.sql(
        f"call {lake.name}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))"
    ).collect()
    writer.write(lake.frame("select 2L id, 2L p"), Part("test", position(1), position(2)))
    assert lake.rows() == [(2, 2)]


def test_a_condition_means_one_time_for_the_rows_that_come_and_those_that_go(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    delete_where = WorkingCopy.delete_where
    monkeypatch.setattr(
        WorkingCopy, "delete_where", lambda self, condition: asked.append(condition) or delete_where(self, condition)
    )
    lake.sink("select 1L id, current_timestamp() at").write()
    overwriting(lake, "select 2L id, timestamp'2020-01-01' at", overwrite_where="at <= now()").write()
    assert lake.rows("id") == [(2,)]
    assert asked[0].startswith("at <= timestamp_micros(")
    with pytest.raises(frazil.ConfigError, match=r"overwrite_where: rand.* gives another value each time"):
        overwriting(lake, "select 2L id, timestamp'2020-01-01' at", overwrite_where="id > rand()").write()


def test_names_that_are_no_words_of_sql(lake: Lake) -> None:
    odd = frazil.sink(lake.frame("select 1L id, 1L p")).catalog(**lake.catalog).options(namespace="my-ns", table="the-table")
    odd.write()
    odd.options(commit_mode="overwrite").write()
    odd.options(commit_mode="overwrite", overwrite_where="p = 1").write()
    found = lake.introduced().spark.table(f"{lake.name}.`my-ns`.`the-table`").collect()
    assert [tuple(row) for row in found] == [(1, 1)]


def test_rows_that_came_into_other_partitions_are_no_reason_to_stop(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(lake, **PARTITIONED)
    meddle_before_the_commit(lake, monkeypatch, "select 7L id, 2L p")
    overwriting(lake, "select 100L id, 1L p").write()
    assert lake.rows() == [(0, 0), (100, 1), (2, 2), (3, 0), (5, 2), (6, 0), (7, 2), (8, 2)]


def meddle_before_the_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    """Lets another writer append between the staging of the next batch and its commit."""
    from frazil.write.claim import ClaimedSink

    commit = ClaimedSink.commit

    def after_another(self: ClaimedSink, *arguments: Any) -> Any:
        monkeypatch.setattr(ClaimedSink, "commit", commit)
        lake.sink(query, partitioning="table_default").id("other").write()
        return commit(self, *arguments)

    monkeypatch.setattr(ClaimedSink, "commit", after_another)


@pytest.mark.parametrize(("condition", "message"), [("nope = 1", "`nope` cannot be resolved"), ("p = = 1", "PARSE_SYNTAX_ERROR")])
def test_a_condition_that_means_nothing_is_reported(lake: Lake, condition: str, message: str) -> None:
    overwriting(lake, "select 1L id, 1L p").write()
    with pytest.raises(frazil.ConfigError) as caught:
        overwriting(lake, "select 1L id, 1L p", overwrite_where=condition).write()
    assert caught.value.message.startswith(f"overwrite_where: {condition}: ")
    assert message in caught.value.message
    assert "The rows have the columns id, p" in (caught.value.fix or "")
    assert lake.rows() == [(1, 1)]
