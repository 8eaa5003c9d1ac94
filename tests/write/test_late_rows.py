"""Late rows in real tables: what is lower in the order than what the table has, or had, of its key does not come back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import frazil
from exactly_once.programs.moments import act_at
from frazil.errors import ConfigError, DataError, Halted
from frazil.model.events import CommitFailed, Event, Staged
from frazil.model.settings import Settings
from frazil.runtime.rewind import reset
from frazil.spark.cache import state_dir
from helpers.lakes import Lake, run
from helpers.late import Change, Model, case, in_order

IGNORE: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["id"], "order_by": ["at"], "late": "ignore"}
WAYS = [(2, "equality_delete"), (3, "position"), (2, "merge"), (3, "equality_delete"), (2, "position"), (3, "merge"), (3, "auto")]
TOMBSTONES = "db.t__tombstones"

Row = tuple[int, int | None, str | None]
Write = Callable[..., frazil.Committed]


class Crash(BaseException):
    """The end of a process, as far as its memory goes."""


def crash() -> None:
    raise Crash


def writer(lake: Lake, version: int, strategy: str, **options: Any) -> Write:
    """Writes rows of key, order and value by a writer of its own, as a process does that is started for them."""
    given = IGNORE | {"format_version": version, "upsert_strategy": strategy, "op_field": "op"} | options

    def write(*rows: Row, batch: str | None = None, listen: Callable[[Event], None] | None = None, **more: Any) -> Any:
        made = [(*row, "d" if row[2] is None else "u") for row in rows]
        frame = lake.spark.createDataFrame(made, "id long, at int, v string, op string")
        sink = lake.sink(frame, **given | more)
        return (sink if listen is None else sink.listen(listen)).write(batch)

    return write


@pytest.fixture(params=WAYS, ids=lambda way: f"v{way[0]}-{way[1]}")
def write(request: pytest.FixtureRequest, lake: Lake) -> Write:
    return writer(lake, *request.param)


@pytest.fixture
def quick(lake: Lake) -> Write:
    """One of the ways, for what is the same in all of them."""
    return writer(lake, 2, "equality_delete")


def values(lake: Lake) -> dict[int, str]:
    rows = lake.rows("id, v")
    assert len({key for key, _ in rows}) == len(rows), "a key is there twice"
    return dict(rows)


def superseded(lake: Lake) -> list[str | None]:
    return [snapshot.summary.get("frazil.rows-superseded") for snapshot in lake.data_snapshots()]


def test_a_late_row_does_not_win_also_after_a_delete(lake: Lake, write: Write) -> None:
    write((1, 5, "five"), (2, 5, "five"), (3, 5, "five"), (4, None, "none"))
    assert not lake.exists(TOMBSTONES), "nothing was deleted"
    done = write((1, 4, "late"), (2, 5, "corrected"), (3, 6, "six"), (4, 1, "one"), (5, 1, "new"))
    assert (done.counts.read, done.counts.written, done.counts.superseded) == (5, 4, 1)
    assert values(lake) == {1: "five", 2: "corrected", 3: "six", 4: "one", 5: "new"}
    done = write((1, 9, None), (2, 4, None), (5, 2, None), (6, 2, None))
    assert (done.counts.deleted, done.counts.superseded) == (3, 1)
    done = write((1, 8, "late"), (1, 7, "later"), (5, 2, "of the same time"), (6, 1, "late"), (7, 1, "new"), (4, None, "late"))
    assert (done.counts.written, done.counts.superseded) == (2, 4)
    assert values(lake) == {2: "corrected", 3: "six", 4: "one", 5: "of the same time", 7: "new"}
    done = write((1, 10, "back"), (6, 1, "late"))
    assert (values(lake)[1], done.counts.superseded) == ("back", 1)
    assert superseded(lake) == [None, "1", "1", "4", "1"]
    write((1, 9, "all of it is late"), (2, 4, "late"))
    assert values(lake) == {1: "back", 2: "corrected", 3: "six", 4: "one", 5: "of the same time", 7: "new"}


@pytest.mark.parametrize("options", [{}, {"late": "apply"}])
def test_by_default_the_batch_that_comes_last_counts(lake: Lake, options: dict[str, Any]) -> None:
    given = {"commit_mode": "upsert", "key_fields": ["id"], "order_by": ["at"], "op_field": "op"} | options
    for row in ("1L id, 5 at, 'five' v, 'u' op", "1L, 4, 'four', 'u'", "1L, 3, '', 'd'", "1L, 1, 'one', 'u'"):
        lake.sink(f"select {row}" if "id" in row else f"select * from values ({row}) t(id, at, v, op)", **given).write()
    assert values(lake) == {1: "one"}
    assert not lake.exists(TOMBSTONES)


def test_the_state_folder_may_be_lost(lake: Lake) -> None:
    write = writer(lake, 3, "position")
    write((1, 5, "five"), (2, 5, "five"))
    write((2, 9, None))
    for folder in (state_dir() / "key-index").glob("db.t-*"):
        shutil.rmtree(folder)
    done = write((1, 4, "late"), (2, 8, "late"), (3, 1, "new"))
    assert (values(lake), done.counts.superseded) == ({1: "five", 3: "new"}, 2)


# Others who write


def test_what_others_commit_meanwhile_is_compared_again(lake: Lake, write: Write) -> None:
    write((1, 1, "mine"), (2, 1, "mine"))
    events: list[Event] = []

    def foreign() -> None:
        undo()
        rows = lake.spark.createDataFrame([(1, 7, "theirs"), (3, 7, "theirs")], "id long, at int, v string")
        lake.sink(rows, commit_mode="upsert", key_fields=["id"]).id("other").write()

    undo = act_at("unsent", 1, foreign)
    try:
        done = write((1, 5, "mine"), (2, 5, "mine"), (3, 5, "mine"), listen=events.append)
    finally:
        undo()
    assert [event for event in events if isinstance(event, CommitFailed)], "the first try was overtaken"
    assert len([event for event in events if isinstance(event, Staged)]) == 2, "it was compared again"
    assert (values(lake), done.counts.superseded) == ({1: "theirs", 2: "mine", 3: "theirs"}, 2)


def test_two_sinks_of_a_table_know_of_each_others_deletes(lake: Lake, quick: Write) -> None:
    other = writer(lake, 2, "equality_delete", id="other")
    quick((1, 1, "a"), (2, 1, "a"))
    other((1, 5, None))
    quick((1, 4, "late"), (2, 6, None))
    other((2, 5, "late"), (3, 1, "new"))
    assert values(lake) == {3: "new"}
    assert lake.rows("id, at", TOMBSTONES) == [(1, 5), (2, 6)]


# What is cut off between the two commits


@pytest.mark.parametrize("same", [True, False], ids=["again", "other rows"])
def test_a_batch_that_is_cut_off_when_its_deletes_are_written(lake: Lake, quick: Write, same: bool) -> None:
    quick((1, 1, "a"), (2, 1, "a"))
    undo = act_at("unsent", 2, crash)
    try:
        with pytest.raises(Crash):
            quick((1, 5, None), (2, 2, "b"), (3, 9, None), batch="first")
    finally:
        undo()
    assert values(lake) == {1: "a", 2: "a"}
    assert lake.rows("id, at", TOMBSTONES) == [(1, 5), (3, 9)]
    if same:
        quick((1, 5, None), (2, 2, "b"), (3, 9, None), batch="first")
        assert values(lake) == {2: "b"}
        quick((1, 4, "late"), (3, 8, "late"))
        assert (values(lake), lake.rows("id, at", TOMBSTONES)) == ({2: "b"}, [(1, 5), (3, 9)])
    else:
        quick((1, 4, "in time"), (3, 8, "in time"), batch="second")
        assert values(lake) == {1: "in time", 2: "a", 3: "in time"}
        assert lake.rows("id, at", TOMBSTONES) == []
        quick((1, 5, None), (2, 2, "b"), (3, 9, None), batch="first")
        quick((1, 4, "late"))
        assert values(lake) == {2: "b"}


def test_a_batch_that_is_given_again_by_its_name_is_written_once(lake: Lake, quick: Write) -> None:
    quick((1, 1, "a"), batch="first")
    quick((1, 5, None), batch="second")
    assert quick((1, 5, None), batch="second").skipped
    assert lake.rows("id, at", TOMBSTONES) == [(1, 5)]


# Tombstones


def test_deletes_are_forgotten_when_their_time_is_over(lake: Lake, quick: Write) -> None:
    quick((1, 5, None), (2, 5, None))
    lake.spark.sql(f"UPDATE {lake.name}.{TOMBSTONES} SET frazil_deleted_at = frazil_deleted_at - INTERVAL 47 HOURS WHERE id = 1")
    quick((3, 5, None), tombstone_retention_hours=48)
    assert [row[0] for row in lake.rows("id", TOMBSTONES)] == [1, 2, 3]
    quick((4, 5, None), tombstone_retention_hours=46)
    assert [row[0] for row in lake.rows("id", TOMBSTONES)] == [2, 3, 4]
    quick((1, 4, "late"), (2, 4, "late"))
    assert values(lake) == {1: "late"}


def test_columns_get_wider_and_the_table_of_tombstones_with_them(lake: Lake) -> None:
    given = IGNORE | {"op_field": "op", "schema_evolution": "type_widen"}

    def write(key: str, at: str, v: str, op: str) -> None:
        lake.sink(f"select {key} id, {at} at, {v} v, '{op}' op", **given).write()

    write("1", "1", "'a'", "u")
    write("1", "5", "''", "d")
    write("5000000000", "5000000000", "'b'", "u")
    write("5000000000", "5000000001", "''", "d")
    write("1L", "4L", "'late'", "u")
    write("5000000000", "6L", "'late'", "u")
    assert (values(lake), lake.rows("id, at", TOMBSTONES)) == ({}, [(1, 5), (5000000000, 5000000001)])


def test_a_table_of_tombstones_with_other_columns_is_noticed(lake: Lake, quick: Write) -> None:
    quick((1, 5, None))
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t RENAME COLUMN at TO since")
    rows = "select * from values (1L, 4, 'late') t(id, since, v)"
    with pytest.raises(Halted, match="has no column 'since'") as caught:
        lake.sink(rows, **IGNORE | {"order_by": ["since"]}).write()
    assert caught.value.code == "tombstones-differ"
    lake.spark.sql(f"ALTER TABLE {lake.name}.{TOMBSTONES} RENAME COLUMN at TO since")
    lake.sink(rows, **IGNORE | {"order_by": ["since"]}).write()
    assert values(lake) == {}


def test_a_branch_has_deletes_of_its_own(lake: Lake, quick: Write) -> None:
    quick((1, 1, "a"))
    audit = writer(lake, 2, "equality_delete", branch="audit", id="audit")
    audit((1, 5, None))
    quick((1, 4, "in time on main"))
    audit((1, 4, "late"))
    assert values(lake) == {1: "in time on main"}
    reader = lake.spark.read.option("branch", "audit").table(f"{lake.name}.db.t")
    assert reader.count() == 0


@pytest.mark.parametrize("atomic", [False, True])
def test_tables_of_a_route_have_tombstones_of_their_own(lake: Lake, atomic: bool) -> None:
    given = IGNORE | {"op_field": "op", "route": {"field": "kind", "atomic": atomic}}

    def write(*rows: str) -> None:
        frame = lake.frame(f"select * from values {', '.join(rows)} t(id, at, v, op, kind)")
        frazil.sink(frame).catalog(**lake.catalog).options(namespace="db", **given).id("many").write()

    write("(1L, 1, 'a', 'u', 'x')", "(1L, 1, 'a', 'u', 'y')")
    write("(1L, 5, null, 'd', 'x')", "(2L, 5, 'b', 'u', 'y')")
    write("(1L, 4, 'late', 'u', 'x')", "(1L, 4, 'new', 'u', 'y')", "(2L, 4, 'late', 'u', 'y')")
    assert lake.rows("id, v", "db.x") == []
    assert lake.rows("id, v", "db.y") == [(1, "new"), (2, "b")]
    assert (lake.exists("db.x__tombstones"), lake.exists("db.y__tombstones")) == (True, False)


def test_a_reset_forgets_the_deletes(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1, "at": 5, "op": "d"}\n{"id": 2, "at": 5, "op": "u"}\n')
    source = {"connector": "files", "path": str(tmp_path / "in"), "format": "json"}
    pipeline = lake.pipeline(source, **IGNORE, op_field="op", schema={"id": "long", "at": "int"})
    run(pipeline, once=True)
    assert lake.introduced().rows("id, at", TOMBSTONES) == [(1, 5)]
    reset(pipeline, Settings(), really=True)
    assert (lake.count(), lake.count(TOMBSTONES)) == (0, 0)
    run(pipeline, once=True)
    assert (lake.rows("id, at"), lake.rows("id, at", TOMBSTONES)) == ([(2, 5)], [(1, 5)])


# What is refused


def test_rows_that_cannot_be_compared_stop_the_batch(lake: Lake, quick: Write) -> None:
    quick((1, 1, "a"))
    with pytest.raises(DataError, match="1 deletes of the batch have no value in order_by") as caught:
        quick((1, None, None), (2, 1, "b"))
    assert caught.value.code == "order-missing"
    nested = "select 2L id, named_struct('at', 1) meta"
    with pytest.raises(ConfigError, match=r"'meta\.at' of order_by, which is no column") as unkept:
        lake.sink(nested, **IGNORE | {"order_by": ["meta.at"]}).write()
    assert unkept.value.code == "order-not-kept"
    assert values(lake) == {1: "a"}


@pytest.mark.parametrize("late", ["ignore", "apply"])
def test_a_delete_without_an_order_is_not_lost_beside_a_row_of_its_key(lake: Lake, quick: Write, late: str) -> None:
    quick((1, 1, "a"), (2, 1, "a"), late=late)
    with pytest.raises(DataError, match=r'1 keys have a delete without a value in order_by .* example \{"id":1\}') as caught:
        quick((1, 5, "b"), (1, None, None), (2, 2, "b"), late=late)
    assert (caught.value.code, values(lake)) == ("order-missing", {1: "a", 2: "a"})
    # It may be before or after a delete that has an order: the row is gone in any case.
    quick((1, 5, None), (1, None, None), (2, 2, "b"), late=late)
    assert values(lake) == {2: "b"}


def test_a_delete_without_an_order_counts_by_itself_where_the_last_batch_does(lake: Lake, quick: Write) -> None:
    quick((1, 1, "a"), (2, 1, "a"), late="apply")
    quick((1, None, None), (1, None, None), (2, None, "b"), late="apply")
    assert values(lake) == {2: "b"}


# Many histories


def rows_of(batches: Sequence[Sequence[Change]]) -> list[tuple[Any, ...]]:
    """The rows of a batch of each case, whose number is a part of the key."""
    return [
        (number, one.key, *(*one.order, None)[:2], one.value, "d" if one.value is None else "u")
        for number, batch in enumerate(batches)
        for one in batch
    ]


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize(("version", "strategy"), WAYS)
def test_shuffled_late_and_doubled_changes_lead_to_the_rows_of_the_sorted_ones(lake: Lake, version: int, strategy: str) -> None:
    steps, cases = 6, [case(WAYS.index((version, strategy)) * 1_000 + seed, 6) for seed in range(200)]
    models = [Model() for _ in cases]
    given = IGNORE | {"key_fields": ["c", "id"], "order_by": ["a", "b"], "op_field": "op"}
    given |= {"format_version": version, "upsert_strategy": strategy}

    def write(batches: Sequence[Sequence[Change]], name: str) -> None:
        frame = lake.spark.createDataFrame(rows_of(batches), "c long, id long, a int, b int, v string, op string")
        expected = sum(model.write(batch) for model, batch in zip(models, batches, strict=True))
        assert lake.sink(frame, **given).write(name).counts.superseded == expected, name

    for step in range(steps):
        batches = [one.batches[step] for one in cases]
        if step % 2:
            frame = lake.spark.createDataFrame(rows_of(batches), "c long, id long, a int, b int, v string, op string")
            undo = act_at("unsent", 2, crash)
            try:
                with pytest.raises(Crash):
                    lake.sink(frame, **given).write(f"step {step}")
            finally:
                undo()
        if step % 4 == 3:
            # Other rows come in place of what was cut off.
            write([batch[: len(batch) // 2] for batch in batches], f"half of step {step}")
        write(batches, f"step {step}")
    found: dict[int, dict[int, str]] = {number: {} for number in range(len(cases))}
    for number, key, value in lake.rows("c, id, v"):
        assert key not in found[number], "a key is there twice"
        found[number][key] = value
    for number, one in enumerate(cases):
        assert found[number] == in_order(one.history), number
