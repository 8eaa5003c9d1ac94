"""How many rows transforms take away and bring, counted while they pass."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, functions

from frazil.columns.counting import Counted
from frazil.model.commit import RowCounts
from frazil.write.modes.row_state import is_extra

Watch = Callable[[DataFrame, Column | None], DataFrame]
"""Called with the rows before their number changes, and which of them go no further; None when all others stay one row each."""


def unwatched(frame: DataFrame, _gone: Column | None) -> DataFrame:
    """Where nobody asks for the numbers."""
    return frame


class Tally:
    """The numbers of one passage through the transforms; known when the rows have been written.

    Rows that are additional to the main row of their record are not counted: the numbers are those of records.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[Counted, bool]] = []

    def watch(self, frame: DataFrame, gone: Column | None) -> DataFrame:
        """Counts the rows that reach this point, and those of them that are left out here."""
        main = ~is_extra(frame)
        counts = [functions.count_if(main).alias("rows")]
        if gone is not None:
            counts.append(functions.count_if(main & gone).alias("gone"))
        seen = Counted(frame, *counts)
        self._steps.append((seen, gone is not None))
        return seen.frame

    def of(self, out: int) -> RowCounts:
        """What must be added to the counts of so many rows that came out, so that they begin with those that went in."""
        came, filtered, extra = out, 0, 0
        for seen, brings_rows in reversed(self._steps):
            after, found = came, seen.get()
            came = int(found["rows"])
            gone = int(found["gone"]) if brings_rows else came - after
            filtered += gone
            extra += after - (came - gone)
        return RowCounts(read=came - out, written=0, filtered=filtered, extra=extra)
