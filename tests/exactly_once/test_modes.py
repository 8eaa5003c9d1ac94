"""Overwrites, upserts, settlements and new columns under a catalog that misleads and a process that dies: every change once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from exactly_once.children import end, ended, started
from exactly_once.ground import Foreign, Ground, Recorded, rest_ground, row_position, run_together, sqlite_ground
from exactly_once.programs.upserting import BATCHES, NEW_COLUMNS, WAYS, write_all
from exactly_once.truth import FOREIGN, OURS, Truth
from frazil.engine.part import Part
from services.faults import APPLIED_FAULTS, COMMIT_FAULTS, Fault
from services.faulty_rest import FaultyRest
from services.rest_catalog import RestCatalog

KEYS = {"commit_mode": "upsert", "key_fields": ["writer", "id"], "op_field": "op"}
EQUALITY = KEYS | {"upsert_strategy": "equality_delete"}
# One way of writing meets every fault. The loop that commits is the same for the others, which meet one of each sort.
SOME_FAULTS = tuple(APPLIED_FAULTS[::3])
MODES: Mapping[str, tuple[dict[str, Any], tuple[Fault, ...]]] = {
    "equality_delete": (EQUALITY, tuple(COMMIT_FAULTS)),
    "merge": (KEYS | {"upsert_strategy": "merge"}, SOME_FAULTS),
    "settled": (EQUALITY | {"max_equality_deletes": 0}, SOME_FAULTS),
    "overwrite": ({"commit_mode": "overwrite", "partition_by": ["writer"]}, SOME_FAULTS),
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


@pytest.mark.parametrize("mode", MODES)
def test_each_fault_of_a_commit_while_somebody_else_writes(ground: Ground, faulty_rest: FaultyRest, mode: str) -> None:
    options, faults = MODES[mode]
    foreign = Foreign(ground)
    writer = ground.writer(**options)
    writer.open()
    write(writer, 0)
    for number, fault in enumerate(faults, start=1):
        faulty_rest.script([replace(fault, meanwhile=foreign.append)])
        write(writer, number)
        foreign.append()
    faulty_rest.settle()
    assert [exchange.fault.name for exchange in faulty_rest.log if exchange.fault] == [fault.name for fault in faults]
    assert_holds(ground, len(faults), foreign)


def test_new_columns_come_once_with_their_rows(ground: Ground, faulty_rest: FaultyRest) -> None:
    foreign = Foreign(ground)
    writer = ground.writer(**EQUALITY)
    writer.open()
    write(writer, 0)
    for number, fault in enumerate(SOME_FAULTS, start=1):
        faulty_rest.script([replace(fault, meanwhile=foreign.append)])
        write(writer, number, **{f"c{n}": str(n) for n in range(number + 1)})
    faulty_rest.settle()
    assert_holds(ground, len(SOME_FAULTS), foreign)
    names = [field.name for field in ground.table().schema().fields]
    assert names == ["writer", "id", *(f"c{n}" for n in range(len(SOME_FAULTS) + 1))]


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


def test_two_writers_that_merge_the_same_new_keys_leave_one_row_each(either: Ground) -> None:
    merging = KEYS | {"upsert_strategy": "merge"}
    writers = [either.writer(f"writer-{number}", **merging) for number in range(2)]
    for writer in writers:
        writer.open()
    run_together([lambda writer=writer: [write(writer, number) for number in range(2)] for writer in writers])
    assert rows_now(either) == Counter((OURS, number) for number in range(5, 15))


@pytest.mark.parametrize("way", WAYS)
def test_changes_killed_at_any_moment(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """The program writes batch after batch; each start goes on where the table ends."""
    for moment, nth in (("staged", 2), ("applied", 2)):
        child = started("upserting", moment, str(nth), "kill-all", tmp_path, way, log=tmp_path / f"killed-when-{moment}")
        try:
            assert ended(child) == -signal.SIGKILL, child.log_text()
        finally:
            end(child)
    write_all(spark, tmp_path, way)
    session = sqlite_ground(spark, tmp_path).session()
    rows = session.table("lake.changes.t").collect()
    assert Counter(row.id for row in rows) == Counter(range(5 * BATCHES - 5, 5 * BATCHES + 5))
    assert {row.v for row in rows} == {BATCHES - 1}
    new = [f"c{number}" for number in range(BATCHES)] if way == NEW_COLUMNS else []
    assert session.table("lake.changes.t").columns == ["id", "v", *new]
    assert {row[name] for row in rows for name in new[-1:]} <= {BATCHES - 1}
    assert session.table("lake.changes.t.snapshots").where("summary['frazil.kind'] = 'data'").count() == BATCHES
