"""What keeps a search small loses nothing: it reaches exactly the states that a search without it reaches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commit.canonical import Core
from commit.instances import Program, Start
from commit.memory_table import Compare, Fault
from commit.search import Search
from commit.world import Scenario, World

QUIET = Scenario(program=Program(batches=1), faults=0, appends=0, rollbacks=0, expiries=0)
ALONE = replace(QUIET, instances=1, appends=1, faults=1)

SCENARIOS = [
    pytest.param(replace(QUIET, program=Program(batches=2)), id="two instances"),
    pytest.param(replace(QUIET, appends=1), id="and a foreign writer"),
    pytest.param(replace(QUIET, rollbacks=1, expiries=1), id="and a rollback and an expiry"),
    pytest.param(replace(QUIET, faults=1, crashes=False, kinds=frozenset({Fault.DELAYED, Fault.LOST_REPLY})), id="and a fault"),
    pytest.param(replace(QUIET, faults=1, program=Program(batches=1, start=Start.ONE_SHOT)), id="single runs"),
    pytest.param(replace(ALONE, rollbacks=1, expiries=1), id="all that can happen to one"),
    pytest.param(replace(ALONE, rollbacks=1, expiries=1, compare=Compare.METADATA), id="a catalog that compares the metadata"),
    pytest.param(replace(ALONE, faults=2, crashes=False, program=Program(batches=1, max_retries=1)), id="one that gives up"),
]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_reduced_search_reaches_what_the_full_one_reaches(scenario: Scenario) -> None:
    """The full search tells states apart by every reply that an instance ever got, and by every label."""
    full = Search(scenario, reduced=False)
    reduced = Search(scenario, exchange=False)
    assert (full.run().finding, reduced.run().finding) == (None, None)
    reached = {
        reduced.canon.of(moved(state.core, full.world, reduced.world), may_roll_back=state.left.rollbacks > 0)
        for state in full.came_from
    }
    assert reached == {state.core for state in reduced.came_from}
    assert len(full.came_from) > 5 * len(reduced.came_from), "nothing was reduced"


@pytest.mark.parametrize("scenario", SCENARIOS[:5])
def test_instances_that_exchange_their_places_are_the_same(scenario: Scenario) -> None:
    named = Search(scenario, exchange=False)
    exchanged = Search(scenario)
    assert (named.run().finding, exchanged.run().finding) == (None, None)
    known = {state.core for state in exchanged.came_from}
    for state in named.came_from:
        core = moved(state.core, named.world, exchanged.world)
        turned = core._replace(instances=core.instances[::-1])
        may_roll_back = state.left.rollbacks > 0
        assert {exchanged.canon.of(each, may_roll_back=may_roll_back) for each in (core, turned)} & known


def test_the_full_search_finds_what_the_reduced_one_finds() -> None:
    scenario = replace(QUIET, claim_moves_the_branch=False)
    shortest = [Search(scenario, exchange=False, reduced=reduced).run().finding for reduced in (True, False)]
    assert None not in shortest
    assert len({len(finding.trace) for finding in shortest if finding}) == 1


def moved(core: Core, here: World, there: World) -> Core:
    """A state of one search by the numbers of another."""
    return Core(
        there.table(here.tables.values[core.table]),
        tuple(there.instance(here.instances.values[number]) for number in core.instances),
        frozenset(there.request(here.requests.values[which]) for which in core.in_flight),
    )
