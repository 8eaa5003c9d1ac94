"""History tables, without a table: however changes come, and in whatever batches, they lead to the same versions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers.history import Case, Change, Model, in_order, in_time, late
from tiers import examples

CASES = 10_000


def written(one: Case) -> Model:
    """A table with the batches of a case."""
    model = Model()
    for batch in one.batches:
        model.write(batch)
    return model


@pytest.mark.parametrize("made", [in_time, late])
def test_changes_lead_to_the_versions_of_those_that_came_in_order(made: Callable[[int], Case]) -> None:
    several = deletes = unsent = same_time = again = 0
    for seed in range(examples(CASES)):
        one = made(seed)
        assert written(one).versions == in_order(one.history), seed
        coming = [change for batch in one.batches for change in batch]
        several += len([batch for batch in one.batches if batch]) > 1
        deletes += any(change.values is None for change in one.history)
        unsent += any(change.unsent for change in one.history)
        same_time += len({(change.key, change.at) for change in one.history}) < len(one.history)
        again += len(coming) > len(one.history)
    assert min(several, deletes, again) > examples(CASES) / 10, "the cases show something"
    assert made is late or min(unsent, same_time) > examples(CASES) / 10, "the cases show something"


def test_a_value_that_was_not_sent_is_that_of_the_version_before() -> None:
    """Also of one that the same batch takes the place of."""
    model = Model()
    model.write([Change(1, 10, 0, ("a", "old")), Change(1, 20, 1, ("b", "new"))])
    model.write([Change(1, 20, 2, ("c", None), unsent=True), Change(1, 30, 3, ("d", None), unsent=True)])
    assert [version[:4] for version in model.versions] == [(1, "a", "old", 10), (1, "c", "new", 20), (1, "d", "new", 30)]
    model.write([Change(1, 25, 4, None), Change(1, 30, 5, ("e", None), unsent=True)])
    assert [version[1:4] for version in model.versions][2:] == [("c", "new", 25), ("e", "new", 30)]
