"""How much of the tests a run takes: what needs no Spark, what each change must pass, or everything.

- ``--tier=fast``: no test that needs Spark, a service, or a process that starts one.
- ``--tier=change``: all tests that are not marked ``slow``, but of a test that needs Spark and has several cases only some of
  them, unless it is marked ``every_case``. Of the slow tests and of these cases each commit takes another slice, so that all of
  them run within a few commits. ``--slice=N`` takes a certain slice, to repeat what another run found: with all tests, as the
  slices are made from the tests that were found.
- ``--tier=all``: everything, and property tests with as many examples as they ask for. This is also what runs when no tier is
  named: whoever names a module or a test wants all of it. With ``--slice=N`` it is one of 20 parts of everything: all of them
  take hours, which need not be in one piece.
"""

from __future__ import annotations

import subprocess
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

TIERS = ("fast", "change", "all")
SLICES = 20

# About how long a slow test takes that does not say it: ``@pytest.mark.slow(seconds=60)`` is for those that take much longer.
USUAL_SECONDS = 10
# The same of a test that is not slow: with Spark, and without.
SECONDS_WITH_SPARK, SECONDS_WITHOUT = 1, 0.1
# The tests of a module share services that take long to start, so that they stay together up to this length.
LONGEST_SECONDS = 120

# Fixtures that start Spark or a service: whatever needs one of them is no fast test.
HEAVY = frozenset({"spark", "spark_cluster", "rest_catalog", "postgres", "kafka", "schema_registry", "s3"})

# Property tests try one in so many of their examples, unless everything is run.
FEWER = 4

Case = TypeVar("Case")

_everything = True
_left_out = pytest.StashKey[int]()
_OF_A_WORKER = "tests_left_out"


def examples(most: int) -> int:
    """How many examples a property test tries: all of them where everything is run, else fewer."""
    return most if _everything else most // FEWER


def few_or_all(few: Sequence[Case], cases: Sequence[Case]) -> Sequence[Case]:
    """What a test goes through by itself: all of it where everything is run, else a few."""
    return cases if _everything else few


def first_or_all(cases: Sequence[Case]) -> Sequence[Case]:
    """What a test goes through by itself: all of it where everything is run, else the first alone."""
    return cases if _everything else cases[:1]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("frazil")
    group.addoption("--tier", choices=TIERS, default="all", help="how much is run; see tests/tiers.py")
    what = "which slice of the slow tests, by default the commit's; with --tier=all which part of all tests"
    group.addoption("--slice", type=int, choices=range(SLICES), help=what)


def pytest_configure(config: pytest.Config) -> None:
    global _everything  # noqa: PLW0603 - decorators ask when the modules are imported, which is after this
    _everything = config.getoption("tier") == "all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier, part = config.getoption("tier"), config.getoption("slice")
    if tier == "all" and part is None:
        return
    match tier:
        case "fast":
            taken = fast(items)
        case "change":
            taken = of_a_change(items, _slice(config))
        case _:
            taken = of_everything(items, part)
    kept = set(taken)
    left_out = [item for item in items if item not in kept]
    config.stash[_left_out] = len(left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = taken


def fast(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests that need neither Spark nor a service."""
    return [item for item in items if not (_is_slow(item) or _needs_spark(item))]


def of_a_change(items: list[pytest.Item], turn: int) -> list[pytest.Item]:
    """The tests that a change must pass, of which some differ from slice to slice."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not _is_slow(item):
            cases[_name_without_case(item)].append(item)
    taken = {group[turn % len(group)] for group in cases.values()}
    taken |= {item for item in items if not _is_slow(item) and (_in_every_slice(item) or _slice_of_case(item) == turn)}
    taken |= set(slices([item for item in items if _is_slow(item)])[turn])
    return [item for item in items if item in taken]


def of_everything(items: list[pytest.Item], turn: int) -> list[pytest.Item]:
    """One part of all tests: each is in one of them."""
    taken = set(slices(items)[turn])
    return [item for item in items if item in taken]


def slices(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """The tests in slices that take about as long as each other: what takes longest goes first, to the shortest slice."""
    dealt: list[list[pytest.Item]] = [[] for _ in range(SLICES)]
    lengths = [0.0] * SLICES
    for together in sorted(_kept_together(items), key=lambda tests: (-seconds(tests), tests[0].nodeid)):
        shortest = lengths.index(min(lengths))
        dealt[shortest].extend(together)
        lengths[shortest] += seconds(together)
    return dealt


def seconds(items: Sequence[pytest.Item]) -> float:
    """About how long tests take."""
    return sum(map(_length, items))


def _length(item: pytest.Item) -> float:
    mark = item.get_closest_marker("slow")
    if mark is not None:
        return float(mark.kwargs.get("seconds", USUAL_SECONDS))
    return SECONDS_WITH_SPARK if _needs_spark(item) else SECONDS_WITHOUT


def _kept_together(items: list[pytest.Item]) -> Iterator[list[pytest.Item]]:
    """The tests of a module, or single ones of a module that takes too long for one slice."""
    modules: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        modules[item.nodeid.partition("::")[0]].append(item)
    for tests in modules.values():
        yield from [tests] if seconds(tests) <= LONGEST_SECONDS else [[test] for test in tests]


def _slice_of_case(item: pytest.Item) -> int:
    """The slice that a case of a test belongs to: the same in every run, and evenly spread."""
    return zlib.crc32(item.nodeid.encode()) % SLICES


def slice_of_commit(root: Path) -> int:
    """The slice of the commit that is checked out; the first one where there is no commit."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    return int(found.stdout.strip() or "0", 16) % SLICES


def _in_every_slice(item: pytest.Item) -> bool:
    return item.get_closest_marker("every_case") is not None or not _needs_spark(item)


def _name_without_case(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def _needs_spark(item: pytest.Item) -> bool:
    return item.get_closest_marker("spark") is not None or not HEAVY.isdisjoint(getattr(item, "fixturenames", ()))


def _slice(config: pytest.Config) -> int:
    given: int | None = config.getoption("slice")
    return slice_of_commit(config.rootpath) if given is None else given


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands its count to the process that prints the summary."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OF_A_WORKER] = session.config.stash.get(_left_out, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_left_out] = getattr(node, "workeroutput", {}).get(_OF_A_WORKER, 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    left_out = config.stash.get(_left_out, 0)
    if left_out == 0:
        return
    which = f" This was slice {_slice(config)} of {SLICES}." if config.getoption("tier") == "change" else ""
    terminalreporter.write_line(f"{left_out} tests were left out: make test-all runs them.{which}")
