"""Rows that cannot be written: kept with the record and the reason, counted, bounded, and written exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions

import frazil
from frazil.iceberg import Change
from frazil.model.commit import Batch, CommitResult, RowCounts
from frazil.model.pipeline import PipelineSpec
from frazil.runtime.rewind import ToSnapshot, reset, rewind
from frazil.runtime.single_write import QUERY_ID
from frazil.write.claim import ClaimedSink
from helpers.lakes import IMPATIENT, Lake, run

LETTERS = "db.t__dead_letters"
TYPED = {"schema": {"id": "long", "n": "int"}, "on_error": "dead_letter"}


def letters(lake: Lake, columns: str = "stage, code, error, cast(raw as string)") -> list[tuple[Any, ...]]:
    return lake.rows(columns, LETTERS)


def test_rows_that_do_not_fit_are_kept_with_the_record_and_the_reason(lake: Lake) -> None:
    done = lake.sink("select id, if(id % 4 = 3, 'x', cast(id as string)) n from range(8)", **TYPED).write()
    assert (done.counts.read, done.counts.written, done.counts.dead_lettered) == (8, 6, 2)
    assert lake.rows() == [(0, 0), (1, 1), (2, 2), (4, 4), (5, 5), (6, 6)]
    why = "column 'n' cannot hold this value as int: x"
    assert letters(lake) == [
        ("cast", "value-not-convertible", why, '{"id":3,"n":"x"}'),
        ("cast", "value-not-convertible", why, '{"id":7,"n":"x"}'),
    ]
    assert {row[:2] for row in lake.rows("table, batch", LETTERS)} == {("db.t", 1)}


@pytest.mark.parametrize("columns", ["id, n", "n, id"])
def test_a_row_without_its_key_is_kept_whatever_the_order_of_columns(lake: Lake, columns: str) -> None:
    lake.sink("select 1L id, 1 n").write()
    rows = f"select {columns} from values (2L, 2), (null, 3) t(id, n)"
    done = lake.sink(rows, on_error="dead_letter", commit_mode="upsert", key_fields=["id"]).write()
    assert (done.counts.written, done.counts.dead_lettered) == (1, 1)
    assert lake.rows() == [(1, 1), (2, 2)]
    assert [error for (error,) in letters(lake, "error")] == ["column 'id' is required, and a row has no value for it"]


@pytest.mark.parametrize("columns", ["day, n", "n, day"])
def test_a_row_that_replaces_none_is_no_dead_letter(lake: Lake, columns: str) -> None:
    options = {"commit_mode": "delete_insert", "replace_by": ["day"], "on_error": "dead_letter"}
    lake.sink("select 1L day, 1 n", **options).write()
    lake.sink(f"select {columns} from values (1L, 2), (null, 3) t(day, n)", **options).write()
    assert sorted(lake.rows("n")) == [(2,), (3,)]


def test_the_summary_accounts_for_every_row(lake: Lake) -> None:
    rows = "select id, if(id < 2, 'x', '1') n from range(10)"
    lake.sink(rows, **TYPED).write()
    summary = lake.data_snapshots()[-1].summary
    counted = [summary[f"frazil.rows-{name}"] for name in ("in", "out", "dead-lettered", "filtered")]
    assert counted == ["10", "8", "2", "0"]


@pytest.mark.slow
def test_an_update_with_two_letters_is_one_record(lake: Lake) -> None:
    moved = "select 'u' op, named_struct('id', 'x') before, named_struct('id', 'y') after union all "
    new = "select 'c' op, null before, named_struct('id', '1') after"
    keys = {"commit_mode": "upsert", "key_fields": ["id"], "change_format": "debezium"}
    done = lake.sink(moved + new, schema={"id": "long"}, on_error="dead_letter", **keys).write()
    assert done.counts == RowCounts(read=2, written=1, dead_lettered=2, extra=1)
    assert lake.count(LETTERS) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [("1", "y"), ("x", "2")], ids=["of now", "of before"])
def test_of_a_key_that_moved_nothing_is_done_when_one_image_is_wrong(lake: Lake, before: str, after: str) -> None:
    keys = {"commit_mode": "upsert", "key_fields": ["id"], "change_format": "debezium", "schema": {"id": "long"}}
    kept = "select 'c' op, null before, named_struct('id', '{}') after"
    lake.sink(kept.format(1), on_error="dead_letter", **keys).write()
    moved = f"select 'u' op, named_struct('id', '{before}') before, named_struct('id', '{after}') after"
    done = lake.sink(f"{moved} union all {kept.format(3)}", on_error="dead_letter", **keys).write()
    assert lake.rows() == [(1,), (3,)]
    assert (done.counts.read, done.counts.written, done.counts.deleted) == (2, 1, 0)
    ((raw,),) = {(bytes(raw),) for (raw,) in letters(lake, "raw")}
    assert json.loads(raw)["after"] == {"id": after}


def test_without_a_wrong_row_nothing_is_added_to_the_dead_letters(lake: Lake) -> None:
    lake.sink("select 1L id, '1' n", **TYPED).write()
    assert (lake.count(), lake.count(LETTERS)) == (1, 0)
    assert lake.data_snapshots(LETTERS) == []


def test_a_required_value_and_a_key_that_are_missing(lake: Lake) -> None:
    required = {"schema": [{"name": "id", "type": "long", "required": True}, {"name": "v", "type": "string"}]}
    lake.sink("select if(id = 1, null, id) id, 'a' v from range(3)", on_error="dead_letter", **required).write()
    assert lake.rows("id") == [(0,), (2,)]
    assert letters(lake, "error") == [("column 'id' is required, and a row has no value for it",)]


@pytest.mark.parametrize("strategy", ["equality_delete", "merge"])
def test_upserts_leave_out_what_has_no_key_or_no_known_operation(lake: Lake, strategy: str) -> None:
    options = {"commit_mode": "upsert", "key_fields": ["id"], "op_field": "op", "upsert_strategy": strategy}
    rows = "select * from values (1L, 'a', 'i'), (null, 'b', 'i'), (3L, 'c', '?'), (4L, 'd', 'u') as t(id, v, op)"
    done = lake.sink(rows, on_error="dead_letter", **options).write()
    assert lake.rows() == [(1, "a"), (4, "d")]
    assert (done.counts.read, done.counts.written, done.counts.dead_lettered) == (4, 2, 2)
    assert sorted(code for (code,) in letters(lake, "code")) == ["operation-unknown", "value-not-convertible"]


def test_a_type_that_no_value_fits_is_no_reason_to_stop(lake: Lake) -> None:
    lake.sink("select 1L id, 5 n").write()
    done = lake.sink("select 2L id, array(1) n union all select 3L, null", on_error="dead_letter").write()
    assert (done.counts.written, done.counts.dead_lettered) == (1, 1)
    assert lake.rows() == [(1, 5), (3, None)]


def test_the_table_can_be_named_and_has_its_own_namespace(lake: Lake) -> None:
    lake.sink("select 1L id, 'x' n", dead_letter_table="broken.letters", **TYPED).write()
    assert lake.count("broken.letters") == 1


def test_a_batch_with_too_many_is_not_written(lake: Lake) -> None:
    rows = "select id, if(id < 3, 'x', '1') n from range(10)"
    for limit in ({"max_dead_letters": 2}, {"max_dead_letter_rate": 0.2}):
        with pytest.raises(frazil.Halted, match="3 of the batch's 10 rows cannot be written"):
            lake.sink(rows, **TYPED, **limit).write()
        assert (lake.count(), lake.count(LETTERS)) == (0, 0)
    lake.sink(rows, **TYPED, max_dead_letters=3, max_dead_letter_rate=0.3).write()
    assert (lake.count(), lake.count(LETTERS)) == (7, 3)


def test_the_sinks_own_table_cannot_take_them(lake: Lake) -> None:
    with pytest.raises(frazil.Halted, match="is the sink's own table"):
        lake.sink("select 1L id, 'x' n", dead_letter_table="t", **TYPED).write()


def test_stopping_names_the_way_on(lake: Lake) -> None:
    with pytest.raises(frazil.DataError) as stopped:
        lake.sink("select 1L id, 'x' n", schema={"id": "long", "n": "int"}).write()
    assert "on_error: dead_letter" in stopped.value.fix


# A batch that is cut off between the two tables.


class CutOff(Exception):
    """The process ends here."""


def pipeline(lake: Lake, folder: Path, **options: Any) -> PipelineSpec:
    source = {"connector": "files", "path": str(folder), "format": "json", "schema": {"id": "long", "n": "string"}}
    return lake.pipeline(source, batch_size=1000, **(TYPED | options))


def put(folder: Path, name: str, *rows: tuple[int, str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(json.dumps({"id": number, "n": text}) for number, text in rows))


def cut_off_after_the_letters(monkeypatch: pytest.MonkeyPatch, spec: PipelineSpec) -> None:
    """Runs a pipeline that ends as if killed when the letters are in their table and the rows are not in theirs."""
    real = ClaimedSink.commit

    def commit(self: ClaimedSink, batch: Batch, change: Change) -> CommitResult:
        if batch.home_batch is None:
            raise CutOff
        return real(self, batch, change)

    with monkeypatch.context() as patch:
        patch.setattr(ClaimedSink, "commit", commit)
        with pytest.raises(CutOff):
            run(spec, once=True)


def test_a_batch_that_was_cut_off_is_repeated_as_it_was(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "in"
    put(folder, "a.json", (1, "1"), (2, "x"))

    cut_off_after_the_letters(monkeypatch, pipeline(lake, folder))
    assert (lake.count(), lake.count(LETTERS)) == (0, 1)
    put(folder, "b.json", (3, "y"), (4, "4"))
    run(pipeline(lake, folder), once=True)
    assert lake.rows() == [(1, 1), (4, 4)]
    assert letters(lake, "batch, cast(raw as string)") == [(1, '{"id":2,"n":"x"}'), (2, '{"id":3,"n":"y"}')]


def test_a_change_of_the_sink_in_between_is_noticed(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "in"
    put(folder, "a.json", (1, "1"), (2, "x"))
    cut_off_after_the_letters(monkeypatch, pipeline(lake, folder))
    with pytest.raises(frazil.Halted, match="1 of its rows were dead letters already; now it has 0"):
        run(pipeline(lake, folder, transforms=[{"type": "remove_field", "field": "n"}]), once=True)
    assert lake.count() == 0


@pytest.mark.slow
def test_what_is_read_again_has_its_letters_again(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder, "a.json", (1, "1"), (2, "x"))
    spec = pipeline(lake, folder)
    run(spec, once=True)
    rewind(spec, IMPATIENT, ToSnapshot(0), really=True)
    run(spec, once=True)
    assert lake.rows() == [(1, 1), (1, 1)]
    assert letters(lake, "batch, cast(raw as string)") == [(1, '{"id":2,"n":"x"}'), (2, '{"id":2,"n":"x"}')]
    reset(spec, IMPATIENT, really=True)
    run(spec, once=True)
    assert (lake.rows(), lake.count(LETTERS)) == ([(1, 1)], 3)


def test_a_batch_that_is_refused_leaves_no_letters(lake: Lake) -> None:
    lake.spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
    first, second = (lake.frame(f"select {n}L id, 'x' n") for n in range(2))
    sink, older = lake.sink(None, **TYPED), lake.sink(None, **TYPED)
    sink(first, 0)
    sink(second, 1)
    with pytest.raises(frazil.Halted) as halted:
        older(first, 0)
    assert (halted.value.code, lake.count(LETTERS)) == ("gap-or-overlap", 2)


def test_only_asking_where_a_pipeline_would_go_writes_nothing(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder, "a.json", (1, "1"), (2, "x"))
    run(pipeline(lake, folder), once=True)
    before = [lake.properties(), lake.properties(LETTERS)]
    other = pipeline(lake, folder, write_properties={"write.metadata.previous-versions-max": "7"})
    assert not rewind(other, IMPATIENT, ToSnapshot(0), really=False).done
    assert not reset(other, IMPATIENT, really=False).done
    assert [lake.properties(), lake.properties(LETTERS)] == before
    with pytest.raises(frazil.ConfigError, match="has not written anything yet"):
        rewind(pipeline(lake, folder, table="db.new"), IMPATIENT, ToSnapshot(0), really=False)
    assert not lake.exists("db.new")


# Records of files that cannot be read.


@pytest.mark.parametrize(
    ("kind", "text", "broken"),
    [
        (
            "json",
            '{"id": 1, "n": "1"}\n{"id": 2, "n":\n{"id": "x", "n": "3"}\n3\n',
            ['{"id": 2, "n":', '{"id": "x", "n": "3"}', "3"],
        ),
        ("csv", "id,n\n1,1\nx,2\n3\n", ["x,2", "3"]),
    ],
)
def test_records_of_files_that_cannot_be_read(lake: Lake, tmp_path: Path, kind: str, text: str, broken: list[str]) -> None:
    folder = tmp_path / "in box"
    folder.mkdir()
    (folder / "a+b c.txt").write_text(text)
    source = {"connector": "files", "path": str(folder), "format": kind, "schema": {"id": "long", "n": "string"}}
    with pytest.raises(frazil.DataError, match=f"cannot be read as {kind.upper()} of the declared columns") as stopped:
        run(lake.pipeline(source, schema={"id": "long", "n": "int"}), once=True)
    assert (stopped.value.code, "a+b c.txt" in stopped.value.message) == ("bad-record", True)
    run(lake.pipeline(source, **TYPED), once=True)
    assert lake.rows() == [(1, 1)]
    found = letters(lake, "stage, code, cast(raw as string)")
    assert sorted(raw for _, _, raw in found) == sorted(broken)
    assert {row[:2] for row in found} == {("decode", "bad-record")}
    assert {json.loads(at)["file"].rpartition("/")[2] for (at,) in letters(lake, "at")} == {"a+b c.txt"}


@pytest.mark.parametrize("options", [{}, {"route": {"field": "v"}}], ids=["table", "route"])
def test_a_stop_names_the_record_where_its_source_does(lake: Lake, options: dict[str, Any]) -> None:
    folder = lake.folder / "changes"
    folder.mkdir()
    (folder / "one.json").write_text('{"id": 1, "v": "a", "op": "what"}\n')
    source = {"connector": "files", "path": str(folder), "format": "json"}
    with pytest.raises(frazil.DataError) as stopped:
        run(lake.pipeline(source, op_field="op", **options), once=True)
    assert stopped.value.code == "operation-unknown"
    place = f'the record at {{"file":"file:{folder}/one.json"}}: '
    assert stopped.value.message.endswith(f"{place}a row's operation is not known: what")


def test_a_frame_that_is_another_each_time_is_refused(lake: Lake, tmp_path: Path) -> None:
    def bad_at_first() -> str:
        with (tmp_path / "calls").open("ab") as calls:
            calls.write(b".")
            return "bad" if calls.tell() <= 3 else "5"

    frame = lake.spark.range(40).select("id", functions.udf(bad_at_first, "string").asNondeterministic()().alias("v"))
    with pytest.raises(frazil.DataError, match="again for its dead letters, and was not the same") as caught:
        lake.sink(frame, schema={"id": "long", "v": "int"}, on_error="dead_letter").write()
    assert caught.value.code == "frame-differs"
    assert not lake.count()
