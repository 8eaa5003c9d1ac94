"""Tables that follow their data: wider types, optional columns, other names, columns that go; read back by others, too."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import frazil
from columns.test_schema import columns, current_schema
from helpers.lakes import Lake, commits, fresh_name, run, sqlite_lake
from iceberg.test_readers import by_duckdb, by_pyiceberg
from services.rest_catalog import RestCatalog

WIDEN = {"schema_evolution": "type_widen"}
FULL = {"schema_evolution": "full"}
HARD = FULL | {"dropped_columns": "hard"}

Upsert = Callable[..., frazil.Sink]


def field_ids(lake: Lake) -> dict[str, int]:
    return {field["name"]: field["id"] for field in current_schema(lake)["fields"]}


def required(lake: Lake) -> set[str]:
    return {field["name"] for field in current_schema(lake)["fields"] if field["required"]}


def refused(sink: frazil.Sink, code: str) -> frazil.FrazilError:
    """What a write is refused with."""
    with pytest.raises(frazil.FrazilError) as caught:
        sink.write()
    assert caught.value.code == code, caught.value
    return caught.value


# Wider types.


def test_columns_are_widened_with_the_batch_that_needs_it(lake: Lake) -> None:
    before = lake.sink("select 1 id, 1.5F ratio, 1.25BD price").write()
    ids = field_ids(lake)
    after = lake.sink("select 3000000000L id, 1e300D ratio, cast(1234567890.25 as decimal(12, 2)) price", **WIDEN).write()
    assert columns(lake) == {"id": "long", "ratio": "double", "price": "decimal(12, 2)"}
    assert field_ids(lake) == ids
    assert lake.rows() == [(1, 1.5, Decimal("1.25")), (3000000000, 1e300, Decimal("1234567890.25"))]
    assert dict(lake.table(at=before.snapshot).dtypes)["id"] == "int"
    assert dict(lake.table(at=after.snapshot).dtypes)["id"] == "bigint"
    assert len(lake.data_snapshots()) == 2, "the change and the rows are one commit"


def test_nested_columns_are_widened_and_added_to_at_once(lake: Lake) -> None:
    lake.sink("select 1 id, named_struct('a', 1) s, array(named_struct('a', 1F)) l, map('k', 1) m").write()
    lake.sink(
        "select 2 id, named_struct('a', 5000000000L, 'b', 'B') s, array(named_struct('a', 1e300D, 'b', 'B')) l,"
        " map('k', 5000000000L) m",
        **WIDEN,
    ).write()
    assert lake.rows("id, s.a, s.b, l[0].a, l[0].b, m['k']") == [
        (1, 1, None, 1.0, None, 1),
        (2, 5000000000, "B", 1e300, "B", 5000000000),
    ]


def test_a_type_is_widened_in_the_middle_of_a_run(lake: Lake) -> None:
    folder = lake.folder / "in"
    folder.mkdir()
    source = {"connector": "table", "table": f"{lake.name}.db.source"}
    lake.sink("select 1 id", "db.source").write()
    first = run(lake.pipeline(source, **WIDEN), once=True)
    lake.sink("select 3000000000L id, 'x' name", "db.source", **WIDEN).write()
    second = run(lake.pipeline(source, **WIDEN), once=True)
    assert [commit.counts.written for commit in commits(first) + commits(second)] == [1, 1]
    assert lake.rows() == [(1, None), (3000000000, "x")]


@pytest.mark.parametrize("value", ["'one'", "1.5D", "array(1)"])
@pytest.mark.parametrize("mode", ["add_columns", "type_widen", "full"])
def test_what_would_narrow_or_change_the_kind_is_refused(lake: Lake, value: str, mode: str) -> None:
    lake.sink("select 1 id").write()
    found = refused(lake.sink(f"select {value} id", schema_evolution=mode), "schema-mismatch")
    assert "column 'id' is" in found.message
    assert lake.rows() == [(1,)]


def test_longs_do_not_go_into_ints_unless_these_are_widened(lake: Lake) -> None:
    lake.sink("select 1 id").write()
    assert "type_widen" in refused(lake.sink("select 5L id"), "schema-mismatch").fix
    lake.sink("select 5 id, 'x' name").write()
    assert columns(lake)["id"] == "int"


def test_a_declared_column_is_converted_in_strict_mode(lake: Lake) -> None:
    strict = {"schema_evolution": "strict", "schema": {"id": "long", "at": "timestamptz", "price": "decimal(10, 2)"}}
    lake.sink("select '7' id, '2026-01-02T03:04:05Z' at, '1.50' price", **strict).write()
    lake.sink("select 8L id, '2026-01-02T03:04:06Z' at, '2.50' price", **strict).write()
    assert lake.rows("id, unix_seconds(at), price") == [(7, 1767323045, Decimal("1.50")), (8, 1767323046, Decimal("2.50"))]
    refused(lake.sink("select 9L id, 'x' more", **strict), "schema-strict")


def test_a_column_that_is_declared_later_is_added_with_the_declared_type(lake: Lake) -> None:
    lake.sink("select 1 id").write()
    lake.sink("select 2 id, '1.50' price", schema={"id": "int", "price": {"type": "decimal(10, 2)", "doc": "in euro"}}).write()
    assert columns(lake)["price"] == "decimal(10, 2)"
    assert current_schema(lake)["fields"][1]["doc"] == "in euro"
    assert lake.rows() == [(1, None), (2, Decimal("1.50"))]


def test_a_declared_type_that_the_table_does_not_take_is_reported(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.sink("select 1 id, named_struct('n', 1) s").write()
    declared = {"id": "string", "s": "struct<n: string>"}
    with caplog.at_level(logging.WARNING, "frazil"):
        lake.sink("select 2 id, named_struct('n', 2) s", schema=declared).write()
    assert columns(lake)["id"] == "int"
    assert "The column 'id' is declared as string, and stays what it is in the table: int." in caplog.text
    assert "'s.n' is declared as string" in caplog.text


# Required columns.

SHAPE = {"id": "int", "name": {"type": "string", "required": True}, "n": {"type": "int", "required": True}}


def test_a_required_column_becomes_optional_when_the_data_lacks_it_or_has_nulls(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' name, 1 n", schema=SHAPE).write()
    for query in ("select 2 id, 'b' name", "select 2 id, cast(null as string) name, 2 n"):
        with pytest.raises(frazil.DataError, match="require"):
            lake.sink(query).write()
    lake.sink("select 2 id, 'b' name, 2 n", **WIDEN).write()
    assert required(lake) == {"name", "n"}, "that there may be a null is no reason"
    lake.sink("select 3 id, 'c' name", **WIDEN).write()
    assert required(lake) == {"name"}
    lake.sink("select 4 id, cast(null as string) name, 4 n", **FULL).write()
    assert required(lake) == set()
    assert lake.rows() == [(1, "a", 1), (2, "b", 2), (3, "c", None), (4, None, 4)]


def test_several_columns_with_nulls_become_optional_in_one_commit(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' name, 1 n", schema=SHAPE).write()
    lake.sink("select 2 id, nullif('a', 'a') name, nullif(1, 1) n", **WIDEN).write()
    assert required(lake) == set()
    assert lake.rows() == [(1, "a", 1), (2, None, None)]
    assert len(lake.data_snapshots()) == 2


def test_what_the_sink_itself_requires_stays_required(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' name, 1 n", schema=SHAPE).write()
    refused(lake.sink("select 2 id, 'b' name", schema=SHAPE, **WIDEN), "required-missing")
    refused(lake.sink("select 2 id, nullif('a', 'a') name, 2 n", schema=SHAPE, **WIDEN), "required-null")
    assert (required(lake), lake.count()) == ({"name", "n"}, 1)


def test_keys_stay_required(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' name").keys("id").write()
    refused(lake.sink("select 'b' name", **FULL), "required-missing")
    refused(lake.sink("select nullif(1, 1) id, 'b' name", **FULL), "required-null")
    assert lake.rows() == [(1, "a")]


def test_required_parts_of_a_column_become_optional(lake: Lake) -> None:
    lake.introduced()
    lake.spark.sql(f"create namespace {lake.name}.db")
    lake.spark.sql(
        f"create table {lake.name}.db.t (id int, s struct<a: int not null, b: int not null>, l array<struct<a: int not null>>)"
    )
    rows = "select {0} id, named_struct('a', {1}) s, array(named_struct('a', {1})) l"
    refused(lake.sink(rows.format(1, "1")), "required-missing")
    lake.sink(rows.format(1, "1"), **WIDEN).write()
    lake.sink(rows.format(2, "nullif(1, 1)"), **WIDEN).write()
    assert lake.rows("id, s.a, s.b, l[0].a") == [(1, 1, None, 1), (2, None, None, None)]


# Other names.

RENAMED = FULL | {"aliases": {"email": "mail"}}


def test_a_renamed_column_keeps_its_data(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' mail").write()
    ids = field_ids(lake)
    lake.sink("select 2 id, 'b' email", **RENAMED).write()
    assert field_ids(lake) == {"id": ids["id"], "email": ids["mail"]}
    assert lake.rows("id, email") == [(1, "a"), (2, "b")]
    schemas = len(lake.metadata()["schemas"])
    lake.sink("select 3 id, 'c' email", **RENAMED).write()
    lake.sink("select 4 id, 'd' mail", **RENAMED).write()
    assert lake.rows("id, email") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert len(lake.metadata()["schemas"]) == schemas, "what is renamed already stays as it is"


def test_a_rename_and_a_wider_type_at_once(lake: Lake) -> None:
    lake.sink("select 1 nr, named_struct('a', 1) s").write()
    aliases = {"aliases": {"number": ["no", "nr"], "item": "s"}}
    lake.sink("select 3000000000L number, named_struct('a', 2, 'b', 'B') item", **FULL, **aliases).write()
    assert columns(lake)["number"] == "long"
    assert lake.rows("number, item.a, item.b") == [(1, 1, None), (3000000000, 2, "B")]


def test_a_rename_of_upper_and_lower_case_alone(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' userid").write()
    for query in ("select 2 id, 'b' userId", "select 3 id, 'c' userid"):
        lake.sink(query, aliases={"userId": "userid"}, **FULL).write()
    assert lake.table().columns == ["id", "userId"]
    assert lake.rows() == [(1, "a"), (2, "b"), (3, "c")]


def test_rows_from_before_and_after_a_rename_in_one_batch(lake: Lake) -> None:
    (lake.folder / "in").mkdir()
    rows = [{"id": 1, "mail": "a"}, {"id": 2, "email": "b"}, {"id": 3}]
    (lake.folder / "in" / "1.json").write_text("\n".join(map(json.dumps, rows)))
    run(lake.pipeline({"connector": "files", "path": str(lake.folder / "in"), "format": "json"}, **RENAMED), once=True)
    assert lake.rows("id, email") == [(1, "a"), (2, "b"), (3, None)]
    assert set(columns(lake)) == {"id", "email"}


def test_a_row_with_values_under_both_names_stops_the_batch(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' mail").write()
    found = refused(lake.sink("select 2 id, 'b' mail, 'c' email", **RENAMED), "alias-ambiguous")
    assert "'mail', 'email'" in found.message
    refused(lake.sink("select 2 id, 'b' mail, 5 email", **RENAMED), "alias-ambiguous")
    assert lake.rows("id, mail") == [(1, "a")]


def test_a_table_that_has_both_names_is_left_alone(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' mail, 'b' email").write()
    assert "'mail', 'email'" in refused(lake.sink("select 2 id, 'c' email", **RENAMED), "alias-ambiguous").message


def test_names_with_dots_are_renamed_widened_and_dropped_like_others(lake: Lake) -> None:
    lake.sink("select 1 `a.b`, 2 `c.d`, 3 `e.f`").write()
    aliases = {"aliases": {"x.y": "a.b"}}
    lake.sink("select 4 `x.y`, 5000000000L `c.d`", **HARD, **aliases).write()
    assert lake.table().columns == ["x.y", "c.d"]
    assert lake.rows("`x.y`, `c.d`") == [(1, 2), (4, 5000000000)]


# Columns that go.


def test_a_column_that_the_data_no_longer_has_is_kept(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' name").write()
    lake.sink("select 2 id", **FULL).write()
    assert lake.rows() == [(1, "a"), (2, None)]


def test_a_column_that_the_data_no_longer_has_is_dropped_when_asked_for(lake: Lake) -> None:
    before = lake.sink("select 1 id, 'a' name, 1 n").write()
    lake.sink("select 2 id, 5 n", **HARD).write()
    assert lake.rows() == [(1, 1), (2, 5)]
    assert lake.rows(at=before.snapshot) == [(1, "a", 1)]
    lake.sink("select 3 id", schema={"id": "int", "n": "int"}, **HARD).write()
    assert lake.rows() == [(1, 1), (2, 5), (3, None)], "a declared column stays"


def test_keys_and_partition_columns_are_not_dropped(lake: Lake) -> None:
    lake.sink("select 1 id, 'de' country, named_struct('day', 1) at").keys("id").partition_by("country", "at.day").write()
    whole = "1 id, 'de' country, named_struct('day', 1) at"
    for column in whole.split(", ", 2):
        rest = whole.replace(column, "").replace(", ,", ",").strip(", ")
        name = column.split()[-1]
        found = refused(lake.sink(f"select {rest}", partitioning="table_default", **HARD), "column-in-use")
        assert repr(name) in found.message
    assert lake.count() == 1


# With keys.


WAYS = [
    pytest.param({"format_version": 2, "upsert_strategy": "equality_delete"}, id="v2-equality-delete"),
    pytest.param({"format_version": 3, "upsert_strategy": "equality_delete"}, id="v3-equality-delete"),
    pytest.param({"format_version": 2, "upsert_strategy": "equality_delete", "max_equality_deletes": 0}, id="v2-settled"),
    pytest.param({"format_version": 3, "upsert_strategy": "equality_delete", "max_equality_deletes": 0}, id="v3-settled"),
    pytest.param({"format_version": 2, "upsert_strategy": "merge"}, id="v2-merge"),
    pytest.param({"format_version": 3, "upsert_strategy": "merge"}, id="v3-merge"),
    pytest.param({"format_version": 2}, id="v2-auto"),
]


@pytest.fixture(params=WAYS)
def upsert(request: pytest.FixtureRequest, lake: Lake) -> Upsert:
    """A sink that upserts, one way or the other."""

    def sink(query: str, **options: Any) -> frazil.Sink:
        return lake.sink(query, commit_mode="upsert", **{"key_fields": ["id"]} | request.param | options)

    return sink


@pytest.mark.slow
def test_rows_are_found_after_their_key_was_widened(lake: Lake, upsert: Upsert) -> None:
    upsert("select cast(id as int) id, 'first' v from range(4)").write()
    upsert("select 1 id, 'second' v", **WIDEN).write()
    upsert("select 1L id, 'third' v union all select 2L, 'third' union all select 3000000000L, 'third'", **WIDEN).write()
    upsert("select 1 id, 'fourth' v", **WIDEN).write()
    assert columns(lake)["id"] == "long"
    assert lake.rows() == [(0, "first"), (1, "fourth"), (2, "third"), (3, "first"), (3000000000, "third")]


def test_rows_are_found_after_their_key_was_renamed(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 'first' v from range(4)", partition_by=["bucket(2, id)"]).write()
    upsert("select 1L id, 'second' v", partition_by=["bucket(2, id)"]).write()
    renamed = FULL | {"aliases": {"nr": "id"}, "key_fields": ["nr"], "partition_by": ["bucket(2, nr)"]}
    upsert("select 1L nr, 'third' v union all select 2L, 'third'", **renamed).write()
    upsert("select 2L id, 'fourth' v", **renamed).write()
    assert lake.rows("nr, v") == [(0, "first"), (1, "third"), (2, "fourth"), (3, "first")]
    assert len(lake.metadata()["partition-specs"]) == 1


@pytest.mark.slow
def test_everything_at_once_with_keys(lake: Lake, upsert: Upsert) -> None:
    upsert("select cast(id as int) id, 'old' v, 1F x, 'gone' y from range(3)").write()
    given = "1L id, 'new' w, 1e300D x, named_struct('a', 1) z"
    upsert(f"select {given} union all select 9L, 'new', 1e300D, null", aliases={"w": "v"}, **HARD).write()
    assert lake.rows("id, w, x, z.a") == [
        (0, "old", 1.0, None),
        (1, "new", 1e300, 1),
        (2, "old", 1.0, None),
        (9, "new", 1e300, None),
    ]
    assert lake.table().columns == ["id", "w", "x", "z"]


def test_envelopes_under_earlier_names(lake: Lake) -> None:
    image = "struct<id: long, mail: string>"
    line = '{"op": "u", "before": {"id": 1, "mail": "a"}, "after": {"id": 2, "mail": "b"}}'
    envelope = f"from_json('{line}', 'before {image}, after {image}, op string')"
    options = FULL | {"commit_mode": "upsert", "change_format": "debezium", "aliases": {"nr": "id", "email": "mail"}}
    lake.sink("select id, 'old' mail from range(3)").keys("id").write()
    lake.sink(f"select e.* from (select {envelope} e)", key_fields=["nr"], **options).write()
    assert lake.rows("nr, email") == [(0, "old"), (2, "b")]


# With others.


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_two_writers_may_add_the_same_column(lake: Lake, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    keys = {"key_fields": ["id"], "upsert_strategy": "equality_delete"} if mode == "upsert" else {}
    lake.sink("select 1 id").keys("id").write()
    meddle(monkeypatch, lambda: lake.sink("select 2 id, 'theirs' name, 5L size").id("other").write())
    lake.sink("select 3 id, 7L size, 'mine' name", commit_mode=mode, **keys).write()
    assert lake.rows("id, name, size") == [(1, None, None), (2, "theirs", 5), (3, "mine", 7)]
    assert lake.table().columns == ["id", "name", "size"]


@pytest.mark.parametrize("where", [{}, {"overwrite_where": "id > 0"}], ids=["table", "condition"])
def test_a_new_column_does_not_hide_the_rows_of_another_writer(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, where: dict[str, str]
) -> None:
    lake.sink("select 1 id").write()
    meddle(monkeypatch, lambda: lake.sink("select 2 id, 'theirs' name").id("other").write())
    refused(lake.sink("select 3 id, 'mine' name", commit_mode="overwrite", **where), "overwrite-conflict")
    assert lake.rows() == [(1, None), (2, "theirs")]


def test_a_column_that_another_writer_widened_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sink("select 1 id").write()
    meddle(monkeypatch, lambda: lake.sink("select 3000000000L id", **WIDEN).id("other").write())
    lake.sink("select 4000000000L id", **WIDEN).write()
    assert lake.rows() == [(1,), (3000000000,), (4000000000,)]
    assert len(lake.metadata()["schemas"]) == 2


def test_a_column_that_another_writer_added_with_another_type_is_reported(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sink("select 1 id").write()
    meddle(monkeypatch, lambda: lake.sink("select 2 id, 'text' v").id("other").write())
    refused(lake.sink("select 3 id, 1.5D v"), "schema-mismatch")
    assert lake.rows() == [(1, None), (2, "text")]


def test_a_column_that_another_writer_drops_while_rows_are_written_keeps_their_values(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.sink("select 1 id, 'a' x, named_struct('m', 1, 'n', 2) s").write()
    meddle(monkeypatch, lambda: lake.spark.sql(f"ALTER TABLE {lake.name}.db.t DROP COLUMN x"))
    lake.sink("select 2 id, 'b' x, named_struct('m', 1, 'n', 2) s").write()
    assert lake.rows("id, x") == [(1, None), (2, "b")]
    meddle(monkeypatch, lambda: lake.spark.sql(f"ALTER TABLE {lake.name}.db.t DROP COLUMN s.n"))
    lake.sink("select 3 id, 'c' x, named_struct('m', 1, 'n', 3) s").write()
    assert lake.rows("id, s.n") == [(1, None), (2, None), (3, 3)]


def test_what_is_declared_to_be_required_is_also_where_the_table_takes_nulls(lake: Lake) -> None:
    lake.sink("select 1 id, cast(null as string) name").write()
    declared = {"schema": {"id": "int", "name": {"type": "string", "required": True}, "new": {"type": "int", "required": True}}}
    refused(lake.sink("select 2 id, cast(null as string) name, 1 new", **declared), "required-null")
    refused(lake.sink("select 2 id, 'n' name, cast(null as int) new", **declared), "required-null")
    lake.sink("select 2 id, 'n' name, 1 new", **declared).write()
    assert lake.rows() == [(1, None, None), (2, "n", 1)]


def meddle(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> None:
    """Lets another writer commit between the staging of the next batch and its commit."""
    from frazil.write.claim import ClaimedSink

    commit = ClaimedSink.commit

    def after_another(self: ClaimedSink, *arguments: Any) -> Any:
        monkeypatch.setattr(ClaimedSink, "commit", commit)
        write()
        return commit(self, *arguments)

    monkeypatch.setattr(ClaimedSink, "commit", after_another)


def test_a_rest_catalog_takes_everything_at_once(lake: Lake, rest_catalog: RestCatalog) -> None:
    lake = lake.with_catalog({"type": "rest", "rest": {"uri": rest_catalog.uri}})
    table = f"{fresh_name()}.t"
    upsert = {"commit_mode": "upsert", "upsert_strategy": "equality_delete"}
    lake.sink("select 1 id, 'a' v, 'gone' y union all select 2, 'a', 'gone'", table, key_fields=["id"], **upsert).write()
    changed = HARD | upsert | {"aliases": {"nr": "id", "w": "v"}, "key_fields": ["nr"], "partition_by": ["bucket(2, nr)"]}
    lake.sink("select 1L nr, 'b' w, 5 n", table, **changed).write()
    lake.sink("select 2L nr, 'c' w, 6 n", table, **changed).write()
    assert lake.rows("nr, w, n", table) == [(1, "b", 5), (2, "c", 6)]
    assert lake.table(table).dtypes == [("nr", "bigint"), ("w", "string"), ("n", "int")]


# Read by others.


def number_of(row: dict[str, Any]) -> int:
    number: int = row["event_number"]
    return number


@pytest.mark.parametrize("version", [2, 3])
def test_other_readers_see_the_same_rows(lake: Lake, tmp_path: Path, version: int) -> None:
    # DuckDB reads no addresses with a blank in them.
    lake = sqlite_lake(lake.spark, tmp_path)
    lake.sink(
        "select 1L event_number, 1 i, 1.5F f, 1.25BD d, 'a' old, named_struct('a', 1) s, array(1) l, 'x' gone",
        format_version=version,
    ).write()
    lake.sink(
        "select 2L event_number, 3000000000L i, 1e300D f, cast(1234567890.25 as decimal(12, 2)) d, 'b' new,"
        " named_struct('a', 3000000000L, 'b', 'B') s, array(3000000000L) l, date'2026-01-02' more",
        aliases={"new": "old"},
        **HARD,
    ).write()
    expected = [
        {"event_number": 1, "i": 1, "f": 1.5, "d": Decimal("1.25"), "new": "a", "s": {"a": 1, "b": None}, "l": [1], "more": None},
        max(by_pyiceberg(lake, None), key=number_of),
    ]
    assert (expected[1]["i"], expected[1]["f"], expected[1]["d"]) == (3000000000, 1e300, Decimal("1234567890.25"))
    assert (expected[1]["new"], expected[1]["s"], expected[1]["l"]) == ("b", {"a": 3000000000, "b": "B"}, [3000000000])
    assert sorted(by_pyiceberg(lake, None), key=number_of) == expected
    assert sorted(by_duckdb(lake, None), key=number_of) == expected
