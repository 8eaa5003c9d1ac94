"""Values on their way into columns of other types: the options, and what may become what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum

from pydantic import Field

from frazil.errors import CastRefused, ColumnsRefused, ConfigError
from frazil.model.base import Model, Problem
from frazil.model.types import Column, Decimal, ListType, MapType, Primitive, StructType, Type


class EpochUnit(StrEnum):
    """The unit of a number that represents an instant, counted from the beginning of 1970 in UTC."""

    SECONDS = "seconds"
    MILLIS = "millis"
    MICROS = "micros"
    NANOS = "nanos"


MICROS = {EpochUnit.SECONDS: 1_000_000, EpochUnit.MILLIS: 1_000, EpochUnit.MICROS: 1}
"""How many microseconds each unit has; a nanosecond has not one."""


class ExtraColumns(StrEnum):
    """What becomes of columns that the table does not have."""

    EVOLVE = "evolve"
    IGNORE = "ignore"
    REFUSE = "refuse"


class CoercionOptions(Model):
    """The part of a sink that says how values become those of the table's columns."""

    strict_casting: bool = Field(
        False,
        description="Whether every conversion is refused that could lose something: narrower numbers, fewer digits, texts into "
        "other types, a time zone gained or lost. Otherwise values are converted, and one that would lose something stops the "
        "batch.",
    )
    epoch_unit: EpochUnit | None = Field(
        None, description="What numbers count that go into declared date and timestamp columns, from 1970 in UTC."
    )
    extra_columns: ExtraColumns = Field(
        ExtraColumns.EVOLVE,
        description="Columns that the table does not have and nobody declared: as schema_evolution says, left out, or refused.",
    )
    error_column: str | None = Field(
        None,
        min_length=1,
        max_length=255,
        description="Column that takes what is wrong with a row's values. Such a row is kept, with null for those values, "
        "instead of stopping the batch.",
    )
    raw_column: str | None = Field(
        None, min_length=1, max_length=255, description="Column that takes the whole row as JSON when error_column has something."
    )

    @property
    def error_columns(self) -> tuple[Column, ...]:
        """The columns of the table that the options add."""
        names = (self.error_column, self.raw_column)
        return tuple(Column(name, Primitive("string")) for name in names if name is not None)


def coercion_problems(options: CoercionOptions, columns: Iterable[Column], named: Iterable[tuple[str, str]]) -> list[Problem]:
    """What does not fit together. ``named`` are the columns that other options name, each with its option."""
    problems = []
    if options.raw_column is not None and options.error_column is None:
        problems.append(Problem("raw_column has no meaning without error_column", "raw_column"))
    if options.raw_column is not None and options.raw_column == options.error_column:
        problems.append(Problem("error_column and raw_column must be two columns", "raw_column"))
    own = {column.name: option for column, option in zip(options.error_columns, ("error_column", "raw_column"), strict=False)}
    problems += [
        Problem(f"{own[column.name]}: the column {column.name!r} is declared as {column.type}; it must be an optional string",
                own[column.name])
        for column in columns
        if column.name in own and (column.type != Primitive("string") or column.required)
    ]  # fmt: skip
    return problems + [
        Problem(f"{own[name]}: {name!r} cannot be used by {option} as well", own[name]) for option, name in named if name in own
    ]


def with_error_columns(schema: StructType, options: CoercionOptions) -> StructType:
    """The schema with the columns that the options add."""
    known = {column.name for column in schema.fields}
    return StructType((*schema.fields, *(column for column in options.error_columns if column.name not in known)))


class Way(StrEnum):
    """How values of one type become values of another.

    EXACT: every value does, and means the same. CHECKED: each value is checked, since not every one has the right form; nothing
    can get lost. LOSSY: each value is checked, since some would lose something. ZONED: a time zone is added or removed, taken
    to be UTC. EPOCH: a number represents an instant. NONE: no value does.
    """

    EXACT = "exact"
    CHECKED = "checked"
    LOSSY = "lossy"
    ZONED = "zoned"
    EPOCH = "epoch"
    NONE = "none"


_INTEGERS = ("int", "long")
_NUMBERS = (*_INTEGERS, "float", "double", "decimal")
_MOMENTS = ("date", "timestamp", "timestamptz")
_NESTED = ("struct", "list", "map")

_WAYS: dict[tuple[str, str], Way] = {
    ("int", "long"): Way.EXACT,
    ("int", "double"): Way.EXACT,
    ("float", "double"): Way.EXACT,
    ("string", "uuid"): Way.CHECKED,
    ("binary", "uuid"): Way.CHECKED,
    ("binary", "fixed"): Way.CHECKED,
    ("binary", "string"): Way.CHECKED,
    ("date", "timestamp"): Way.EXACT,
    ("date", "timestamptz"): Way.ZONED,
    ("timestamp", "timestamptz"): Way.ZONED,
    ("timestamptz", "timestamp"): Way.ZONED,
    ("timestamp", "date"): Way.LOSSY,
    ("timestamptz", "date"): Way.LOSSY,
}

# Digits before the point that every value of an integer type has room in.
_DIGITS = {"int": 10, "long": 19}


def way(data: Type, table: Type) -> Way:
    """How values of the data's type become values of the table's."""
    if data == table:
        return Way.EXACT
    if (found := _WAYS.get((data.name, table.name))) is not None:
        return found
    if table.name == "string":
        return Way.EXACT
    nested = (*_NESTED, "variant")
    return _nested_way(data, table) if data.name in nested or table.name in nested else _plain_way(data, table)


def _nested_way(data: Type, table: Type) -> Way:
    match data, table:
        case StructType(), MapType():
            # JSON has objects only, which look like structs until a map is asked for.
            fields = {way(field.type, table.value) for field in data.fields}
            return _hardest(fields) if table.key == Primitive("string") else Way.NONE
        case StructType(), StructType():
            known = {field.name: field.type for field in table.fields}
            return _hardest({way(f.type, known[f.name]) if f.name in known else Way.NONE for f in data.fields})
        case ListType(), ListType():
            return way(data.element, table.element)
        case MapType(), MapType():
            return _hardest({way(data.key, table.key), way(data.value, table.value)})
        case Primitive("string"), StructType() | ListType() | MapType():
            # A column that is null in all rows looks like texts to a reader of JSON.
            return Way.CHECKED
        case _:
            return Way.EXACT if table.name == "variant" and _variant_can_hold(data) else Way.NONE


def _hardest(ways: set[Way]) -> Way:
    return next((one for one in (Way.NONE, Way.EPOCH, Way.LOSSY, Way.ZONED, Way.CHECKED) if one in ways), Way.EXACT)


def _plain_way(data: Type, table: Type) -> Way:
    if data.name == "string":
        return Way.LOSSY
    if data.name not in _NUMBERS:
        return Way.NONE
    if table.name in _MOMENTS:
        return Way.EPOCH
    if table.name in _NUMBERS:
        return Way.EXACT if _has_room(data, table) else Way.LOSSY
    return Way.NONE


def _has_room(data: Type, table: Type) -> bool:
    if not isinstance(table, Decimal):
        return False
    before = table.precision - table.scale
    if isinstance(data, Decimal):
        return data.scale <= table.scale and data.precision - data.scale <= before
    return data.name in _DIGITS and _DIGITS[data.name] <= before


def _variant_can_hold(data: Type) -> bool:
    match data:
        case StructType():
            return all(_variant_can_hold(field.type) for field in data.fields)
        case ListType():
            return _variant_can_hold(data.element)
        case MapType():
            return data.key == Primitive("string") and _variant_can_hold(data.value)
        case _:
            return True


def is_json_text(data: Type, table: Type) -> bool:
    """Whether a nested value goes into a column of texts."""
    return table.name == "string" and data.name in (*_NESTED, "variant")


def convertible(data: Type, table: Type) -> bool:
    """Whether values may be tried one by one."""
    return way(data, table) is not Way.NONE


def require_casts(table: StructType, data: StructType, options: CoercionOptions) -> None:
    """A CastRefused where the options do not allow what the data's types would need, though it could be done."""
    pairs = list(_pairs(table, data, ""))
    for path, given, wanted in pairs:
        if options.epoch_unit is None and way(given, wanted) is Way.EPOCH:
            raise CastRefused(
                "epoch-unit",
                f"The column {path!r} is {given} in the data and {wanted} in the table: what the numbers count is not known.",
                fix=f"Set epoch_unit to one of {', '.join(EpochUnit)}.",
            )
    refused = [pair for pair in pairs if way(pair[1], pair[2]) in (Way.LOSSY, Way.ZONED)] if options.strict_casting else []
    if refused:
        examples = "; ".join(
            f"column {path!r} is {given} in the data and {wanted} in the table" for path, given, wanted in refused
        )
        raise CastRefused(
            "strict-casting",
            f"strict_casting refuses conversions that could lose something: {examples}.",
            fix="Cast the column in the source, change the table's type, or set strict_casting: false.",
        )


def _pairs(table: Type, data: Type, path: str) -> Iterator[tuple[str, Type, Type]]:
    """The types that meet in a column, down to those that have no parts."""
    match table, data:
        case StructType(), StructType():
            known = {field.name: field.type for field in table.fields}
            for field in data.fields:
                if field.name in known:
                    yield from _pairs(known[field.name], field.type, f"{path}.{field.name}".lstrip("."))
        case ListType(), ListType():
            yield from _pairs(table.element, data.element, f"{path}.element")
        case MapType(), MapType():
            yield from _pairs(table.key, data.key, f"{path}.key")
            yield from _pairs(table.value, data.value, f"{path}.value")
        case MapType(), StructType():
            for field in data.fields:
                yield from _pairs(table.value, field.type, f"{path}.{field.name}")
        case _:
            yield path, data, table


def extra_paths(table: StructType, data: StructType) -> tuple[str, ...]:
    """The columns, and fields of structs, that the data has and the table has not."""
    return tuple(path for path, _ in _extra(table, data, ""))


def _extra(table: Type, data: Type, path: str) -> Iterator[tuple[str, str | None]]:
    """Their paths, each with the name in its place of the table that differs in upper and lower case alone."""
    match table, data:
        case StructType(), StructType():
            known = {field.name: field.type for field in table.fields}
            alike = {name.lower(): name for name in known}
            for field in data.fields:
                inner = f"{path}.{field.name}".lstrip(".")
                if field.name in known:
                    yield from _extra(known[field.name], field.type, inner)
                else:
                    yield inner, alike.get(field.name.lower())
        case ListType(), ListType():
            yield from _extra(table.element, data.element, f"{path}.element")
        case MapType(), MapType():
            yield from _extra(table.value, data.value, f"{path}.value")


def _without_extras(table: StructType, data: StructType) -> StructType:
    """The data's columns with only those fields that the table has."""
    known = {field.name: field.type for field in table.fields}
    kept = [replace(f, type=_inner_without_extras(known[f.name], f.type)) for f in data.fields if f.name in known]
    return StructType(tuple(kept))


def _inner_without_extras(table: Type, data: Type) -> Type:
    match table, data:
        case StructType(), StructType():
            return _without_extras(table, data)
        case ListType(), ListType():
            return replace(data, element=_inner_without_extras(table.element, data.element))
        case MapType(), MapType():
            return replace(data, value=_inner_without_extras(table.value, data.value))
        case _:
            return data


def _require_others(table: StructType, data: StructType) -> None:
    """A column that is meant for one of the table's is not left out: its values would be replaced by null."""
    if alike := [f"{path} (the table has {name})" for path, name in _extra(table, data, "") if name is not None]:
        raise ColumnsRefused(
            "columns-differ-by-case",
            f"These columns of the data have names of the table's, but for upper and lower case: {', '.join(alike)}.",
            fix="Rename them with a rename_field transform, or take them out with a remove_field transform.",
        )


def admitted(table: StructType, data: StructType, options: CoercionOptions) -> StructType:
    """The data's columns that are to go into the table, with those that the options add."""
    for column in options.error_columns:
        if any(column.name == given.name for given in data.fields):
            raise ConfigError(
                "error-column",
                f"The data has a column {column.name!r} of its own, which error_column or raw_column names.",
                fix="Choose another name, or rename the data's column with a rename_field transform.",
            )
    if options.extra_columns is not ExtraColumns.EVOLVE and (extra := extra_paths(table, data)):
        if options.extra_columns is ExtraColumns.REFUSE:
            raise ColumnsRefused(
                "extra-column",
                f"The data has columns that the table does not have: {', '.join(extra)}.",
                fix="Take them out with a remove_field transform, or set extra_columns: ignore or evolve.",
            )
        _require_others(table, data)
        data = _without_extras(table, data)
    return with_error_columns(data, options)
