"""What the formats share: how a message's fields and its fault are represented in a frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from frazil.columns.schema import quoted, require_data
from frazil.columns.types import is_writable, spark_type
from frazil.model.hidden import ERROR_TYPE, HIDDEN
from frazil.model.types import StructType as TableStruct

STAGE = "decode"
NOTHING = f"{HIDDEN}nothing"
"""A placeholder field for when no field is known yet."""

SHOWN = 200
"""As much of a message as a person wants to see."""


class Format(Protocol):
    """One format. State that grows with the messages, such as schemas that were fetched, stays in it."""

    def parse(self, frame: DataFrame, source: str, into: str) -> DataFrame:
        """The frame with two more columns: ``into``, a struct of the fields of the binary column ``source``, and its fault.

        Both are null where ``source`` is. The struct is null if the message cannot be read.
        """

    def check(self) -> None:
        """Raises a FrazilError when something that the format needs cannot be had."""


@runtime_checkable
class Expecting(Protocol):
    """A format that finds the columns of messages in them, or in what they name."""

    def expect(self, columns: TableStruct, *, exactly: bool) -> None:
        """The table's columns, under the names that they have here: they come before those that are found."""


def expected_schema(columns: TableStruct) -> StructType:
    """The table's columns as Spark has them, as far as it has such types."""
    return StructType([StructField(one.name, spark_type(one.type)) for one in columns.fields if is_writable(one.type)])


def fault_of(into: str) -> str:
    """The name of the column with the faults of another."""
    return f"{into}_fault"


def fault(code: str, text: Column | str) -> Column:
    """Why a message cannot be read."""
    message = sf.lit(text) if isinstance(text, str) else text
    return sf.struct(sf.lit(STAGE).alias("stage"), sf.lit(code).alias("code"), message.alias("text"))


def no_fault() -> Column:
    """Nothing is wrong."""
    return sf.lit(None).cast(ERROR_TYPE)


def first_fault(faults: Iterable[tuple[Column, Column]]) -> Column:
    """The fault of the first condition that holds. Later ones are not evaluated."""
    chosen = no_fault()
    for condition, error in reversed(list(faults)):
        chosen = sf.when(condition, error).otherwise(chosen)
    return chosen


def once(value: Column) -> Column:
    """A value below which Spark neither moves nor copies anything of its plan.

    Spark puts a filter below the columns that it looks at, with a copy of what makes a column for each time that it is named.
    Reading a record takes many steps that name the one before several times, which makes thousands of copies. Spark does not
    do so past a column that could be another each time it is computed. This one never is, which Spark does not know.
    """
    return sf.when(sf.monotonically_increasing_id() >= 0, value)


def excerpt(text: Column) -> Column:
    """The beginning of a text."""
    cut = sf.concat(sf.substring(text, 1, SHOWN), sf.lit("..."))
    return sf.when(sf.char_length(text) > SHOWN, cut).otherwise(text)


def column(name: str) -> Column:
    """A column of the frame, whatever characters its name has."""
    return sf.col(quoted(name))


def field(value: Column, name: str) -> Column:
    """A field of a struct, whatever characters its name has."""
    return value.getField(name)


def packed(columns: Sequence[Column]) -> Column:
    """Columns as a struct, which has one field at least."""
    return sf.struct(*(columns or [sf.lit(None).cast("string").alias(NOTHING)]))


def fields_of(frame: DataFrame, into: str) -> list[StructField]:
    """The fields that a format found."""
    kind: DataType = frame.schema[into].dataType
    found = [one for one in kind.fields if one.name != NOTHING] if isinstance(kind, StructType) else []
    require_data((one.name for one in found), "A message")
    return found


def name_trouble(kind: DataType | None, *, top: bool = True) -> str:
    """What is wrong with the names in a schema that a message brings; empty when nothing is."""
    match kind:
        case StructType():
            names = [one.name.lower() for one in kind.fields]
            if twice := [one.name for one in kind.fields if names.count(one.name.lower()) > 1]:
                return f"fields have the same name, but for upper and lower case: {', '.join(twice)}"
            if top and (taken := [one.name for one in kind.fields if one.name.lower().startswith(HIDDEN)]):
                return f"names that begin with {HIDDEN} are frazil's own: {', '.join(taken)}"
            return next(filter(None, (name_trouble(one.dataType, top=False) for one in kind.fields)), "")
        case ArrayType():
            return name_trouble(kind.elementType, top=False)
        case MapType():
            return name_trouble(kind.valueType, top=False)
        case _:
            return ""


def utf8(source: Column) -> Column:
    """Bytes as text; null when they are none."""
    return sf.try_validate_utf8(source.cast("string"))
