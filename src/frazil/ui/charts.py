"""What charts are drawn from: points for the browser, and a small line that needs no script. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from frazil.model.words import several
from frazil.ui.history import Pace
from frazil.ui.values import bytes_rate, rate, seconds

WIDTH, HEIGHT = 96, 20
MOST_IN_SPARK, MOST_POINTS = 40, 400


@dataclass(frozen=True)
class Spark:
    """A small line: the path of it, and the same in words."""

    path: str
    text: str


@dataclass(frozen=True)
class Chart:
    """One quantity over time. ``points`` is JSON: times in seconds, and values; ``text`` says the same in words."""

    title: str
    unit: str
    points: str
    text: str


def spark_of(paces: Sequence[Pace]) -> Spark | None:
    """The rows a second of the last commits; None if there are too few for a line."""
    known = [(one.at_ms, one.rows) for one in paces[-MOST_IN_SPARK:] if one.rows is not None]
    if len(known) < 2 or known[0][0] == known[-1][0]:
        return None
    begin, end = known[0][0], known[-1][0]
    highest = max(value for _, value in known) or 1.0

    def place(at: int, value: float) -> str:
        return f"{(at - begin) / (end - begin) * WIDTH:.1f} {HEIGHT - 1 - value / highest * (HEIGHT - 2):.1f}"

    path = "M" + "L".join(place(at, value) for at, value in known)
    return Spark(path, f"between {rate(min(v for _, v in known))} and {rate(highest)} rows/s in the last {len(known)} commits")


def charts_of(paces: Sequence[Pace]) -> tuple[Chart, ...]:
    """The charts of a pipeline, without those of which nothing is known."""
    kinds = (
        ("Rows per second", "rows", rate, [(one.at_ms, one.rows) for one in paces]),
        ("Bytes per second", "bytes", bytes_rate, [(one.at_ms, one.bytes) for one in paces]),
        ("Time of a commit", "seconds", seconds, [(one.at_ms, one.seconds) for one in paces]),
    )
    found = []
    for title, unit, words, values in kinds:
        known = [(at, value) for at, value in values if value is not None][-MOST_POINTS:]
        if len(known) < 2:
            continue
        amounts = [value for _, value in known]
        points = json.dumps([[round(at / 1000, 3) for at, _ in known], [round(value, 3) for value in amounts]])
        text = f"{title} in {several(len(known), 'commit')}: at least {words(min(amounts))}, at most {words(max(amounts))}, "
        found.append(Chart(title, unit, points, f"{text}lately {words(amounts[-1])}"))
    return tuple(found)
