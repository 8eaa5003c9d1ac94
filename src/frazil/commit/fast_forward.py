"""Moves main to a snapshot of another branch: exactly once, whatever the catalog answers.

A snapshot of the branch was checked, and main is to have that one, neither an earlier nor a later. One attempt:

1. refresh the metadata; another table than the one that was checked: stop.
2. main's head is the checked snapshot, or comes after it: done.
3. the branch does not have the checked snapshot any longer: stop, somebody moved the branch.
4. main's head is no ancestor of the checked snapshot: stop, somebody wrote to main.
5. one compare-and-swap of the metadata: main's reference alone.
6. any failure leaves the outcome unknown: wait, and go to 1.

Nothing is written to the ledger: where a sink is belongs to the branch that it writes to, and main gets it with the snapshots.
The catalog compares the head of main: a commit to main that comes first makes step 5 fail. A writer of the branch may go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from frazil.commit.protocol import Failed, outcome_of
from frazil.commit.retry import pause_seconds
from frazil.errors import Halted, OutcomeUnknown
from frazil.model.settings import RetrySettings


@dataclass(frozen=True)
class Goal:
    """Which snapshot main is to have, and of which table and branch it was."""

    table_uuid: str
    branch: str
    snapshot: int


@dataclass(frozen=True)
class BranchesView:
    """What one refresh saw of main and the branch. ``base`` is the adapter's own handle to exactly that metadata.

    ``published``: main has the snapshot. ``on_branch``: the branch has it. ``follows_main``: it comes after main's head;
    ``fork`` is the last snapshot that both have, if that is known.
    """

    table_uuid: str
    main: int | None
    next_sequence: int
    published: bool
    on_branch: bool
    follows_main: bool
    fork: int | None = None
    base: Any = None


class BranchesPort(Protocol):
    """The catalog's side. Failures are raised, as by :class:`frazil.commit.protocol.TablePort`."""

    def refresh(self) -> BranchesView:
        """Step 1: the metadata as it is now."""

    def swap(self, view: BranchesView) -> None:
        """Step 5: one compare-and-swap from the view's metadata, without any retry of its own."""


def require_publishable(view: BranchesView, goal: Goal) -> None:
    """Steps 1, 3 and 4."""
    if view.table_uuid != goal.table_uuid:
        raise Halted(
            "table-replaced",
            f"The table was dropped and made again while its branch {goal.branch!r} was being published (another table UUID).",
            fix="Publish again if the new table is the one that is meant.",
        )
    if not view.on_branch:
        raise Halted(
            "branch-moved",
            f"The branch {goal.branch!r} does not have snapshot {goal.snapshot} any longer, which was checked: somebody moved "
            "the branch meanwhile, or dropped it.",
            fix="Publish again: what the branch has now is checked then.",
        )
    if not view.follows_main:
        began = "" if view.fork is None else f" since snapshot {view.fork}, where they parted"
        back = "the snapshot where they parted" if view.fork is None else f"snapshot {view.fork}"
        raise Halted(
            "branch-diverged",
            f"main has snapshots that the branch {goal.branch!r} does not have: somebody wrote to main{began}, or they have "
            "expired. Publishing would take them away.",
            fix=f"If main can do without them, roll it back to {back} and publish again. Otherwise drop the branch, give the "
            "sink another id, and run it: it makes the branch anew from main and reads its source from the beginning.",
        )


def fast_forward(
    port: BranchesPort,
    goal: Goal,
    retry: RetrySettings,
    *,
    on_failure: Callable[[Failed, int], None] = lambda _failed, _attempt: None,
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Moves main to the checked snapshot. Whether this call did it: not if main had it already."""
    failures, sent = 0, False
    seen: tuple[int | None, int] | None = None
    while True:
        view = outcome_of(port.refresh)  # 1
        if isinstance(view, Failed):
            failed, unknown = view, sent
        else:
            if view.published:  # 2
                return sent
            require_publishable(view, goal)  # 3 and 4
            if seen is not None and seen != (view.main, view.next_sequence):
                failures = 0  # a commit to the branch came first: contention is not a failing catalog
            seen, sent = (view.main, view.next_sequence), True
            answer = outcome_of(partial(port.swap, view))  # 5
            if answer is None:
                return True
            failed, unknown = answer, not answer.final
        failures += 1  # 6
        if failed.final or failures > retry.max_retries:
            raise _unknown(failed, goal) if unknown else failed.error
        on_failure(failed, failures)
        sleep(pause_seconds(failed.error, retry, failures))


def _unknown(failed: Failed, goal: Goal) -> OutcomeUnknown:
    return OutcomeUnknown(
        "outcome-unknown",
        f"It is not known whether the branch {goal.branch!r} was published: {failed.error.message}",
        fix="Publish again: if it was, that finds nothing to do.",
    )
