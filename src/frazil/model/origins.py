"""The columns of a table as the source has them, before transforms and envelopes changed them."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.model.changes import ChangeFormat
from frazil.model.transform import (
    AddField,
    FilterRows,
    Flatten,
    HashFields,
    MapFields,
    RedactFields,
    RemoveField,
    RenameField,
    TokenizeFields,
    TransformSpec,
    TruncateFields,
    Unnest,
    UnwrapDebezium,
    WhereRows,
)
from frazil.model.types import Column, ListType, StructType


def source_columns(table: StructType, form: ChangeFormat, transforms: Sequence[TransformSpec]) -> StructType:
    """The table's columns under the names that they have in the source, as far as these are known."""
    columns = {column.name: column for column in table.fields}
    if form is not ChangeFormat.ROWS:
        columns = _enveloped(columns, form)
    for transform in reversed(transforms):
        columns = _before(transform, columns)
    return StructType(tuple(Column(name, column.type) for name, column in columns.items()))


def _enveloped(columns: dict[str, Column], form: ChangeFormat) -> dict[str, Column]:
    row = StructType(tuple(Column(name, column.type) for name, column in columns.items()))
    places = ("before", "after") if form is ChangeFormat.DEBEZIUM else ("value",)
    return {place: Column(place, row) for place in places}


def _before(transform: TransformSpec, columns: dict[str, Column]) -> dict[str, Column]:  # noqa: PLR0911 - one for each case
    match transform:
        case FilterRows() | WhereRows():
            return columns
        case RenameField():
            moved = columns.get(transform.to)
            others = _without(columns, (transform.from_, transform.to))
            return others if moved is None or "." in transform.from_ else {transform.from_: moved} | others
        case MapFields():
            return {origin: columns[name] for name, origin in transform.columns.items() if name in columns and "." not in origin}
        case AddField():
            return _without(columns, (transform.field,))
        case RemoveField() | HashFields() | TokenizeFields() | RedactFields() | TruncateFields():
            return _without(columns, [name for name, _ in transform.named])
        case Flatten():
            begins = tuple(f"{name}{transform.separator}" for name in transform.fields)
            whole = {
                name: column
                for name, column in columns.items()
                if not (name.startswith(begins) if begins else transform.separator in name)
            }
            return whole | {name: Column(name, StructType(())) for name in transform.fields}
        case Unnest():
            name = transform.as_ or transform.field
            others = _without(columns, (name, transform.field))
            element = None if "." in transform.field else columns.get(name)
            return others if element is None else others | {transform.field: Column(transform.field, ListType(element.type))}
        case UnwrapDebezium():
            return _enveloped(columns, ChangeFormat.DEBEZIUM)
        case _:
            return {}  # made by expressions


def _without(columns: dict[str, Column], paths: Sequence[str]) -> dict[str, Column]:
    gone = {path.partition(".")[0] for path in paths} | set(paths)
    return {name: column for name, column in columns.items() if name not in gone}
