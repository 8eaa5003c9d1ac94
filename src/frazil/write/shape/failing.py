"""Expressions that fail for a value, if bad rows are kept apart: the row is bad, and the others are written.

A division by zero, or a text that is to be a number and is none, would otherwise stop the batch, and every later run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, functions

from frazil.columns.schema import error_of
from frazil.model.dead_letters import OnError
from frazil.model.hidden import DELETE, HIDDEN, IGNORE, OP
from frazil.model.sink import SinkSpec
from frazil.spark.failing import attempted
from frazil.write.modes.row_state import with_error

_TRIED = f"{HIDDEN}tried"


def keeps_apart(sink: SinkSpec) -> bool:
    """Whether a row for which an expression fails is a bad row of this sink, instead of the end of its batch."""
    return sink.error_handling is not OnError.STOP


def tried(frame: DataFrame, values: Sequence[tuple[str, Column]], stage: str = "transform") -> tuple[DataFrame, list[Column]]:
    """The frame with an error in the rows for which one of the values, each with its text, cannot be computed; and the values.

    They are columns of this frame alone, until :func:`done`. The row of a delete may lack what its expressions need.
    """
    if not values:
        return frame, []
    numbered = {f"{_TRIED}{number}": value for number, (_, value) in enumerate(values)}
    try:
        made = frame.withColumns({name: attempted(frame.sparkSession, value) for name, value in numbered.items()})
    except PySparkException:
        return frame, [value for _, value in values]  # functions of Python, for example, which only Spark calls by itself
    failed = reduce(
        lambda found, one: found.when(functions.col(one[0]).isNull(), functions.lit(_words(one[1]))),
        zip(numbered, (text for text, _ in values), strict=True),
        functions.when(functions.lit(False), ""),
    )
    acts = ~functions.col(OP).isin(DELETE, IGNORE) if OP in frame.columns else functions.lit(True)
    made = with_error(made, functions.when(acts & failed.isNotNull(), error_of(stage, "expression-failed", failed)))
    return made, [functions.col(name)["value"] for name in numbered]


def _words(text: str) -> str:
    return f"{text} cannot be computed with the values of this record"


def done(frame: DataFrame) -> DataFrame:
    """The frame without what :func:`tried` has added to it."""
    return frame.drop(*[name for name in frame.columns if name.startswith(_TRIED)])
