"""How many snapshots of a table become one batch."""

from __future__ import annotations

from collections.abc import Sequence


def taken(rows: Sequence[int], limit: int) -> int:
    """How many snapshots, which have so many rows each, are read together: at least one, and else none above the limit."""
    total = 0
    for number, more in enumerate(rows):
        total += more
        if number and total > limit:
            return number
    return len(rows)


def first_change(rows: Sequence[int]) -> int:
    """How many snapshots, which change so many rows each, there are up to the first that changes any; all if none does."""
    return next((number for number, changed in enumerate(rows, 1) if changed), len(rows))
