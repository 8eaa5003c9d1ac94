"""Rows are added; nothing that is there changes. Of changes, a delete adds nothing unless the table keeps what rows did.

Delivery: every row of a batch once. Rows are not compared: two that are alike in the source are two in the table. Unit of
parallelism: a task of the data frame, which writes its rows; the files fit whatever others commit meanwhile.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from frazil.iceberg import Append, Change
from frazil.write.fit import Fit
from frazil.write.modes.plain import PlainRows
from frazil.write.modes.table_context import TableContext, Written


def append(context: TableContext, frame: DataFrame, fit: Fit) -> Written:
    """Stages the rows of an append."""
    base = context.table.base
    plain = PlainRows(frame, context.sink)
    staged = context.write_files(fit.rows(plain.frame), fit.evolution)
    return Written(Change(Append(staged), base, fit.evolution), plain.counts(staged.rows))
