"""The rows of a batch that do not meet what is expected of them: which they are, how many, and what an error says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, functions

from frazil.columns.fixed_time import at_one_time
from frazil.columns.schema import data_columns, error_of
from frazil.errors import ConfigError, DataError
from frazil.model.expectation import Expectation, OnFail
from frazil.model.hidden import AT, DELETE, ERROR, ERROR_TYPE, HIDDEN, IGNORE, OP
from frazil.spark.failing import attempted, cannot_fail
from frazil.spark.predicates import columns_used, impurity
from frazil.write.modes.row_state import with_error
from frazil.write.shape.expressions import spark_words

_UNMET = f"{HIDDEN}unmet_"


@dataclass(frozen=True)
class Expected:
    """The expectations of a sink for one batch: the current time in their conditions is fixed, as rows may be read twice."""

    conditions: tuple[tuple[Expectation, str], ...]

    @classmethod
    def now(cls, expectations: Sequence[Expectation], frame: DataFrame) -> Expected:
        """What is expected of the rows of a frame, which must have the columns that the conditions name."""
        session = frame.sparkSession
        fixed = tuple((one, at_one_time(session, one.sql, f"expect {one.name!r}")) for one in expectations)
        return cls(fixed)

    def require_sound(self, frame: DataFrame) -> None:
        """Refuses conditions that Spark does not understand, or that depend on more than the row."""
        for one, condition in self.conditions:
            try:
                why = impurity(frame.where(functions.expr(condition)))
            except PySparkException as error:
                words = f"expect {one.name!r}: the condition {one.sql!r} cannot be used: {spark_words(error)}."
                raise ConfigError("expectation-wrong", words, fix=f"Columns: {', '.join(data_columns(frame))}.") from error
            if why is not None:
                raise ConfigError(
                    "expectation-wrong",
                    f"expect {one.name!r}: the condition {one.sql!r} says more than whether a row is as it should be: {why}.",
                    fix="A condition looks at one row. What is between rows is checked by publish, before main gets it.",
                )

    def applied(self, frame: DataFrame) -> DataFrame:
        """The frame with a hidden column for each expectation, and the error of rows that become dead letters."""
        if not self.conditions:
            return frame
        if ERROR not in frame.columns:
            frame = frame.withColumn(ERROR, functions.lit(None).cast(ERROR_TYPE))
        looked_at = functions.col(ERROR).isNull()
        if OP in frame.columns:
            looked_at &= ~functions.coalesce(functions.col(OP).isin(DELETE, IGNORE), functions.lit(False))
        unmet = {
            f"{_UNMET}{number}": looked_at & ~functions.coalesce(_holds(frame, condition), functions.lit(False))
            for number, (_, condition) in enumerate(self.conditions)
        }
        made = frame.withColumns(unmet)
        for name, (one, _) in zip(unmet, self.conditions, strict=True):
            if one.on_fail is OnFail.DEAD_LETTER:
                text = functions.lit(f"the row does not meet the expectation {one.name!r}: {one.sql}")
                made = with_error(made, functions.when(functions.col(name), error_of("expect", "expectation-failed", text)))
        return made

    @property
    def counts(self) -> list[Column]:
        """How many rows do not meet each."""
        return [functions.count_if(functions.col(name)).alias(name) for name in self._names]

    @property
    def _names(self) -> list[str]:
        return [f"{_UNMET}{number}" for number in range(len(self.conditions))]

    def without_marks(self, frame: DataFrame) -> DataFrame:
        """The frame without what :meth:`applied` has added, but for errors."""
        return frame.drop(*self._names)

    def found(self, counted: Row) -> tuple[tuple[str, int], ...]:
        """By the names of expectations, how many rows did not meet them, where any did not."""
        numbers = {one.name: int(counted[name]) for name, (one, _) in zip(self._names, self.conditions, strict=True)}
        return tuple((name, number) for name, number in numbers.items() if number)

    def require_met(self, applied: DataFrame, counted: Row, table: str) -> None:
        """Stops if rows do not meet what must not be written otherwise. ``applied``: the rows that were counted."""
        for name, (one, condition) in zip(self._names, self.conditions, strict=True):
            if one.on_fail is OnFail.STOP and (count := int(counted[name])):
                rows = applied.where(functions.col(name))
                raise DataError(
                    "expectation-failed",
                    f"{table}: {count:,} {'row does' if count == 1 else 'rows do'} not meet the expectation {one.name!r}: "
                    f"{one.sql}.{_example(rows, condition)} Nothing of the batch was written.",
                    fix="Mend the source or the condition. on_fail: dead_letter keeps such rows apart, and on_fail: warn writes "
                    "them.",
                )


def _holds(frame: DataFrame, condition: str) -> Column:
    """Whether a condition holds; null where it cannot be computed, as by a division by zero."""
    value = functions.expr(condition)
    if cannot_fail(frame, value):
        return value
    try:
        return attempted(frame.sparkSession, value)["value"]
    except PySparkException:
        return value  # a function of Python, which only Spark calls by itself


def _example(rows: DataFrame, condition: str) -> str:
    used = columns_used(rows.where(functions.expr(condition)))
    hidden = [AT] if AT in rows.columns else []
    first = rows.select(*[functions.col(f"`{name}`") for name in used], *hidden).first()
    if first is None:
        return ""
    values: Mapping[str, Any] = first.asDict()
    shown = ", ".join(f"{name} = {values[name]!r}" for name in used)
    place = f", in the record at {values[AT]}" if hidden and values[AT] else ""
    return f" The first: {shown}{place}."
