"""Declared columns: what was read from a message as the types that were declared, value by value, with nothing lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType as SparkStruct

from frazil.columns.alignment import alignment
from frazil.columns.types import iceberg_schema
from frazil.model.coercion import CoercionOptions
from frazil.model.hidden import HIDDEN
from frazil.model.sink import ColumnSpec
from frazil.model.types import Column as TableColumn
from frazil.model.types import ListType, MapType, StructType, parse_type
from frazil.sources.decode.parts import column, excerpt, fault, fault_of, field, packed

_ASIDE, _BEFORE, _READ, _WRONG = (f"{HIDDEN}{name}" for name in ("aside", "before", "read", "wrong"))
_NESTED = (StructType, ListType, MapType)


class Declared:
    """Columns with their types, and those that must have a value."""

    def __init__(self, columns: Sequence[ColumnSpec]) -> None:
        self.columns = tuple(TableColumn(one.name, parse_type(one.type)) for one in columns)
        self.required = tuple(one.name for one in columns if one.required)
        self._selections: dict[tuple[object, ...], list[list[Column | str]]] = {}

    @classmethod
    def of(cls, columns: Sequence[TableColumn], required: Sequence[str] = ()) -> Declared:
        """From types that were put together elsewhere."""
        made = cls(())
        made.columns, made.required = tuple(columns), tuple(required)
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """In their order."""
        return tuple(one.name for one in self.columns)

    def convert(self, frame: DataFrame, into: str, code: str) -> DataFrame:
        """The struct with the declared types. A message with a value that does not fit gets a fault that names the column."""
        own = tuple(name for name in frame.columns if name not in (into, fault_of(into)))
        kind = frame.schema[into].dataType
        assert isinstance(kind, SparkStruct)
        key = (own, into, code, kind)
        if key not in self._selections:
            self._selections[key] = list(self._selected(own, into, code, kind))
        for columns in self._selections[key]:
            frame = frame.select(*columns)
        return frame

    def _selected(self, own: Sequence[str], into: str, code: str, kind: SparkStruct) -> Iterator[list[Column | str]]:
        given = {one.name: replace(one, required=False) for one in iceberg_schema(kind).fields}
        other = [one for one in self.columns if given[one.name].type != one.type]
        if not other and not self.required:
            return
        # The other columns step aside one by one: those that nobody asks for are then not carried along.
        aside = {name: f"{_ASIDE}{number}" for number, name in enumerate(own)}
        kept = [*aside.values(), _BEFORE, _READ]
        yield [
            *(column(name).alias(other) for name, other in aside.items()),
            column(fault_of(into)).alias(_BEFORE),
            column(into).alias(_READ),
            f"{into}.*",
        ]
        plain = [one for one in other if not isinstance(one.type, _NESTED)]
        nested = [one for one in other if isinstance(one.type, _NESTED)]
        none = sf.lit(None).cast("string")
        inside = _aligned(given, nested)
        values = {one.name: column(one.name) for one in self.columns} | _aligned(given, plain) | inside
        values[_WRONG] = inside.get(_WRONG, none)
        yield [*kept, *(value.alias(name) for name, value in values.items())]
        read, before = column(_READ), column(_BEFORE)
        error = sf.coalesce(_lost(read, plain), column(_WRONG), self._missing())
        yield [*kept, *(column(name) for name in self.names), sf.when(read.isNotNull(), error).alias(_WRONG)]
        now = sf.when(before.isNotNull(), before).when(column(_WRONG).isNotNull(), fault(code, column(_WRONG)))
        fine = read.isNotNull() & column(_WRONG).isNull()
        yield [
            *(column(other).alias(name) for name, other in aside.items()),
            sf.when(fine, packed([column(name) for name in self.names])).alias(into),
            now.alias(fault_of(into)),
        ]

    def _missing(self) -> Column:
        absent = [sf.when(column(name).isNull(), sf.lit(repr(name))) for name in self.required]
        names = sf.nullif(sf.concat_ws(", ", *absent), sf.lit("")) if absent else sf.lit(None).cast("string")
        return sf.concat(sf.lit("required, and the message has no value for it: column "), names)


def _aligned(given: Mapping[str, TableColumn], wanted: Sequence[TableColumn]) -> dict[str, Column]:
    if not wanted:
        return {}
    data = StructType(tuple(given[one.name] for one in wanted))
    made = alignment(data, StructType(tuple(wanted)), CoercionOptions(error_column=_WRONG)).columns
    return {} if made is None else dict(zip([*(one.name for one in wanted), _WRONG], made, strict=True))


def _lost(read: Column, plain: Sequence[TableColumn]) -> Column:
    """The columns whose value was read and has no form in their type. Found in the result, without a second look at the value."""
    if not plain:
        return sf.lit(None).cast("string")
    lost = [field(read, one.name).isNotNull() & column(one.name).isNull() for one in plain]
    faults = [
        sf.when(
            gone,
            sf.concat(
                sf.lit(f"column {one.name!r} cannot hold this value as {one.type}: "),
                excerpt(field(read, one.name).cast("string")),
            ),
        )
        for one, gone in zip(plain, lost, strict=True)
    ]
    return sf.when(reduce(Column.__or__, lost), sf.concat_ws("; ", *faults))
