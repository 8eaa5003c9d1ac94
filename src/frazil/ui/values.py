"""The smallest parts of what a page shows: values that may not be known, times, errors and states. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from frazil.errors import FrazilError
from frazil.model.words import ago, iso, size

NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Value:
    """A value in words. ``title`` says more about it, or why it is not known."""

    text: str
    title: str = ""
    known: bool = True


def unknown(why: str) -> Value:
    """A value that nobody here knows, and why: it is never shown as 0."""
    return Value(NOT_KNOWN, why, known=False)


@dataclass(frozen=True)
class When:
    """A moment: how long ago, and the time itself."""

    text: str
    iso: str


def when(at_ms: int | None, now_ms: int) -> When | None:
    """A moment seen from now; None where there is none."""
    if not at_ms:
        return None
    return When(ago(max(0, now_ms - at_ms) / 1000), iso(at_ms) or "")


@dataclass(frozen=True)
class Problem:
    """An error in its parts."""

    code: str
    message: str
    fix: str


def problem(error: FrazilError | None) -> Problem | None:
    """An error as pages show it."""
    return None if error is None else Problem(error.code, error.message, error.fix)


class Tone(StrEnum):
    """What a state means to whoever looks at it. Each has a shape of its own, so that nobody needs to tell colours apart."""

    BAD = "bad"
    WARN = "warn"
    WAIT = "wait"
    GOOD = "good"
    OFF = "off"


@dataclass(frozen=True)
class State:
    """How a pipeline is, in one word, and why."""

    word: str
    tone: Tone
    why: str = ""


def rate(amount: float, unit: str = "") -> str:
    """A number a second: `0`, `0.4`, `12`, `48,200`."""
    shown = f"{amount:,.1f}" if 0 < amount < 10 else f"{amount:,.0f}"
    return f"{shown}{unit}"


def bytes_rate(amount: float) -> str:
    """Bytes a second."""
    return f"{size(round(amount))}/s"


def seconds(amount: float) -> str:
    """A duration: `35 ms`, `1.4 s`, `48 s`, `3.5 min`, `2.0 h`."""
    if amount < 1:
        return f"{amount * 1000:.0f} ms"
    if amount < 120:
        return f"{amount:.1f} s" if amount < 10 else f"{amount:.0f} s"
    return f"{amount / 60:.1f} min" if amount < 7200 else f"{amount / 3600:.1f} h"
