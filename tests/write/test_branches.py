"""A sink on a branch: main stays as it is, whatever the batch changes, until the branch is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import frazil
from frazil.errors import ConfigError, Halted
from frazil.iceberg import TableCare
from frazil.model.events import CommitFailed, Event, Maintained
from helpers.lakes import Lake, doomed
from helpers.readers import by_duckdb, by_pyiceberg, tuples

BRANCH = {"branch": "audit", "id": "writer"}
EAGER = {"small_files": 4, "max_snapshots": 5, "reader_grace_minutes": 0, "max_time_share": 1}


def on_branch(lake: Lake, query: str, **options: Any) -> frazil.Sink:
    return lake.sink(query, **(BRANCH | options))


def written(lake: Lake, columns: str = "*") -> list[tuple[Any, ...]]:
    """The rows of the branch."""
    rows = lake.spark.table(f"{lake.name}.db.t.branch_audit").selectExpr(*columns.split(", ")).collect()
    return sorted((tuple(row) for row in rows), key=repr)


def seen(lake: Lake) -> list[tuple[Any, ...]]:
    """The rows of main, in which three readers agree."""
    rows = lake.rows()
    assert rows == tuples(by_duckdb(lake)) == tuples(by_pyiceberg(lake))
    return rows


BEFORE = [(0, "a"), (1, "a"), (2, "a"), (3, "a")]
UPSERT = {"commit_mode": "upsert", "key_fields": ["id"]}
CHANGES = "select id, 'b' v from range(2, 6)"
UPSERTED = [(0, "a"), (1, "a"), (2, "b"), (3, "b"), (4, "b"), (5, "b")]
MODES: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "append": ({}, sorted([*BEFORE, (2, "b"), (3, "b"), (4, "b"), (5, "b")])),
    "equality deletes": (UPSERT | {"upsert_strategy": "equality_delete"}, UPSERTED),
    "merge": (UPSERT | {"upsert_strategy": "merge"}, UPSERTED),
    "positions": (UPSERT | {"upsert_strategy": "position"}, UPSERTED),
    "overwrite": ({"commit_mode": "overwrite"}, [(2, "b"), (3, "b"), (4, "b"), (5, "b")]),
    "overwrite where": (
        {"commit_mode": "overwrite", "overwrite_where": "id >= 2"},
        [(0, "a"), (1, "a"), (2, "b"), (3, "b"), (4, "b"), (5, "b")],
    ),
    "delete insert": ({"commit_mode": "delete_insert", "replace_by": ["id"]}, UPSERTED),
}


@pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])
@pytest.mark.parametrize("mode", MODES)
def test_main_stays_until_the_branch_is_published(lake: Lake, mode: str, version: int) -> None:
    """The second batch changes rows that only the branch has."""
    options, expected = MODES[mode]
    lake.sink("select id, 'a' v from range(4)", format_version=version, id="main").write()
    writing = on_branch(lake, CHANGES, **options)
    writing.write()
    assert (seen(lake), written(lake)) == (BEFORE, expected)
    on_branch(lake, CHANGES.replace("'b'", "'c'"), **options).write()
    again = [(key, v.replace("b", "c")) for key, v in expected] if mode != "append" else None
    if again is not None:
        assert (seen(lake), written(lake)) == (BEFORE, again)
    done = writing.publish()
    assert (done.done, done.rows) == (True, 8)
    # PyIceberg cannot read equality deletes.
    now = lake.rows()
    assert now == tuples(by_duckdb(lake)) == (again or sorted([*expected, *((key, "c") for key in range(2, 6))]))
    assert writing.publish().nothing


def test_columns_come_to_an_empty_table_and_main_of_one_that_had_nothing_is_made(lake: Lake) -> None:
    writing = on_branch(lake, "select id from range(3)")
    writing.write()
    assert lake.rows() == []
    on_branch(lake, "select id, 'x' v from range(3, 4)").write()
    assert (lake.rows(), written(lake)) == ([], [(0, None), (1, None), (2, None), (3, "x")])
    assert writing.publish().before is None
    assert lake.rows() == written(lake)


def test_a_column_that_comes_with_the_first_batch_is_null_in_main(lake: Lake) -> None:
    lake.sink("select 0L id", id="main").write()
    on_branch(lake, "select 1L id, 'x' v").write()
    assert (seen(lake), written(lake)) == ([(0, None)], [(0, None), (1, "x")])


def test_a_sink_goes_on_on_its_branch_exactly_once(lake: Lake) -> None:
    lake.sink("select id from range(2)", id="main").write()
    for _ in range(2):
        on_branch(lake, "select id from range(10, 12)").write(batch="one")
        on_branch(lake, "select id from range(20, 22)").write(batch="two")
    assert written(lake) == [(0,), (1,), (10,), (11,), (20,), (21,)]
    assert on_branch(lake, "select 1L id").publish().rows == 4
    assert on_branch(lake, "select id from range(20, 22)").write(batch="two").skipped
    on_branch(lake, "select 30L id").write(batch="three")
    assert (len(lake.rows()), len(written(lake))) == (6, 7)


def test_a_branch_that_was_dropped_with_unpublished_rows_stops_the_sink(lake: Lake) -> None:
    lake.sink("select 0L id", id="main").write()
    on_branch(lake, "select 1L id").write()
    name = f"{lake.name}.db.t"
    lake.spark.sql(f"ALTER TABLE {name} DROP BRANCH audit")
    with pytest.raises(Halted) as stopped:
        on_branch(lake, "select 2L id").write()
    assert stopped.value.code == "rolled-back"
    with pytest.raises(Halted) as elsewhere:
        on_branch(lake, "select 2L id", branch=None).write()
    assert elsewhere.value.code == "rolled-back", "main does not have what the sink has written"


def test_a_branch_that_was_dropped_after_it_was_published_is_made_again(lake: Lake) -> None:
    lake.sink("select 0L id", id="main").write()
    on_branch(lake, "select 1L id").write()
    on_branch(lake, "select 1L id").publish()
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t DROP BRANCH audit")
    on_branch(lake, "select 2L id").write()
    assert (lake.rows(), written(lake)) == ([(0,), (1,)], [(0,), (1,), (2,)])


def test_a_tag_is_no_branch(lake: Lake) -> None:
    lake.sink("select 0L id", id="main").write()
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t CREATE TAG audit")
    with pytest.raises(ConfigError) as refused:
        on_branch(lake, "select 1L id").write()
    assert refused.value.code == "branch-is-tag"


def test_a_failed_check_leaves_main_and_shows_the_rows(lake: Lake) -> None:
    lake.sink("select 0L id", id="main").write()
    checks = [
        {"name": "small", "sql": "select id from {table} where id > 3 order by id;"},
        {"name": "positive", "sql": "select * from {table} where id < 0"},
    ]
    writing = on_branch(lake, "select id from range(1, 12)", publish={"checks": checks})
    writing.write()
    views = lake.spark.catalog.listTables()
    found = writing.publish()
    assert [(one.name, one.passed, one.rows) for one in found.checks] == [
        ("rows", True, 0),
        ("small", False, 8),
        ("positive", True, 0),
    ]
    assert (found.checks[1].sample, found.done) == (((4,), (5,), (6,), (7,), (8,)), False)
    assert lake.rows() == [(0,)]
    assert lake.spark.catalog.listTables() == views, "nothing is left in the session"


@pytest.mark.parametrize("sql", ["selct * from {table}", "select nme from {table}", "delete from {table}"])
def test_a_check_that_is_no_query_is_an_error_of_the_file(lake: Lake, sql: str) -> None:
    writing = on_branch(lake, "select 1L id", publish={"checks": [{"name": "wrong", "sql": sql}]})
    writing.write()
    with pytest.raises(ConfigError) as refused:
        writing.publish()
    assert (refused.value.code, "'wrong'" in refused.value.message, lake.rows()) == ("check-refused", True, [])


def test_rows_that_no_sink_has_written_are_found(lake: Lake) -> None:
    writing = on_branch(lake, "select id from range(3)")
    writing.write()
    lake.spark.sql(f"INSERT INTO {lake.name}.db.t.branch_audit VALUES (7)")
    found = writing.publish()
    (check,) = found.failed
    assert (check.name, "holds 4 rows" in check.problem, "should hold 3" in check.problem) == ("rows", True, True)
    assert lake.rows() == []


def test_main_that_somebody_wrote_to_is_not_taken_back(lake: Lake) -> None:
    lake.sink("select 0L id", id="main").write()
    before = lake.meta("refs")[0].snapshot_id
    writing = on_branch(lake, "select 1L id")
    writing.write()
    lake.spark.sql(f"INSERT INTO {lake.name}.db.t VALUES (9)")
    with pytest.raises(Halted) as stopped:
        writing.publish()
    assert (stopped.value.code, str(before) in stopped.value.fix) == ("branch-diverged", True)
    assert lake.rows() == [(0,), (9,)]
    lake.spark.sql(f"CALL {lake.name}.system.rollback_to_snapshot('db.t', {before})")
    assert writing.publish().done, "the cure helps"
    assert lake.rows() == [(0,), (1,)]


def test_what_was_checked_is_what_is_published(lake: Lake) -> None:
    """The writer goes on while checks are made."""
    writing = on_branch(lake, "select 1L id", publish={"checks": [{"name": "slow", "sql": "select * from {table} where id < 0"}]})
    writing.write()
    from frazil.runtime.publish import Publisher

    queries = Publisher._queries

    def meanwhile(publisher: Publisher, rows: Any) -> Any:
        found = queries(publisher, rows)
        on_branch(lake, "select 2L id").write()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Publisher, "_queries", meanwhile)
        assert writing.publish().done
    assert (lake.rows(), written(lake)) == ([(1,)], [(1,), (2,)])


def on_disk(lake: Lake) -> set[str]:
    """The data files of the table."""
    return {path.name for path in (lake.folder / "warehouse/db/t/data").rglob("*.parquet")}


@pytest.mark.slow(seconds=30)
@pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])
def test_maintenance_on_a_branch_keeps_what_main_needs(lake: Lake, version: int) -> None:
    lake.sink("select id, 'a' v from range(20)", format_version=version, id="main").write()
    events: list[Event] = []
    expected = sorted([(n, "a") for n in range(20)], key=repr)
    ever = on_disk(lake)

    def batches(first: int, last: int) -> None:
        for number in range(first, last):
            given = UPSERT | {"upsert_strategy": "merge", "maintenance": EAGER}
            on_branch(lake, f"select id, '{number}' v from range(4)", **given).listen(events.append).write()
            assert lake.rows() == expected
            ever.update(on_disk(lake))

    batches(0, 9)
    kinds = [one.kind for one in events if isinstance(one, Maintained)]
    assert "merge_files" in kinds
    assert "expire_snapshots" not in kinds, "what main does not have yet stays"
    assert on_branch(lake, "select 0L id, '' v").publish().done
    expected = sorted([(n, "8" if n < 4 else "a") for n in range(20)], key=repr)
    assert seen(lake) == expected
    batches(9, 12)
    assert not [one for one in events if isinstance(one, CommitFailed)]
    assert "expire_snapshots" in [one.kind for one in events if isinstance(one, Maintained)]
    for row in lake.meta("snapshots"):
        lake.table(at=row.snapshot_id).count()
    reachable = {Path(row.file_path).name for row in lake.meta("all_files")}
    assert {name for name in reachable if name.endswith(".parquet")} <= on_disk(lake)
    assert doomed(lake.table_folder) or ever - on_disk(lake), "files of expired snapshots go"
    assert written(lake) == sorted([(n, "11" if n < 4 else "a") for n in range(20)], key=repr)


@pytest.mark.slow(seconds=15)
def test_a_table_with_many_partitions_is_maintained_on_a_branch(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iceberg rewrites manifests of main alone: here they would be worth it. Statistics count the rows of the branch."""
    monkeypatch.setattr(TableCare, "small_files", lambda _: [])
    small = {"commit.manifest.target-size-bytes": "8000", "commit.manifest-merge.enabled": "false"}
    given = {"partition_by": ["p"], "format_version": 3, "write_properties": small}
    lake.sink("select id, id % 8 p from range(8)", id="main", **given).write()
    events: list[Event] = []
    for batch in range(1, 7):
        writing = on_branch(
            lake, f"select id, id % 8 p, {batch}L v from range(16)", maintenance=EAGER | {"statistics": True}, **given
        )
        writing.listen(events.append).write()
    assert not [one for one in events if isinstance(one, CommitFailed)]
    assert "write_statistics" in [one.kind for one in events if isinstance(one, Maintained)]
    assert (len(lake.rows()), len(written(lake))) == (8, 104)
    assert on_branch(lake, "select 1L id, 1L p", **given).publish().done
    assert len(lake.rows()) == 104


def test_settling_on_a_branch_leaves_main_alone(lake: Lake) -> None:
    lake.sink("select id, 'a' v from range(20)", id="main").write()
    given = UPSERT | {"upsert_strategy": "equality_delete", "max_equality_deletes": 3}
    on_branch(lake, "select id, 'b' v from range(5)", **given).write()
    head = lake.spark.sql(f"select * from {lake.name}.db.t.refs where name = 'audit'").collect()[0].snapshot_id
    summary = next(row.summary for row in lake.meta("snapshots") if row.snapshot_id == head)
    assert (summary["frazil.kind"], summary["total-equality-deletes"]) == ("settle", "0")
    assert seen(lake) == sorted([(n, "a") for n in range(20)], key=repr)
    assert written(lake) == sorted([(n, "b" if n < 5 else "a") for n in range(20)], key=repr)
    on_branch(lake, "select 0L id, '' v").publish()
    assert seen(lake) == written(lake)


def test_a_sink_of_main_beside_a_branch_reads_its_own_rows(lake: Lake) -> None:
    given = UPSERT | {"upsert_strategy": "merge"}
    lake.sink("select id, 'a' v from range(4)", id="main", **given).write()
    on_branch(lake, "select 7L id, 'b' v", **given).write()
    lake.sink("select 7L id, 'm' v", id="main", **given).write()
    on_branch(lake, "select 7L id, 'c' v", **given).write()
    assert (lake.rows(), written(lake)) == ([*BEFORE, (7, "m")], [*BEFORE, (7, "c")])
