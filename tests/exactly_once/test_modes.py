"""Overwrites, upserts, upkeep and evolution under a catalog that misleads and a process that dies: every change once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from exactly_once.children import end, ended, started
from exactly_once.ground import Foreign, Ground, Recorded, rest_ground, row_position, run_together, sqlite_ground
from exactly_once.programs import indexing
from exactly_once.programs.upserting import BATCHES, COMPLETED, EVOLVING, HISTORY, OVERWRITE, WAYS, write_all
from exactly_once.truth import FOREIGN, OURS, Truth
from frazil.write.part import Part
from services.faults import (
    APPLIED_FAULTS,
    COMMIT_FAULTS,
    LATE_FAULTS,
    REFUSED_FAULTS,
    Cut,
    Fault,
    applied_then_cut_off,
)
from services.faulty import Exchange
from services.faulty_rest import FaultyRest
from services.rest_catalog import RestCatalog
from tiers import few_or_all, first_or_all

KEYS = {"commit_mode": "upsert", "key_fields": ["writer", "id"], "op_field": "op"}
EQUALITY = KEYS | {"upsert_strategy": "equality_delete"}
MERGE = KEYS | {"upsert_strategy": "merge"}
POSITION = KEYS | {"upsert_strategy": "position"}
FULL = {"schema_evolution": "full"}

# The content of a file of deletes by key.
BY_KEY = 2


@dataclass(frozen=True)
class Mode:
    """A way of writing, and the faults that it meets: in the commit of each batch, or in the one that puts in order after it."""

    version: int
    options: dict[str, Any]
    faults: Sequence[Fault]
    kind: str = "data"


# The loop that commits is one for all, and appends meet every fault of it in `test_catalog_faults`: these meet one of each sort.
# Where everything is run, the upserts meet every fault between them.
SOME_FAULTS = (APPLIED_FAULTS[0], applied_then_cut_off(Cut.TRUNCATED), LATE_FAULTS[0], REFUSED_FAULTS[0])
SETTLED = EQUALITY | {"max_equality_deletes": 0}
MODES = {
    "equality_delete-v2": Mode(2, EQUALITY, few_or_all(SOME_FAULTS, COMMIT_FAULTS[::4])),
    "equality_delete-v3": Mode(3, EQUALITY, few_or_all(SOME_FAULTS, COMMIT_FAULTS[1::4])),
    "merge-v2": Mode(2, MERGE, few_or_all(SOME_FAULTS, COMMIT_FAULTS[2::4])),
    "merge-v3": Mode(3, MERGE, few_or_all(SOME_FAULTS, COMMIT_FAULTS[3::4])),
    "position-v2": Mode(2, POSITION, few_or_all(SOME_FAULTS, COMMIT_FAULTS[1::4])),
    "position-v3": Mode(3, POSITION, few_or_all(SOME_FAULTS, COMMIT_FAULTS[2::4])),
    "settlement-v2": Mode(2, SETTLED, SOME_FAULTS, "settle"),
    "settlement-v3": Mode(3, SETTLED, SOME_FAULTS, "settle"),
    "compaction": Mode(3, MERGE | {"max_delete_files": 0}, SOME_FAULTS[:3], "compact"),
    "overwrite": Mode(3, {"commit_mode": "overwrite", "partition_by": ["writer"]}, SOME_FAULTS),
    "overwrite_where": Mode(2, {"commit_mode": "overwrite", "overwrite_where": f"writer = '{OURS}'"}, SOME_FAULTS[:3]),
    "delete_insert": Mode(2, {"commit_mode": "delete_insert", "replace_by": ["writer"]}, SOME_FAULTS[:3]),
}


@pytest.fixture
def ground(spark: SparkSession, rest_catalog: RestCatalog, faulty_rest: FaultyRest) -> Ground:
    return rest_ground(spark, faulty_rest.uri, rest_catalog.uri)


def batch(session: SparkSession, number: int, *, with_ops: bool) -> DataFrame:
    """Rows 5n to 5n+10, of which the first half is there already; and, of changes, the end of the five before them."""
    rows = session.range(5 * number, 5 * number + 10, 1, 1).selectExpr(f"'{OURS}' writer", "id", "'u' op")
    gone = session.range(5 * number - 5, 5 * number, 1, 1).selectExpr(f"'{OURS}' writer", "id", "'d' op")
    return rows.unionAll(gone) if with_ops else rows.drop("op")


def write(writer: Recorded, number: int, **columns: str) -> None:
    frame = batch(writer.session, number, with_ops=writer.writer.sink.op_field is not None)
    frame = frame.selectExpr("*", *[f"{value} AS {name}" for name, value in columns.items()])
    writer.writer.write(frame, Part("changes", row_position(number), row_position(number + 1) or ""))


def rows_now(ground: Ground) -> Counter[tuple[Any, ...]]:
    found = ground.administrator.table(f"lake.{ground.name}").select("writer", "id").collect()
    return Counter(tuple(row) for row in found)


def assert_holds(ground: Ground, last: int, foreign: Foreign) -> None:
    """The rows of the last batch, once each, those of others as they were, and one entry of the ledger for each batch."""
    ours = Counter((OURS, number) for number in range(5 * last, 5 * last + 10))
    assert rows_now(ground) == ours + Counter((FOREIGN, number) for number in foreign.ids)
    entries = [summary for _, summary in Truth(ground.table()).entries("numbers/lake")]
    assert [json.loads(entry["frazil.end"])["row"] for entry in entries] == list(range(1, last + 2))


@pytest.mark.parametrize("name", MODES)
def test_each_fault_of_a_commit_while_somebody_else_writes(ground: Ground, faulty_rest: FaultyRest, name: str) -> None:
    mode = MODES[name]
    foreign = Foreign(ground)
    writer = ground.writer(format_version=mode.version, **mode.options)
    writer.open()
    write(writer, 0)
    passing = [] if mode.kind == "data" else [None]
    for number, fault in enumerate(mode.faults, start=1):
        # Every second time somebody is faster than the next attempt; else that finds the table as the fault has left it.
        faulty_rest.script([*passing, replace(fault, meanwhile=foreign.append if number % 2 == 0 else None)])
        write(writer, number)
        foreign.append()
    faulty_rest.settle()
    met = [(kind_of(exchange), exchange.fault.name) for exchange in faulty_rest.commits if exchange.fault]
    assert met == [(mode.kind, fault.name) for fault in mode.faults]
    last = len(mode.faults)
    assert_holds(ground, last, foreign)
    if passing:
        # What a fault has left undone is done after the next batch.
        write(writer, last + 1)
        assert_holds(ground, last + 1, foreign)
        assert_debt_kept(ground.administrator.table(f"lake.{ground.name}.delete_files"), mode.options)


def kind_of(commit: Exchange) -> str:
    """What a commit does, as its snapshot says."""
    (added,) = [update for update in commit.content["updates"] if update["action"] == "add-snapshot"]
    return str(added["snapshot"]["summary"]["frazil.kind"])


def assert_debt_kept(delete_files: DataFrame, options: Mapping[str, Any]) -> None:
    """There are no more deletes by key, and no more files of deletes, than the options allow."""
    found = delete_files.collect()
    keys = sum(file.record_count for file in found if file.content == BY_KEY)
    assert keys <= options.get("max_equality_deletes", keys)
    assert len(found) <= options.get("max_delete_files", len(found))


@pytest.mark.slow
def test_a_table_evolves_once_with_the_rows_that_need_it(ground: Ground, faulty_rest: FaultyRest) -> None:
    foreign = Foreign(ground)
    writer = ground.writer(**EQUALITY)
    writer.open()
    write(writer, 0, v="0")
    steps: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({}, {"v": "1", "c1": "1"}),
        (FULL | {"aliases": {"w": "v"}}, {"w": "2L", "c2": "2"}),
        ({"partition_by": ["writer"]}, {"w": "3L"}),
        (FULL | {"aliases": {"x": "w"}, "partition_by": ["writer", "truncate(4, id)"]}, {"x": "4L", "c4": "4"}),
    ]
    for number, ((options, columns), fault) in enumerate(zip(steps, SOME_FAULTS, strict=True), start=1):
        evolving = ground.writer(**EQUALITY | options)
        evolving.open()
        faulty_rest.script([replace(fault, meanwhile=foreign.append if number % 2 == 0 else None)])
        write(evolving, number, **columns)
    faulty_rest.settle()
    assert [exchange.fault.name for exchange in faulty_rest.log if exchange.fault] == [fault.name for fault in SOME_FAULTS]
    assert_holds(ground, len(steps), foreign)
    table = ground.table()
    columns = {"writer": "string", "id": "long", "x": "long", "c1": "int", "c2": "int", "c4": "int"}
    assert {field.name: str(field.field_type) for field in table.schema().fields} == columns
    specs = [[str(field.transform) for field in spec.fields] for spec in table.specs().values()]
    assert specs == [[], ["identity"], ["identity", "truncate[4]"]]
    ours = ground.administrator.table(f"lake.{ground.name}").where(f"writer = '{OURS}'")
    assert {tuple(row) for row in ours.select("x", "c1", "c4").collect()} == {(4, None, 4)}


def test_sums_are_added_once_under_faults_while_somebody_else_writes(ground: Ground, faulty_rest: FaultyRest) -> None:
    foreign = Foreign(ground)
    writer = ground.writer(commit_mode="upsert", key_fields=["writer", "id"], combine={"n": "sum"})
    writer.open()
    faults = APPLIED_FAULTS[::5]
    for number, fault in enumerate(faults):
        faulty_rest.script([replace(fault, meanwhile=foreign.append)])
        frame = writer.session.range(0, 6, 1, 1).selectExpr(f"'{OURS}' writer", "id % 3 id", f"{number + 1} n")
        writer.writer.write(frame, Part("sums", row_position(number), row_position(number + 1) or ""))
    faulty_rest.settle()
    found = ground.administrator.table(f"lake.{ground.name}").where(f"writer = '{OURS}'").select("id", "n").collect()
    total = 2 * sum(range(1, len(faults) + 1))
    assert sorted(map(tuple, found)) == [(0, total), (1, total), (2, total)]


@pytest.mark.slow
def test_two_writers_that_merge_the_same_new_keys_leave_one_row_each(either: Ground) -> None:
    merging = KEYS | {"upsert_strategy": "merge"}
    writers = [either.writer(f"writer-{number}", **merging) for number in range(2)]
    for writer in writers:
        writer.open()
    run_together([lambda writer=writer: [write(writer, number) for number in range(2)] for writer in writers])
    assert rows_now(either) == Counter((OURS, number) for number in range(5, 15))


# The loop that commits is one for all: rows by key and columns that change meet both sides of the commit, the others one. What is
# put in order after a batch has moments of its own.
MOMENTS = {
    "equality_delete": (("staged", 2), ("applied", 2)),
    "merge": (("applied", 2),),
    "position": (("index-added", 1), ("index-saved", 1), ("applied", 2), ("index-begun", 1), ("looked-up", 2)),
    COMPLETED: (("looked-up", 2), ("applied", 2), ("staged", 1)),
    "settled": (("settlement-staged", 1), ("settlement-applied", 1)),
    "compacted": (("compaction-applied", 1),),
    EVOLVING: (("staged", 3), ("applied", 2)),
    # Each batch commits its tombstones first: between both commits of the second one, and after them.
    "late": (("applied", 3), ("applied", 4)),
    HISTORY: (("applied", 2), ("staged", 2)),
    OVERWRITE: (("staged", 2),),
    "delete_insert": (("applied", 2), ("staged", 2)),
}


def test_changes_of_each_mode_killed_at_any_moment(spark: SparkSession, tmp_path: Path) -> None:
    """One process writes in all ways, and is killed amid all of them. The next start goes on where the tables end."""
    for way in WAYS:
        (tmp_path / way).mkdir()
    for number in first_or_all(range(max(map(len, MOMENTS.values())))):
        moments = {way: all_of_it[number] for way, all_of_it in MOMENTS.items() if number < len(all_of_it)}
        child = started("upserting", tmp_path, json.dumps(moments), log=tmp_path / f"log-{number}")
        try:
            assert ended(child) == -signal.SIGKILL, child.log_text()
        finally:
            end(child)
    for way in WAYS:
        write_all(spark, tmp_path / way, way)
        assert_each_change_is_there_once(sqlite_ground(spark, tmp_path / way).session(), way)


def versions() -> Counter[tuple[int, int, str]]:
    """Every change of all batches: rows that come, most of them a second time in the next batch, and go with the one after."""
    made: Counter[tuple[int, int, str]] = Counter()
    for number in range(BATCHES):
        for key in range(5 * number - 5, 5 * number + 10):
            op = "delete" if key < 5 * number else "update" if number and key < 5 * number + 5 else "insert"
            made[key, number, op] += 1
    return made


def assert_each_change_is_there_once(session: SparkSession, way: str) -> None:
    table = session.table("lake.changes.t")
    if way == HISTORY:
        assert Counter(tuple(row) for row in table.select("id", "valid_from", "operation").collect()) == versions()
        table = table.where("is_current").select("id", "v")
    rows = table.collect()
    assert Counter(row.id for row in rows) == Counter(range(5 * BATCHES - 5, 5 * BATCHES + 5))
    value = "w" if way == EVOLVING else "v"
    new = {EVOLVING: [f"c{number}" for number in range(BATCHES)], COMPLETED: ["c0", "c1"]}.get(way, [])
    last, before = BATCHES - 1, BATCHES - 2
    assert {row[value] for row in rows} == {last}
    if way == EVOLVING:
        assert {row[new[-1]] for row in rows} <= {last}
    if way == COMPLETED:
        kept = [(row.id, row.c0, row.c1) for row in rows]
        assert sorted(kept) == [(key, last, before if key < 5 * last + 5 else None) for key in range(5 * last, 5 * last + 10)]
    assert table.columns == ["id", value, *new]
    assert table.schema[value].dataType.simpleString() == ("bigint" if way == EVOLVING else "int")
    assert session.table("lake.changes.t.snapshots").where("summary['frazil.kind'] = 'data'").count() == BATCHES
    assert_debt_kept(session.table("lake.changes.t.delete_files"), WAYS[way])


@pytest.mark.slow(seconds=120)
def test_the_writer_of_a_key_index_killed_at_any_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of Java between those of Python; what they leave in the folder is also tried with the upserts by position."""
    for step in indexing.STEPS:
        child = started("indexing", tmp_path, step, log=tmp_path / f"log-{step}")
        try:
            assert ended(child) == -signal.SIGKILL, child.log_text()
        finally:
            end(child)
    monkeypatch.setenv("FRAZIL_STATE_DIR", str(tmp_path / "state"))
    indexing.write_all(spark, tmp_path)
    session = sqlite_ground(spark, tmp_path).session()
    half = indexing.ROWS // 2
    expected = {number: half if number < indexing.BATCHES - 1 else 2 * half for number in range(indexing.BATCHES)}
    found = session.table(indexing.TABLE).groupBy("v").agg(functions.count("*"), functions.count_distinct("id")).collect()
    assert {tuple(row) for row in found} == {(number, count, count) for number, count in expected.items()}
    assert session.table(indexing.TABLE).select("id").distinct().count() == sum(expected.values())
    ways = session.table(f"{indexing.TABLE}.snapshots").where("summary['frazil.kind'] = 'data'")
    assert Counter(row.summary["frazil.upsert-strategy"] for row in ways.collect()) == {
        "append": 1,
        "position": indexing.BATCHES - 1,
    }
