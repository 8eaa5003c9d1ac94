"""Which tests a change runs: each of them within a few commits, and each promise in every one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tiers import LONGEST_SECONDS, SLICES, fast, of_a_change, of_everything, seconds, slice_of_commit, slices
from whole_run import Part, page, parts_of


@dataclass(frozen=True)
class Item:
    """As much of a test as the choice looks at."""

    nodeid: str
    marks: frozenset[str] = frozenset()
    fixturenames: tuple[str, ...] = field(default=("spark",))
    seconds: int | None = None

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return getattr(pytest.mark, name)(**self._length).mark if name in self.marks else None

    @property
    def _length(self) -> dict[str, int]:
        return {} if self.seconds is None else {"seconds": self.seconds}


def slow(name: str, seconds: int | None = None) -> Item:
    return Item(name, frozenset({"slow"}), seconds=seconds)


PLAIN = [Item(f"test_model.py::test_value[{number}]", fixturenames=()) for number in range(20)]
CASES = [Item(f"test_engine.py::test_types[{number}]") for number in range(5)]
ALONE = [Item("test_engine.py::test_append")]
ALWAYS = [Item(f"test_kill.py::test_mode[{number}]", frozenset({"every_case"})) for number in range(5)]
# Short modules, whose tests stay together, and a long one, whose tests cannot.
SHORT = [slow(f"test_short_{number}.py::test_{test}") for number in range(60) for test in range(number % 4 + 1)]
LONG = [slow(f"test_long.py::test_{number}", number * 15) for number in range(1, 9)]
SLOW = [*SHORT, *LONG]
PROCESS = [Item("test_cli.py::test_run", frozenset({"spark"}), fixturenames=())]
EVERYTHING = cast(list[Any], [*PLAIN, *CASES, *ALONE, *ALWAYS, *SLOW, *PROCESS])


@pytest.mark.parametrize("turn", range(SLICES))
def test_each_change_runs_whatever_needs_no_spark_and_one_case_of_every_other_test(turn: int) -> None:
    taken = set(of_a_change(EVERYTHING, turn))
    assert taken >= {*PLAIN, *ALONE, *ALWAYS, *PROCESS}
    assert taken & set(CASES)
    assert 0 < len(taken & set(SLOW)) < len(SLOW) / 3


def test_all_slices_together_are_all_tests_and_each_slow_one_is_in_one_of_them() -> None:
    taken = Counter(item for turn in range(SLICES) for item in of_a_change(EVERYTHING, turn))
    assert taken.keys() == set(EVERYTHING)
    assert {taken[item] for item in SLOW} == {1}


def test_slices_take_about_as_long_as_each_other_whatever_order_the_tests_come_in() -> None:
    made = slices(cast(list[Any], SLOW))
    longest, shortest = max(map(seconds, made)), min(map(seconds, made))
    assert longest - shortest <= 30
    assert {frozenset(tests) for tests in slices(cast(list[Any], SLOW[::-1]))} == {frozenset(tests) for tests in made}


def test_the_slow_tests_of_a_module_are_in_one_slice_unless_they_take_too_long_for_one() -> None:
    where = {item: turn for turn, tests in enumerate(slices(cast(list[Any], SLOW))) for item in tests}
    modules = {name: {where[item] for item in SHORT if item.nodeid.startswith(f"{name}::")} for name in map(module_of, SHORT)}
    assert {len(turns) for turns in modules.values()} == {1}
    assert seconds(cast(list[Any], LONG)) > LONGEST_SECONDS
    assert len({where[item] for item in LONG}) > 1


def module_of(item: Item) -> str:
    return item.nodeid.partition("::")[0]


def test_the_fast_ones_need_neither_spark_nor_a_service() -> None:
    assert fast(EVERYTHING) == PLAIN


def test_the_parts_together_are_all_tests_and_each_is_in_one_of_them() -> None:
    taken = [item for turn in range(SLICES) for item in of_everything(EVERYTHING, turn)]
    assert Counter(taken) == Counter(EVERYTHING)


def test_the_page_of_all_tests_keeps_the_last_run_of_each_part() -> None:
    third = Part(
        3, "| 3 | 1234567 | 2026-01-31 | 1,200 | 1 | 2 | 12 |", ("a/test_b.py::test_c[x-1]",), ("a/test_b.py::test_d", "test_e")
    )
    twelfth = Part(12, "| 12 | 89abcde | 2026-02-01 | 90 | 0 | 0 | 9 |")
    written = page([twelfth, third])
    assert parts_of(written) == [third, twelfth]
    assert "not run yet: 0, 1, 2, 4," in written
    assert "not run yet" not in page([Part(number, f"| {number} |") for number in range(SLICES)])
    assert parts_of(page([])) == []


def test_the_slice_is_that_of_the_commit(pytestconfig: pytest.Config) -> None:
    assert 0 <= slice_of_commit(pytestconfig.rootpath) < SLICES
