"""Rows are added; nothing that is there changes. Of changes, a delete adds nothing unless the table keeps what rows did."""

from __future__ import annotations

from pyspark.sql import DataFrame, functions

from frazil.engine.counting import Counted
from frazil.engine.fit import Fit
from frazil.engine.iceberg import Append, Change
from frazil.engine.write.ground import Ground, Written
from frazil.engine.write.rows import IGNORE, is_extra
from frazil.model.commit import RowCounts
from frazil.model.hidden import DELETE, OP


def append(ground: Ground, frame: DataFrame, fit: Fit) -> Written:
    """Stages the rows of an append."""
    base = ground.table.base
    if OP in frame.columns:
        return _append_changes(ground, frame, fit)
    staged = ground.stage(fit.rows(frame), fit.evolution)
    return Written(Change(Append(staged), base, fit.evolution), RowCounts(read=staged.rows, written=staged.rows))


def _append_changes(ground: Ground, frame: DataFrame, fit: Fit) -> Written:
    base = ground.table.base
    extra = is_extra(frame)
    wanted = ~functions.col(OP).isin([IGNORE] if ground.sink.keeps_deletes else [IGNORE, DELETE])
    seen = Counted(frame, functions.count_if(~extra).alias("records"), functions.count_if(extra & wanted).alias("extra"))
    staged = ground.stage(fit.rows(seen.frame.where(wanted)), fit.evolution)
    told = seen.get()
    records, more = int(told["records"]), int(told["extra"])
    counts = RowCounts(read=records, written=staged.rows, filtered=records + more - staged.rows, extra=more)
    return Written(Change(Append(staged), base, fit.evolution), counts)
