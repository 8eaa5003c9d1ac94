"""The faults of a catalog as values: what reaches the catalog, and what the client is told.

A commit has two halves that can go wrong apart from each other: its delivery to the catalog, and the answer to the client.
A fault says what happens to each. Faults of loads (``GET`` of a table) have only an answer; use ``refused`` and ``cut_off``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum


class Delivery(StrEnum):
    """What reaches the catalog."""

    ONCE = "once"
    NEVER = "never"
    TWICE = "twice"
    LATER = "later"


class Cut(Enum):
    """How a connection ends without a whole answer."""

    CLOSED = "closed"
    RESET = "reset"
    TRUNCATED = "truncated"


@dataclass(frozen=True)
class Status:
    """An answer that the proxy makes up: in the catalog's own error format, or a gateway's page."""

    code: int
    retry_after: int | None = None
    html: bool = False


@dataclass(frozen=True)
class FromCatalog:
    """The catalog's own answer to the n-th delivery, counted from 0."""

    nth: int = 0


@dataclass(frozen=True)
class Fault:
    """What happens to one request.

    ``after`` is the delay of a late delivery in seconds; none means until ``FaultyRest.release``. ``pause`` holds the answer
    back for that many seconds. ``meanwhile`` is called after the delivery and before the answer: another writer's turn.
    """

    name: str
    delivery: Delivery = Delivery.ONCE
    answer: Status | FromCatalog | Cut = FromCatalog()
    after: float | None = None
    pause: float = 0.0
    meanwhile: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        answers_at_hand = {Delivery.ONCE: 1, Delivery.TWICE: 2}.get(self.delivery, 0)
        needed = self.answer.nth + 1 if isinstance(self.answer, FromCatalog) else int(self.answer is Cut.TRUNCATED)
        if needed > answers_at_hand:
            raise ValueError(f"{self.name}: there is no such answer of the catalog to pass on")

    def __str__(self) -> str:
        return self.name


def applied_then(
    code: int, *, retry_after: int | None = None, html: bool = False, meanwhile: Callable[[], None] | None = None
) -> Fault:
    """The catalog applies the request, and the client is told that it failed."""
    return Fault(
        f"applied-then-{_described(code, retry_after, html)}",
        answer=Status(code, retry_after, html),
        meanwhile=meanwhile,
    )


def applied_then_cut_off(how: Cut = Cut.CLOSED, *, meanwhile: Callable[[], None] | None = None) -> Fault:
    """The catalog applies the request, and the client gets no whole answer."""
    return Fault(f"applied-then-{how.value}", answer=how, meanwhile=meanwhile)


def refused(code: int, *, retry_after: int | None = None, html: bool = False) -> Fault:
    """The catalog never sees the request, and the client gets an error."""
    return Fault(f"refused-with-{_described(code, retry_after, html)}", Delivery.NEVER, answer=Status(code, retry_after, html))


def cut_off(how: Cut = Cut.CLOSED) -> Fault:
    """The catalog never sees the request, and the client gets no answer."""
    return Fault(f"{how.value}-without-applying", Delivery.NEVER, answer=how)


def applied_late(code: int = 504, *, after: float | None = None, html: bool = True) -> Fault:
    """The client is told at once that it failed; the catalog gets the request afterwards."""
    when = "when-released" if after is None else f"{after:g}s-later"
    return Fault(f"{_described(code, None, html)}-and-applied-{when}", Delivery.LATER, Status(code, None, html), after)


def delivered_twice(nth_answer: int) -> Fault:
    """The catalog gets the request two times in a row, and the client its answer to one of them."""
    return Fault(f"delivered-twice-answer-{nth_answer}", Delivery.TWICE, answer=FromCatalog(nth_answer))


def slow(pause: float) -> Fault:
    """The catalog applies the request, and its answer takes a while."""
    return Fault(f"slow-{pause:g}s", pause=pause)


def _described(code: int, retry_after: int | None, html: bool) -> str:
    hint = "" if retry_after is None else f"-retry-after-{retry_after}"
    return f"{code}{hint}{'-html' if html else ''}"


APPLIED_FAULTS: tuple[Fault, ...] = (
    applied_then(500),
    applied_then(500, html=True),
    applied_then(502, html=True),
    applied_then(503),
    applied_then(503, retry_after=0),
    applied_then(503, retry_after=1),
    applied_then(504),
    applied_then(504, html=True),
    applied_then(409),
    applied_then_cut_off(Cut.CLOSED),
    applied_then_cut_off(Cut.RESET),
    applied_then_cut_off(Cut.TRUNCATED),
    delivered_twice(0),
    delivered_twice(1),
    slow(0.3),
)
"""Faults after which the catalog holds the commit."""

REFUSED_FAULTS: tuple[Fault, ...] = (
    refused(500),
    refused(502, html=True),
    refused(503),
    refused(503, retry_after=0),
    refused(504, html=True),
    refused(409),
    cut_off(Cut.CLOSED),
    cut_off(Cut.RESET),
)
"""Faults after which the catalog does not hold the commit."""

LATE_FAULTS: tuple[Fault, ...] = (
    applied_late(504, after=0.2),
    applied_late(500, after=0.2, html=False),
    applied_late(503, after=1.0, html=False),
)
"""Faults after which the catalog gets the commit when the client already believes that it failed."""

LOAD_FAULTS: tuple[Fault, ...] = (
    refused(500),
    refused(502, html=True),
    refused(503, retry_after=0),
    cut_off(Cut.CLOSED),
    cut_off(Cut.RESET),
)
"""Faults of reading a table's metadata."""

COMMIT_FAULTS: tuple[Fault, ...] = APPLIED_FAULTS + REFUSED_FAULTS + LATE_FAULTS
"""Every fault of a commit, for tests that go through them all."""
