"""Rows are added; nothing that is there changes."""

from __future__ import annotations

from pyspark.sql import DataFrame

from frazil.engine.iceberg import Append, Change
from frazil.engine.target import Fit
from frazil.engine.write.ground import Ground, Written
from frazil.model.commit import RowCounts


def append(ground: Ground, frame: DataFrame, fit: Fit) -> Written:
    """Stages the rows of an append."""
    base = ground.table.base
    staged = ground.stage(fit.applied(frame), fit.evolution)
    return Written(Change(Append(staged), base, fit.evolution), RowCounts(read=staged.rows, written=staged.rows))
