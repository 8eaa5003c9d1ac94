"""Which tests a change runs: each of them within a few commits, and each promise in every one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tiers import SLICES, fast, of_a_change, slice_of_commit


@dataclass(frozen=True)
class Item:
    """As much of a test as the choice looks at."""

    nodeid: str
    marks: frozenset[str] = frozenset()
    fixturenames: tuple[str, ...] = field(default=("spark",))

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


PLAIN = [Item(f"test_model.py::test_value[{number}]", fixturenames=()) for number in range(20)]
CASES = [Item(f"test_engine.py::test_types[{number}]") for number in range(5)]
ALONE = [Item("test_engine.py::test_append")]
ALWAYS = [Item(f"test_kill.py::test_mode[{number}]", frozenset({"every_case"})) for number in range(5)]
SLOW = [Item(f"test_slow.py::test_{number}", frozenset({"slow"})) for number in range(100)]
PROCESS = [Item("test_cli.py::test_run", frozenset({"spark"}), fixturenames=())]
EVERYTHING = cast(list[Any], [*PLAIN, *CASES, *ALONE, *ALWAYS, *SLOW, *PROCESS])


@pytest.mark.parametrize("turn", range(SLICES))
def test_each_change_runs_whatever_needs_no_spark_and_one_case_of_every_other_test(turn: int) -> None:
    taken = set(of_a_change(EVERYTHING, turn))
    assert taken >= {*PLAIN, *ALONE, *ALWAYS, *PROCESS}
    assert taken & set(CASES)
    assert 0 < len(taken & set(SLOW)) < len(SLOW) / 3


def test_all_slices_together_are_all_tests() -> None:
    assert set().union(*(of_a_change(EVERYTHING, turn) for turn in range(SLICES))) == set(EVERYTHING)


def test_the_fast_ones_need_neither_spark_nor_a_service() -> None:
    assert fast(EVERYTHING) == PLAIN


def test_the_slice_is_that_of_the_commit(pytestconfig: pytest.Config) -> None:
    assert 0 <= slice_of_commit(pytestconfig.rootpath) < SLICES
