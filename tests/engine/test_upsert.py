"""Upserts: the last row of a key stays, wherever it was before; whatever way it takes, on both versions of the format."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import frazil
from engine.lakes import Lake

EQUALITY, MERGE, COPY = (
    {"upsert_strategy": "equality_delete"},
    {"upsert_strategy": "merge"},
    {"upsert_strategy": "merge", "merge_mode": "copy-on-write"},
)

Upsert = Callable[..., frazil.Sink]


@pytest.fixture(
    params=[(2, EQUALITY), (3, EQUALITY), (2, MERGE), (3, MERGE), (2, COPY)], ids=lambda p: f"v{p[0]}-{list(p[1].values())[-1]}"
)
def upsert(request: pytest.FixtureRequest, lake: Lake) -> Upsert:
    """A sink that upserts by `id`, one way or the other."""
    version, way = request.param

    def sink(query: str, **options: Any) -> frazil.Sink:
        given = {"key_fields": ["id"], "format_version": version} | way | options
        return lake.sink(query, commit_mode="upsert", **given)

    return sink


def strategies(lake: Lake) -> list[str]:
    return [snapshot.summary["frazil.upsert-strategy"] for snapshot in lake.data_snapshots()]


def test_known_keys_are_replaced_and_new_ones_added(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 'old' v from range(5)").write()
    done = upsert("select id, 'new' v from range(3, 7)").write()
    assert (done.counts.read, done.counts.written) == (4, 4)
    assert lake.rows() == [(0, "old"), (1, "old"), (2, "old"), (3, "new"), (4, "new"), (5, "new"), (6, "new")]
    assert len(lake.data_snapshots()) == 2


def test_deletes_take_rows_away_and_a_missing_one_is_fine(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 'old' v from range(5)").write()
    changes = (
        "select * from values (1L, cast(null as string), 'd'), (99L, null, 'D'), (3L, 'new', 'u'), (7L, 'new', 'c') t(id, v, op)"
    )
    done = upsert(changes, op_field="op").write()
    assert lake.rows() == [(0, "old"), (2, "old"), (3, "new"), (4, "old"), (7, "new")]
    assert (done.counts.written, done.counts.deleted) == (2, 2)
    assert lake.table().columns == ["id", "v"]


def test_the_last_row_of_a_key_wins_by_the_declared_order(lake: Lake, upsert: Upsert) -> None:
    first = "(1L, 'third', 3, 'u'), (1L, 'first', 1, 'c'), (2L, 'x', 1, 'c'), (2L, cast(null as string), 2, 'd')"
    rows = f"{first}, (3L, null, 1, 'd'), (3L, 'back', 2, 'c')"
    done = upsert(f"select * from values {rows} t(id, v, at, op)", op_field="op", order_by=["at"]).write()
    assert lake.rows("id, v") == [(1, "third"), (3, "back")]
    counts = done.counts
    assert (counts.read, counts.written, counts.deleted, counts.superseded) == (6, 2, 1, 3)


def test_a_key_that_moves_to_another_partition_leaves_no_stale_row(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, id % 2 p from range(4)", partition_by=["p"]).write()
    upsert("select id, 7L p from range(2)", partitioning="table_default").write()
    assert lake.rows() == [(0, 7), (1, 7), (2, 0), (3, 1)]


def test_a_partition_that_the_key_decides(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 'old' v from range(20)", partition_by=["bucket(4, id)"]).write()
    upsert("select id, 'new' v from range(0, 20, 2)", partitioning="table_default").write()
    assert lake.rows() == sorted([(n, "old" if n % 2 else "new") for n in range(20)], key=repr)


def test_a_key_of_several_columns(lake: Lake, upsert: Upsert) -> None:
    keys = {"key_fields": ["id", "region"]}
    upsert("select id, concat('r', id % 2) region, 1 v from range(4)", **keys).write()
    upsert("select 1L id, 'r1' region, 2 v union all select 1L, 'r0', 3", **keys).write()
    assert lake.rows() == [(0, "r0", 1), (1, "r0", 3), (1, "r1", 2), (2, "r0", 1), (3, "r1", 1)]


def test_rows_of_others_with_the_same_key_are_replaced_too(lake: Lake, upsert: Upsert) -> None:
    upsert("select 1L id, 'mine' v").write()
    lake.sink("select 2L id, 'theirs' v").id("other").write()
    upsert("select 2L id, 'mine' v").write()
    assert lake.rows() == [(1, "mine"), (2, "mine")]


def test_a_key_that_the_table_has_twice_is_there_once_after_an_upsert(lake: Lake, upsert: Upsert) -> None:
    twice = "(1L, 'a', 'u'), (1L, 'b', 'u'), (2L, 'a', 'u'), (2L, 'b', 'u'), (3L, 'a', 'u'), (3L, 'a', 'u')"
    lake.sink(f"select id, v from values {twice} t(id, v, op)").id("other").write()
    rows = "(1L, 'new', 'u'), (2L, cast(null as string), 'd'), (4L, 'new', 'c')"
    done = upsert(f"select * from values {rows} t(id, v, op)", op_field="op").write()
    assert lake.rows() == [(1, "new"), (3, "a"), (3, "a"), (4, "new")]
    counts = done.counts
    assert (counts.read, counts.written, counts.deleted, counts.filtered) == (3, 2, 1, 0)


def test_new_columns_come_in_the_middle_of_a_stream(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 'old' v from range(3)").write()
    upsert("select 1L id, 'new' v, 5 n").write()
    assert lake.rows() == [(0, "old", None), (1, "new", 5), (2, "old", None)]


def test_many_inserts_and_some_updates_in_one_batch(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 0 turn, 'before' v from range(50, 60)").write()
    rows = "select id, 0 turn, 'insert' v from range(110000) union all select id, 1, 'update' from range(100)"
    done = upsert(rows, order_by=["turn"]).write()
    assert lake.count() == 110_000
    assert lake.table().where("v = 'update'").count() == 100
    assert done.counts.superseded == 100
    assert strategies(lake)[-1] != "append"


def test_deletes_alone(lake: Lake, upsert: Upsert) -> None:
    upsert("select id, 'old' v from range(3)").write()
    upsert("select 1L id, 'd' op", op_field="op").write()
    assert lake.rows() == [(0, "old"), (2, "old")]


def test_required_columns_are_not_asked_of_deletes(lake: Lake, upsert: Upsert) -> None:
    schema = {"id": "long", "v": {"type": "string", "required": True}}
    upsert("select id, 'old' v from range(3)", schema=schema).write()
    upsert("select 1L id, cast(null as string) v, 'd' op", op_field="op", schema=schema).write()
    assert lake.rows() == [(0, "old"), (2, "old")]
    with pytest.raises(frazil.DataError, match="'v' is required"):
        upsert("select 1L id, cast(null as string) v, 'u' op", op_field="op", schema=schema).write()


def test_the_same_batch_again_changes_nothing(lake: Lake, upsert: Upsert) -> None:
    upsert("select 1L id, 'a' v").write(batch="one")
    upsert("select 1L id, 'b' v").write(batch="two")
    assert upsert("select 1L id, 'a' v").write(batch="one").skipped
    assert lake.rows() == [(1, "b")]


@pytest.mark.parametrize("strategy", ["equality_delete", "merge"])
def test_for_each_batch_of_a_users_own_stream(lake: Lake, tmp_path: Path, strategy: str) -> None:
    lake.introduced()
    folder = lake.folder / "stream"
    folder.mkdir()
    for number, text in enumerate(["1,a\n2,a", "2,b\n3,b"]):
        (folder / f"{number}.csv").write_text(text)
    rows = lake.spark.readStream.schema("id int, v string").option("maxFilesPerTrigger", 1).csv(str(folder))
    sink = lake.sink(None, commit_mode="upsert", key_fields=["id"], upsert_strategy=strategy, max_equality_deletes=0)
    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream = query.trigger(availableNow=True).start()
    stream.awaitTermination(120)
    assert stream.exception() is None
    assert len(lake.rows()) == 3
    assert [value for key, value in lake.rows() if key == 2] == ["b"]


# Which way is taken, and why.


def auto(lake: Lake, query: str, **options: Any) -> frazil.Sink:
    return lake.sink(query, commit_mode="upsert", **{"key_fields": ["id"], **options})


def why(lake: Lake) -> tuple[str, str]:
    summary = lake.data_snapshots()[-1].summary
    return summary["frazil.upsert-strategy"], summary["frazil.upsert-reason"]


def test_by_itself_it_deletes_by_key_where_keys_can_be_and_says_so(lake: Lake) -> None:
    auto(lake, "select id, 'old' v from range(10)").write()
    assert why(lake) == ("append", "the table is empty")
    auto(lake, "select id, 'new' v from range(10, 20)").write()
    assert why(lake) == ("append", "no file of the table can hold a key of the batch")
    auto(lake, "select id, 'new' v from range(5, 7)").write()
    assert why(lake) == ("equality_delete", "its cost does not grow with the table")
    assert lake.count() == 20


def test_readers_that_cannot_read_equality_deletes_get_none(lake: Lake) -> None:
    for value in ("old", "new"):
        auto(lake, f"select id, '{value}' v from range(5)", readers=["duckdb", "pyiceberg"]).write()
    assert why(lake) == ("merge", "pyiceberg cannot read equality deletes")
    assert not [file for file in lake.meta("all_files") if file.content == 2]


def test_more_keys_than_deletes_are_allowed_are_merged_in_one_commit(lake: Lake) -> None:
    auto(lake, "select id, 'old' v from range(10)").write()
    auto(lake, "select id, 'new' v from range(3, 7)", max_equality_deletes=3).write()
    assert why(lake) == ("merge", "its 4 keys would be more equality deletes than the 3 that are allowed")
    auto(lake, "select id, 'new' v from range(3)", max_equality_deletes=3).write()
    assert why(lake)[0] == "equality_delete"
    assert [value for _, value in lake.rows()] == ["new"] * 7 + ["old"] * 3


def test_only_new_keys_are_added(lake: Lake) -> None:
    for value, reach in (("old", 3), ("new", 5)):
        done = auto(lake, f"select id, '{value}' v from range({reach})", when_matched_update_all=False).write()
    assert lake.rows() == [(0, "old"), (1, "old"), (2, "old"), (3, "new"), (4, "new")]
    assert (done.counts.written, done.counts.filtered) == (2, 3)
    assert why(lake) == ("merge", "rows with known keys are left as they are")


@pytest.mark.parametrize(
    "options",
    [{"partial_updates": True}, {"when_matched_update_all": False}, {"when_not_matched_insert_all": False}],
    ids=lambda options: next(iter(options)),
)
def test_changes_of_a_key_in_one_batch_leave_what_they_leave_one_by_one(lake: Lake, options: dict[str, Any]) -> None:
    """Keys 1 and 2 are in the table, 3 to 6 are not. Beside the whole batch it is cut where a key comes again."""
    changes = [
        (1, "gone", "d"), (2, "first", "u"), (3, "new", "u"), (4, "never", "d"), (5, "short", "u"), (6, "one", "u"),
        (1, "again", "u"), (2, "second", "u"), (3, "newer", "u"), (4, "late", "u"), (5, "gone", "d"), (6, "gone", "d"),
        (1, "more", "u"), (6, "two", "u"), (6, "three", "u"),
    ]  # fmt: skip
    frame = lake.spark.createDataFrame([(n, *one) for n, one in enumerate(changes)], "n int, id long, v string, op string")
    frame.createOrReplaceTempView("in_order")
    told: dict[str, Any] = {"order_by": ["n"], "op_field": "op"}
    found = []
    for table, ranges in (("db.whole", [(0, 99)]), ("db.apart", [(0, 5), (6, 11), (12, 13), (14, 14)])):
        auto(lake, "select id, 'old' v, 'mine' w, -1 n from range(1, 3)", table=table).write()
        for first, last in ranges:
            query = f"select id, v, op, n from in_order where n between {first} and {last}"
            auto(lake, query, table=table, **told, **options).write()
        found.append(lake.rows("id, v, w, n", table=table))
    assert found[0] == found[1]


def test_the_first_of_several_new_rows_counts_where_known_ones_stay(lake: Lake) -> None:
    rows = "values (1L, 1, 'one'), (1L, 2, 'two'), (2L, 1, 'only') t(id, n, v)"
    done = auto(lake, f"select * from {rows}", when_matched_update_all=False, order_by=["n"]).write()
    assert lake.rows("id, v") == [(1, "one"), (2, "only")]
    assert (done.counts.written, done.counts.superseded) == (2, 1)


@pytest.mark.parametrize("options", [{"partial_updates": True}, {"when_not_matched_insert_all": False}])
def test_a_row_that_moved_is_not_lost_where_it_would_be_a_new_one(lake: Lake, options: dict[str, Any]) -> None:
    lake.sink("select id, 'a' v, 'b' w from range(1, 3)", commit_mode="upsert", key_fields=["id"]).write()
    image = "struct<id: long, v: string>"
    moved = lake.spark.createDataFrame([(1, "u", (1, "a"), (3, "a"))], f"n int, op string, before {image}, after {image}")
    moved.createOrReplaceTempView("moved")
    with pytest.raises(frazil.DataError, match="what the table holds of the row would be lost") as caught:
        auto(lake, "select * from moved", change_format="debezium", order_by=["n"], **options).write()
    assert caught.value.code == "key-moved"
    assert lake.rows() == [(1, "a", "b"), (2, "a", "b")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("map('a', timestamp'2026-01-01 00:00:00.000001')", "map('a', timestamp'2026-01-01 00:00:00.000002')"),
        ("array(map(1, timestamp_ntz'2026-01-01 00:00:00.000001'))", "array(map(1, timestamp_ntz'2026-01-01 00:00:00.000002'))"),
        ("parse_json('{\"a\": 1}')", "parse_json('{\"a\": 1.0}')"),
    ],
    ids=["map", "list of maps", "variant"],
)
def test_rows_that_differ_in_the_last_digit_are_not_the_same(lake: Lake, one: str, other: str) -> None:
    with pytest.raises(frazil.DataError, match="several different rows") as caught:
        auto(lake, f"select 1L id, {one} v union all select 1L, {other}", format_version=3).write()
    assert caught.value.code == "duplicate-keys"


def test_a_value_that_was_not_sent_is_not_the_same_as_none(lake: Lake) -> None:
    auto(lake, "select 1L id, 'old' v").write()
    with pytest.raises(frazil.DataError, match="several different rows"):
        auto(lake, "select 1L id, cast(null as string) v union all select 1L, '__U'", unchanged_value="__U").write()


def test_only_known_keys_are_updated(lake: Lake) -> None:
    auto(lake, "select id, 'old' v from range(3)").write()
    done = auto(lake, "select id, 'new' v from range(2, 5)", when_not_matched_insert_all=False).write()
    assert lake.rows() == [(0, "old"), (1, "old"), (2, "new")]
    assert (done.counts.written, done.counts.filtered) == (1, 2)


def test_a_known_key_that_the_table_has_twice_is_updated_once(lake: Lake) -> None:
    lake.sink("select 1L id, id v from range(2) union all select 2L, 2L").write()
    done = auto(lake, "select id, 7L v from range(1, 5)", when_not_matched_insert_all=False).write()
    assert lake.rows() == [(1, 7), (2, 7)]
    assert (done.counts.written, done.counts.filtered) == (2, 2)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("select id, 'new' v from range(3)", {"partial_updates": True}),
        (
            "select id, 'new' v, '__unchanged' w from range(3)",
            {"unchanged_value": "__unchanged", "unchanged_missing": "write_null"},
        ),
        ("select id, 'x' v, 'x' w from range(3)", {"combine": {"v": "max", "w": "max"}}),
    ],
    ids=["partial", "unchanged", "combined"],
)
def test_values_of_a_key_that_the_table_has_twice_are_not_kept_of_either(lake: Lake, query: str, options: dict[str, Any]) -> None:
    lake.sink("select 1L id, 'a' v, 'b' w union all select 1L, 'c', 'd'").write()
    with pytest.raises(frazil.DataError, match=r"several rows with one key \(id = 1\)") as caught:
        auto(lake, query, **options).write()
    assert caught.value.code == "key-held-twice"
    assert lake.rows() == [(1, "a", "b"), (1, "c", "d")]


def test_columns_that_a_batch_lacks_keep_their_values_when_asked(lake: Lake) -> None:
    auto(lake, "select id, 'a' v, 'b' w from range(2)").write()
    auto(lake, "select 1L id, 'new' v", partial_updates=True).write()
    assert lake.rows() == [(0, "a", "b"), (1, "new", "b")]
    auto(lake, "select 1L id, 'newer' v").write()
    assert lake.rows() == [(0, "a", "b"), (1, "newer", None)]


def test_parts_of_a_column_that_a_batch_lacks_keep_their_values_when_asked(lake: Lake) -> None:
    whole = "named_struct('a', 1, 'b', named_struct('c', 2, 'd', 3))"
    auto(lake, f"select id, {whole} s from range(4) union all select 4L, null").write()
    batch = "select id, if(id = 3, null, named_struct('b', named_struct('c', 9))) s from range(2, 6)"
    done = auto(lake, batch, partial_updates=True).write()
    kept, part = (1, (2, 3)), (None, (9, None))
    assert lake.rows() == [(0, kept), (1, kept), (2, (1, (9, 3))), (3, None), (4, part), (5, part)]
    assert done.counts.written == 4


def test_a_required_column_that_a_batch_lacks_keeps_its_values_and_new_rows_need_one(lake: Lake) -> None:
    needed = {"schema": {"id": "long", "v": "string", "w": {"type": "string", "required": True}}}
    auto(lake, "select id, 'a' v, 'b' w from range(2)", **needed).write()
    auto(lake, "select 1L id, 'new' v", partial_updates=True).write()
    assert lake.rows() == [(0, "a", "b"), (1, "new", "b")]
    with pytest.raises(frazil.DataError, match="column 'w' is required, and a row with a new key has no value for it") as caught:
        auto(lake, "select id, 'newer' v from range(1, 3)", partial_updates=True).write()
    assert caught.value.code == "required-null"
    auto(lake, "select id, 'newer' v from range(1, 3)", partial_updates=True, when_not_matched_insert_all=False).write()
    assert lake.rows() == [(0, "a", "b"), (1, "newer", "b")]
    auto(lake, "select 2L id, 'newer' v", partial_updates=True, schema_evolution="type_widen").write()
    assert lake.rows() == [(0, "a", "b"), (1, "newer", "b"), (2, "newer", None)]


def test_values_are_combined_with_those_of_the_table(lake: Lake) -> None:
    def add(rows: str, batch: str) -> frazil.Committed:
        query = f"select * from values {rows} t(id, n, price, least, most)"
        combine = {"n": "sum", "price": "sum", "least": "min", "most": "max"}
        return auto(lake, query, combine=combine).write(batch)

    add("(1L, 1, 1.50, 5, 5), (1L, 1, 2.25, 3, 3), (2L, 1, null, null, null)", "a")
    done = add("(1L, 2147483647, 0.25, 4, 9), (3L, 1, 1.00, 1, 1), (2L, null, 7.00, 8, null)", "b")
    assert (done.counts.read, done.counts.written) == (3, 3)
    assert why(lake) == ("merge", "values are combined with those in the table")
    add("(1L, 2147483647, 0.25, 4, 9)", "b")  # once more, under the same name
    found = [(1, 2147483649, "4.00", 3, 9), (2, 1, "7.00", 8, None), (3, 1, "1.00", 1, 1)]
    assert lake.rows("id, n, cast(price as string), least, most") == found
    assert dict(lake.table().dtypes) == {"id": "bigint", "n": "bigint", "price": "decimal(13,2)", "least": "int", "most": "int"}


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_sums_are_exact_or_stop(lake: Lake, ansi: str) -> None:
    session = lake.spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", ansi)

    def add(query: str) -> None:
        options = {"combine": {"d": "sum", "n": "sum"}, "schema": {"id": "long", "d": "decimal(38, 9)", "n": "long"}}
        frame = session.sql(f"select * from values {query} t(id, d, n)")
        lake.sink(frame, commit_mode="upsert", key_fields=["id"], **options).write()

    add("(1L, 0.000000001BD, 9223372036854775806L)")
    add("(1L, 0.000000001BD, null), (1L, 0.000000003BD, 1L)")
    lake.introduced()
    assert lake.rows() == [(1, Decimal("0.000000005"), 2**63 - 1)]
    for query in ("(1L, 0.1BD, 1L)", "(2L, 0.1BD, 9223372036854775807L), (2L, 0.1BD, 1L)"):
        with pytest.raises(frazil.DataError, match="The sum of column 'n' is too large for its type, bigint") as caught:
            add(query)
        assert caught.value.code == "sum-too-large"
    assert lake.rows() == [(1, Decimal("0.000000005"), 2**63 - 1)]


@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("select 1L id, 1 n, 2 m", {}, "combine says nothing of the column 'm'"),
        ("select 1L id, 1 n, 'd' op", {"op_field": "op"}, "cannot follow rows that are updated or deleted"),
        ("select 1L id, 1 n", {"upsert_strategy": "equality_delete"}, "combine needs to look at the rows in the table"),
        ("select 1L id, 1 n", {"order_by": "n"}, "order_by has no meaning with combine"),
        ("select 1L id, 1 n", {"commit_mode": "append"}, "combine has no meaning with commit_mode: append"),
        ("select 1L id, 1 n", {"combine": {"id": "sum", "n": "sum"}}, "the key 'id' cannot be combined"),
    ],
)
def test_what_cannot_be_combined(lake: Lake, query: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(frazil.ConfigError, match=said):
        lake.sink(query, **{"commit_mode": "upsert", "key_fields": ["id"], "combine": {"n": "sum"}} | options).write()


def test_values_that_were_not_sent_keep_their_values(lake: Lake) -> None:
    marked = {"unchanged_value": "__unchanged", "unchanged_missing": "write_null"}
    auto(lake, "select id, 'a' v, 'b' w from range(2)", **marked).write()
    auto(lake, "select 1L id, 'new' v, '__unchanged' w union all select 7L, 'new', '__unchanged'", **marked).write()
    assert lake.rows() == [(0, "a", "b"), (1, "new", "b"), (7, "new", None)]
    assert why(lake)[0] == "merge"


def test_values_that_were_not_sent_and_are_nowhere_stop_the_batch(lake: Lake) -> None:
    marked = {"unchanged_value": "__unchanged"}
    auto(lake, "select id, 'a' v, 'b' w from range(2)", **marked).write()
    with pytest.raises(frazil.DataError, match=r"A row \(id = 7\) came without the values of w") as caught:
        auto(lake, "select 1L id, 'new' v, '__unchanged' w union all select 7L, 'new', '__unchanged'", **marked).write()
    assert caught.value.code == "unchanged-missing"
    assert lake.rows() == [(0, "a", "b"), (1, "a", "b")]


def test_values_that_were_not_sent_are_those_of_an_earlier_row_of_the_batch(lake: Lake) -> None:
    marked = {"unchanged_value": "__unchanged", "order_by": ["n"]}
    auto(lake, "select id, 0 n, 'a' v, 'b' w from range(3)", **marked).write()
    rows = [
        (1, 1, "new", "mine"), (1, 2, "__unchanged", "__unchanged"), (1, 3, "last", "__unchanged"),
        (2, 1, "new", "__unchanged"), (2, 2, "__unchanged", "__unchanged"),
        (7, 1, "first", "mine"), (7, 2, "__unchanged", "other"),
    ]  # fmt: skip
    values = ", ".join(f"({i}L, {n}, '{v}', '{w}')" for i, n, v, w in rows)
    auto(lake, f"select * from values {values} as t(id, n, v, w)", **marked).write()
    assert lake.rows() == [(0, 0, "a", "b"), (1, 3, "last", "mine"), (2, 2, "new", "b"), (7, 2, "first", "other")]


def test_a_row_that_comes_after_a_delete_of_its_key_has_nothing_of_the_row_before(lake: Lake) -> None:
    marked: dict[str, Any] = {"unchanged_value": "__unchanged", "order_by": ["n"], "op_field": "op"}
    auto(lake, "select id, 0 n, 'a' v, 'b' w, 'c' op from range(3)", **marked).write()
    rows = [
        (1, 1, "new", "mine", "u"), (1, 2, None, None, "d"), (1, 3, "again", "__unchanged", "c"),
        (2, 1, None, None, "d"), (2, 2, "first", "whole", "c"), (2, 3, "last", "__unchanged", "u"),
    ]  # fmt: skip
    values = lake.spark.createDataFrame(rows, "id long, n int, v string, w string, op string")
    values.createOrReplaceTempView("after_deletes")
    with pytest.raises(frazil.DataError, match=r"A row \(id = 1\) came without the values of w") as caught:
        auto(lake, "select * from after_deletes", **marked).write()
    assert caught.value.code == "unchanged-missing"
    auto(lake, "select * from after_deletes", **marked, unchanged_missing="write_null").write()
    assert lake.rows() == [(0, 0, "a", "b"), (1, 3, "again", None), (2, 3, "last", "whole")]


def test_a_debezium_row_that_moved_takes_along_what_was_not_sent(lake: Lake) -> None:
    options: dict[str, Any] = {"unchanged_value": "__unchanged", "order_by": ["n"], "change_format": "debezium"}
    image = "struct<id: long, v: string, w: string>"

    def envelopes(*changes: tuple[int, str, Any, Any]) -> str:
        frame = lake.spark.createDataFrame(changes, f"n int, op string, before {image}, after {image}")
        frame.createOrReplaceTempView("envelopes")
        return "select * from envelopes"

    auto(lake, envelopes(*[(n, "c", None, (n, f"v{n}", f"w{n}")) for n in range(5)]), **options).write()
    moves = envelopes(
        # Into a key that was deleted: what it had is not the row's.
        (10, "d", (1, "v1", "w1"), None),
        (11, "u", (0, None, None), (1, "moved", "__unchanged")),
        # Of the row as it was before nothing but the key is known; what an earlier change sent goes along.
        (12, "u", None, (2, "__unchanged", "sent")),
        (13, "u", (2, None, None), (7, "__unchanged", "__unchanged")),
        (14, "u", None, (7, "later", "__unchanged")),
    )
    auto(lake, moves, **options).write()
    assert lake.rows("id, v, w") == [(1, "moved", "w0"), (3, "v3", "w3"), (4, "v4", "w4"), (7, "later", "sent")]
    # Over two keys in one batch, the first of which the table has a row of its own of.
    astray = envelopes(
        (20, "d", (3, "v3", "w3"), None),
        (21, "u", (4, None, None), (3, "x", "__unchanged")),
        (22, "u", (3, None, None), (8, "y", "__unchanged")),
    )
    with pytest.raises(frazil.DataError, match=r"A row \(id = 8\) came without the values of w"):
        auto(lake, astray, **options).write()
    auto(lake, astray, **options, unchanged_missing="write_null").write()
    assert lake.rows("id, v, w") == [(1, "moved", "w0"), (7, "later", "sent"), (8, "y", None)]


# What operations a row can say.


def test_operations_by_the_users_own_words(lake: Lake) -> None:
    words = {
        "op_field": "what",
        "op_values": {"insert": "new", "update": "changed", "delete": ["gone", "purged"], "ignore": "seen"},
    }
    auto(lake, "select id, 'a' v, 'new' what from range(4)", **words).write()
    rows = "(0L, 'x', 'Gone'), (1L, 'x', 'purged'), (2L, 'x', 'seen'), (3L, 'b', 'changed')"
    done = auto(lake, f"select * from values {rows} t(id, v, what)", **words).write()
    assert lake.rows() == [(2, "a"), (3, "b")]
    assert (done.counts.deleted, done.counts.filtered) == (2, 1)


@pytest.mark.parametrize("value", ["'x'", "cast(null as string)"])
def test_an_unknown_operation_stops_the_batch(lake: Lake, value: str) -> None:
    with pytest.raises(frazil.DataError, match="operation is not known"):
        auto(lake, f"select 1L id, {value} op", op_field="op").write()


def test_tombstones(lake: Lake) -> None:
    values = "named_struct('id', id, 'v', 'a')"
    keys = {"change_format": "tombstones"}
    auto(lake, f"select named_struct('id', id) key, {values} value from range(3)", **keys).write()
    auto(lake, f"select named_struct('id', id) key, if(id = 1, null, {values}) value from range(2)", **keys).write()
    assert lake.rows() == [(0, "a"), (2, "a")]


def test_tombstones_with_a_bare_key(lake: Lake) -> None:
    keys = {"change_format": "tombstones"}
    auto(lake, "select id key, named_struct('id', id, 'v', 'a') value from range(2)", **keys).write()
    auto(lake, "select id key, if(id = 1, null, named_struct('id', id, 'v', 'b')) value from range(2)", **keys).write()
    assert lake.rows() == [(0, "b")]


IMAGE = "struct<id: long, v: string>"
ENVELOPE = f"from_json(line, 'before {IMAGE}, after {IMAGE}, op string, source struct<lsn: long>')"


def envelopes(*lines: str) -> str:
    rows = ", ".join(f"('{line}')" for line in lines)
    return f"select e.* from (select {ENVELOPE} e from values {rows} t(line))"


def test_envelopes_of_debezium(lake: Lake) -> None:
    debezium = {"change_format": "debezium", "order_by": ["source.lsn"]}
    snapshot = [f'{{"op": "r", "after": {{"id": {n}, "v": "a"}}, "source": {{"lsn": 1}}}}' for n in range(4)]
    auto(lake, envelopes(*snapshot), **debezium).write()
    done = auto(
        lake,
        envelopes(
            '{"op": "u", "before": {"id": 0, "v": "a"}, "after": {"id": 0, "v": "b"}, "source": {"lsn": 2}}',
            '{"op": "d", "before": {"id": 1, "v": "a"}, "source": {"lsn": 3}}',
            "{}",
            '{"op": "u", "before": {"id": 2, "v": "a"}, "after": {"id": 20, "v": "moved"}, "source": {"lsn": 4}}',
            '{"op": "c", "after": {"id": 2, "v": "again"}, "source": {"lsn": 5}}',
        ),
        **debezium,
    ).write()
    assert lake.rows() == [(0, "b"), (2, "again"), (20, "moved"), (3, "a")]
    counts = done.counts
    assert (counts.read, counts.extra, counts.written, counts.deleted, counts.superseded, counts.filtered) == (5, 1, 3, 1, 1, 1)


# What is refused.


def test_rows_of_one_key_without_an_order_stop_the_batch(lake: Lake) -> None:
    with pytest.raises(frazil.DataError) as caught:
        auto(lake, "select 1L id, id v from range(2)").write()
    assert caught.value.code == "duplicate-keys"
    assert '{"id":1}' in caught.value.message
    assert "order_by" in (caught.value.fix or "")


def test_rows_that_share_the_last_place_stop_the_batch(lake: Lake) -> None:
    with pytest.raises(frazil.DataError, match="the same place in the order"):
        auto(lake, "select 1L id, id v, 5 at from range(2)", order_by="at").write()


@pytest.mark.parametrize(
    ("one", "other", "types"),
    [
        ("null, 5", "5, null", "int, int"),
        ("array(1, null), 1", "array(null, 1), 1", "array<int>, int"),
        ("array(), 1", "null, 1", "array<int>, int"),
        ("array(array(1), array()), 1", "array(array(), array(1)), 1", "array<array<int>>, int"),
        ("named_struct('a', null, 'b', 1), 1", "named_struct('a', 1, 'b', null), 1", "struct<a: int, b: int>, int"),
        ("named_struct('a', null, 'b', null), 1", "null, 1", "struct<a: int, b: int>, int"),
        ("map('a', named_struct('x', null)), 1", "map('a', null), 1", "map<string, struct<x: int>>, int"),
    ],
)
def test_rows_that_differ_in_where_they_have_nulls_are_not_the_same(lake: Lake, one: str, other: str, types: str) -> None:
    kinds = types.rpartition(", ")
    rows = " union all ".join(
        f"select 1L id, cast(s.a as {kinds[0]}) a, cast(s.b as {kinds[2]}) b from (select struct({values}) s) t(s)"
        for values in (one, other)
    )
    rows = rows.replace("s.a", "s.col1").replace("s.b", "s.col2")
    with pytest.raises(frazil.DataError) as caught:
        auto(lake, rows).write()
    assert caught.value.code == "duplicate-keys"


@pytest.mark.parametrize("moment", ["timestamp'0001-01-01T00:00:00Z'", "timestamp'9999-12-31T23:59:59.999999Z'"])
def test_keys_at_the_ends_of_time(lake: Lake, moment: str) -> None:
    for value in "ab":
        lake.sink(f"select {moment} id, '{value}' v", commit_mode="upsert", key_fields=["id"]).write()
    assert lake.rows("v") == [("b",)]


def test_the_very_same_row_twice_is_one(lake: Lake) -> None:
    done = auto(lake, "select 1L id, map('a', 1) m from range(3)").write()
    assert (lake.count(), done.counts.superseded) == (1, 2)


def test_a_key_without_a_value_stops_the_batch(lake: Lake) -> None:
    with pytest.raises(frazil.DataError) as caught:
        auto(lake, "select if(id = 0, null, id) id, 'a' v from range(3)").write()
    assert caught.value.code == "key-null"


@pytest.mark.parametrize("kind", ["float", "double", "map", "list", "struct"])
def test_types_that_cannot_be_keys_are_refused(lake: Lake, kind: str) -> None:
    values = {"float": "1.5f", "double": "1.5d", "map": "map('a', 1)", "list": "array(1)", "struct": "named_struct('a', 1)"}
    with pytest.raises(frazil.ConfigError) as caught:
        auto(lake, f"select {values[kind]} id").write()
    assert f"column id has type {kind} which cannot be used as an Iceberg equality delete key" in str(caught.value)
    assert lake.nothing_written()


def test_a_key_that_is_not_a_column_is_refused(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match="Key field 'nr' is not among the data's columns: id"):
        auto(lake, "select 1L id", key_fields=["nr"]).write()


def test_keys_are_matched_to_columns_by_case_unless_told_otherwise(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match="Key field 'ID'"):
        auto(lake, "select 1L id, 'a' v", key_fields=["ID"]).write()
    for value in ("a", "b"):
        auto(lake, f"select 1L id, '{value}' v", **ANY_CASE).write()
    assert lake.rows() == [(1, "b")]


ANY_CASE: dict[str, Any] = {"key_fields": ["ID"], "case_sensitive": False}


def test_keys_of_declared_columns_in_any_case(lake: Lake) -> None:
    for value in ("a", "b"):
        auto(lake, f"select 1L id, '{value}' v", schema={"id": "long", "v": "string"}, **ANY_CASE).write()
    assert lake.rows() == [(1, "b")]


def test_keys_of_envelopes_in_any_case(lake: Lake) -> None:
    debezium = {"change_format": "debezium", "order_by": ["source.lsn"], **ANY_CASE}
    auto(lake, envelopes('{"op": "c", "after": {"id": 1, "v": "a"}, "source": {"lsn": 1}}'), **debezium).write()
    moved = '{"op": "u", "before": {"id": 1, "v": "a"}, "after": {"id": 2, "v": "b"}, "source": {"lsn": 2}}'
    auto(lake, envelopes(moved), **debezium).write()
    assert lake.rows() == [(2, "b")]


@pytest.mark.parametrize("key", ["id", "named_struct('Id', id)"], ids=["bare", "struct"])
def test_keys_of_tombstones_in_any_case(lake: Lake, key: str) -> None:
    for value in ("a", "b"):
        rows = (
            f"select {key} key, if(id = 1 and '{value}' = 'b', null, named_struct('id', id, 'v', '{value}')) value from range(2)"
        )
        auto(lake, rows, change_format="tombstones", **ANY_CASE).write()
    assert lake.rows() == [(0, "b")]
    assert lake.table().columns == ["id", "v"]
