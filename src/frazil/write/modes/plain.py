"""Changes whose rows are appended as they come, except for those without a row, and deletes."""

from __future__ import annotations

from pyspark.sql import DataFrame, functions

from frazil.columns.counting import Counted
from frazil.model.commit import RowCounts
from frazil.model.hidden import DELETE, IGNORE, OP
from frazil.model.sink import SinkSpec
from frazil.write.modes.row_state import is_extra


def unwritten(sink: SinkSpec) -> tuple[str, ...]:
    """The operations whose rows are not among those of a table that rows are written into as they come."""
    return (IGNORE,) if sink.keeps_deletes else (IGNORE, DELETE)


class PlainRows:
    """The rows of a batch without those that are not written, and what becomes of all of them."""

    def __init__(self, frame: DataFrame, sink: SinkSpec) -> None:
        self.frame = frame
        self._seen: Counted | None = None
        if OP in frame.columns:
            extra, wanted = is_extra(frame), ~functions.col(OP).isin(*unwritten(sink))
            counts = functions.count_if(~extra).alias("records"), functions.count_if(extra & wanted).alias("extra")
            self._seen = Counted(frame, *counts)
            self.frame = self._seen.frame.where(wanted)

    def counts(self, written: int) -> RowCounts:
        """The counts, when so many were written."""
        if self._seen is None:
            return RowCounts(read=written, written=written)
        row = self._seen.get()
        records, extra = int(row["records"]), int(row["extra"])
        return RowCounts(read=records, written=written, filtered=records + extra - written, extra=extra)
