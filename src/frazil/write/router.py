"""Which rows of a batch go into which table: each has a value that decides, and a batch is read once to see them all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, functions

from frazil.columns.schema import data_columns, error_of, or_unread, quoted, with_place
from frazil.errors import ConfigError, DataError, FrazilError
from frazil.iceberg import fault_of
from frazil.iceberg.staging_faults import explain_staging
from frazil.model.commit import RowCounts
from frazil.model.dead_letters import OnError
from frazil.model.hidden import ERROR, HEADERS, HIDDEN, IGNORE, OP, ORIGIN
from frazil.model.route import RouteSpec, name_of
from frazil.model.sink import SinkSpec
from frazil.model.transform import TransformSpec
from frazil.spark.failing import cannot_fail
from frazil.write.deadletters import Rejected
from frazil.write.modes import is_extra
from frazil.write.shape import Tally, source_rows
from frazil.write.shape.failing import done, keeps_apart, tried
from frazil.write.stager import Explain

ROUTE = f"{HIDDEN}route"

# As many values as a person wants to see.
_SHOWN = 5
# As long as the name of a folder may be.
_NAME_BYTES = 255


@dataclass(frozen=True)
class RoutedValues:
    """The content of a batch: the rows of each value that has a table, by table, and the rows without a table.

    ``filled`` are the columns that have a value in one of the rows for a table. ``records`` are the main rows of their records,
    ``lost`` those of them that have no table.
    """

    tables: Mapping[str, dict[str, int]]
    filled: Mapping[str, frozenset[str]] = field(default_factory=dict)
    strays: Mapping[str | None, int] = field(default_factory=dict)
    broken: int = 0
    records: int = 0
    lost: int = 0
    ambiguous: frozenset[str] = frozenset()
    """Values that have no table yet and would share one with another value."""

    @property
    def misfits(self) -> int:
        """Rows that go into no table."""
        return sum(self.strays.values()) + self.broken

    @property
    def unrouted(self) -> RowCounts:
        """What becomes of the rows that go into no table."""
        return RowCounts(self.lost, 0, dead_lettered=self.misfits, extra=self.misfits - self.lost)


@dataclass(frozen=True)
class Piece:
    """A part of a batch whose rows have the same columns."""

    rows: DataFrame
    found: RoutedValues

    def of(self, table: str) -> DataFrame | None:
        """The rows for a table."""
        values = self.found.tables.get(table)
        if values is None:
            return None
        return self._of_a_table(functions.col(ROUTE).isin(*values))

    def none(self) -> DataFrame:
        """No rows, for a table that is to have none."""
        return self._of_a_table(functions.lit(False))

    def _of_a_table(self, condition: Column) -> DataFrame:
        return self.rows.where(condition).drop(ROUTE, *([ERROR] if ERROR in self.rows.columns else []))

    def unfilled(self, table: str) -> frozenset[str]:
        """The columns that are here for the rows of other tables: those for this one have nothing in them."""
        if len(self.found.tables) == 1:
            return frozenset()
        return frozenset(data_columns(self.rows)) - self.found.filled.get(table, frozenset())


@dataclass(frozen=True)
class Router:
    """Sorts the rows of a sink's batches by its route."""

    sink: SinkSpec
    route: RouteSpec
    transforms: tuple[TransformSpec, ...]
    seen: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The values that were met so far, by table."""

    def routed(self, frame: DataFrame, tally: Tally, *, proven: bool = False) -> DataFrame:
        """The rows as transforms leave them, each with the value that decides. ``proven``: there are tables with such rows."""
        frame = source_rows(frame, self.sink, self.transforms, tally, proven=proven)
        if OP in frame.columns:
            # What says nothing of a row is none of a table's, as a record that only lets Kafka forget a key.
            frame = tally.watch(frame, None).where(or_unread(frame, functions.col(OP) != IGNORE))
        value = _deciding(frame, self.route)
        if self.route.expression is not None and keeps_apart(self.sink) and not cannot_fail(frame, value):
            frame, (value,) = tried(frame, [(f"route: the expression {self.route.expression!r}", value)], "route")
        value = value.cast("string")
        frame = frame.withColumn(
            ROUTE, value if ERROR not in frame.columns else functions.when(functions.col(ERROR).isNull(), value)
        )
        if self.route.remove_field and self.route.field is not None:
            frame = _without(frame, self.route.field)
        return done(frame)

    def sorted(self, rows: DataFrame, explain: Explain) -> Piece:
        """Reads the rows, once. One that goes into no table stops the batch, unless such are kept as letters."""
        found = self._found(rows, explain)
        if found.misfits and self.sink.on_error is not OnError.DEAD_LETTER:
            raise self._refusal(rows, found)
        return Piece(rows, found)

    def misfits(self, piece: Piece) -> tuple[Rejected, ...]:
        """The rows that go into no table, with the reason."""
        rows, found = piece.rows, piece.found
        if not found.misfits:
            return ()
        lost = functions.col(ROUTE).isNull() | functions.col(ROUTE).isin(*[value for value in found.strays if value is not None])
        text = functions.concat(
            functions.lit(f"no table is known for the {self.route.decides}: "),
            functions.coalesce(functions.col(ROUTE), functions.lit("null")),
        )
        shared = functions.concat(
            functions.lit(f"rows of another value of the {self.route.decides} are in the table that this one leads to: "),
            functions.col(ROUTE),
        )
        stray = functions.when(functions.col(ROUTE).isin(*found.ambiguous), error_of("route", "route-ambiguous", shared)).when(
            lost, error_of("route", "route-unknown", text)
        )
        error = functions.coalesce(functions.col(ERROR), stray) if ERROR in rows.columns else stray
        return (Rejected(rows.withColumn(ERROR, error), "", found.misfits),)

    def _found(self, rows: DataFrame, explain: Explain) -> RoutedValues:
        unread = functions.col(ERROR).isNotNull() if ERROR in rows.columns else functions.lit(False)
        names = data_columns(rows)
        has = [functions.max(functions.col(quoted(name)).isNotNull()).alias(f"has{n}") for n, name in enumerate(names)]
        count = functions.count(functions.lit(1)).alias("count")
        records = functions.count_if(~is_extra(rows)).alias("records")
        by_value = rows.groupBy(functions.col(ROUTE).alias("value"), unread.alias("broken"))
        try:
            counted = by_value.agg(count, records, *has).collect()
        except FrazilError:
            raise
        except Exception as error:
            raise explain(error) or explain_staging(fault_of(error)) from error
        tables: dict[str, dict[str, int]] = defaultdict(dict)
        filled: dict[str, frozenset[str]] = defaultdict(frozenset)
        strays: dict[str | None, int] = {}
        lost = 0
        records_of: dict[str, int] = {}
        for row in counted:
            name = None if row["value"] is None else self._table_of(row["value"])
            if row["broken"] or name is None:
                lost += int(row["records"])
            if row["broken"]:
                continue
            if name is None:
                strays[row["value"]] = int(row["count"])
            else:
                table = f"{self.sink.namespace}.{name}"
                tables[table][row["value"]] = int(row["count"])
                records_of[row["value"]] = int(row["records"])
                filled[table] |= {column for n, column in enumerate(names) if row[f"has{n}"]}
        ambiguous = self._ambiguous(tables)
        strays.update(ambiguous)
        lost += sum(records_of[value] for value in ambiguous)
        broken = sum(int(row["count"]) for row in counted if row["broken"])
        whole = sum(int(row["records"]) for row in counted)
        return RoutedValues(tables, filled, strays, broken, whole, lost, frozenset(ambiguous))

    def _table_of(self, value: str) -> str | None:
        """The name of a value's table. No value leads to the tables that are the sink's own."""
        name = self.route.table_of(value)
        namespace, letters = self.sink.letters_name
        own = {self.route.ledger_table.lower(), *([letters.lower()] if namespace == self.sink.namespace else [])}
        return None if not name or name.lower() in own or not _may_be_a_table(name) else name

    def _ambiguous(self, tables: dict[str, dict[str, int]]) -> dict[str, int]:
        """Takes away values that share a table with another only because characters are replaced, with their numbers of rows.

        The value that came first keeps the table; in one batch it is the one with the most rows.
        """
        apart: dict[str, int] = {}
        for table, values in tables.items():
            listed = {value for value in values if value in self.route.tables}
            first = self.seen[table] or listed or {max(sorted(values), key=lambda value: values[value])}
            met = sorted({*self.seen[table], *values})
            ambiguous = len(met) > 1 and any(name_of(value) != value and value not in self.route.tables for value in met)
            if not ambiguous:
                self.seen[table].update(values)
                continue
            if self.sink.on_error is not OnError.DEAD_LETTER:
                shown = " and ".join(repr(value) for value in met[:_SHOWN])
                raise DataError(
                    "route-ambiguous",
                    f"By the {self.route.decides} rows of {shown} would go into one table, {table}: dots and slashes become "
                    "underscores.",
                    fix="Write all of these values into route.tables, each with its table, or with the same if that is meant.",
                )
            self.seen[table].update(value for value in values if value in first or value in listed)
            apart |= {value: rows for value, rows in values.items() if value not in self.seen[table]}
        for table, values in list(tables.items()):
            tables[table] = {value: rows for value, rows in values.items() if value not in apart}
            if not tables[table]:
                del tables[table]
        return apart

    def _refusal(self, rows: DataFrame, found: RoutedValues) -> DataError:
        if found.broken:
            error = functions.col(ERROR)
            text = with_place(error["text"], rows.columns)
            first = rows.where(error.isNotNull()).select(error["code"].alias("code"), text.alias("text")).first()
            assert first is not None, "it was counted"
            return DataError(
                first["code"],
                first["text"],
                fix="Correct the data, or set on_error: dead_letter to go on without such records.",
            )
        shown = ", ".join(repr(value) for value in list(found.strays)[:_SHOWN])
        return DataError(
            "route-unknown",
            f"{found.misfits} rows belong to no table: by the {self.route.decides} their values are {shown}.",
            fix="Add them to route.tables, or set on_error: dead_letter to go on without such rows.",
        )


def _may_be_a_table(name: str) -> bool:
    """Whether a folder and an entry of a catalog can have such a name."""
    return len(name.encode()) <= _NAME_BYTES and name.isprintable()


def _deciding(frame: DataFrame, route: RouteSpec) -> Column:
    """The value of a row that decides its table."""
    if route.expression is not None:
        return functions.expr(route.expression)
    if route.source:
        _require(ORIGIN in frame.columns, "source", "the source has only one kind of rows")
        return functions.col(ORIGIN)
    if route.header is not None:
        _require(HEADERS in frame.columns, "header", "the source has no headers")
        named = functions.filter(functions.col(HEADERS), lambda header: header["key"].eqNullSafe(route.header or ""))
        return functions.try_element_at(named, functions.lit(-1))["value"]
    path = route.field or ""
    whole = path in frame.columns
    known = ", ".join(data_columns(frame))
    _require(whole or path.partition(".")[0] in frame.columns, "field", f"there is no column {path!r}. Columns: {known}")
    return functions.col(quoted(path) if whole else path)


def _without(frame: DataFrame, path: str) -> DataFrame:
    """The frame without a column, or without a field of a struct."""
    if path in frame.columns:
        return frame.drop(path)
    column, _, field = path.partition(".")
    return frame.withColumn(column, functions.col(quoted(column)).dropFields(field))


def _require(there: bool, option: str, why: str) -> None:
    if not there:
        raise ConfigError("route-column", f"route.{option}: {why}")
