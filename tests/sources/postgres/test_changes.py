"""Changes of a table: what happened to its rows, in the order of the commits."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from frazil.errors import Halted, Retryable, SourceAway
from frazil.sources.postgres import source as source_module
from frazil.sources.postgres.database import Database as DatabaseOfSource
from services.processes import wait_until
from sources.postgres.databases import ArrowReader, Database, Reader, changes, data

Follow = Callable[..., Reader]
Watch = Callable[..., ArrowReader]


@pytest.fixture
def orders(database: Database, follow: Follow) -> Reader:
    database.run("create table orders (id int primary key, item text)", "insert into orders values (1, 'one'), (2, 'two')")
    reader = follow("orders")
    assert changes(reader.batch()) == [("insert", 1, "one"), ("insert", 2, "two")]
    return reader


@pytest.fixture
def watched(database: Database, watch: Watch) -> ArrowReader:
    """A reader of the table, for tests that need no frame of Spark's."""
    database.run("create table orders (id int primary key, item text)", "insert into orders values (1, 'one'), (2, 'two')")
    reader = watch("orders")
    assert reader.changes() == [("insert", 1, "one"), ("insert", 2, "two")]
    return reader


def test_inserts_updates_and_deletes_come_in_their_order(database: Database, orders: Reader) -> None:
    assert orders.batch() is None
    database.run(
        "insert into orders values (3, 'three')",
        "update orders set item = 'zwei' where id = 2",
        "delete from orders where id = 1",
    )
    rows = orders.batch()
    assert changes(rows) == [("insert", 3, "three"), ("update", 2, "zwei"), ("delete", 1, None)]
    assert rows is not None
    assert {row["__frazil_table"] for row in rows} == {"public.orders"}
    assert [row["__frazil_error"] for row in rows] == [None] * 3
    assert orders.batch() is None


def test_a_row_knows_where_it_came_from(database: Database, orders: Reader) -> None:
    with database.connection.transaction():
        database.run("insert into orders values (3, 'three')", "update orders set item = null where id = 3")
        xid = database.value("select txid_current()")
    rows = orders.batch()
    assert rows is not None
    places = [json.loads(row["__frazil_at"]) for row in rows]
    assert [(place["xid"], place["seq"], place["table"]) for place in places] == [
        (xid, 1, "public.orders"),
        (xid, 2, "public.orders"),
    ]
    assert places[0]["lsn"] == places[1]["lsn"]
    known = database.value(f"select '{places[0]['lsn']}'::pg_lsn < pg_current_wal_insert_lsn()")
    assert known
    assert json.loads(bytes(rows[1]["__frazil_raw"])) == {
        "op": "update", "table": "public.orders", "lsn": places[0]["lsn"], "row": {"id": 3, "item": None},
    }  # fmt: skip


def test_a_changed_key_deletes_the_row_under_the_old_one(database: Database, orders: Reader) -> None:
    database.run("update orders set id = 20 where id = 2")
    rows = orders.batch()
    assert changes(rows) == [("delete", 2, None), ("update", 20, "two")]
    assert rows is not None
    assert [row["__frazil_extra"] for row in rows] == [True, False]
    assert rows[0]["__frazil_order"] < rows[1]["__frazil_order"]


def test_with_a_full_replica_identity_the_key_is_compared(database: Database, watched: ArrowReader) -> None:
    database.run("alter table orders replica identity full")
    database.run(
        "update orders set item = 'zwei' where id = 2",
        "update orders set id = 20 where id = 2",
        "delete from orders where id = 20",
    )
    assert watched.changes() == [
        ("update", 2, "zwei"),
        ("delete", 2, "zwei"),
        ("update", 20, "zwei"),
        ("delete", 20, "zwei"),
    ]


def test_without_any_key_an_old_row_is_deleted_whenever_it_changed(database: Database, watch: Watch) -> None:
    database.run("create table notes (a int, b text)", "alter table notes replica identity full")
    reader = watch("notes")
    reader.changes()
    database.run("insert into notes values (1, 'x')", "update notes set b = 'x'", "update notes set b = null")
    assert reader.changes() == [("insert", 1, "x"), ("update", 1, "x"), ("delete", 1, "x"), ("update", 1, None)]


def test_a_replica_identity_may_be_an_index_with_the_primary_key(database: Database, watch: Watch) -> None:
    database.run(
        "create table people (id int primary key, mail text not null, age int)",
        "create unique index by_mail on people (mail, id)",
        "alter table people replica identity using index by_mail",
    )
    reader = watch("people")
    reader.changes()
    database.run("insert into people values (1, 'a@b', 5)", "update people set mail = 'c@d'", "update people set id = 2")
    database.run("delete from people")
    assert reader.changes() == [
        ("insert", 1, "a@b", 5),
        ("delete", 1, "a@b", None),
        ("update", 1, "c@d", 5),
        ("delete", 1, "c@d", None),
        ("update", 2, "c@d", 5),
        ("delete", 2, "c@d", None),
    ]


@pytest.mark.parametrize("change", ["update orders set id = 30 where id = 3", "delete from orders where id = 3"])
def test_changes_that_do_not_tell_the_primary_key_stop_after_what_came_before(
    database: Database, watched: ArrowReader, change: str
) -> None:
    database.run(
        "alter table orders alter item set not null",
        "create unique index by_item on orders (item)",
        "alter table orders replica identity using index by_item",
        "insert into orders values (3, 'three')",
        change,
        "alter table orders replica identity default",
    )
    assert watched.changes() == [("insert", 3, "three")]
    with pytest.raises(Halted, match="does not have the primary key's id") as caught:
        watched.changes()
    assert caught.value.code == "replica-identity"
    assert "ALTER TABLE public.orders REPLICA IDENTITY DEFAULT" in caught.value.fix


def test_columns_that_an_index_only_includes_are_no_part_of_the_primary_key(database: Database, watch: Watch) -> None:
    database.run("create table t (id int, n int, primary key (id) include (n))", "alter table t replica identity full")
    reader = watch("t")
    reader.changes()
    database.run("insert into t values (1, 0)", "update t set n = 1")
    assert reader.changes() == [("insert", 1, 0), ("update", 1, 1)]


def test_values_that_did_not_change_and_were_not_sent_are_named(database: Database, follow: Follow) -> None:
    database.run(
        "create table docs (id int primary key, n int, body text, tags int[], doc jsonb)",
        "alter table docs alter body set storage external, alter tags set storage external, alter doc set storage external",
    )
    reader = follow("docs")
    reader.batch()
    big = "repeat('x', 10000), array(select generate_series(1, 5000)), to_jsonb(repeat('y', 10000))"
    database.run(f"insert into docs values (1, 0, {big})", "update docs set n = 1", "update docs set body = 'short'")
    rows = reader.batch()
    assert rows is not None
    assert [row["__frazil_unchanged"] for row in rows] == [None, ["body", "tags", "doc"], ["tags", "doc"]]
    assert [row.n for row in rows] == [0, 1, 1]
    assert [row.body for row in rows] == ["x" * 10000, None, "short"]
    assert rows[0].tags == list(range(1, 5001))
    database.run("alter table docs replica identity full", "update docs set n = 2")
    filled = reader.batch()
    assert filled is not None
    assert "__frazil_unchanged" not in filled[0], "the old row has them"
    assert (filled[0].n, filled[0].tags, json.loads(filled[0].doc)) == (2, list(range(1, 5001)), "y" * 10000)


def test_a_slice_has_whole_transactions_of_about_the_limit(database: Database, watched: ArrowReader) -> None:
    for number in range(10, 20):
        database.run(f"insert into orders select {number} * 10 + i, 'x' from generate_series(0, 4) i")
    sizes = []
    while (part := watched.plan(7)) is not None:
        assert part.rows == len(watched.table_rows(part, "public.orders"))
        assert part.full == (len(sizes) < 5)
        sizes.append(part.rows)
        watched.commit(part)
    assert sizes == [10, 10, 10, 10, 10]


def test_a_slice_grows_until_it_is_read_and_reads_the_same_rows_as_often_as_asked(database: Database, orders: Reader) -> None:
    database.run("insert into orders values (3, 'three')")
    first = orders.plan()
    assert first is not None
    assert first.rows == 1
    database.run("insert into orders values (4, 'four')")
    second = orders.plan()
    assert second is not None
    assert second.rows == 2
    frame = orders.source.read(second)
    assert [row.id for row in frame.orderBy("id").collect()] == [3, 4] == [row.id for row in frame.orderBy("id").collect()]
    assert [row.id for row in orders.source.read(first).collect()] == [3]


def test_the_slot_moves_only_when_all_is_committed(database: Database, watched: ArrowReader) -> None:
    confirmed = f"select confirmed_flush_lsn::text from pg_replication_slots where slot_name = '{watched.source._spec.slot}'"
    before = database.value(confirmed)
    database.run("insert into orders values (3, 'three')")
    part = watched.plan()
    assert part is not None
    watched.table_rows(part, "public.orders")
    assert database.value(confirmed) == before
    assert (watched.source.lag(watched.ledger).bytes or 0) > 0
    watched.commit(part)
    wait_until(lambda: database.value(confirmed) == json.loads(part.end)["lsn"], 5, "the slot to move")


def test_a_batch_that_was_not_committed_is_read_again_by_the_next_process(
    database: Database, orders: Reader, follow: Follow
) -> None:
    database.run("insert into orders values (3, 'three')")
    part = orders.plan()
    assert part is not None
    before = orders.source.read(part).collect()
    orders.source.close()
    again = follow("orders", ledger=orders.ledger)
    replayed = again.plan()
    assert replayed is not None
    assert (replayed.start, replayed.end) == (part.start, part.end)
    assert again.source.read(replayed).collect() == before


def test_a_stream_that_broke_is_begun_anew(database: Database, watch: Watch) -> None:
    database.run("create table t (id int primary key)")
    reader = watch("t")
    reader.changes()
    database.run("insert into t values (1)")
    assert reader.plan() is not None
    end_walsender(database)
    database.run("insert into t values (2)")
    with pytest.raises(Retryable) as caught:
        reader.plan()
    assert caught.value.code == "source-unreachable"
    part = reader.plan()
    assert part is not None
    assert reader.table_rows(part, "public.t") == [("insert", 1), ("insert", 2)]
    end_walsender(database)
    reader.commit(part)
    database.run("insert into t values (3)")
    with suppress(Retryable):  # whether it broke may be known already
        assert reader.plan() is not None
    assert reader.changes() == [("insert", 3)]


def end_walsender(database: Database) -> None:
    mine = "from pg_replication_slots where database = current_database() and active"
    assert database.value(f"select pg_terminate_backend(active_pid, 10000) {mine}")


def test_what_was_sent_before_a_failure_is_read_again(database: Database, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    database.run("create table t (id int primary key)")
    reader = watch("t")
    reader.changes()
    describe, failures = DatabaseOfSource.describe, [SourceAway("source-unreachable", "There are too many connections.")]

    def fails_once(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return describe(*arguments)

    monkeypatch.setattr(DatabaseOfSource, "describe", fails_once)
    database.run("insert into t values (1)", "insert into t values (2)")
    with pytest.raises(Retryable):
        reader.plan()
    assert reader.changes() == [("insert", 1), ("insert", 2)]


def test_an_exact_slice_can_be_asked_for(database: Database, orders: Reader, follow: Follow) -> None:
    database.run("insert into orders values (3, 'three')")
    part = orders.plan()
    assert part is not None
    orders.source.close()
    database.run("insert into orders values (4, 'four')")
    again = follow("orders", ledger=orders.ledger)
    same = again.source.between(part.start, part.end)
    assert changes(again.source.read(same).collect()) == [("insert", 3, "three")]
    again.commit(same)
    assert changes(again.batch()) == [("insert", 4, "four")]


def test_a_truncated_table_stops_after_what_came_before(database: Database, orders: Reader, follow: Follow) -> None:
    database.run("insert into orders values (3, 'three')")
    with database.connection.transaction():
        database.run("insert into orders values (4, 'four')", "truncate orders", "insert into orders values (5, 'five')")
    assert changes(orders.batch()) == [("insert", 3, "three")]
    with pytest.raises(Halted, match="truncated") as caught:
        orders.batch()
    assert caught.value.code == "source-truncated"
    assert "on_truncate: ignore" in caught.value.fix
    orders.source.close()
    goes_on = follow("orders", ledger=orders.ledger, on_truncate="ignore")
    assert changes(goes_on.batch()) == [("insert", 4, "four"), ("insert", 5, "five")]


def test_columns_that_come_go_and_widen_within_a_slice(database: Database, orders: Reader) -> None:
    database.run("insert into orders values (3, 'three')")
    database.run("alter table orders add column price numeric(6, 2), alter column id type bigint")
    database.run("insert into orders values (4000000000, 'four', 1.50)")
    database.run("alter table orders drop column item, alter column price type numeric(10, 4)")
    database.run("insert into orders values (5, 2.25)")
    rows = orders.batch()
    assert rows is not None
    assert [{k: str(v) for k, v in data(row).items()} for row in rows] == [
        {"id": "3", "price": "None", "item": "three"},
        {"id": "4000000000", "price": "1.5000", "item": "four"},
        {"id": "5", "price": "2.2500", "item": "None"},
    ]
    assert changes(orders.batch()) == []


def test_a_renamed_table_stops(database: Database, watched: ArrowReader) -> None:
    database.run("insert into orders values (3, 'three')")
    watched.changes()
    database.run("alter table orders rename to bestellungen", "insert into bestellungen values (4, 'vier')")
    with pytest.raises(Halted, match=r"public.orders is now public.bestellungen"):
        watched.changes()


def test_tables_share_a_slot(database: Database, follow: Follow) -> None:
    database.run(
        "create table a (id int primary key)", "create table b (name text primary key, at date)", "insert into a values (1)"
    )
    reader = follow("a", "b")
    seen = []
    while (part := reader.plan()) is not None:
        for name in reader.source.tables(part):
            seen.append((name, changes(reader.source.read_table(part, name).collect())))
        reader.commit(part)
    assert seen == [("public.a", [("insert", 1)]), ("public.b", [])]
    database.run("insert into a values (2)")
    part = reader.plan()
    assert part is not None
    assert reader.source.tables(part) == ("public.a",)
    nothing = reader.source.read_table(part, "public.b")
    assert nothing.columns[:2] == ["name", "at"]
    assert nothing.count() == 0
    reader.commit(part)
    with database.connection.transaction():
        database.run("insert into b values ('x', '2024-01-01')", "insert into a values (3)")
    part = reader.plan()
    assert part is not None
    assert reader.source.tables(part) == ("public.a", "public.b")
    assert changes(reader.source.read_table(part, "public.a").collect()) == [("insert", 3)]
    assert [row.name for row in reader.source.read_table(part, "public.b").collect()] == ["x"]


def test_a_log_without_changes_of_the_tables_moves_the_position_now_and_then(
    database: Database, orders: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "IDLE_BYTES", 100_000)
    database.run("create table other (t text)", "insert into other select repeat('x', 100) from generate_series(1, 2000)")
    part = orders.plan()
    assert part is not None
    assert part.rows == 0
    assert orders.source.read(part).count() == 0
    orders.commit(part)
    assert orders.plan() is None
    database.run("insert into orders values (3, 'three')")
    assert changes(orders.batch()) == [("insert", 3, "three")]
