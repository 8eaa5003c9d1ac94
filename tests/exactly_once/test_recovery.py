"""What happens to a table behind the engine's back: expiry, rollback, replacement, races, storms, a catalog that goes away."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType
from pyspark.sql import DataFrame, SparkSession

from exactly_once.ground import COLUMNS, QUICK, SINK_ID, Foreign, Ground, numbers, rest_ground, run_together, sqlite_ground
from exactly_once.truth import FOREIGN, OURS, Truth, assert_every_snapshot_readable, assert_exactly_once, rows_of
from frazil.doors.python.sink import Sink, sink
from frazil.errors import Halted, OutcomeUnknown, Retryable
from frazil.iceberg import IcebergPort
from frazil.model.events import Event, Staged
from frazil.write.part import Part
from services.faults import Fault, applied_then_cut_off, cut_off, refused
from services.faulty_rest import FaultyRest
from services.rest_catalog import RestCatalog

FEW = QUICK.model_copy(update={"max_retries": 2})
FOR_GOOD = 1000


@pytest.fixture
def ground(spark: SparkSession, tmp_path: Path) -> Ground:
    return sqlite_ground(spark, tmp_path)


@pytest.fixture
def behind_proxy(spark: SparkSession, rest_catalog: RestCatalog, faulty_rest: FaultyRest) -> Ground:
    return rest_ground(spark, faulty_rest.uri, rest_catalog.uri)


def test_the_ledger_outlives_the_expiry_of_its_snapshots(ground: Ground) -> None:
    foreign = Foreign(ground)
    writer = ground.writer()
    writer.pump(30)
    foreign.append()
    ground.procedure(f"expire_snapshots('{ground.name}', TIMESTAMP '2100-01-01 00:00:00', 1)")
    assert len(ground.table().snapshots()) == 1
    writer.write(30, 40)
    foreign.append()
    ground.expire()
    later = ground.writer()
    assert later.open() == 40
    later.write(40, 50)
    truth = Truth(ground.table())
    assert truth.rows == rows_of(OURS, range(50)) + rows_of(FOREIGN, foreign.ids)
    assert_every_snapshot_readable(truth)


def test_a_rollback_halts_the_sink_until_it_is_undone(ground: Ground) -> None:
    writer = ground.writer()
    writer.pump(10)
    before = ground.head()
    writer.pump(20)
    last = ground.head()
    ground.procedure(f"rollback_to_snapshot('{ground.name}', {before})")
    Foreign(ground).append()
    for halted in (lambda: writer.write(20, 30), lambda: ground.writer().open()):
        with pytest.raises(Halted) as stopped:
            halted()
        assert stopped.value.code == "rolled-back"
    assert Truth(ground.table()).rows == rows_of(OURS, range(10)) + rows_of(FOREIGN, [0])

    ground.procedure(f"set_current_snapshot('{ground.name}', {last})")
    ground.writer().pump(30)
    assert Truth(ground.table()).rows == rows_of(OURS, range(30))


@pytest.mark.slow
def test_a_rollback_is_seen_after_what_it_left_behind_has_expired(ground: Ground) -> None:
    foreign = Foreign(ground)
    writer = ground.writer()
    writer.pump(10)
    before = ground.head()
    writer.pump(20)
    ground.procedure(f"rollback_to_snapshot('{ground.name}', {before})")
    for _ in range(3):
        foreign.append()
    ground.expire(retain_last=4)
    assert ground.head() != before
    with pytest.raises(Halted) as stopped:
        ground.writer().open()
    assert stopped.value.code == "rolled-back"
    assert Truth(ground.table()).rows == rows_of(OURS, range(10)) + rows_of(FOREIGN, foreign.ids)


@pytest.mark.parametrize("meddling", ["rolled-back-again", "on-another-branch"])
def test_a_commit_of_another_between_look_and_swap_that_leaves_the_head(
    either: Ground, meddling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the sequence number tells of it."""
    writer = either.writer()
    writer.pump(10)
    head, swap = either.head(), IcebergPort.swap

    def swap_after_that(*arguments: Any) -> None:
        monkeypatch.setattr(IcebergPort, "swap", swap)
        if meddling == "on-another-branch":
            either.administrator.sql(f"ALTER TABLE lake.{either.name} CREATE BRANCH audit")
            either.administrator.sql(f"INSERT INTO lake.{either.name}.branch_audit VALUES ('foreign', 0)")
        else:
            Foreign(either).append()
            either.procedure(f"rollback_to_snapshot('{either.name}', {head})")
        swap(*arguments)

    monkeypatch.setattr(IcebergPort, "swap", swap_after_that)
    writer.write(10, 20)
    assert [failed.kind for failed in writer.failures] == ["conflict"]
    assert_exactly_once(either.table(), SINK_ID, range(20))


def test_a_table_that_was_made_again_is_not_written_to(either: Ground) -> None:
    writer = either.writer()
    writer.pump(10)
    either.direct.drop_table(either.name)
    either.writer().open()
    with pytest.raises(Halted) as stopped:
        writer.write(10, 20)
    assert stopped.value.code == "table-replaced"
    assert either.table().scan().to_arrow().num_rows == 0


@pytest.mark.parametrize(("fault", "applied"), [(applied_then_cut_off(), True), (cut_off(), False)], ids=str)
def test_a_catalog_that_goes_away_during_a_commit(
    behind_proxy: Ground, faulty_rest: FaultyRest, fault: Fault, applied: bool
) -> None:
    writer = behind_proxy.writer(retry=FEW)
    writer.pump(10)
    faulty_rest.script([replace(fault, meanwhile=lambda: faulty_rest.script([refused(500)] * FOR_GOOD, on="load"))])
    with pytest.raises(OutcomeUnknown) as stopped:
        writer.write(10, 20)
    assert stopped.value.exit_code == 75
    with pytest.raises(Retryable) as unreachable:
        behind_proxy.writer(retry=FEW).open()
    assert (unreachable.value.code, unreachable.value.exit_code) == ("catalog-unreachable", 75)

    faulty_rest.script([], on="load")
    later = behind_proxy.writer()
    assert later.open() == (20 if applied else 10)
    later.pump(30)
    assert_exactly_once(behind_proxy.table(), SINK_ID, range(30))


@pytest.mark.slow
def test_two_first_writers_make_one_table(either: Ground) -> None:
    """Each has an id of its own and takes the columns from its data."""
    writers = [either.writer(f"numbers/{letter}", schema={}) for letter in "ab"]
    together = threading.Barrier(len(writers))

    def work(number: int) -> None:
        writer, first = writers[number], 10 * number
        together.wait()
        frame = numbers(writer.session, first, first + 10)
        writer.writer.ensure(frame)
        writer.writer.write(frame, Part("numbers", None, '{"row":10}', 10))

    run_together([lambda: work(0), lambda: work(1)])
    truth = Truth(either.table())
    assert truth.rows == rows_of(OURS, range(20))
    assert [truth.ledger(f"numbers/{letter}")["batch"] for letter in "ab"] == [1, 1]


@pytest.mark.slow
def test_a_storm_of_foreign_commits_neither_starves_nor_breaks_ours(either: Ground, tmp_path: Path) -> None:
    foreign = Foreign(either)
    writer = either.writer()
    writer.open()
    rows = 0
    with foreign.storm(tmp_path / "storm.log") as storm:
        while rows < 80 or not any(failed.kind == "conflict" for failed in writer.failures):
            rows += 10
            writer.pump(rows)
            assert rows < 2000, "there was no contention"
        storm.await_line(r"(?m)^11$", 120)
    assert_exactly_once(either.table(), SINK_ID, range(rows), foreign.ids)


def test_two_sinks_share_a_table(either: Ground) -> None:
    writers = [either.writer(f"numbers/{letter}") for letter in "ab"]
    writers[0].open()
    run_together([lambda: writers[0].pump(50), lambda: writers[1].pump(50)])
    truth = Truth(either.table())
    assert truth.rows == rows_of(OURS, [*range(50), *range(50)])
    assert [truth.ledger(f"numbers/{letter}")["batch"] for letter in "ab"] == [5, 5]
    assert_every_snapshot_readable(truth)


def test_columns_added_by_somebody_else_while_a_batch_adds_its_own(behind_proxy: Ground, faulty_rest: FaultyRest) -> None:
    writer = behind_proxy.writer()
    writer.pump(10)

    def add_column() -> None:
        with behind_proxy.table().update_schema() as update:
            update.add_column("theirs", StringType())

    faulty_rest.script([replace(refused(409), meanwhile=add_column)])
    frame = numbers(writer.session, 10, 20).selectExpr("*", "concat('n', id) AS mine")
    writer.writer.write(frame, Part("numbers", '{"row":10}', '{"row":20}', 10))
    assert_exactly_once(behind_proxy.table(), SINK_ID, range(20))
    rows = behind_proxy.table().scan().to_arrow().sort_by("id").to_pylist()
    assert [row["mine"] for row in rows] == [None] * 10 + [f"n{number}" for number in range(10, 20)]
    assert {row["theirs"] for row in rows} == {None}


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True], ids=["without-names", "with-names"])
def test_single_writes_at_the_same_time_all_count(either: Ground, named: bool) -> None:
    """Each has staged its rows before one of them commits, as writes from two processes can."""
    both_staged, staged = threading.Barrier(2), set[str]()

    def write(number: int) -> None:
        def wait_for_the_other(event: Event) -> None:
            if isinstance(event, Staged) and threading.current_thread().name not in staged:
                staged.add(threading.current_thread().name)
                both_staged.wait(60)

        frame = numbers(either.spark, 10 * number, 10 * number + 10)
        done = replace(single_write(either), frame=frame).listen(wait_for_the_other).write(f"w{number}" if named else None)
        assert not done.skipped

    single_write(either, numbers(either.spark, 0, 10)).write()
    run_together([lambda: write(1), lambda: write(2)])
    assert_exactly_once(either.table(), f"python/{either.name}", range(30))


def test_a_single_write_that_was_rolled_back_is_not_taken_for_done(ground: Ground) -> None:
    single_write(ground, numbers(ground.spark, 0, 10)).write("first")
    before = ground.head()
    second = single_write(ground, numbers(ground.spark, 10, 20))
    second.write("second")
    ground.procedure(f"rollback_to_snapshot('{ground.name}', {before})")
    with pytest.raises(Halted) as stopped:
        second.write("second")
    assert stopped.value.code == "rolled-back"
    assert Truth(ground.table()).rows == rows_of(OURS, range(10))


@pytest.mark.slow
def test_a_single_write_with_a_long_name_counts_once(ground: Ground) -> None:
    name = "s3://bucket/" + "very/" * 200 + "long.parquet"
    first = single_write(ground, numbers(ground.spark, 0, 10))
    first.write(name)
    single_write(ground, numbers(ground.spark, 10, 20)).write("another")
    assert first.write(name).skipped
    assert Truth(ground.table()).rows == rows_of(OURS, range(20))


def single_write(ground: Ground, frame: DataFrame | None = None) -> Sink:
    """A sink of the Python door."""
    described = sink(frame).retry(**QUICK.model_dump())
    return described.to(f"lake.{ground.name}").catalog(ground.spec).options(schema=COLUMNS)
