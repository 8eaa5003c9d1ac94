"""A catalog that misleads: every fault of a commit and of a load, alone and in a row, while somebody else writes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from exactly_once.ground import COLUMNS, QUICK, SINK_ID, Foreign, Ground, numbers, rest_ground
from exactly_once.truth import Truth, assert_exactly_once
from frazil.doors.python.sink import sink
from frazil.errors import DataError, Fenced, OutcomeUnknown
from services.faults import (
    APPLIED_FAULTS,
    COMMIT_FAULTS,
    LOAD_FAULTS,
    RARER_COMMIT_FAULTS,
    RARER_LOAD_FAULTS,
    Fault,
    applied_late,
    applied_then,
    refused,
    slow,
    slowly,
)
from services.faulty_rest import FaultyRest
from services.rest_catalog import RestCatalog

BATCH = 10
SLOW = pytest.mark.slow(seconds=25)


@pytest.fixture
def ground(spark: SparkSession, rest_catalog: RestCatalog, faulty_rest: FaultyRest) -> Ground:
    return rest_ground(spark, faulty_rest.uri, rest_catalog.uri)


def names(faults: Iterable[Fault]) -> list[str]:
    return [fault.name for fault in faults]


def met(proxy: FaultyRest) -> list[str]:
    """The faults that requests have met, by name."""
    return [exchange.fault.name for exchange in proxy.log if exchange.fault]


@pytest.mark.parametrize("faults", [COMMIT_FAULTS, pytest.param(RARER_COMMIT_FAULTS, marks=SLOW)], ids=["common", "rarer"])
def test_each_fault_of_a_commit_while_somebody_else_writes(
    ground: Ground, faulty_rest: FaultyRest, faults: tuple[Fault, ...]
) -> None:
    foreign = Foreign(ground)
    writer = ground.writer()
    writer.open()
    for number, fault in enumerate(faults):
        faulty_rest.script([replace(fault, meanwhile=foreign.append)])
        writer.write(number * BATCH, (number + 1) * BATCH)
        foreign.append()
    faulty_rest.settle()
    assert met(faulty_rest) == names(faults)
    assert len(writer.committed) == len(faults)
    assert_exactly_once(ground.table(), SINK_ID, range(len(faults) * BATCH), foreign.ids)


@pytest.mark.slow(seconds=25)
def test_each_fault_of_a_claim_while_somebody_else_writes(ground: Ground, faulty_rest: FaultyRest) -> None:
    foreign = Foreign(ground)
    ground.writer().open()
    for fault in COMMIT_FAULTS:
        faulty_rest.script([replace(fault, meanwhile=foreign.append)])
        writer = ground.writer()
        assert writer.open() == 0
    faulty_rest.settle()
    writer.write(0, BATCH)
    assert met(faulty_rest) == names(COMMIT_FAULTS)
    assert_exactly_once(ground.table(), SINK_ID, range(BATCH), foreign.ids)
    ledger = Truth(ground.table()).ledger(SINK_ID)
    assert ledger is not None
    assert ledger["epoch"] == len(COMMIT_FAULTS) + 1, "each start is counted once"


@pytest.mark.slow
@pytest.mark.parametrize(("format_version", "others_write"), [(2, True), (3, False)], ids=["v2-and-others-write", "v3"])
def test_faults_in_a_row(ground: Ground, faulty_rest: FaultyRest, format_version: int, others_write: bool) -> None:
    """PyIceberg, which is the other writer here, does not write tables of format version 3."""
    chance = random.Random(format_version)
    foreign = Foreign(ground)
    turns = [None, foreign.append] if others_write else [None]
    quick = [fault for fault in COMMIT_FAULTS if fault.name not in names([slow(0.3), applied_then(503, retry_after=1)])]
    faults = [replace(fault, meanwhile=chance.choice(turns)) for fault in chance.choices(quick, k=24)]
    faulty_rest.script(faults)
    rows = 0
    while faulty_rest.unused:
        rows += 4 * BATCH
        ground.writer(format_version=format_version).pump(rows)
    faulty_rest.settle()
    assert met(faulty_rest) == names(faults)
    assert ground.table().format_version == format_version
    assert_exactly_once(ground.table(), SINK_ID, range(rows), foreign.ids)


@pytest.mark.parametrize("faults", [LOAD_FAULTS, pytest.param(RARER_LOAD_FAULTS, marks=SLOW)], ids=["common", "rarer"])
def test_the_outcome_cannot_be_looked_up_at_first(ground: Ground, faulty_rest: FaultyRest, faults: tuple[Fault, ...]) -> None:
    foreign = Foreign(ground)
    writer = ground.writer()
    writer.open()
    for number, fault in enumerate(faults):
        faulty_rest.script([applied_then(502, html=True, meanwhile=foreign.append)])
        faulty_rest.script([fault] * 3, on="load")
        writer.write(number * BATCH, (number + 1) * BATCH)
        assert faulty_rest.unused == ()
    assert len(met(faulty_rest)) == 4 * len(faults)
    assert [committed.skipped for committed in writer.committed] == [False] * len(faults)
    assert_exactly_once(ground.table(), SINK_ID, range(len(faults) * BATCH), foreign.ids)


@SLOW
def test_answers_that_are_slower_than_the_client_waits(
    spark: SparkSession, rest_catalog: RestCatalog, faulty_rest: FaultyRest
) -> None:
    """Of a commit nobody knows then whether it was made; a body that comes in pieces is waited for, piece by piece."""
    impatient = {"rest.client.socket-timeout-ms": "1000"}
    ground = rest_ground(spark, faulty_rest.uri, rest_catalog.uri, **impatient)
    writer = ground.writer()
    writer.open()
    faulty_rest.script([slow(3.0), None, slowly(3.0)])
    faulty_rest.script([None, slow(3.0), slowly(3.0)], on="load")
    for number in range(4):
        writer.write(number * BATCH, (number + 1) * BATCH)
    assert sorted(met(faulty_rest)) == sorted(names([slow(3.0), slowly(3.0)]) * 2)
    assert_exactly_once(ground.table(), SINK_ID, range(4 * BATCH))


@SLOW
@pytest.mark.parametrize(
    ("fault", "on", "held"),
    [(refused(403), "commit", BATCH), (applied_then(403), "commit", 2 * BATCH), (refused(403), "load", BATCH)],
    ids=["refused", "applied, and then refused", "not shown the table"],
)
def test_a_right_that_is_lost_in_the_middle_ends_the_run_and_the_next_one_goes_on(
    ground: Ground, faulty_rest: FaultyRest, fault: Fault, on: str, held: int
) -> None:
    writer = ground.writer()
    writer.pump(BATCH)
    faulty_rest.from_now_on(fault, on)
    with pytest.raises(DataError) as stopped:
        writer.write(BATCH, 2 * BATCH)
    assert (stopped.value.code, stopped.value.exit_code) == ("no-permission", 1)
    assert met(faulty_rest) == names([fault]), "it is not tried again"
    faulty_rest.from_now_on(None, on)
    newer = ground.writer()
    assert newer.open() == held
    newer.write(held, 3 * BATCH)
    assert_exactly_once(ground.table(), SINK_ID, range(3 * BATCH))


def test_a_commit_that_arrives_after_another_instance_took_over(ground: Ground, faulty_rest: FaultyRest) -> None:
    older = ground.writer(retry=QUICK.model_copy(update={"max_retries": 0}))
    older.open()
    faulty_rest.script([applied_late(504)])
    with pytest.raises(OutcomeUnknown) as stopped:
        older.write(0, BATCH)
    assert stopped.value.exit_code == 75

    newer = ground.writer()
    assert newer.open() == 0
    newer.write(0, BATCH)
    faulty_rest.release()
    newer.write(BATCH, 2 * BATCH)
    with pytest.raises(Fenced):
        older.write(0, BATCH)
    assert len(older.fenced) == 1
    assert_exactly_once(ground.table(), SINK_ID, range(2 * BATCH))


def test_a_commit_that_arrives_before_the_next_instance_looks(ground: Ground, faulty_rest: FaultyRest) -> None:
    older = ground.writer(retry=QUICK.model_copy(update={"max_retries": 0}))
    older.open()
    faulty_rest.script([applied_late(504)])
    with pytest.raises(OutcomeUnknown):
        older.write(0, BATCH)
    faulty_rest.release()

    newer = ground.writer()
    assert newer.open() == BATCH, "it goes on behind the batch of which nobody knew"
    newer.write(BATCH, 2 * BATCH)
    assert_exactly_once(ground.table(), SINK_ID, range(2 * BATCH))


@pytest.mark.slow
def test_a_single_write_can_be_repeated_by_its_name(ground: Ground, faulty_rest: FaultyRest) -> None:
    foreign = Foreign(ground)
    described = sink().retry(**QUICK.model_dump()).to(f"lake.{ground.name}").catalog(ground.spec).options(schema=COLUMNS)
    for number, fault in enumerate(APPLIED_FAULTS):
        again = replace(described, frame=numbers(ground.spark, number * BATCH, (number + 1) * BATCH))
        faulty_rest.script([replace(fault, meanwhile=foreign.append)])
        first, second = again.write(batch=f"load-{number}"), again.write(batch=f"load-{number}")
        assert (first.skipped, second.skipped) == (False, True)
    assert met(faulty_rest) == names(APPLIED_FAULTS)
    assert_exactly_once(ground.table(), f"python/{ground.name}", range(len(APPLIED_FAULTS) * BATCH), foreign.ids)
