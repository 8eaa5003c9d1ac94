"""Expressions of Spark SQL that users write: checked against the columns, and refused at their place in the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions

from frazil.columns.schema import data_columns, quoted
from frazil.errors import ConfigError
from frazil.model.transform import RowTransform, Way
from frazil.spark.lineage import changes_rows
from frazil.write.shape.paths import refusal

T = TypeVar("T")

Named = tuple[str, Way]
"""An expression, and where in its transform it stands."""

PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
"""Where Spark stopped understanding a text: its line, from 1, and the character in it, from 0."""

_UNKNOWN_NAME = ("UNRESOLVED_COLUMN", "FIELD_NOT_FOUND")
_OTHER_ROWS = ("MISSING_GROUP_BY", "MISSING_AGGREGATION", "UNSUPPORTED_GENERATOR", "UNSUPPORTED_EXPR_FOR_OPERATOR")
_EACH_ROW = (
    "An expression is computed for each row by itself: unnest makes a row of each element of a list, and date_trunc('hour', at) "
    "tells the hour of a time."
)

# What has passed for columns of these types: the same expressions meet the same columns batch after batch.
_passed: set[tuple[tuple[str, ...], str]] = set()


def require_sound(frame: DataFrame, transform: RowTransform, expressions: Sequence[Named]) -> None:
    """Refuses what Spark does not understand, and what would make other rows than there are."""
    key = (tuple(text for text, _ in expressions), frame.schema.simpleString())
    if key in _passed:
        return
    # Within a struct and beside a column, neither a sum over rows nor several rows of one have a meaning for Spark.
    beside = functions.col(quoted(frame.columns[0]))
    for text, way in expressions:
        understood(lambda text=text: frame.select(beside, functions.struct(functions.expr(text))), frame, transform, way, text)  # type: ignore[misc]
        if changes_rows(frame, [functions.expr(text)]):
            words = f"the expression {text!r} leaves rows out, or makes several of one"
            raise refusal(transform, way, words, code="transform-expression", fix=_EACH_ROW)
    _passed.add(key)


def understood(make: Callable[[], T], frame: DataFrame, transform: RowTransform, way: Way, text: str) -> T:
    """What Spark makes of an expression; a ConfigError when it cannot."""
    try:
        return make()
    except PySparkException as error:
        raise _refused(error, frame, transform, way, text) from error


def _refused(error: PySparkException, frame: DataFrame, transform: RowTransform, way: Way, text: str) -> ConfigError:
    condition = error.getCondition() or ""
    fix = ""
    if condition.startswith(_UNKNOWN_NAME):
        name = (error.getMessageParameters() or {}).get("objectName") or (error.getMessageParameters() or {}).get("fieldName", "")
        words = f"there is no {name} for the expression {text!r}"
        fix = f"Columns: {', '.join(data_columns(frame))}."
    elif condition.startswith(_OTHER_ROWS):
        words = f"the expression {text!r} makes one row of several, or several of one"
        fix = _EACH_ROW
    else:
        words = f"the expression {text!r} cannot be understood: {spark_words(error)}"
    return refusal(transform, way, words, code="transform-expression", fix=fix)


def spark_words(error: PySparkException) -> str:
    """What Spark says about an expression or a query, without its code, the place, and the plan."""
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    first = first.partition("] ")[2] if first.startswith("[") else first
    return PLACE.sub("", first.partition(" SQLSTATE: ")[0].partition("; line ")[0]).strip().rstrip(".;")
