"""Declared columns: what was read from a message as the types that were declared, value by value, with nothing lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from frazil.engine.schema import HIDDEN, alignment, quoted
from frazil.engine.types import iceberg_schema
from frazil.model.coercion import CoercionOptions
from frazil.model.sink import ColumnSpec
from frazil.model.types import Column as TableColumn
from frazil.model.types import StructType, Type, parse_type
from frazil.sources.decode.parts import column, fault, fault_of, field, packed

_ROW = f"{HIDDEN}row"
_WRONG = f"{HIDDEN}wrong"


class Declared:
    """Columns with their types, and those that must have a value."""

    def __init__(self, columns: Sequence[ColumnSpec]) -> None:
        self.columns = tuple(TableColumn(one.name, parse_type(one.type)) for one in columns)
        self.required = tuple(one.name for one in columns if one.required)

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

    def type_of(self, name: str) -> Type:
        """The type of a column."""
        return next(one.type for one in self.columns if one.name == name)

    def convert(self, frame: DataFrame, into: str, code: str) -> DataFrame:
        """The struct with the declared types. A message with a value that does not fit gets a fault that names the column."""
        own = [name for name in frame.columns if name not in (into, fault_of(into))]
        kind = frame.select(f"{into}.*").schema
        given = iceberg_schema(kind)
        data = StructType(tuple(replace(one, required=False) for one in given.fields))
        made = alignment(data, StructType(self.columns), options=CoercionOptions(error_column=_WRONG))
        if made is None and not self.required:
            return frame
        kept = sf.struct(*(column(name) for name in own), column(fault_of(into)), column(into).isNotNull().alias("there"))
        frame = frame.select(kept.alias(_ROW), f"{into}.*")
        if made is not None:
            frame = frame.select(_ROW, *made)
        row = column(_ROW)
        wrong = column(_WRONG) if made is not None else sf.lit(None).cast("string")
        missing = sf.lit(None).cast("string")
        for name in reversed(self.required):
            told = sf.lit(f"column {name!r} is required, and the message has no value for it")
            missing = sf.when(column(name).isNull(), told).otherwise(missing)
        told = sf.coalesce(wrong, missing)
        before = field(row, fault_of(into))
        now = sf.when(before.isNotNull(), before).when(field(row, "there") & told.isNotNull(), fault(code, told))
        fine = field(row, "there") & told.isNull()
        values = packed([sf.col(quoted(name)) for name in self.names])
        frame = frame.select(
            *(field(row, name).alias(name) for name in own),
            sf.when(fine, values).alias(into),
            now.alias(fault_of(into)),
        )
        return frame
