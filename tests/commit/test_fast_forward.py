"""How main is moved to a snapshot of a branch: what is refused, and what happens when answers are lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from frazil.commit.fast_forward import BranchesView, Goal, fast_forward
from frazil.commit.protocol import AttemptFailed, FailureKind
from frazil.errors import ConfigError, DataError, Halted, OutcomeUnknown, Retryable
from frazil.model.settings import RetrySettings

GOAL = Goal("table", "audit", 3)
FEW = RetrySettings(max_retries=2, initial_backoff_ms=1, max_backoff_ms=1)
AWAY = AttemptFailed(FailureKind.UNKNOWN, Retryable("away", "the catalog did not answer"))
BEATEN = AttemptFailed(FailureKind.CONFLICT, Retryable("beaten", "somebody else was faster"))


@dataclass
class Catalog:
    """Two branches of a table, as lists of snapshots. ``script`` has what happens at each swap, ``looks`` at each refresh."""

    main: list[int] = field(default_factory=lambda: [1])
    audit: list[int] = field(default_factory=lambda: [1, 2, 3])
    uuid: str = "table"
    last: int = 3
    script: list[Callable[[Catalog, BranchesView], object]] = field(default_factory=list)
    looks: list[Exception | None] = field(default_factory=list)
    swaps: int = 0

    def refresh(self) -> BranchesView:
        if self.looks and (error := self.looks.pop(0)) is not None:
            raise error
        line = [1, 2, 3]
        head = self.main[-1] if self.main else None
        return BranchesView(
            self.uuid,
            head,
            self.last + 1,
            3 in self.main,
            3 in (*self.main, *self.audit),
            head is None or head in line,
            base=head,
        )

    def swap(self, view: BranchesView) -> None:
        self.swaps += 1
        if self.script:
            self.script.pop(0)(self, view)
        else:
            self.apply(view)

    def apply(self, view: BranchesView) -> None:
        if view.base != (self.main[-1] if self.main else None):
            raise BEATEN
        self.main = [1, 2, 3]


def lost(catalog: Catalog, view: BranchesView) -> None:
    catalog.apply(view)
    raise AWAY


def refused(_catalog: Catalog, _view: BranchesView) -> None:
    raise AWAY


def written_on(catalog: Catalog, _view: BranchesView) -> None:
    """A writer of the branch was faster, in a catalog that compares the whole metadata."""
    catalog.last += 1
    catalog.audit.append(catalog.last)
    raise BEATEN


def published(catalog: Catalog) -> bool:
    return fast_forward(catalog, GOAL, FEW, sleep=lambda _: None)


@pytest.mark.parametrize("main", [[1], [1, 2], []], ids=["behind", "a step behind", "empty"])
def test_main_gets_the_snapshot_and_a_second_time_there_is_nothing_to_do(main: list[int]) -> None:
    catalog = Catalog(main)
    assert published(catalog)
    assert (catalog.main, published(catalog), catalog.swaps) == ([1, 2, 3], False, 1)


def test_a_lost_answer_is_looked_up() -> None:
    catalog = Catalog(script=[lost])
    assert published(catalog), "it was this call that did it"
    assert (catalog.main, catalog.swaps) == ([1, 2, 3], 1)


def test_what_comes_after_the_snapshot_stays() -> None:
    def lost_and_written_on(catalog: Catalog, view: BranchesView) -> None:
        catalog.apply(view)
        catalog.main.append(9)
        raise AWAY

    catalog = Catalog(script=[lost_and_written_on])
    assert published(catalog)
    assert catalog.main == [1, 2, 3, 9]


def test_a_busy_writer_of_the_branch_does_not_use_up_the_tries() -> None:
    catalog = Catalog(script=[written_on] * 10)
    assert published(catalog)
    assert (catalog.main, catalog.audit[-1]) == ([1, 2, 3], 13), "main has what was checked, and not more"


def test_a_catalog_that_stays_away_leaves_the_outcome_unknown() -> None:
    catalog = Catalog(script=[refused] * 10)
    with pytest.raises(OutcomeUnknown) as stopped:
        published(catalog)
    assert (stopped.value.exit_code, catalog.swaps) == (75, 3)
    with pytest.raises(OutcomeUnknown):
        published(Catalog(script=[lost], looks=[None, AWAY, AWAY, AWAY]))
    with pytest.raises(Retryable) as never_sent:
        published(Catalog(looks=[AWAY, AWAY, AWAY]))
    assert never_sent.value.code == "away"


def test_what_cannot_succeed_is_not_tried_again() -> None:
    def forbidden(_catalog: Catalog, _view: BranchesView) -> None:
        raise AttemptFailed(FailureKind.REFUSED, DataError("no-permission", "not allowed"), final=True)

    catalog = Catalog(script=[forbidden])
    with pytest.raises(DataError):
        published(catalog)
    assert catalog.swaps == 1


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("table-replaced", {"uuid": "another"}),
        ("branch-moved", {"audit": [1, 2]}),
        ("branch-diverged", {"main": [1, 9]}),
    ],
)
def test_it_stops_where_main_would_lose_or_get_something_unchecked(code: str, changed: dict[str, object]) -> None:
    catalog = replace(Catalog(), **changed)
    before = list(catalog.main)
    with pytest.raises(Halted) as stopped:
        published(catalog)
    assert (stopped.value.code, catalog.main, catalog.swaps) == (code, before, 0)
    assert stopped.value.fix


def test_somebody_writes_to_main_between_look_and_swap() -> None:
    def overtaken(catalog: Catalog, view: BranchesView) -> None:
        catalog.main.append(9)
        catalog.apply(view)

    catalog = Catalog(script=[overtaken])
    with pytest.raises(Halted) as stopped:
        published(catalog)
    assert (stopped.value.code, catalog.main) == ("branch-diverged", [1, 9])


def test_an_error_of_the_file_is_raised_as_it_is() -> None:
    with pytest.raises(ConfigError):
        published(Catalog(looks=[ConfigError("branch-is-tag", "it is a tag")]))
