"""One stream into many tables: each row in its own, each batch read once, and nothing lost or doubled when one of them fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import frazil
from engine.lakes import Lake, commits, run
from frazil.engine.iceberg import Change
from frazil.engine.writer import SinkWriter
from frazil.model.commit import Batch, CommitResult
from frazil.model.pipeline import PipelineSpec
from frazil.model.sink import SinkSpec

LETTERS = "db.frazil__dead_letters"


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


def test_or_its_rows_become_dead_letters(lake: Lake) -> None:
    route = {"field": "kind", "tables": {"a": {"schema": {"id": "int", "kind": "string"}}}, "unknown": "dead_letter"}
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


def pipeline(lake: Lake, folder: Path, **options: Any) -> PipelineSpec:
    source = {"connector": "files", "path": str(folder), "format": "json", "schema": {"id": "long", "kind": "string"}}
    sink = {"catalog": lake.catalog, "namespace": "db", "route": {"field": "kind"}, "batch_size": 1000, **options}
    given = {"name": "p", "source_name": "source", "source": source, "sink_name": "lake", "sink": sink}
    return PipelineSpec.model_validate(given)


def fail_for(monkeypatch: pytest.MonkeyPatch, table: str | None) -> None:
    """Lets the process end when a table, or the home, is about to get its batch."""
    real = SinkWriter._commit

    def commit(self: SinkWriter, batch: Batch, change: Change | None) -> CommitResult:
        if (self.sink.table == table) if table else batch.lead is None:
            raise CutOff
        return real(self, batch, change)

    monkeypatch.setattr(SinkWriter, "_commit", commit)


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
    told = run(pipeline(lake, folder), once=True)
    lake.introduced()
    expected = {"a": [(1,), (4,)], "b": [(2,), (5,)], "c": [(3,)], "d": [(6,)]}
    assert {name: lake.rows("id", f"db.{name}") for name in expected} == expected
    skipped = {event.table for event in commits(told) if event.skipped}
    assert skipped == ({"db.a", "db.c"} if where else {"db.a", "db.b", "db.c"})
    assert home(lake)["frazil.batch"] == "2"


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


def test_a_hundred_tables(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder, "1.json", *((n, f"t{n % 100}") for n in range(1000)))
    run(pipeline(lake, folder), once=True)
    lake.introduced()
    assert {lake.count(f"db.t{n}") for n in (0, 17, 99)} == {10}
    assert home(lake)["frazil.rows-out"] == "1000"


# What is refused.


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"route": {}}, "exactly one of field, expression, header, source decides the table of a row; none is given"),
        ({"route": {"field": "a", "source": True}}, "field and source are given"),
        ({"route": {"field": "a"}, "table": "t"}, "table has no meaning with route"),
        ({"route": {"field": "a", "unknown": "refuse"}}, "unknown: refuse needs tables"),
        ({"route": {"field": "a", "tables": {"x": {"batch_size": 5}}}}, "cannot have an option 'batch_size'"),
        ({"route": {"field": "a"}, "error_column": "e"}, "on_error: columns has no meaning with route"),
        ({"route": {"field": "a", "tables": {"x": "x"}, "unknown": "dead_letter"}}, "needs on_error: dead_letter"),
    ],
)
def test_what_does_not_fit_together_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        SinkSpec.model_validate({"catalog": {"type": "memory"}, "namespace": "db", **options})
    assert told in str(refused.value)


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
