"""One stream into many tables: each row in its own, each batch read once, and nothing lost or doubled when one of them fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import frazil
from frazil.iceberg import Change
from frazil.model.commit import Batch, CommitResult
from frazil.model.pipeline import PipelineSpec
from frazil.model.sink import SinkSpec
from frazil.runtime.rewind import ToSnapshot, rewind
from frazil.runtime.single_write import QUERY_ID
from frazil.write.claim import ClaimedSink
from helpers.lakes import IMPATIENT, Lake, commits, run

LETTERS = "db.frazil__dead_letters"
EITHER = pytest.mark.parametrize("atomic", [False, True], ids=["one-by-one", "at-once"])


def routed(lake: Lake, query: str, route: dict[str, Any], **options: Any) -> frazil.Sink:
    sink = frazil.sink(lake.frame(query)).catalog(**lake.catalog)
    return sink.options(namespace="db", route=route, id="routed", **options)


def home(lake: Lake) -> dict[str, str]:
    summary: dict[str, str] = lake.data_snapshots("db.frazil__ledger")[-1].summary
    return summary


def test_each_row_finds_its_table(lake: Lake) -> None:
    rows = "select id, element_at(array('a', 'b', 'c'), cast(id % 3 + 1 as int)) kind from range(9)"
    done = routed(lake.introduced(), rows, {"field": "kind"}).write()
    assert [lake.rows("id", f"db.{name}") for name in "abc"] == [[(n,), (n + 3,), (n + 6,)] for n in range(3)]
    assert (done.counts.read, done.counts.written) == (9, 9)
    assert (home(lake)["frazil.rows-in"], home(lake)["frazil.rows-out"]) == ("9", "9")


def test_values_can_be_named_and_share_a_table_and_have_options_of_their_own(lake: Lake) -> None:
    tables = {
        "created": "orders",
        "changed": "orders",
        "user": {"table": "people", "key_fields": ["id"], "commit_mode": "upsert", "partition_by": ["bucket(2, id)"]},
    }
    route = {"field": "kind", "tables": tables, "unknown": "refuse", "remove_field": True}
    rows = "select * from values (1L, 'created', 'x'), (2L, 'changed', 'y'), (3L, 'user', 'z') as t(id, kind, v)"
    routed(lake.introduced(), rows, route).write()
    routed(lake, "select 3L id, 'user' kind, 'newer' v", route).write()
    assert lake.rows("*", "db.orders") == [(1, "x"), (2, "y")]
    assert lake.rows("*", "db.people") == [(3, "newer")]
    assert [field["transform"] for field in lake.metadata("db.people")["partition-specs"][-1]["fields"]] == ["bucket[2]"]


def test_a_table_has_the_columns_that_its_rows_have(lake: Lake) -> None:
    rows = "(1L, 'order', 9.5D, null), (2L, 'page', null, '/'), (3L, 'order', 1.5D, null)"
    routed(lake.introduced(), f"select * from values {rows} as t(id, kind, price, url)", {"field": "kind"}).write()
    assert lake.table("db.order").columns == ["id", "kind", "price"]
    assert lake.table("db.page").columns == ["id", "kind", "url"]
    rows = "(4L, 'order', null, '/pay'), (5L, 'page', double(null), null)"
    routed(lake, f"select * from values {rows} as t(id, kind, price, url)", {"field": "kind"}).write()
    assert lake.rows("id, price, url", "db.order") == [(1, 9.5, None), (3, 1.5, None), (4, None, "/pay")]
    assert lake.table("db.page").columns == ["id", "kind", "url"]


@pytest.mark.parametrize(
    ("route", "table"),
    [
        ({"expression": "concat('t_', id % 2)"}, "t_1"),
        ({"field": "where.to"}, "x_y"),
        ({"field": "kind", "name": "events_{value}"}, "events_k"),
    ],
    ids=["expression", "path", "pattern"],
)
def test_what_decides(lake: Lake, route: dict[str, Any], table: str) -> None:
    routed(lake.introduced(), "select 1L id, named_struct('to', 'x.y') where, 'k' kind", route).write()
    assert lake.count(f"db.{table}") == 1


def test_a_value_without_a_table_stops_before_anything_is_written(lake: Lake) -> None:
    route = {"field": "kind", "tables": {"a": "a"}, "unknown": "refuse"}
    with pytest.raises(frazil.DataError, match=r"2 rows belong to no table: by the column 'kind' their values are"):
        routed(lake.introduced(), "select 1 id, 'a' kind union all select 2, 'b' union all select 3, null", route).write()
    assert not lake.exists("db.a")


def test_the_field_that_decides_can_be_one_of_a_struct_and_go(lake: Lake) -> None:
    rows = "select 1 id, named_struct('kind', 'a', 'more', 2) meta"
    routed(lake.introduced(), rows, {"field": "meta.kind", "remove_field": True}).write()
    assert lake.rows("id, to_json(meta)", "db.a") == [(1, '{"more":2}')]


def test_a_table_of_letters_of_before_is_left_alone(lake: Lake) -> None:
    rows, route = "select '1' id, 'a' kind union all select 'x', 'a'", {"field": "kind"}
    options = {"schema": {"id": "int", "kind": "string"}, "sort_by": ["id"]}
    routed(lake.introduced(), rows, route, on_error="dead_letter", **options).write()
    assert lake.count(LETTERS) == 1
    routed(lake, "select '2' id, 'a' kind", route, on_error="dead_letter", dead_letter_table="db.elsewhere", **options).write()
    routed(lake, "select '3' id, 'b' kind", route, **options).write()
    assert (lake.rows("id", "db.a"), lake.rows("id", "db.b")) == ([(1,), (2,)], [(3,)])


@EITHER
def test_or_its_rows_become_dead_letters(lake: Lake, atomic: bool) -> None:
    route = {
        "atomic": atomic,
        "field": "kind",
        "tables": {"a": {"schema": {"id": "int", "kind": "string"}}},
        "unknown": "dead_letter",
    }
    rows = "select * from values ('1', 'a'), ('2', 'b'), ('3', null), ('x', 'a') as t(id, kind)"
    done = routed(lake.introduced(), rows, route, on_error="dead_letter").write()
    assert (done.counts.read, done.counts.written, done.counts.dead_lettered) == (4, 1, 3)
    assert lake.rows("*", "db.a") == [(1, "a")]
    found = lake.rows("table, stage, code, cast(raw as string)", LETTERS)
    assert found == [
        ("", "route", "route-unknown", '{"id":"2","kind":"b"}'),
        ("", "route", "route-unknown", '{"id":"3"}'),
        ("db.a", "cast", "value-not-convertible", '{"id":"x","kind":"a"}'),
    ]
    assert [home(lake)[f"frazil.rows-{name}"] for name in ("in", "out", "dead-lettered")] == ["4", "1", "3"]


# Many batches, some of them cut off.


class CutOff(Exception):
    """The process ends here."""


def put(folder: Path, name: str, *rows: tuple[int, str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(json.dumps({"id": number, "kind": kind}) for number, kind in rows))


def pipeline(lake: Lake, folder: Path, transforms: tuple[dict[str, Any], ...] = (), **options: Any) -> PipelineSpec:
    source = {"connector": "files", "path": str(folder), "format": "json", "schema": {"id": "long", "kind": "string"}}
    sink = {"catalog": lake.catalog, "namespace": "db", "route": {"field": "kind"}, "batch_size": 1000, **options}
    given = {"name": "p", "source_name": "source", "source": source, "sink_name": "lake", "sink": sink, "transforms": transforms}
    return PipelineSpec.model_validate(given)


def fail_for(monkeypatch: pytest.MonkeyPatch, table: str | None) -> None:
    """Lets the process end when a table, or the home, is about to get its batch."""
    real = ClaimedSink.commit

    def commit(self: ClaimedSink, batch: Batch, change: Change | None) -> CommitResult:
        if (self.sink.table == table) if table else batch.home_batch is None:
            raise CutOff
        return real(self, batch, change)

    monkeypatch.setattr(ClaimedSink, "commit", commit)


@pytest.mark.parametrize("where", ["b", None], ids=["in-one-table", "before-the-home"])
def test_a_batch_that_was_cut_off_is_repeated_as_it_was(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    folder = tmp_path / "in"
    put(folder, "1.json", (1, "a"), (2, "b"), (3, "c"))
    with monkeypatch.context() as patch:
        fail_for(patch, where)
        with pytest.raises(CutOff):
            run(pipeline(lake, folder), once=True)
    put(folder, "2.json", (4, "a"), (5, "b"), (6, "d"))
    result = run(pipeline(lake, folder), once=True)
    lake.introduced()
    expected = {"a": [(1,), (4,)], "b": [(2,), (5,)], "c": [(3,)], "d": [(6,)]}
    assert {name: lake.rows("id", f"db.{name}") for name in expected} == expected
    skipped = {event.table for event in commits(result) if event.skipped}
    assert skipped == ({"db.a", "db.c"} if where else {"db.a", "db.b", "db.c"})
    assert home(lake)["frazil.batch"] == "2"


@pytest.mark.parametrize("where", ["b", None], ids=["in-one-table", "before-the-home"])
def test_a_batch_that_was_cut_off_is_finished_when_all_tables_are_to_get_theirs_at_once(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    folder, atomic = tmp_path / "in", {"field": "kind", "atomic": True}
    put(folder, "1.json", (1, "a"), (2, "b"), (3, "c"))
    with monkeypatch.context() as patch:
        fail_for(patch, where)
        with pytest.raises(CutOff):
            run(pipeline(lake, folder), once=True)
    put(folder, "2.json", (4, "a"), (5, "b"), (6, "d"))
    result = run(pipeline(lake, folder, route=atomic), once=True)
    lake.introduced()
    expected = {"a": [(1,), (4,)], "b": [(2,), (5,)], "c": [(3,)], "d": [(6,)]}
    assert {name: lake.rows("id", f"db.{name}") for name in expected} == expected
    skipped = {event.table for event in commits(result) if event.skipped}
    assert skipped == ({"db.a", "db.c"} if where else {"db.a", "db.b", "db.c"})
    assert home(lake)["frazil.batch"] == "2"


def test_single_writes_get_into_all_tables_at_once_and_can_be_repeated_by_their_names(lake: Lake) -> None:
    route = {
        "field": "kind",
        "atomic": True,
        "tables": {"b": {"table": "b", "commit_mode": "overwrite", "overwrite_where": "true"}},
    }
    first = routed(lake.introduced(), "select '1' id, 'a' kind union all select '2', 'b'", route)
    assert [first.write(batch="first").skipped for _ in range(2)] == [False, True]
    second = routed(lake, "select '3' id, 'a' kind, 'new' note union all select '4', 'b', null", route)
    assert second.write().counts.written == 2
    assert (lake.rows("id, note", "db.a"), lake.rows("id", "db.b")) == ([("1", None), ("3", "new")], [("4",)])
    assert [len(lake.data_snapshots(f"db.{name}")) for name in ("a", "b", "frazil__ledger")] == [2, 2, 2]


def test_a_table_that_fails_does_not_keep_the_others_from_their_rows(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    lake.introduced().sink("select 1 other", table="db.b").write()
    put(folder, "1.json", (1, "a"), (2, "b"))
    strict = pipeline(lake, folder, schema_evolution="strict")
    with pytest.raises(frazil.DataError, match=r"Table db\.b: Schema evolution not allowed in strict mode"):
        run(strict, once=True)
    assert lake.rows("id", "db.a") == [(1,)]
    run(pipeline(lake, folder), once=True)
    assert (lake.rows("id", "db.a"), lake.rows("id", "db.b")) == ([(1,)], [(2,), (None,)])


@EITHER
def test_too_many_letters_are_noticed_before_any_table_has_rows(lake: Lake, tmp_path: Path, atomic: bool) -> None:
    folder = tmp_path / "in"
    put(folder, "1.json", (1, "a"), (70_000_000_000, "a"), (2, "b"), (3, "c"))
    narrow = {"atomic": atomic, "field": "kind", "tables": {"a": {"schema": {"id": "int", "kind": "string"}}}}
    limits = {"on_error": "dead_letter", "max_dead_letters": 0}
    with pytest.raises(frazil.Halted, match=r"1 of the batch's 4 rows cannot be written.*The batch was not written"):
        run(pipeline(lake, folder, route=narrow, **limits), once=True)
    lake.introduced()
    assert [lake.count(f"db.{name}") for name in "abc"] == [0, 0, 0]
    assert lake.count(LETTERS) == 0
    lake.spark.sql(f"alter table {lake.name}.db.a alter column id type bigint")
    run(pipeline(lake, folder, **limits), once=True)
    assert {name: lake.rows("id", f"db.{name}") for name in "abc"} == {"a": [(1,), (70_000_000_000,)], "b": [(2,)], "c": [(3,)]}


def test_with_a_limit_a_table_that_fails_keeps_the_others_from_their_rows(lake: Lake, tmp_path: Path) -> None:
    """How many letters its rows would have made is not known."""
    folder = tmp_path / "in"
    put(folder, "1.json", (1, "a"), (2, "b"))
    divided = {"field": "kind", "tables": {"a": "a", "b": {"table": "b", "partition_by": ["missing"]}}}
    with pytest.raises(frazil.FrazilError, match=r"Table db\.b: .*missing"):
        run(pipeline(lake, folder, route=divided, on_error="dead_letter", max_dead_letters=1), once=True)
    assert lake.introduced().count("db.a") == 0


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["id <> 1", "kind <> 'a'"], ids=["fewer-rows", "none-at-all"])
def test_a_change_of_the_pipeline_in_between_is_noticed(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    folder = tmp_path / "in"
    put(folder, "1.json", (1, "a"), (2, "a"), (3, "b"))
    with monkeypatch.context() as patch:
        fail_for(patch, "b")
        with pytest.raises(CutOff):
            run(pipeline(lake, folder), once=True)
    spec, changed = pipeline(lake, folder), pipeline(lake, folder, ({"type": "where", "condition": condition},))
    with pytest.raises(frazil.Halted, match=r"Table db\.a got 2 rows of the batch .* now it would get [01]\.") as halted:
        run(changed, once=True)
    assert halted.value.code == "batch-differs"
    assert lake.introduced().count("db.b") == 0
    run(spec, once=True)
    assert (lake.rows("id", "db.a"), lake.rows("id", "db.b")) == ([(1,), (2,)], [(3,)])


def test_only_asking_where_a_pipeline_would_go_claims_no_table(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder, "1.json", (1, "a"), (2, "b"))
    spec = pipeline(lake, folder, on_error="dead_letter")
    run(spec, once=True)
    lake.introduced()
    tables = ("db.frazil__ledger", "db.a", "db.b", LETTERS)
    before = [lake.properties(table) for table in tables]
    assert not rewind(spec, IMPATIENT, ToSnapshot(0), really=False).done
    assert [lake.properties(table) for table in tables] == before


def test_what_is_read_again_is_written_again(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder, "1.json", (1, "a"), (2, "b"))
    run(pipeline(lake, folder), once=True)
    rewind(pipeline(lake, folder), IMPATIENT, ToSnapshot(0), really=True)
    result = run(pipeline(lake, folder), once=True)
    assert not [event for event in commits(result) if event.skipped]
    lake.introduced()
    assert [lake.rows("id", f"db.{name}") for name in "ab"] == [[(1,), (1,)], [(2,), (2,)]]


# Batches that somebody else numbers, and single writes.


def test_an_older_checkpoint_is_refused_before_any_table_has_rows(lake: Lake) -> None:
    lake.introduced().spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
    first, second, third = (lake.frame(f"select {n} id, 'a' kind") for n in range(3))
    stream = routed(lake, "select 1", {"field": "kind"})
    stream(first, 0)
    stream(second, 1)
    older = routed(lake, "select 2", {"field": "kind"})
    with pytest.raises(frazil.Halted) as halted:
        older(first, 0)
    assert halted.value.code == "gap-or-overlap"
    assert lake.rows("id", "db.a") == [(0,), (1,)]
    routed(lake, "select 3", {"field": "kind"})(third, 2)
    assert lake.rows("id", "db.a") == [(0,), (1,), (2,)]


def test_a_single_write_that_was_cut_off_does_not_stop_later_ones(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    route = {"field": "kind", "parallel": 1}
    cut_off = routed(lake.introduced(), "select 1 id, 'a' kind union all select 2, 'b'", route)
    for _ in range(2):
        with monkeypatch.context() as patch:
            fail_for(patch, "b")
            with pytest.raises(CutOff):
                cut_off.write(batch="first")
    routed(lake, "select 3 id, 'a' kind union all select 4, 'c'", route).write()
    assert (lake.rows("id", "db.a"), lake.rows("id", "db.c")) == ([(1,), (3,)], [(4,)])
    assert not cut_off.write(batch="first").skipped
    assert (lake.rows("id", "db.a"), lake.rows("id", "db.b")) == ([(1,), (3,)], [(2,)])
    assert cut_off.write(batch="first").skipped


# Names of tables.


@pytest.mark.parametrize("value", ["frazil__ledger", "FRAZIL__LEDGER", "frazil__dead_letters", ""])
def test_no_value_leads_to_the_tables_of_the_sink_itself(lake: Lake, value: str) -> None:
    rows = f"select 1L id, 'a' kind union all select 2L, '{value}'"
    with pytest.raises(frazil.DataError, match=f"1 rows belong to no table: by the column 'kind' their values are '{value}'"):
        routed(lake.introduced(), rows, {"field": "kind"}).write()
    done = routed(lake, rows, {"field": "kind"}, on_error="dead_letter").write()
    assert (done.counts.written, done.counts.dead_lettered) == (1, 1)
    assert lake.rows("code", LETTERS) == [("route-unknown",)]


def test_two_values_that_become_one_name(lake: Lake) -> None:
    rows = "select 1 id, 'x.y' kind union all select 2, 'x_y'"
    with pytest.raises(frazil.DataError, match=r"rows of 'x\.y' and 'x_y' would go into one table, db\.x_y") as caught:
        routed(lake.introduced(), rows, {"field": "kind"}).write()
    assert caught.value.code == "route-ambiguous"
    assert not lake.exists("db.x_y")
    routed(lake, rows, {"field": "kind", "tables": {"x.y": "x_y", "x_y": "x_y"}}).write()
    assert lake.count("db.x_y") == 2


@pytest.mark.slow(seconds=25)
def test_a_hundred_tables(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder, "1.json", *((n, f"t{n % 100}") for n in range(1000)))
    run(pipeline(lake, folder), once=True)
    lake.introduced()
    assert {lake.count(f"db.t{n}") for n in (0, 17, 99)} == {10}
    assert home(lake)["frazil.rows-out"] == "1000"


# What is refused.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"route": {}}, "exactly one of field, expression, header, source decides the table of a row; none is given"),
        ({"route": {"field": "a", "source": True}}, "field and source are given"),
        ({"route": {"field": "a"}, "table": "t"}, "table has no meaning with route"),
        ({"route": {"field": "a", "unknown": "refuse"}}, "unknown: refuse needs tables"),
        ({"route": {"field": "a", "tables": {"x": {"batch_size": 5}}}}, "cannot have an option 'batch_size'"),
        ({"route": {"field": "a", "tables": {"x": {"table": "archive.x"}}}}, "the table of 'x' has a dot, 'archive.x'"),
        ({"route": {"field": "a", "tables": {"x": "archive.x"}}}, "the table of 'x' has a dot, 'archive.x'"),
        ({"route": {"field": "a", "name": "archive.{value}"}}, "name has a dot"),
        ({"route": {"field": "a", "tables": {"x": "frazil__ledger"}}}, "which keeps how far the sink is"),
        ({"route": {"field": "a", "tables": {"x": "frazil__dead_letters"}}}, "is that of the dead letters"),
        ({"route": {"field": "a"}, "error_column": "e"}, "on_error: columns has no meaning with route"),
        ({"route": {"field": "a", "tables": {"x": "x"}, "unknown": "dead_letter"}}, "needs on_error: dead_letter"),
    ],
)
def test_what_does_not_fit_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        SinkSpec.model_validate({"catalog": {"type": "memory"}, "namespace": "db", **options})
    assert message in str(refused.value)


def test_a_table_of_upserts_needs_a_key() -> None:
    route = {"field": "a", "tables": {"x": {"commit_mode": "upsert"}}}
    sink = SinkSpec.model_validate({"catalog": {"type": "memory"}, "namespace": "db", "route": route})
    (problem,) = sink.unmet_by(keys=False, operations=False)
    assert (problem, problem.at) == (
        "the table of 'x': upsert sinks must specify a key: add key_fields",
        ("route", "tables", "x"),
    )
    assert sink.unmet_by(keys=True, operations=True) == []


def test_a_column_that_is_not_there(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match=r"route\.field: there is no column 'nothing'\. Columns: id"):
        routed(lake, "select 1 id", {"field": "nothing"}).write()


def test_a_value_with_a_slash_does_not_lead_into_the_folder_of_another_table(lake: Lake) -> None:
    rows = "select 1 id, 'a' kind union all select 2, 'a/b' union all select 3, '../x'"
    routed(lake.introduced(), rows, {"field": "kind"}).write()
    assert [lake.rows("id", f"db.{name}") for name in ("a", "a_b", "___x")] == [[(1,)], [(2,)], [(3,)]]
    folders = {path.parent for path in (lake.folder / "warehouse").rglob("metadata")}
    assert folders == {lake.folder / "warehouse" / "db" / name for name in ("a", "a_b", "___x", "frazil__ledger")}


def test_a_table_and_a_namespace_of_one_name_do_not_share_a_folder(lake: Lake) -> None:
    rows = "select 1 id"
    lake.introduced().sink(rows, "db.a").write()
    lake.sink(rows, "db.b.c.d").write()
    for table in ("db.a.x", "db.b", "db.b.c"):
        with pytest.raises(frazil.ConfigError, match=f"The table {table} would be in file:.* within the other") as caught:
            lake.sink(rows, table).write()
        assert caught.value.code == "folders-nested"
        assert not lake.exists(table)
    lake.sink(rows, "db.a.x", location=str(lake.folder / "elsewhere")).write()
    assert lake.count("db.a.x") == 1
