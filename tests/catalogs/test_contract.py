"""What every catalog and store must do, in each of those that can be started here."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest

import frazil
from catalogs.places import Place
from exactly_once.ground import Recorded
from exactly_once.truth import OURS
from frazil.errors import Fenced, Halted
from frazil.iceberg import IcebergPort, Lake
from frazil.model.events import Event, Maintained, Settled
from frazil.observe.check import INSIDE_THE_RUN, check_sink
from helpers.lakes import commits, fresh_name, run

UPSERT: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["id"], "upsert_strategy": "equality_delete"}


def test_namespaces_and_the_table_are_made_and_batches_appended(somewhere: Place) -> None:
    table = f"{somewhere.namespace()}.orders"
    first = somewhere.lake.sink("select 1 id, 'a' name", table).write()
    second = somewhere.lake.sink("select 2 id, 'b' name union all select 3, 'c'", table).write()
    assert (first.batch, second.batch) == (1, 2)
    assert somewhere.rows_by_all(table) == [(1, "a"), (2, "b"), (3, "c")]
    if somewhere.remembers:
        assert somewhere.lake.rows(table=table, at=first.snapshot) == [(1, "a")]


def test_a_pipeline_of_several_batches_goes_on_where_it_ended(somewhere: Place) -> None:
    lake, table = somewhere.lake, f"{fresh_name()}.events"
    begun = run(lake.pipeline({"connector": "generator", "rows": 30}, table, batch_size=20), once=True)
    ended = run(lake.pipeline({"connector": "generator", "rows": 50}, table, batch_size=20), once=True)
    assert [commit.counts.written for commit in commits(begun) + commits(ended)] == [20, 10, 20]
    assert lake.rows("event_number", table) == sorted([(number,) for number in range(50)], key=repr)


def test_rows_are_upserted_and_their_deletes_settled(somewhere: Place) -> None:
    lake, table = somewhere.lake, f"{fresh_name()}.people"
    lake.sink("select id, 'old' v from range(6)", table, **UPSERT).write()
    lake.sink("select id, 'new' v from range(3)", table, **UPSERT).write()
    assert lake.rows(table=table) == [(n, "new" if n < 3 else "old") for n in range(6)]
    heard: list[Event] = []
    lake.sink("select id, 'newer' v from range(2)", table, **UPSERT, max_equality_deletes=0).listen(heard.append).write()
    assert [event.kind for event in heard if isinstance(event, Settled)] == ["settle"]
    assert lake.meta("snapshots", table)[-1].summary["total-equality-deletes"] == "0"
    assert somewhere.rows_by_all(table) == [(n, "newer" if n < 2 else "new" if n < 3 else "old") for n in range(6)]


def test_a_new_column_is_added(somewhere: Place) -> None:
    lake, table = somewhere.lake, f"{fresh_name()}.t"
    lake.sink("select 1 id", table).write()
    lake.sink("select 2 id, 'b' name", table, schema_evolution="add_columns").write()
    assert somewhere.rows_by_all(table) == [(1, None), (2, "b")]


def test_a_batch_is_written_once_whatever_is_known_of_its_commit(somewhere: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is lost after the catalog has applied it; then its writer dies, and another has the same batch again."""
    ground = somewhere.ground(fresh_name())
    writer = ground.writer()
    writer.open()
    answer_lost_after(monkeypatch, IcebergPort, "swap")
    writer.write(0, 10)
    assert [failed.kind for failed in writer.failures] == ["unknown"]
    again = ground.writer()
    assert again.open() == 10
    assert again.write(0, 10).skipped
    again.write(10, 20)
    assert rows_of_ground(again) == numbered(20)


def answer_lost_after(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    swap = getattr(owner, name)

    def applied(*arguments: Any) -> None:
        monkeypatch.setattr(owner, name, swap)
        swap(*arguments)
        raise ConnectionResetError("the answer was lost")

    monkeypatch.setattr(owner, name, applied)


def numbered(rows: int) -> list[tuple[Any, ...]]:
    return sorted([(OURS, number) for number in range(rows)], key=repr)


def rows_of_ground(writer: Recorded) -> list[tuple[Any, ...]]:
    table = writer.session.table(f"{writer.ground.spec.name}.{writer.ground.name}")
    return sorted((tuple(row) for row in table.collect()), key=repr)


def test_of_two_writers_the_older_is_fenced(somewhere: Place) -> None:
    ground = somewhere.ground(fresh_name())
    older, newer = ground.writer(), ground.writer()
    older.pump(10)
    assert newer.open() == 10
    with pytest.raises(Fenced):
        older.write(10, 20)
    newer.write(10, 20)
    with pytest.raises(Fenced):
        older.write(20, 30)
    assert rows_of_ground(newer) == numbered(20)


def test_a_commit_that_another_has_overtaken_is_refused_and_made_anew(somewhere: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if not somewhere.compares:
        pytest.skip("the emulator compares no versions of tables")
    ground = somewhere.ground(fresh_name())
    writer, other = ground.writer(), ground.writer("others/lake")
    writer.pump(10)
    other.open()
    swap = IcebergPort.swap

    def swap_after_that(*arguments: Any) -> None:
        monkeypatch.setattr(IcebergPort, "swap", swap)
        other.write(0, 10)
        swap(*arguments)

    monkeypatch.setattr(IcebergPort, "swap", swap_after_that)
    if not somewhere.remembers:
        # No history is shown in which the sink could find its last commit: it stops, and does not guess.
        with pytest.raises(Halted) as stopped:
            writer.write(10, 20)
        assert stopped.value.code == "rolled-back"
        return
    writer.write(10, 20)
    assert [failed.kind for failed in writer.failures] == ["conflict"]
    assert rows_of_ground(writer) == sorted(numbered(20) + numbered(10), key=repr)


def test_a_batch_of_several_tables_is_committed_at_once_or_not_at_all(somewhere: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the one commit is lost; a catalog that commits one table at a time is refused."""
    lake, namespace = somewhere.lake, fresh_name()

    def write(first: int, last: int) -> None:
        rows = lake.frame(f"select id, explode(array('debit', 'credit')) kind from range({first}, {last})")
        routed = frazil.sink(rows).catalog(**lake.catalog).options(**lake.given, namespace=namespace, id="transfers")
        routed.options(route={"field": "kind", "atomic": True}).write()

    if not somewhere.atomic:
        with pytest.raises(frazil.ConfigError, match="atomic"):
            write(0, 10)
        assert not lake.exists(f"{namespace}.debit") or lake.count(f"{namespace}.debit") == 0
        return
    write(0, 10)
    answer_lost_after(monkeypatch, Lake, "swap_together")
    write(10, 20)
    assert [lake.count(f"{namespace}.{table}") for table in ("debit", "credit")] == [20, 20]


def test_a_pipeline_keeps_its_table_healthy(somewhere: Place) -> None:
    lake, table = somewhere.lake, f"{fresh_name()}.events"
    eager = {"small_files": 4, "max_snapshots": 5, "reader_grace_minutes": 0, "max_time_share": 1}
    events = run(lake.pipeline({"connector": "generator", "rows": 60}, table, batch_size=4, maintenance=eager), once=True)
    assert len(commits(events)) == 15
    kinds = {event.kind for event in events if isinstance(event, Maintained)}
    if somewhere.maintained:
        assert kinds == {"merge_files", "expire_snapshots"} | ({"delete_files"} if somewhere.lists else set())
        assert len(lake.meta("snapshots", table)) <= 7
        assert len(lake.meta("files", table)) <= 10
    else:
        assert kinds == set()  # the service forbids others to delete files
    for row in lake.meta("snapshots", table):
        assert lake.table(table, row.snapshot_id).count() == int(row.summary["total-records"])
    assert lake.rows("event_number", table) == sorted([(number,) for number in range(60)], key=repr)


def test_a_table_is_dropped_with_its_files(somewhere: Place) -> None:
    namespace = fresh_name()
    somewhere.lake.sink("select 1 id", f"{namespace}.t").write()
    doors = somewhere.doors()
    assert doors.drop((namespace,), "t")
    assert doors.load((namespace,), "t") is None
    assert not doors.drop((namespace,), "t")
    doors.drop_empty_namespace((namespace,))
    assert doors.missing_namespaces((namespace,)) == (namespace,)
    somewhere.lake.sink("select 2 id", f"{namespace}.t").write()
    assert somewhere.rows_by_all(f"{namespace}.t") == [(2,)]


def test_a_table_that_pyiceberg_made_is_a_sink(somewhere: Place) -> None:
    if somewhere.others is None:
        pytest.skip("PyIceberg has no such catalog")
    namespace = fresh_name()
    catalog = somewhere.made_by_pyiceberg(namespace)
    rows = pyarrow.table({"id": pyarrow.array([1, 2], pyarrow.int64()), "name": ["a", "b"]})
    location = f"{somewhere.folder}/{namespace}.db/t" if somewhere.folder else None
    catalog.create_table(f"{namespace}.t", schema=rows.schema, location=location).append(rows)
    written = somewhere.lake.sink("select 3L id, 'c' name", f"{namespace}.t").write()
    assert written.batch == 1
    catalog.load_table(f"{namespace}.t").append(rows)
    assert somewhere.rows_by_all(f"{namespace}.t") == [(1, "a"), (1, "a"), (2, "b"), (2, "b"), (3, "c")]


def test_check_finds_everything_in_order(somewhere: Place) -> None:
    table = f"{fresh_name()}.t"
    sink = somewhere.lake.sink("select 1 id", table)
    if sink.spec.catalog.type in INSIDE_THE_RUN:
        pytest.skip("a memory catalog cannot be connected to")
    sink.write()
    done = list(check_sink("lake", sink.spec))
    if "NAME_NODE" in somewhere.variables and not pyarrow.have_libhdfs():
        assert {step.error.code for step in done if step.error} == {"libhdfs-missing"}
        return
    assert [step.message for step in done if not step.passed] == []
    assert [step.step for step in done] == ["names", "catalog", "table", "commits", "storage"]
