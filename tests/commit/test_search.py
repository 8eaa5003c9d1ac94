"""The commit loop searched through: nothing is lost, doubled or brought back, and each guard is needed for that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commit.instances import Program, Start
from commit.memory_table import Compare
from commit.search import Report, search
from commit.world import Scenario
from frazil.engine.commit import Guard, Guards, contiguous, not_done, not_fenced, not_rolled_back, same_table

QUIET = Scenario(program=Program(batches=2), appends=0, rollbacks=0, expiries=0)
"""Two instances and nobody else."""


def test_two_instances_a_foreign_writer_and_two_faults_lose_and_double_nothing() -> None:
    """The whole product: three batches, any two faults or crashes, a foreign append, a rollback, an expiry."""
    assert_nothing_is_found(search(Scenario()))


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(Scenario(faults=1, compare=Compare.METADATA), id="a catalog that compares the whole metadata"),
        pytest.param(Scenario(faults=1, empty=True), id="a table without a snapshot"),
        pytest.param(Scenario(faults=1, program=Program(start=Start.ONE_SHOT)), id="runs that claim with their data"),
        pytest.param(Scenario(faults=1, rollbacks=0, expiries=0, recreations=1), id="a table that is dropped and made again"),
        pytest.param(replace(QUIET, appends=1, program=Program(batches=2, max_retries=1)), id="loops that give up early"),
    ],
)
def test_nothing_is_lost_or_doubled_with(scenario: Scenario) -> None:
    assert_nothing_is_found(search(scenario))


def test_without_the_table_check_a_recreated_table_is_written_past_a_hole() -> None:
    scenario = replace(QUIET, faults=0, recreations=1, program=Program(batches=2, start=Start.ONE_SHOT))
    assert "rows that are not in the table" in breach_without(same_table, scenario)


def test_without_the_fence_a_replaced_instance_goes_on_writing() -> None:
    assert "had claimed" in breach_without(not_fenced, replace(QUIET, faults=1))


def test_without_looking_for_the_batch_a_lost_reply_stops_the_sink() -> None:
    """With the check for contiguity it is a needless stop; without that, too, the rows are there twice."""
    scenario = replace(QUIET, faults=1)
    assert "stopped without need" in breach_without(not_done, scenario)
    neither = replace(scenario, program=replace(scenario.program, guards=Guards().without(not_done).without(contiguous)))
    assert "rows are there twice" in found(neither)


def test_without_contiguity_two_single_runs_double_rows() -> None:
    scenario = replace(QUIET, faults=0, program=Program(batches=2, start=Start.ONE_SHOT))
    assert "rows are there twice" in breach_without(contiguous, scenario)


def test_without_looking_for_a_rollback_rows_are_written_past_a_hole() -> None:
    assert "past a hole" in breach_without(not_rolled_back, replace(QUIET, faults=0, rollbacks=1))


def test_without_the_parent_check_rows_that_were_rolled_back_come_back() -> None:
    scenario = Scenario(program=Program(batches=1), faults=0)
    assert_nothing_is_found(search(scenario))
    blind = replace(scenario, program=replace(scenario.program, guards=Guards(fits=lambda *_: True)))
    assert "had been rolled back" in found(blind)


def test_a_claim_that_does_not_move_the_branch_fences_nobody() -> None:
    assert "had claimed" in found(replace(QUIET, faults=1, claim_moves_the_branch=False))


def breach_without(guard: Guard, scenario: Scenario) -> str:
    """What is found when the guard is off; with it nothing must be."""
    assert_nothing_is_found(search(scenario))
    return found(replace(scenario, program=replace(scenario.program, guards=Guards().without(guard))))


def found(scenario: Scenario) -> str:
    """What breaks, with the shortest way to it for whoever reads the test's output."""
    finding = search(scenario).finding
    assert finding is not None, "the search finds nothing"
    print(finding)
    return finding.breach


def assert_nothing_is_found(report: Report) -> None:
    assert report.finding is None, str(report.finding)
    assert report.ends > 0, "no interleaving ever ends, so that nothing was shown"
    print(f"{report.states} states, {report.steps} steps, {report.ends} ends")
