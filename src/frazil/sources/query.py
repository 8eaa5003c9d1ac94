"""The result of a Spark SQL query: what is above a cursor, or all of it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark_types

from frazil.columns.schema import require_data
from frazil.errors import ConfigError, DataError, FrazilError, Halted
from frazil.model.commit import Position, position
from frazil.model.source import QuerySource
from frazil.sources.base import Slice
from frazil.sources.failures import asking_spark, one_line, whole_text
from frazil.sources.positions import fields_of, unknown_position

READ_ALL = position({"read": "all"})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ORDERED = (
    spark_types.IntegralType,
    spark_types.DecimalType,
    spark_types.FloatType,
    spark_types.DoubleType,
    spark_types.DateType,
    spark_types.TimestampType,
    spark_types.TimestampNTZType,
    spark_types.StringType,
)


@dataclass(frozen=True)
class Cursor:
    """A value of the cursor column, exact as text. A time with a zone is written in UTC."""

    type: str
    value: str

    def to_position(self) -> Position:
        """The value as stored in the ledger."""
        return position({"cursor": {"type": self.type, "value": self.value}})

    @classmethod
    def from_position(cls, text: Position) -> Cursor:
        """Reads the ledger."""
        raw = fields_of(text, "a query with a cursor").get("cursor")
        if not isinstance(raw, dict):
            raise unknown_position(text, "a query with a cursor")
        return cls(raw["type"], raw["value"])

    def literal(self) -> Column:
        """The value for a comparison in Spark."""
        if self.type == "timestamp":
            return sf.timestamp_micros(sf.lit((datetime.fromisoformat(self.value) - _EPOCH) // timedelta(microseconds=1)))
        return sf.lit(self.value).cast(self.type)


def _as_text(column: Column, kind: spark_types.DataType) -> Column:
    """A column as text, exact: a time with a zone as its microseconds, whatever the session's zone."""
    return (sf.unix_micros(column) if isinstance(kind, spark_types.TimestampType) else column).cast("string")


def _cursor(text: str, kind: spark_types.DataType) -> Cursor:
    if isinstance(kind, spark_types.TimestampType):
        return Cursor("timestamp", (_EPOCH + timedelta(microseconds=int(text))).isoformat())
    return Cursor(kind.simpleString(), text)


class Query:
    """The rows of a query.

    Delivery: with a cursor, rows whose value lies above the last one and not above the highest at planning; it is up to the
    query that rows do not appear or change below a value already read. Without, the result is read once, or once a run.
    Parallelism: the query's own.
    """

    poll_seconds = 5.0

    def __init__(self, spec: QuerySource, spark: SparkSession) -> None:
        self._spec = spec
        self._spark = spark
        self._run_before: int | None = None

    @property
    def fingerprint(self) -> str:
        """The query's text, white space aside, and the cursor."""
        text = json.dumps([" ".join(self._spec.query.split()), self._spec.cursor, self._spec.every_run])
        return f"query:{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        """The rows above the cursor's last value, the smallest first when there are more than ``limit``; or the whole result."""
        if self._spec.cursor is not None:
            return self._plan_above(start, limit)
        if self.finished(start):
            return None
        if not self._spec.every_run:
            return Slice(start, READ_ALL, None)
        if self._run_before is None:
            self.run_began(start)
        return Slice(start, position({"run": _run_of(start) + 1}), None)

    def run_began(self, position: Position | None) -> None:
        """A result after this position is of this run."""
        self._run_before = _run_of(position)

    def _plan_above(self, start: Position | None, limit: int) -> Slice | None:
        column, kind = self._cursor_column()
        rows = self._above(start, column, kind)
        nulls, count, highest = self._measure(rows, column, kind)
        if nulls:
            raise DataError(
                "cursor-null",
                f"{nulls} rows of the query have no value in the cursor column {self._spec.cursor!r}.",
                fix=f"Leave them out (WHERE {self._spec.cursor} IS NOT NULL) or give them a value in the query.",
            )
        if highest is None:
            return None
        if count > limit:
            _, _, highest = self._measure(rows.orderBy(column).limit(limit), column, kind)
        if highest is None or highest == "NaN":
            raise DataError("cursor-nan", f"The cursor column {self._spec.cursor!r} holds NaN, which has no order.")
        return Slice(start, _cursor(highest, kind).to_position(), min(count, limit), full=count > limit)

    def _measure(self, rows: DataFrame, column: Column, kind: spark_types.DataType) -> tuple[int, int, str | None]:
        """How many rows have no cursor, how many have one, and the highest of them as text."""
        highest = _as_text(sf.max(column), kind)
        counts = (sf.count_if(column.isNull()).alias("n"), sf.count(column).alias("c"), highest.alias("h"))
        with asking_spark("The query's result", self.explain):
            row = rows.agg(*counts).collect()[0]
        return row.n, row.c, row.h

    def _above(self, start: Position | None, column: Column, kind: spark_types.DataType) -> DataFrame:
        """The rows not read yet. Those without a cursor stay in, to be noticed."""
        rows = self._rows()
        if start is None:
            return rows
        last = Cursor.from_position(start)
        if last.type != kind.simpleString():
            raise Halted(
                "cursor-type-changed",
                f"The cursor column {self._spec.cursor!r} was {last.type} and is {kind.simpleString()} now.",
                fix="Cast it to its former type in the query, or start again with a new sink id.",
            )
        return rows.where(column.isNull() | (column > last.literal()))

    def _cursor_column(self) -> tuple[Column, spark_types.DataType]:
        schema = self._rows().schema
        name = self._spec.cursor or ""
        if name not in schema.names:
            raise ConfigError(
                "cursor-missing",
                f"The query's result has no column {name!r}; it has {', '.join(schema.names)}.",
                fix="Name one of its columns as the cursor.",
            )
        kind = schema[name].dataType
        if not isinstance(kind, _ORDERED):
            raise ConfigError(
                "cursor-type",
                f"The cursor column {name!r} has type {kind.simpleString()}.",
                fix="Use a number, a date, a timestamp or a string that only grows.",
            )
        return sf.col("`" + name.replace("`", "``") + "`"), kind

    def between(self, start: Position | None, end: Position) -> Slice:
        """The rows between two values of the cursor, or the result of that run."""
        if self._run_before is None:
            self.run_began(start)
        return Slice(start, end, None)

    def finished(self, position: Position | None) -> bool:
        """Without a cursor: when the result was read, by this run where each run reads it."""
        if self._spec.cursor is not None:
            return False
        if self._spec.every_run:
            return self._run_before is not None and _run_of(position) > self._run_before
        return position == READ_ALL

    def total_rows(self, start: Position | None) -> int | None:
        """Counted with a cursor, where planning counts anyway."""
        if self._spec.cursor is None:
            return 0 if self.finished(start) else None
        column, kind = self._cursor_column()
        return self._measure(self._above(start, column, kind), column, kind)[1]

    def read(self, part: Slice) -> DataFrame:
        """The rows of a slice."""
        if self._spec.cursor is None:
            return self._rows()
        column, kind = self._cursor_column()
        return self._above(part.start, column, kind).where(column <= Cursor.from_position(part.end).literal())

    def observed(self, part: Slice, rows: int) -> None:
        """Nothing to learn: the rows were counted."""

    def committed(self, position: Position) -> None:
        """Nothing is kept for this reader alone."""

    def explain(self, error: Exception) -> FrazilError | None:
        """What failed in the query's own expressions, which Spark marks as SQL."""
        if "== SQL" not in whole_text(error):
            return None
        return DataError("query-failed", f"The query failed: {one_line(error)}", fix="Correct the query or the data it reads.")

    def close(self) -> None:
        """Nothing is held open."""

    def check(self) -> None:
        """The query must be one, and have the cursor."""
        if self._spec.cursor is not None:
            self._cursor_column()
        else:
            self._rows()

    def _rows(self) -> DataFrame:
        """As a subquery, so that a statement that changes something is refused instead of run."""
        with asking_spark("What the query reads", self._explain_analysis):
            rows = self._spark.sql(f"SELECT * FROM (\n{self._spec.query.strip().rstrip(';')}\n)")
        require_data(rows.columns, "The query")
        return rows

    def _explain_analysis(self, error: Exception) -> FrazilError | None:
        if not isinstance(error, AnalysisException):
            return None
        # The query begins on the second line of what Spark was given.
        message = re.sub(r"\bline (\d+)", lambda line: f"line {int(line[1]) - 1}", one_line(error))
        return ConfigError("query-invalid", f"The query cannot be run: {message}", fix="Correct the source's query.")


def _run_of(start: Position | None) -> int:
    return 0 if start is None else int(fields_of(start, "a query").get("run", 0))
