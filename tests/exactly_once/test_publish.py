"""A branch and its way to main under a catalog that misleads: nothing lost, nothing doubled, and main moved once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from exactly_once.ground import QUICK, SINK_ID, Ground, rest_ground
from exactly_once.truth import OURS, Truth, rows_of
from frazil.errors import Fenced, Halted, OutcomeUnknown
from frazil.model.publishing import Publication
from frazil.model.settings import RetrySettings
from frazil.runtime.publish import publish_sink
from services.faults import APPLIED_FAULTS, COMMIT_FAULTS, Fault, applied_late, applied_then
from services.faulty_rest import FaultyRest
from services.rest_catalog import RestCatalog

BRANCH = {"branch": "audit"}


def publish(ground: Ground, retry: RetrySettings = QUICK) -> Publication:
    sink = ground.sink(**BRANCH)
    return publish_sink(ground.session(), sink, SINK_ID, name="numbers", retry=retry, listen=lambda _: None, dry_run=False)


def main(ground: Ground) -> int:
    """How many rows main has, each once."""
    truth = Truth(ground.table())
    rows = sum(truth.rows.values())
    assert truth.rows == rows_of(OURS, range(rows))
    return rows


def branch(ground: Ground) -> int:
    """How many rows the branch has, each once."""
    table = ground.table()
    head = table.snapshot_by_name("audit")
    assert head is not None
    truth = Truth(table)
    rows = sum(truth.rows_at(head).values())
    assert truth.rows_at(head) == rows_of(OURS, range(rows))
    return rows


def test_a_pipeline_on_a_branch_goes_on_exactly_once_and_main_gets_it_once(either: Ground) -> None:
    either.writer(**BRANCH).pump(20)
    assert branch(either) == 20
    assert publish(either).rows == 20
    assert publish(either).nothing
    either.writer(**BRANCH).pump(40)
    older = either.writer(**BRANCH)
    older.open()
    either.writer(**BRANCH).pump(60)
    with pytest.raises(Fenced):
        older.write(60, 70)
    assert (main(either), branch(either)) == (20, 60)
    assert publish(either).rows == 40
    assert main(either) == 60


def test_a_branch_that_was_rolled_back_stops_its_writer_and_what_main_has_stays(either: Ground) -> None:
    either.writer(**BRANCH).pump(10)
    publish(either)
    before = either.head()
    either.writer(**BRANCH).pump(20)
    either.administrator.sql(f"ALTER TABLE lake.{either.name} REPLACE BRANCH audit AS OF VERSION {before}")
    with pytest.raises(Halted) as stopped:
        either.writer(**BRANCH).open()
    assert stopped.value.code == "rolled-back"
    assert main(either) == 10


@pytest.fixture
def ground(spark: SparkSession, rest_catalog: RestCatalog, faulty_rest: FaultyRest) -> Ground:
    return rest_ground(spark, faulty_rest.uri, rest_catalog.uri)


def through(ground: Ground, proxy: FaultyRest, faults: tuple[Fault, ...]) -> None:
    """A batch with each fault, which is then published with the same; a writer of the branch goes on meanwhile."""
    rows = 0
    writer = ground.writer(**BRANCH)
    writer.open()

    def goes_on() -> None:
        nonlocal rows
        writer.write(rows, rows + 1)
        rows += 1

    for number, fault in enumerate(faults):
        proxy.script([fault])
        goes_on()
        before = rows
        # The writer's own commit meets no fault: the one that is scripted was taken by the publishing.
        proxy.script([replace(fault, meanwhile=goes_on if number % 2 else None)])
        assert publish(ground).done
        assert main(ground) == before, f"{fault}: what was checked, and nothing else"
        proxy.settle()
        assert publish(ground).nothing == (rows == before)
    assert branch(ground) == rows


def test_answers_that_are_lost_while_publishing(ground: Ground, faulty_rest: FaultyRest) -> None:
    through(ground, faulty_rest, APPLIED_FAULTS[::4])


@pytest.mark.slow(seconds=60)
def test_each_fault_while_publishing(ground: Ground, faulty_rest: FaultyRest) -> None:
    through(ground, faulty_rest, COMMIT_FAULTS)


def test_an_outcome_that_stays_unknown_is_found_by_the_next_publishing(ground: Ground, faulty_rest: FaultyRest) -> None:
    ground.writer(**BRANCH).pump(10)
    never = QUICK.model_copy(update={"max_retries": 0})
    faulty_rest.script([applied_then(502, html=True)])
    with pytest.raises(OutcomeUnknown) as stopped:
        publish(ground, never)
    assert stopped.value.exit_code == 75
    assert publish(ground).nothing
    assert main(ground) == 10


def test_a_publishing_that_arrives_after_the_next_one_does_nothing(ground: Ground, faulty_rest: FaultyRest) -> None:
    ground.writer(**BRANCH).pump(10)
    faulty_rest.script([applied_late(504)])
    with pytest.raises(OutcomeUnknown):
        publish(ground, QUICK.model_copy(update={"max_retries": 0}))
    ground.writer(**BRANCH).pump(20)
    assert publish(ground).rows == 20
    faulty_rest.release()
    faulty_rest.settle()
    assert main(ground) == 20
