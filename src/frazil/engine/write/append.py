"""Rows are added; nothing that is there changes. Of changes, a delete adds nothing unless the table keeps what rows did."""

from __future__ import annotations

from pyspark.sql import DataFrame

from frazil.engine.fit import Fit
from frazil.engine.iceberg import Append, Change
from frazil.engine.write.ground import Ground, Written
from frazil.engine.write.plain import PlainRows


def append(ground: Ground, frame: DataFrame, fit: Fit) -> Written:
    """Stages the rows of an append."""
    base = ground.table.base
    plain = PlainRows(frame, ground.sink)
    staged = ground.stage(fit.rows(plain.frame), fit.evolution)
    return Written(Change(Append(staged), base, fit.evolution), plain.counts(staged.rows))
