"""What becomes of rows that are there: left, changed alone, changed in part, combined, or with values that were not sent."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import frazil
from helpers.lakes import Lake
from write.test_upsert import auto, why


def test_only_new_keys_are_added(lake: Lake) -> None:
    for value, reach in (("old", 3), ("new", 5)):
        done = auto(lake, f"select id, '{value}' v from range({reach})", when_matched_update_all=False).write()
    assert lake.rows() == [(0, "old"), (1, "old"), (2, "old"), (3, "new"), (4, "new")]
    assert (done.counts.written, done.counts.filtered) == (2, 3)
    assert why(lake) == (
        "append",
        "no row of the table is replaced; rows of the table were read: rows with known keys are left as they are",
    )


@pytest.mark.slow
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
    given: dict[str, Any] = {"order_by": ["n"], "op_field": "op"}
    found = []
    for table, ranges in (("db.whole", [(0, 99)]), ("db.apart", [(0, 5), (6, 11), (12, 13), (14, 14)])):
        auto(lake, "select id, 'old' v, 'mine' w, -1 n from range(1, 3)", table=table).write()
        for first, last in ranges:
            query = f"select id, v, op, n from in_order where n between {first} and {last}"
            auto(lake, query, table=table, **given, **options).write()
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


@pytest.mark.parametrize(
    "changes",
    ["(1L, 'a', 3, 'c'), (1L, 'a', 3, 'd')", "(1L, 'x', 3, 'd'), (1L, 'a', 3, 'c'), (1L, 'b', 5, 'u')"],
    ids=["the last", "before the last"],
)
def test_a_delete_and_a_row_in_one_place_stop_the_batch_where_known_rows_are_left(lake: Lake, changes: str) -> None:
    options = {"op_field": "op", "order_by": ["n"], "when_matched_update_all": False}
    with pytest.raises(frazil.DataError, match="the same place in the order") as caught:
        auto(lake, f"select * from values {changes} t(id, v, n, op)", **options).write()
    assert caught.value.code == "duplicate-keys"
    beside = "(1L, 'x', 1, 'c'), (1L, 'y', 5, 'u'), (1L, 'z', 5, 'u')"
    auto(lake, f"select * from values {beside} t(id, v, n, op)", **options).write()
    assert lake.rows("id, v") == [(1, "x")], "rows that come later do not count anyway"


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


@pytest.mark.slow
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
    assert why(lake)[1].endswith("values are combined with those in the table")
    add("(1L, 2147483647, 0.25, 4, 9)", "b")  # once more, under the same name
    found = [(1, 2147483649, "4.00", 3, 9), (2, 1, "7.00", 8, None), (3, 1, "1.00", 1, 1)]
    assert lake.rows("id, n, cast(price as string), least, most") == found
    assert dict(lake.table().dtypes) == {"id": "bigint", "n": "bigint", "price": "decimal(13,2)", "least": "int", "most": "int"}


def test_sums_of_a_table_that_is_there_have_its_types(lake: Lake) -> None:
    lake.sink("select 1L id, 1 n, 1.5f f").write()
    for _ in range(2):
        auto(lake, "select 1L id, 2 n, 0.25f f, 3 more", combine={"n": "sum", "f": "sum", "more": "sum"}).write()
    assert lake.rows() == [(1, 5, 2.0, 6)]
    assert dict(lake.table().dtypes) == {"id": "bigint", "n": "int", "f": "float", "more": "bigint"}


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
    assert why(lake)[1].endswith("2 rows have values that did not change and were not sent")


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


@pytest.mark.slow
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


@pytest.mark.slow
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
