"""The faults of a service as values: what reaches the service, and what the client is told.

A request has two halves that can go wrong apart from each other: its delivery to the service, and the answer to the client.
A fault says what happens to each. Faults of loads (``GET`` of a table) have only an answer; use ``refused`` and ``cut_off``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum


class Delivery(StrEnum):
    """What reaches the service."""

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
    """An answer that the proxy makes up: in the service's own error format, or a gateway's page. ``name``: the error's code."""

    code: int
    retry_after: int | None = None
    html: bool = False
    name: str = ""


@dataclass(frozen=True)
class FromService:
    """The service's own answer to the n-th delivery, counted from 0."""

    nth: int = 0


@dataclass(frozen=True)
class Slowly:
    """The service's own answer, whose body takes so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Fault:
    """What happens to one request.

    ``after`` is the delay of a late delivery in seconds; none means until ``Faulty.release``. ``pause`` holds the answer
    back for that many seconds. ``meanwhile`` is called after the delivery and before the answer: another writer's turn.
    """

    name: str
    delivery: Delivery = Delivery.ONCE
    answer: Status | FromService | Slowly | Cut = FromService()
    after: float | None = None
    pause: float = 0.0
    meanwhile: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        answers_at_hand = {Delivery.ONCE: 1, Delivery.TWICE: 2}.get(self.delivery, 0)
        whole = self.answer is Cut.TRUNCATED or isinstance(self.answer, Slowly)
        needed = self.answer.nth + 1 if isinstance(self.answer, FromService) else int(whole)
        if needed > answers_at_hand:
            raise ValueError(f"{self.name}: there is no such answer of the service to pass on")

    def __str__(self) -> str:
        return self.name


def applied_then(
    code: int,
    *,
    retry_after: int | None = None,
    html: bool = False,
    name: str = "",
    meanwhile: Callable[[], None] | None = None,
) -> Fault:
    """The service applies the request, and the client is told that it failed."""
    status = Status(code, retry_after, html, name)
    return Fault(f"applied-then-{_described(status)}", answer=status, meanwhile=meanwhile)


def applied_then_cut_off(how: Cut = Cut.CLOSED, *, meanwhile: Callable[[], None] | None = None) -> Fault:
    """The service applies the request, and the client gets no whole answer."""
    return Fault(f"applied-then-{how.value}", answer=how, meanwhile=meanwhile)


def refused(code: int, *, retry_after: int | None = None, html: bool = False, name: str = "") -> Fault:
    """The service never sees the request, and the client gets an error."""
    status = Status(code, retry_after, html, name)
    return Fault(f"refused-with-{_described(status)}", Delivery.NEVER, answer=status)


def cut_off(how: Cut = Cut.CLOSED) -> Fault:
    """The service never sees the request, and the client gets no answer."""
    return Fault(f"{how.value}-without-applying", Delivery.NEVER, answer=how)


def applied_late(code: int = 504, *, after: float | None = None, html: bool = True) -> Fault:
    """The client is told at once that it failed; the service gets the request afterwards."""
    when = "when-released" if after is None else f"{after:g}s-later"
    status = Status(code, html=html)
    return Fault(f"{_described(status)}-and-applied-{when}", Delivery.LATER, status, after)


def delivered_twice(nth_answer: int) -> Fault:
    """The service gets the request two times in a row, and the client its answer to one of them."""
    return Fault(f"delivered-twice-answer-{nth_answer}", Delivery.TWICE, answer=FromService(nth_answer))


def slow(pause: float) -> Fault:
    """The service applies the request, and its answer takes a while."""
    return Fault(f"slow-{pause:g}s", pause=pause)


def slowly(seconds: float) -> Fault:
    """The service applies the request, and the body of its answer arrives in pieces."""
    return Fault(f"slowly-{seconds:g}s", answer=Slowly(seconds))


def _described(status: Status) -> str:
    hint = "" if status.retry_after is None else f"-retry-after-{status.retry_after}"
    return f"{status.code}{hint}{'-html' if status.html else ''}{f'-{status.name}' if status.name else ''}"


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

RARER_COMMIT_FAULTS: tuple[Fault, ...] = (
    refused(429),
    refused(429, retry_after=1),
    refused(429, html=True),
    applied_then(429),
    applied_then(429, retry_after=1, html=True),
    slow(3.0),
    slowly(1.0),
    applied_late(429, after=0.5, html=False),
)
"""Faults of a commit that clients wait out, which takes time: limits of requests, and answers that are slow."""

RARER_LOAD_FAULTS: tuple[Fault, ...] = (
    refused(429),
    refused(429, retry_after=1),
    refused(504),
    refused(504, html=True),
    applied_then_cut_off(Cut.TRUNCATED),
)
"""Faults of reading a table's metadata, likewise; and answers that break off."""

COMMIT_FAULTS: tuple[Fault, ...] = APPLIED_FAULTS + REFUSED_FAULTS + LATE_FAULTS
"""Every fault of a commit, for tests that go through them all."""
