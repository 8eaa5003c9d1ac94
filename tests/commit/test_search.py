"""The commit loop searched through: nothing is lost, doubled or brought back, and each guard is needed for that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commit.instances import Program, Start
from commit.memory_table import Compare
from commit.search import Report, search
from commit.world import Scenario
from frazil.commit.protocol import Guard, Guards, contiguous, not_done, not_fenced, not_rolled_back, same_table

QUIET = Scenario(program=Program(batches=2), appends=0, rollbacks=0, expiries=0)
"""Two instances and nobody else."""
SINGLE_RUNS = Program(start=Start.ONE_SHOT)
IMPATIENT = Scenario(rollbacks=0, expiries=0)


@pytest.mark.parametrize(
    "compare",
    [
        pytest.param(Compare.BRANCH, id="a catalog that compares the branch"),
        pytest.param(Compare.METADATA, id="a catalog that compares the whole metadata", marks=pytest.mark.slow(seconds=15)),
    ],
)
def test_two_instances_a_foreign_writer_and_two_faults_lose_and_double_nothing(compare: Compare) -> None:
    """The whole product: three batches, any two faults or crashes, a foreign append, a rollback, an expiry."""
    assert_nothing_is_found(search(Scenario(compare=compare)))


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(Scenario(program=SINGLE_RUNS), id="runs that claim with their data"),
        pytest.param(Scenario(program=Program(sizes=(1, 2)), faults=1), id="batches that are cut anew after a restart"),
        pytest.param(
            Scenario(program=Program(start=Start.CHECKPOINT), faults=1), id="checkpoints that are wrong", marks=pytest.mark.slow
        ),
        pytest.param(replace(IMPATIENT, program=Program(max_retries=0)), id="loops that give up at once"),
        pytest.param(replace(IMPATIENT, program=Program(max_retries=1)), id="loops that give up early", marks=pytest.mark.slow),
        pytest.param(Scenario(faults=1, empty=True), id="a table without a snapshot"),
        pytest.param(replace(QUIET, faults=1, appends=1, instances=3), id="three instances"),
        pytest.param(
            replace(QUIET, appends=1, recreations=1, program=Program(batches=2, opens_first=True)),
            id="a table that is dropped and made again",
        ),
        pytest.param(
            replace(QUIET, appends=1, recreations=1, program=replace(SINGLE_RUNS, batches=2)),
            id="the same with runs that claim with their data",
        ),
    ],
)
def test_nothing_is_lost_or_doubled_with(scenario: Scenario) -> None:
    assert_nothing_is_found(search(scenario))


def test_without_the_table_check_files_of_one_table_are_put_into_another() -> None:
    scenario = replace(QUIET, faults=0, recreations=1, program=Program(batches=2, start=Start.ONE_SHOT))
    assert "did not open" in breach_without(same_table, scenario)


def test_without_the_fence_a_paused_instance_goes_on_writing() -> None:
    """Contiguity still keeps its rows from being doubled; but the newer instance is not the only one any more."""
    assert "had claimed" in breach_without(not_fenced, replace(QUIET, faults=0))


def test_without_looking_for_the_batch_a_lost_reply_stops_the_sink() -> None:
    assert "stopped without need" in breach_without(not_done, replace(QUIET, faults=1))


def test_a_retry_that_looks_for_nothing_doubles_rows() -> None:
    blind = Program(batches=2, guards=Guards().without(not_done).without(contiguous))
    assert "rows are there twice" in found(replace(QUIET, faults=1, program=blind))


def test_without_contiguity_two_single_runs_double_rows() -> None:
    scenario = replace(QUIET, faults=0, program=Program(batches=2, start=Start.ONE_SHOT))
    assert "rows are there twice" in breach_without(contiguous, scenario)


def test_without_contiguity_an_old_checkpoint_loses_rows() -> None:
    scenario = replace(QUIET, faults=0, program=Program(batches=2, start=Start.CHECKPOINT))
    assert "rows that are not in the table" in breach_without(contiguous, scenario)


def test_without_looking_for_a_rollback_rows_are_written_past_a_hole() -> None:
    assert "past a hole" in breach_without(not_rolled_back, replace(QUIET, faults=0, rollbacks=1))


def test_without_the_parent_check_rows_that_were_rolled_back_come_back() -> None:
    scenario = replace(QUIET, faults=0, appends=1, rollbacks=1)
    assert_nothing_is_found(search(scenario))
    blind = Program(batches=2, guards=Guards(fits=lambda *_: True))
    assert "had been rolled back" in found(replace(scenario, program=blind))


def test_the_parent_alone_does_not_tell_of_a_commit_that_was_rolled_back_since() -> None:
    """The head is what it was, but another instance had claimed in between: only the sequence number tells."""
    scenario = replace(QUIET, faults=0, rollbacks=1)
    assert_nothing_is_found(search(scenario))
    half_blind = Program(batches=2, guards=Guards(fits=lambda view, snapshot: snapshot.parent == view.head))
    assert "had claimed" in found(replace(scenario, program=half_blind))


def test_a_claim_that_does_not_move_the_branch_fences_nobody() -> None:
    assert "had claimed" in found(replace(QUIET, faults=0, claim_moves_the_branch=False))


def test_a_catalog_that_compares_the_head_alone_is_not_enough() -> None:
    """A limit: so do REST catalogs with tables of format version 1."""
    assert "had claimed" in found(replace(QUIET, compare=Compare.HEAD_ONLY, faults=0, rollbacks=1))


def test_a_rollback_can_be_buried() -> None:
    """A limit: two commits of others and an expiry of all that is older leave nothing that tells of it."""
    assert "past a hole" in found(replace(QUIET, faults=0, rollbacks=1, expiries=1, appends=2))


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
    print(f"{report.states} states, {report.steps} steps, {report.ends} ends, {report.seconds:.1f} s")
