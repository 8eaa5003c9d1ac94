"""Expressions of views, as sqlglot reads them: what no view can compute is refused where it stands, before Spark sees it.

What sqlglot cannot read is left to Spark, which says what is wrong with it when the sink starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp, parse_one

from frazil.doors.sql.tokens import Mark, Script, between_commas, closing

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_LENGTH = re.compile(r"\s*(?:interval\s+)?((?:[-+]?\d+\s+[a-z]+\s*)+)", re.IGNORECASE)
_PART = re.compile(r"([-+]?\d+)\s+([a-z]+)", re.IGNORECASE)


def parsed(text: str) -> exp.Expr | None:
    """The tree of an expression; None when it cannot be read."""
    try:
        return parse_one(text, dialect="spark")
    except Exception:  # noqa: BLE001 - sqlglot fails in many ways on calls with too few arguments; Spark says what is wrong
        return None


def calls(tree: exp.Expr, text: str) -> Iterator[tuple[str, int]]:
    """The functions that an expression calls by name, in small letters, and where in its text each name begins."""
    for node in tree.find_all(exp.Func):
        if "start" in node.meta:
            begin = node.meta["start"]
            yield text[begin : node.meta["end"] + 1].strip("`").lower(), begin


def without_windows(text: str) -> str:
    """The text with the windows of time that rows are in computed from their times.

    Spark's own `window` leaves out rows that have no time, and with them records that could not be read.
    """
    tree = parsed(text)
    places = [] if tree is None else [at for name, at in calls(tree, text) if name == "window"]
    # From the end on, so that the places before stay what they are.
    for at in sorted(places, reverse=True):
        tokens = [token for token in Script(text).tokens(at, spark=True) if token.mark is not Mark.END]
        end = closing(tokens)
        made = _window([text[part[0].start : part[-1].end] for part in between_commas(tokens[2:end]) if part])
        if made is not None:
            text = text[:at] + made + text[tokens[end].end :]
    return text


def window_problem(text: str) -> str:
    """Why a call of `window` cannot be computed for each row by itself; empty when it can."""
    tokens = [token for token in Script(text).tokens(spark=True) if token.mark is not Mark.END]
    given = [text[part[0].start : part[-1].end] for part in between_commas(tokens[2 : closing(tokens)]) if part]
    if _window(given) is not None:
        return ""
    if len(given) > 2 and _micros(given[1]) and _micros(given[2]) not in (None, _micros(given[1])):
        return "windows that overlap have a row in several of them, and a view makes one row of each row"
    return "the length of a window is a text such as '15 minutes', in weeks, days, hours, minutes or seconds"


def _window(given: list[str]) -> str | None:
    """The start and the end of the window that a time is in, as a struct; null for no time."""
    lengths = [_micros(one) for one in given[1:]]
    if (
        not 2 <= len(given) <= 4
        or None in lengths
        or not lengths[0]
        or lengths[0] < 0
        or (len(lengths) > 1 and lengths[0] != lengths[1])
    ):
        return None
    time, length, first = f"({given[0]})", lengths[0], lengths[2] if len(lengths) > 2 else 0
    since = f"pmod(unix_micros(CAST({time} AS timestamp)) - {first}L, {length}L)"
    # Of a text, as of a time with or without a zone, this makes what Spark's own window does.
    start, end = (f"timestampadd(MICROSECOND, {far}, {time})" for far in (f"-{since}", f"{length}L - {since}"))
    return f"named_struct('start', {start}, 'end', {end})"


def _micros(text: str) -> int | None:
    """The length of a time that is a text, in microseconds; None when it is none, or has no fixed length."""
    quoted = re.fullmatch(r"\s*(?:interval\s+)?(['\"])(.*)\1\s*", text, re.DOTALL | re.IGNORECASE)
    found = _LENGTH.fullmatch(quoted[2] if quoted else text)
    if found is None:
        return None
    units = [(int(number), unit.lower().removesuffix("s")) for number, unit in _PART.findall(found[1])]
    return sum(number * _UNITS[unit] for number, unit in units) if all(unit in _UNITS for _, unit in units) else None
