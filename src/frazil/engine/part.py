"""A part of a source on its way into a table."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.model.commit import Position

SINGLE_WRITES = "python"
"""The source of data frames that are written one by one: nothing repeats one that was cut off."""


@dataclass(frozen=True)
class Part:
    """The part of a source that a data frame holds. ``lead``: the batch's number at home, for a table that follows another.

    ``named``: a user has named it, and may give it again.
    """

    source: str
    start: Position | None
    end: Position
    rows: int | None = None
    lead: int | None = None
    named: bool = False
