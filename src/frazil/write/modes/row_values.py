"""The values of a row that a batch adds or updates, from those of its change and those that the table has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, functions

from frazil.columns.coerce import NULL_MARK, complaint
from frazil.columns.schema import quoted, unchanged
from frazil.columns.types import spark_type
from frazil.iceberg import WorkingCopy
from frazil.model.changes import ChangeOptions, Combine
from frazil.model.hidden import UNCHANGED
from frazil.model.types import StructType, Type
from frazil.write.fit import Fit
from frazil.write.modes.combine import added
from frazil.write.modes.latest import began_here

NEW, OLD = "frazil_new", WorkingCopy.NAME
"""What the changes of a batch and the rows of the table are called where they are joined."""


def new(name: str) -> Column:
    """A column of the batch."""
    return functions.col(f"{NEW}.{quoted(name)}")


def old(name: str) -> Column:
    """A column of the table."""
    return functions.col(f"{OLD}.{quoted(name)}")


def struct_of(names: Sequence[str]) -> Column:
    """Several columns as one."""
    return functions.struct(*[functions.col(quoted(name)).alias(name) for name in names])


def same_key(fit: Fit) -> Column:
    """Which rows of the table have the key of a row of the batch."""
    return reduce(Column.__and__, (old(key) == new(key) for key in fit.keys))


def updated_values(last: DataFrame, fit: Fit, options: ChangeOptions) -> dict[str, Column]:
    """What a known row becomes: the batch's values, but for those that it does not have."""
    names = fit.given if options.partial_updates else fit.names
    if options.combine:
        return {name: _combined(last, name, options) for name in names if name not in fit.keys}
    kept = {name: _kept(last, name) for name in names if name not in fit.keys}
    if options.partial_updates:
        given = {column.name: column.type for column in fit.inputs.data.fields}
        whole = {column.name: column.type for column in fit.schema.fields}
        kept = {name: _with_parts(value, old(name), given[name], whole[name]) for name, value in kept.items()}
    return kept


def new_values(fit: Fit) -> dict[str, Column]:
    """The values of a new row. It has no earlier values for columns that the batch lacks; if the table requires such a column,
    that is an error.
    """
    lacking = {c.name: spark_type(c.type) for c in fit.schema.fields if c.required and c.name not in fit.given}
    words = "is required, and a row with a new key has no value for it"
    stops = {name: complaint(NULL_MARK, functions.lit(f"column {name!r} {words}")).cast(kind) for name, kind in lacking.items()}
    return {name: stops.get(name, new(name)) for name in fit.names}


def _with_parts(mine: Column, theirs: Column, given: Type, whole: Type) -> Column:
    """The batch's value, with the table's for parts of a struct that the batch does not have."""
    if not isinstance(given, StructType) or not isinstance(whole, StructType):
        return mine
    types = {field.name: field.type for field in given.fields}
    parts = [
        (_with_parts(mine[one.name], theirs[one.name], types[one.name], one.type) if one.name in types else theirs[one.name])
        for one in whole.fields
    ]
    named = [part.alias(field.name) for part, field in zip(parts, whole.fields, strict=True)]
    return functions.when(mine.isNotNull(), functions.struct(*named))


def _combined(last: DataFrame, name: str, options: ChangeOptions) -> Column:
    """The value that both are together; where one has none, the other."""
    theirs, mine = old(name), new(name)
    match options.way_of(name):
        case Combine.MIN:
            return functions.least(theirs, mine)
        case Combine.MAX:
            return functions.greatest(theirs, mine)
        case _:
            return added(theirs, mine, name, last.schema[name].dataType)


def _kept(last: DataFrame, name: str) -> Column:
    """The batch's value; the table's where that did not change and was not sent."""
    if UNCHANGED not in last.columns:
        return new(name)
    return functions.when(unchanged(name) & ~began_here(last), old(name)).otherwise(new(name))
