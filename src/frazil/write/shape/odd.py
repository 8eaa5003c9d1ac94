"""Columns that conflict with a transform, or that it does not find, if bad rows become dead letters.

Records bring columns of their own. One record that has a column with the name of another, or a batch of records that all lack a
column, is no reason to stop a pipeline that has written rows before: the record is bad, and the column is null.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import ArrayType, DataType, StringType, StructType

from frazil.columns.schema import data_columns, error_of
from frazil.model.hidden import HIDDEN
from frazil.model.transform import (
    AddField,
    FilterRows,
    Flatten,
    HashFields,
    RedactFields,
    RemoveField,
    RenameField,
    SelectColumns,
    TokenizeFields,
    TransformSpec,
    TruncateFields,
    Unnest,
    WhereRows,
)
from frazil.write.modes.row_state import with_error
from frazil.write.shape.paths import Spot, known_spot, without

# Columns that one expression may lack.
_MOST_LACKING = 20

# What was said once need not be said of every batch.
_reported: set[tuple[str, str]] = set()

_log = logging.getLogger("frazil")


def cleared(frame: DataFrame, transform: TransformSpec) -> DataFrame:
    """The frame without columns that have the name of one that the transform makes; rows with a value there are bad."""
    for odd, name in _in_the_way(frame, transform):
        text = f"{transform.type} makes a column {name!r}, and the record has {odd.path!r}, which would be that one, too"
        wrong = functions.when(odd.value.isNotNull(), error_of("transform", "transform-clash", functions.lit(text)))
        frame = without(with_error(frame, wrong), odd)
    return frame


def _in_the_way(frame: DataFrame, transform: TransformSpec) -> Iterator[tuple[Spot, str]]:
    match transform:
        case RenameField():
            made, own = transform.to, transform.from_
        case AddField():
            made, own = transform.field, ""
        case Unnest():
            made, own = transform.as_ or transform.field.rpartition(".")[2], transform.field
        case Flatten():
            yield from _alike_when_flat(frame, transform)
            return
        case _:
            return
    if "." not in made and known_spot(frame, own or made) is not None:
        names = [name for name in data_columns(frame) if name.lower() == made.lower() and name != own]
        yield from ((Spot((name,), frame.schema[name].dataType), made) for name in names)


def _alike_when_flat(frame: DataFrame, transform: Flatten) -> Iterator[tuple[Spot, str]]:
    """The fields that would get the name of an earlier column."""
    taken: set[str] = set()
    for name in data_columns(frame):
        kind = frame.schema[name].dataType
        chosen = not transform.fields or name in transform.fields
        for part in leaves((name,), kind, transform.depth if chosen else 0):
            flat = transform.separator.join(part.names)
            if flat.lower() in taken:
                yield part, flat
            taken.add(flat.lower())


def leaves(names: tuple[str, ...], kind: DataType, depth: int | None) -> Iterator[Spot]:
    """The fields of a struct that become columns when it is laid flat."""
    if not isinstance(kind, StructType) or depth == 0:
        yield Spot(names, kind)
        return
    for field in kind.fields:
        yield from leaves((*names, field.name), field.dataType, None if depth is None else depth - 1)


def completed(frame: DataFrame, transform: TransformSpec) -> DataFrame:
    """The frame with null for columns that the transform names and no record of the batch has."""
    frame = _in_shape(frame, transform)
    lacking = [name for name in _named(transform) if "." not in name and name not in data_columns(frame)]
    for expression in _expressions(transform):
        lacking += _unresolved(_with_nulls(frame, lacking), expression)
    for name in lacking:
        if (transform.type, name) not in _reported:
            _reported.add((transform.type, name))
            _log.warning("%s: no record of the batch has a column %r: it is taken to be null", transform.type, name)
    return _with_nulls(frame, lacking)


def _in_shape(frame: DataFrame, transform: TransformSpec) -> DataFrame:
    """The frame with a struct or a list where the transform needs one. Rows that have something else there are bad."""
    names: tuple[str, ...]
    kind: DataType
    match transform:
        case Flatten():
            names, kind = transform.fields, StructType([])
        case Unnest():
            names, kind = (transform.field,), ArrayType(StringType())
        case _:
            return frame
    for name in names:
        there = known_spot(frame, name)
        if "." in name or (there is not None and isinstance(there.kind, type(kind))):
            continue
        if there is not None:
            text = functions.lit(f"{transform.type}: {name!r} is {there.kind.simpleString()}, not {kind.typeName()}")
            frame = with_error(frame, functions.when(there.value.isNotNull(), error_of("transform", "transform-column", text)))
        frame = frame.withColumn(name, functions.lit(None).cast(kind))
    return frame


def _with_nulls(frame: DataFrame, names: list[str]) -> DataFrame:
    # A column that is null in all rows is a text to those that read it, and fits every type.
    return frame.withColumns({name: functions.lit(None).cast("string") for name in names}) if names else frame


def _named(transform: TransformSpec) -> list[str]:
    match transform:
        case RenameField():
            return [transform.from_]
        case RemoveField() | HashFields() | TokenizeFields() | RedactFields() | TruncateFields():
            return [name for name, _ in transform.named]
        case FilterRows():
            return [transform.field]
        case _:
            return []


def _expressions(transform: TransformSpec) -> list[str]:
    match transform:
        case WhereRows():
            return [transform.condition]
        case SelectColumns():
            return list(transform.expressions)
        case AddField() if transform.expression is not None:
            return [transform.expression]
        case _:
            return []


def _unresolved(frame: DataFrame, expression: str) -> list[str]:
    """The columns that an expression names and the frame lacks."""
    found: list[str] = []
    while len(found) < _MOST_LACKING:
        try:
            _ = _with_nulls(frame, found).select(functions.expr(expression)).schema
        except PySparkException as error:
            name = ((error.getMessageParameters() or {}).get("objectName") or "").strip("`")
            known = not name or "`" in name or name in found or name.lower().startswith(HIDDEN)
            if known or not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
                return found  # it has another error, which is reported when it is applied
            found.append(name)
        else:
            return found
    return found
