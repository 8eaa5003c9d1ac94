"""The rows that a table has already, then its changes: nothing lost, nothing twice, whatever happens in between."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from frazil.errors import Retryable
from frazil.sources.postgres import source as source_module
from frazil.sources.postgres.position import Member, PostgresPlace, Seen
from frazil.sources.postgres.snapshot import PageRange, dealt, page_ranges
from frazil.sources.postgres.source import SnapshotPart
from sources.postgres.databases import ArrowReader, Database, Reader

Follow = Callable[..., Reader]
Watch = Callable[..., ArrowReader]


def applied(rows: list[tuple[Any, ...]]) -> dict[int, int]:
    """What a table holds after these changes. Nothing is inserted that is there already."""
    table: dict[int, int] = {}
    for op, key, number in rows:
        assert (key in table) == (op != "insert"), f"{op} of {key}"
        if op == "delete":
            del table[key]
        else:
            table[key] = number
    return table


class Writer(threading.Thread):
    """Writes to `t` until it is stopped: short transactions, longer ones, some taken back, savepoints."""

    def __init__(self, database: Database, seed: int, pause: float = 0.0) -> None:
        super().__init__()
        self._pause = pause
        self._database, self._random, self._stopped = database, random.Random(seed), threading.Event()
        self._next = seed * 1_000_000
        self.first_rows = threading.Event()

    def run(self) -> None:
        with self._database.connect() as connection:
            while not self._stopped.is_set():
                with suppress(_TakenBack, psycopg.errors.DeadlockDetected), connection.transaction():
                    for _ in range(self._random.randrange(1, 6)):
                        with suppress(_TakenBack), connection.transaction():
                            self._change(connection)
                            if self._random.random() < 0.2:
                                raise _TakenBack
                    if self._random.random() < 0.2:
                        raise _TakenBack
                self.first_rows.set()
                self._stopped.wait(self._pause)

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        kind = self._random.random()
        if kind < 0.5:
            self._next += 1
            connection.execute("insert into t values (%s, 0)", (self._next,))
        elif kind < 0.8:
            connection.execute("update t set n = n + 1 where id = (select id from t order by random() limit 1)")
        else:
            connection.execute("delete from t where id = (select id from t order by random() limit 1)")

    def end(self) -> None:
        self._stopped.set()
        self.join()


class _TakenBack(Exception):
    pass


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_table_that_is_written_to_all_the_time(database: Database, watch: Watch, seed: int) -> None:
    database.run("create table t (id int primary key, n int)", "insert into t select i, 0 from generate_series(1, 500) i")
    writers = [Writer(database, seed * 2), Writer(database, seed * 2 + 1)]
    for writer in writers:
        writer.start()
    try:
        for writer in writers:
            writer.first_rows.wait(10)
        reader = watch("t")
        rows = reader.changes(100) or []
        snapshot = len(rows)
        for _ in range(20):
            rows += reader.changes(50) or []
    finally:
        for writer in writers:
            writer.end()
    rows += reader.all_changes(500)
    assert len(rows) > snapshot > 0
    assert applied(rows) == dict(database.rows("select id, n from t"))


@pytest.mark.parametrize("told", [True, False])
def test_readers_that_end_at_any_time_and_begin_again_from_the_ledger(database: Database, watch: Watch, told: bool) -> None:
    database.run("create table t (id int primary key, n int)", "insert into t select i, 0 from generate_series(1, 200) i")
    writer = Writer(database, 5, pause=0.002)
    writer.start()
    chance, rows, ledger = random.Random(7), [], None
    try:
        for _ in range(15):
            reader = watch("t", ledger=ledger)
            for _ in range(chance.randrange(3)):
                if (part := reader.plan(30)) is None:
                    continue
                read = reader.table_rows(part, "public.t")
                if chance.random() < 0.3:
                    break  # killed before the commit
                rows += read
                ledger = part.end
                if told:
                    reader.commit(part)
                reader.ledger = ledger
            reader.source.close()
    finally:
        writer.end()
    rows += watch("t", ledger=ledger).all_changes()
    assert ledger is not None
    assert applied(rows) == dict(database.rows("select id, n from t"))


def test_what_the_snapshot_saw_does_not_come_again_and_what_it_did_not_see_does(
    database: Database, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("create table t (id int primary key, n int)", "insert into t values (1, 0)")
    waits = source_module.await_writers
    with database.connect() as late:

        def between(*arguments: Any) -> None:
            """After the slot is made and before the snapshot is taken."""
            waits(*arguments)
            late.autocommit = False
            late.execute("insert into t values (3, 0)")
            database.run("insert into t values (2, 0)", "update t set n = 5 where id = 1")

        monkeypatch.setattr(source_module, "await_writers", between)
        reader = watch("t")
        assert sorted(reader.changes() or ()) == [("insert", 1, 5), ("insert", 2, 0)]
        late.commit()
    database.run("insert into t values (4, 0)")
    assert reader.all_changes() == [("insert", 3, 0), ("insert", 4, 0)]
    assert reader.ledger is not None
    assert not PostgresPlace.from_position(reader.ledger).seen, "what was seen is forgotten when the log is past it"


def test_a_transaction_that_began_before_is_waited_for(database: Database, watch: Watch) -> None:
    database.run("create table t (id int primary key, n int)")
    reader = watch("t", snapshot_wait_secs=0.2)
    reader.source.plan(None, 1)
    reader.source.close()
    with database.connect() as early:
        early.autocommit = False
        early.execute("insert into t values (1, 0)")
        with pytest.raises(Retryable) as caught:
            reader.changes()
        assert caught.value.code == "snapshot-waits"
        assert str(early.info.backend_pid) in caught.value.message
        early.commit()
    assert reader.changes() == [("insert", 1, 0)]
    assert reader.all_changes() == []


def test_a_snapshot_that_was_not_committed_is_begun_anew(database: Database, watch: Watch) -> None:
    database.run("create table t (id int primary key, n int)", "insert into t values (1, 0), (2, 0)")
    killed = watch("t")
    part = killed.plan()
    assert part is not None
    killed.table_rows(part, "public.t")
    killed.source.close()
    database.run("insert into t values (3, 0)", "delete from t where id = 1", "update t set n = 7 where id = 2")
    reader = watch("t")
    assert sorted(reader.changes() or ()) == [("insert", 2, 7), ("insert", 3, 0)]
    assert reader.all_changes() == []
    assert reader.source.between(None, part.end) is None, "its moment has passed"


def test_a_snapshot_reads_the_same_rows_as_long_as_it_is_not_committed(database: Database, follow: Follow) -> None:
    database.run("create table t (id int primary key, n int)", "insert into t values (1, 0)")
    reader = follow("t")
    part = reader.plan()
    assert part is not None
    frame = reader.source.read(part)
    database.run("insert into t values (2, 0)")
    assert reader.plan() == part
    assert [row.id for row in frame.collect()] == [1] == [row.id for row in reader.source.read(part).collect()]


@pytest.mark.slow
def test_a_snapshot_whose_connection_broke_is_begun_anew(database: Database, follow: Follow) -> None:
    database.run("create table t (id int primary key, n int)", "insert into t values (1, 0)")
    reader = follow("t")
    part = reader.plan()
    assert part is not None
    database.run("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'frazil'")
    with pytest.raises(Exception, match="snapshot") as caught:
        reader.source.read(part).collect()
    explained = reader.source.explain(caught.value)
    assert isinstance(explained, Retryable)
    assert explained.code == "snapshot-interrupted"
    database.run("insert into t values (2, 0)")
    assert sorted(row.id for row in reader.batch() or ()) == [1, 2]


def test_a_batch_that_was_cut_off_is_not_repeated_from_a_snapshot_that_broke(database: Database, watch: Watch) -> None:
    database.run("create table t (id int primary key, n int)", "insert into t values (1, 0)")
    source = watch("t").source
    part = source.plan(None, 10)
    assert part is not None
    assert source.between(None, part.end) == part
    explained = source.explain(RuntimeError("psycopg.OperationalError: the connection is lost"))
    assert isinstance(explained, Retryable)
    assert source.between(None, part.end) is None


def test_a_large_table_is_read_in_parts_as_of_one_moment(database: Database, follow: Follow) -> None:
    database.run(
        "create table t (id int primary key, filler text)",
        "insert into t select i, repeat('x', 500) from generate_series(1, 12000) i",
        "analyze t",
    )
    reader = follow("t", snapshot_chunk_mb=1, snapshot_connections=3)
    part = reader.plan()
    assert part is not None
    assert part.rows == 12000
    assert isinstance(part.detail, SnapshotPart)
    assert [len(hand) for hand in part.detail.hands] == [3, 2, 2]
    frame = reader.source.read(part)
    assert frame.rdd.getNumPartitions() == 3
    database.run("insert into t select i, 'new' from generate_series(20000, 21000) i", "update t set filler = 'y' where id < 100")
    sums = frame.selectExpr("count(*) n", "count(distinct id) d", "sum(id) s", "min(length(filler)) f").first()
    assert tuple(sums or ()) == (12000, 12000, 12000 * 12001 // 2, 500)


def test_pages_are_dealt_without_gap_or_overlap() -> None:
    ranges = page_ranges([("a", 5 << 20), ("b", 0)], chunk_mb=2)
    assert ranges == [PageRange("a", 0, 256), PageRange("a", 256, 512), PageRange("a", 512, None), PageRange("b", 0, None)]
    assert dealt(ranges, 3) == [(ranges[0], ranges[3]), (ranges[1],), (ranges[2],)]
    assert dealt(ranges[:1], 5) == [(ranges[0],)]


def test_partitions_are_one_table(database: Database, watch: Watch) -> None:
    database.run(
        "create table t (id int, n int, primary key (id)) partition by range (id)",
        "create table t_low partition of t for values from (0) to (10)",
        'create table "T high" partition of t for values from (10) to (100)',
        "insert into t values (1, 0), (50, 0)",
    )
    reader = watch("t")
    assert sorted(reader.changes() or ()) == [("insert", 1, 0), ("insert", 50, 0)]
    database.run("update t set id = 20 where id = 1", "insert into t values (2, 0)")
    assert reader.changes() == [("delete", 1, None), ("insert", 20, 0), ("insert", 2, 0)]


def test_a_publication_may_hide_columns_and_rows(database: Database, watch: Watch) -> None:
    database.run(
        "create table t (id int primary key, n int, secret text, twice int generated always as (id * 2) stored)",
        "create publication few for table t (id, n) where (id > 1)",
        "insert into t values (1, 0, 'x'), (2, 0, 'y')",
    )
    reader = watch("t", publication="few")
    assert reader.changes() == [("insert", 2, 0)]
    database.run("insert into t values (0, 0, 'x'), (3, 0, 'z')")
    assert reader.changes() == [("insert", 3, 0)]


def test_rows_that_a_policy_hides_are_not_left_out_silently(database: Database, follow: Follow) -> None:
    user = f"user_{database.name}"
    database.run(
        "create table t (id int primary key, n int)",
        "insert into t values (1, 0), (2, 0)",
        "create publication pub for table t",
        f"create role {user} login replication password 'secret-of-user'",
        f"grant select on t to {user}",
        "alter table t enable row level security",
        f"create policy one on t for select to {user} using (id = 1)",
    )
    reader = follow("t", publication="pub", user=user, password="secret-of-user")
    part = reader.plan()
    assert part is not None
    with pytest.raises(Exception, match="row-level security") as caught:
        reader.source.read(part).collect()
    assert "row-level security" in str(reader.source.explain(caught.value))
    database.run(f"drop owned by {user}", f"drop role {user}")


def test_names_may_be_anything(database: Database, watch: Watch) -> None:
    database.run(
        'create schema "My Schema"',
        'create table "My Schema"."T.1" ("the id" int primary key, "a.b" text, "order" int, "c0" int)',
        """insert into "My Schema"."T.1" values (1, 'x', 2, 3)""",
    )
    reader = watch(streams=[{"name": "T.1", "namespace": "My Schema"}], publication="my 'pub\"lication")
    assert reader.changes() == [("insert", 1, "x", 2, 3)]
    database.run("""insert into "My Schema"."T.1" values (2, 'y', 3, 4)""")
    part = reader.plan()
    assert part is not None
    assert reader.table_rows(part, "My Schema.T.1") == [("insert", 2, "y", 3, 4)]
    assert [column.name for column in reader.source._reader.files()[0].columns] == ["the id", "a.b", "order", "c0"]


def test_without_a_snapshot_only_changes_come(database: Database, watch: Watch) -> None:
    database.run("create table t (id int primary key, n int)", "insert into t values (1, 0)")
    reader = watch("t", snapshot="never")
    assert reader.changes() is None
    database.run("insert into t values (2, 0)")
    assert reader.changes() == [("insert", 2, 0)]
    assert reader.changes() is None


def test_a_slot_that_was_made_before_is_used(database: Database, watch: Watch) -> None:
    database.run(
        "create table t (id int primary key, n int)",
        "create publication pub for table t",
        f"select pg_create_logical_replication_slot('own_{database.name}', 'pgoutput')",
        "insert into t values (1, 0)",
    )
    options = {"slot_name": f"own_{database.name}", "publication": "pub", "create_slot": False, "create_publication": False}
    reader = watch(**options)
    assert reader.changes() == [("insert", 1, 0)]
    assert reader.all_changes() == []
    early = watch(snapshot="never", **options)
    reader.source.close()
    assert early.changes() == [("insert", 1, 0)], "all that the slot has kept"


def test_a_table_that_is_added_later_is_read_as_it_is_then_followed(database: Database, watch: Watch) -> None:
    database.run("create table a (id int primary key)", "create table b (id int primary key)", "insert into b values (1)")
    reader = watch("a")
    reader.changes()
    database.run("insert into a values (1)")
    reader.changes()
    reader.source.close()
    database.run("insert into a values (2)", "insert into b values (2)")
    database.run(f'alter publication "frazil_{database.name}" add table b', "insert into b values (3)")
    both = watch("a", "b", ledger=reader.ledger)
    part = both.plan()
    assert part is not None
    assert both.source.tables(part) == ("public.b",)
    assert sorted(both.table_rows(part, "public.b")) == [("insert", 1), ("insert", 2), ("insert", 3)]
    assert both.table_rows(part, "public.a") == []
    both.commit(part)
    database.run("insert into b values (4)")
    part = both.plan()
    assert part is not None
    assert both.table_rows(part, "public.a") == [("insert", 2)]
    assert both.table_rows(part, "public.b") == [("insert", 4)]


def test_a_table_that_was_left_out_for_a_while_is_read_anew(database: Database, watch: Watch) -> None:
    database.run("create table a (id int primary key)", "create table b (id int primary key, n int)")
    database.run("insert into b values (1, 0), (2, 0)")
    reader = watch("a", "b")
    reader.all_changes()
    reader.source.close()
    database.run("insert into b values (3, 0)", "update b set n = 1 where id = 1", "insert into a values (1)")
    alone = watch("a", ledger=reader.ledger)
    assert alone.all_changes() == [("insert", 1)]
    alone.source.close()
    database.run("insert into b values (4, 0)", "delete from b where id = 2", "insert into a values (2)")
    both = watch("a", "b", ledger=alone.ledger)
    part = both.plan()
    assert part is not None
    assert sorted(both.table_rows(part, "public.b")) == [("insert", 1, 1), ("insert", 3, 0), ("insert", 4, 0)]
    both.commit(part)
    database.run("update b set n = 2 where id = 3")
    part = both.plan()
    assert part is not None
    assert both.table_rows(part, "public.a") == [("insert", 2)]
    assert both.table_rows(part, "public.b") == [("update", 3, 2)]


@pytest.mark.parametrize("stopped", [True, False])
def test_a_table_that_the_publication_did_not_have_for_a_while_is_read_anew(
    database: Database, watch: Watch, stopped: bool
) -> None:
    database.run("create table a (id int primary key)", "create table b (id int primary key)", "insert into b values (1)")
    database.run("create publication pub for table a, b")
    reader = watch("a", "b", publication="pub")
    reader.all_changes()
    if stopped:
        reader.source.close()
    database.run("alter publication pub drop table b", "insert into b values (2)", "insert into a values (1)")
    if not stopped:
        assert reader.all_changes() == [("insert", 1)]
    database.run("alter publication pub add table b", "insert into b values (3)")
    again = watch("a", "b", publication="pub", ledger=reader.ledger) if stopped else reader
    part = again.plan()
    assert part is not None
    assert sorted(again.table_rows(part, "public.b")) == [("insert", 1), ("insert", 2), ("insert", 3)]
    later = watch("a", "b", publication="pub", ledger=again.ledger)
    assert later.source.between(part.start, part.end) is None, "a snapshot that was cut off is begun anew"
    again.commit(part)
    database.run("insert into b values (4)")
    assert again.all_changes() == ([("insert", 1)] if stopped else []) + [("insert", 4)]


def test_a_table_of_which_other_columns_are_let_through_is_followed_on(database: Database, watch: Watch) -> None:
    database.run("create table a (id int primary key, n int)", "create table b (id int primary key)")
    database.run("create publication pub for table a (id), b", "insert into a values (1, 1)")
    reader = watch("a", "b", publication="pub")
    assert reader.all_changes() == [("insert", 1)]
    database.run("alter publication pub set table a (id, n), b", "insert into a values (2, 2)", "insert into b values (3)")
    assert reader.all_changes() == [("insert", 2, 2), ("insert", 3)]


def test_a_table_that_is_put_back_before_anything_was_passed_over_is_followed_on(database: Database, watch: Watch) -> None:
    database.run("create table a (id int primary key)", "create table b (id int primary key)", "insert into b values (1)")
    reader = watch("a", "b")
    reader.all_changes()
    reader.source.close()
    database.run("insert into b values (2)")
    alone = watch("a", ledger=reader.ledger)
    assert alone.all_changes() == []
    alone.source.close()
    assert watch("a", "b", ledger=alone.ledger).all_changes() == [("insert", 2)]


def test_a_batch_that_was_cut_off_is_the_same_when_a_table_was_left_out_in_it(database: Database, watch: Watch) -> None:
    database.run("create table a (id int primary key)", "create table b (id int primary key)")
    reader = watch("a", "b")
    reader.all_changes()
    reader.source.close()
    database.run("insert into a values (1)", "insert into b values (1)")
    killed = watch("a", ledger=reader.ledger)
    part = killed.plan()
    assert part is not None
    killed.source.close()
    for tables in (("a",), ("a", "b")):
        again = watch(*tables, ledger=reader.ledger)
        same = again.source.between(part.start, part.end)
        assert same is not None
        assert again.source.tables(same) == ("public.a",)
        assert again.table_rows(same, "public.a") == [("insert", 1)]
        again.source.close()


def test_a_table_may_be_read_whole_on_every_run(database: Database, watch: Watch) -> None:
    database.run("create table t (id int)", "insert into t values (1)")
    streams = [{"name": "t", "sync_mode": "full_refresh"}]
    reader = watch(streams=streams)
    for rows in ([1], [1, 2]):
        assert not reader.source.finished(reader.ledger)
        assert sorted(key for _, key in reader.changes() or ()) == rows
        assert reader.source.finished(reader.ledger)
        assert reader.changes() is None
        database.run("insert into t values (2)")
        reader = watch(streams=streams, ledger=reader.ledger)
    assert database.value("select count(*) from pg_replication_slots where database = current_database()") == 0


def test_which_transactions_a_snapshot_saw() -> None:
    wrapped = (5 << 32) + 10
    seen = Seen.from_text(f"{wrapped - 20}:{wrapped}:{wrapped - 20},{wrapped - 5}", until=1)
    assert [seen.saw((wrapped + distance) & 0xFFFFFFFF) for distance in (-21, -20, -19, -5, -4, 0, 1)] == [
        True, False, True, False, True, False, False,
    ]  # fmt: skip
    assert Seen.from_text(seen.to_text(), 1) == seen


def test_a_place_survives_the_ledger() -> None:
    seen = Seen(3, 9, frozenset({3, 7}), 5000)
    place = PostgresPlace("77", 4000, frozenset({"public.a"}), {"public.a": seen}, {"public.b": 2}, timeline=3)
    place = replace(place, members={"public.a": Member(16390, "1a2b3c")})
    assert PostgresPlace.from_position(place.to_position()) == place
    assert PostgresPlace.from_position(place.after(5000).to_position()) == replace(place, lsn=5000, seen={})
    assert PostgresPlace.from_position('{"lsn":"0/10","system":"77"}') == PostgresPlace("77", 16), "as earlier versions wrote it"
