"""Every interleaving of a few instances, a foreign writer and a misleading catalog, by breadth first search.

A state of the search is the table, the instances, the requests still on their way, and what may still go wrong. From each
state every possible next step is taken, one effect at a time, and each state is visited once. What is promised is asked of
every state, so that a search without a finding is a proof for its scenario. Breadth first: what is found is found by a
shortest way.

States that differ in nothing that matters are one state (see ``canonical``). And of two states that differ only in what may
still go wrong, the one where less may is not looked at: all that can follow from it follows from the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from operator import ge
from typing import NamedTuple

from commit.canonical import Canon, Core
from commit.instances import Down, Ended
from commit.labels import PLACES
from commit.promises import wrong_after_the_end, wrong_at_the_end, wrong_with
from commit.world import Scenario, World


class Left(NamedTuple):
    """How often things may still happen."""

    faults: int
    appends: int
    rollbacks: int
    expiries: int
    recreations: int

    def minus(self, kind: str, count: int = 1) -> Left:
        """After something has happened."""
        return self._replace(**{kind: getattr(self, kind) - count})


class State(NamedTuple):
    """A moment of the search."""

    core: Core
    left: Left


class Successor(NamedTuple):
    """A step, where it leads, and what is wrong with it. ``own``: an instance took it."""

    label: str
    state: State
    breach: str | None
    own: bool


@dataclass(frozen=True)
class Finding:
    """A promise that was broken, and a shortest way to break it."""

    breach: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.breach, *(f"{number:4}. {step}" for number, step in enumerate(self.trace, 1))])


@dataclass(frozen=True)
class Report:
    """How a search ended."""

    states: int
    steps: int
    ends: int
    seconds: float
    finding: Finding | None


class Search:
    """One search.

    ``exchange``: two instances that exchange their places are the same state; off, a trace calls them by one name throughout.
    ``reduced``: off, two states are one only if they have the same history of replies, which is for checking the reductions.
    """

    def __init__(self, scenario: Scenario, *, exchange: bool = True, reduced: bool = True) -> None:
        self.world = World(scenario, exact=not reduced)
        self.canon = Canon(self.world, exchange=exchange)
        self.reduced = reduced
        self.came_from: dict[State, State | None] = {}
        self._budgets: dict[Core, tuple[Left, ...]] = {}
        self._breaches: dict[int, str | None] = {}

    def run(self) -> Report:
        """Visits everything, or stops at the first finding."""
        began = time.process_time()
        finding, steps, ends = None, 0, 0
        level = [self._first()]
        self._note(level[0], None)
        while level and finding is None:
            following: list[State] = []
            for state in level:
                idle = True
                for successor in self._successors(state):
                    steps += 1
                    idle = idle and not successor.own
                    if successor.breach is not None:
                        finding = Finding(successor.breach, (*self._trace(state), successor.label))
                        break
                    if self._note(successor.state, state):
                        following.append(successor.state)
                if finding is None and idle:
                    ends += 1
                    finding = self._at_the_end(state)
                if finding is not None:
                    break
            level = following
        return Report(len(self.came_from), steps, ends, time.process_time() - began, finding)

    def _first(self) -> State:
        world, scenario = self.world, self.world.scenario
        down = tuple(world.instance(Down()) for _ in range(scenario.instances))
        left = Left(scenario.faults, scenario.appends, scenario.rollbacks, scenario.expiries, scenario.recreations)
        return self._state(Core(world.first_table(), down, frozenset()), left)

    def _note(self, state: State, before: State | None) -> bool:
        """Whether the state is new: not seen before with as much left."""
        if self.reduced:
            known = self._budgets.get(state.core, ())
            left = state.left
            if any(all(map(ge, other, left)) for other in known):
                return False
            self._budgets[state.core] = (*(other for other in known if not all(map(ge, left, other))), left)
        elif state in self.came_from:
            return False
        self.came_from[state] = before
        return True

    def _trace(self, state: State) -> tuple[str, ...]:
        path: list[str] = []
        while (before := self.came_from[state]) is not None:
            path.append(next(successor.label for successor in self._successors(before) if successor.state == state))
            state = before
        return tuple(reversed(path))

    def _at_the_end(self, state: State) -> Finding | None:
        table = self.world.tables.values[state.core.table]
        ended = [each for number in state.core.instances if isinstance(each := self.world.instances.values[number], Ended)]
        wrong = wrong_at_the_end(self.world.program, table, ended)
        return None if wrong is None else Finding(wrong, self._trace(state))

    def _successors(self, state: State) -> Iterator[Successor]:
        yield from self._steps_of_instances(state)
        (table, instances, in_flight), left = state
        world = self.world
        for which in sorted(in_flight):
            landed = world.landed(table, which)
            if landed is not None:
                writer = world.requests.values[which].state.instance
                breach = landed[1] or wrong_after_the_end(writer, [world.instances.values[number] for number in instances])
                core = Core(landed[0], instances, in_flight - {which})
                yield self._successor(f"the delayed request of {writer} is applied", core, left, breach)
        for kind, label, changed in world.changes(table):
            if getattr(left, kind):
                yield self._successor(label, Core(changed, instances, in_flight), left.minus(kind), None)

    def _steps_of_instances(self, state: State) -> Iterator[Successor]:
        (table, instances, in_flight), left = state
        for place, number in enumerate(instances):
            if number in instances[:place] and self.world.instances.values[number] == Down():
                continue  # who starts first is only a matter of names
            for label, after, instance, sent, faults, breach in self.world.steps(table, number):
                if faults > left.faults:
                    continue
                others = (*instances[:place], instance, *instances[place + 1 :])
                flying = in_flight if sent is None else in_flight | {sent}
                remaining = left.minus("faults", faults) if faults else left
                yield self._successor(f"{PLACES[place]} {label}", Core(after, others, flying), remaining, breach, own=True)

    def _successor(self, label: str, core: Core, left: Left, breach: str | None, *, own: bool = False) -> Successor:
        if core.table not in self._breaches:
            self._breaches[core.table] = wrong_with(self.world.tables.values[core.table])
        return Successor(label, self._state(core, left), breach or self._breaches[core.table], own)

    def _state(self, core: Core, left: Left) -> State:
        if not self.reduced:
            return State(self.canon.christened(core), left)
        return State(self.canon.of(core, may_roll_back=left.rollbacks > 0), left)


def search(scenario: Scenario) -> Report:
    """Searches a scenario. What is found is reported by names that stay the same."""
    report = Search(scenario).run()
    return report if report.finding is None else Search(scenario, exchange=False).run()
