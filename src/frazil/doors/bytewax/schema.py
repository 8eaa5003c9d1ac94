"""Schemas, partition specs and sort orders as PyIceberg and Arrow have them, in frazil's own values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from frazil.errors import ConfigError
from frazil.model.types import Column, Decimal, Fixed, ListType, MapType, Primitive, StructType, Type, leaves, type_from_json

CODE = "bytewax-option"

_FROM_ARROW: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.uint8(): "int",
    pa.uint16(): "int",
    pa.uint32(): "long",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}

_TO_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "uuid": pa.string(),
    "binary": pa.binary(),
}


@dataclass(frozen=True)
class DeclaredColumns:
    """The columns that were declared, the ids by which a spec may name them, and those that identify a row."""

    columns: StructType
    ids: Mapping[int, str]
    keys: tuple[str, ...] = ()


def from_iceberg(schema: Schema) -> DeclaredColumns:
    """The columns of a PyIceberg schema."""
    columns = type_from_json(schema.model_dump(mode="json", by_alias=True))
    assert isinstance(columns, StructType), "a schema is a struct"
    require_writable(columns, "table_schema")
    ids = {number: schema.find_column_name(number) or "" for number in schema.field_ids}
    return DeclaredColumns(columns, ids, tuple(ids[number] for number in schema.identifier_field_ids))


def from_arrow(schema: pa.Schema) -> DeclaredColumns:
    """The columns of an Arrow schema; a spec names them by their place, from 1."""
    columns = StructType(tuple(_column(field, field.name) for field in schema))
    return DeclaredColumns(columns, {number: field.name for number, field in enumerate(schema, start=1)})


def _column(field: pa.Field, path: str) -> Column:
    return Column(field.name, _from_arrow(field.type, path), not field.nullable)


def _from_arrow(kind: pa.DataType, path: str) -> Type:
    if kind in _FROM_ARROW:
        return Primitive(_FROM_ARROW[kind])
    if (found := _single(kind) or _nested(kind, path)) is not None:
        return found
    raise ConfigError(
        CODE,
        f"arrow_schema: the field {path!r} has Arrow's type {kind}, which has none in Iceberg that Spark can write.",
        fix='Use another, e.g. pa.timestamp("us", "UTC"), pa.string() or pa.int64().',
    )


def _single(kind: pa.DataType) -> Type | None:
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return Primitive("timestamp" if kind.tz is None else "timestamptz")
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= 38:
        return Decimal(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return Fixed(kind.byte_width)
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid":
        return Primitive("uuid")
    return None


def _nested(kind: pa.DataType, path: str) -> Type | None:
    if pa.types.is_struct(kind):
        return StructType(tuple(_column(field, f"{path}.{field.name}") for field in kind.fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ListType(_from_arrow(kind.value_type, f"{path}.element"), not kind.value_field.nullable)
    if pa.types.is_map(kind):
        key, value = _from_arrow(kind.key_type, f"{path}.key"), _from_arrow(kind.item_type, f"{path}.value")
        return MapType(key, value, not kind.item_field.nullable)
    return None


def to_arrow(columns: StructType) -> pa.Schema:
    """The Arrow schema that rows of these columns are handed to Spark in."""
    return pa.schema([_field(column) for column in columns.fields])


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, arrow_type(column.type))


def arrow_type(kind: Type) -> pa.DataType:
    """Arrow's type of Iceberg's; Spark knows identifiers as texts, and fixed bytes as bytes."""
    match kind:
        case StructType():
            return pa.struct([_field(column) for column in kind.fields])
        case ListType():
            return pa.list_(arrow_type(kind.element))
        case MapType():
            return pa.map_(arrow_type(kind.key), arrow_type(kind.value))
        case Decimal():
            return pa.decimal128(kind.precision, kind.scale)
        case Fixed():
            return pa.binary()
        case _:
            return _TO_ARROW[kind.name]


def require_writable(columns: StructType, of: str) -> None:
    """Refuses columns of types that Python's values are not made into here, each by its name."""
    others = [(path, kind) for path, kind in leaves(columns) if not isinstance(kind, Decimal | Fixed)]
    foreign = [f"{path!r} ({kind})" for path, kind in others if kind.name not in _TO_ARROW]
    if foreign:
        raise ConfigError(
            CODE,
            f"{of}: there are columns whose types cannot be written from Bytewax: {', '.join(foreign)}.",
            fix="Declare a schema without them, which leaves them null in a table that has them, or give them another type.",
        )


def agree(one: StructType, other: StructType) -> str | None:
    """The first difference between two declarations of the same columns, in words; None when there is none."""
    types = {column.name: column.type for column in other.fields}
    for column in one.fields:
        if column.name not in types:
            return f"the field {column.name!r} is in one of them only"
        if str(column.type) != str(types[column.name]):
            return f"the field {column.name!r} is {column.type} in one and {types[column.name]} in the other"
    missing = [name for name in types if one.column(name) is None]
    return f"the field {missing[0]!r} is in one of them only" if missing else None


def partition_fields(given: Any, ids: Mapping[int, str]) -> list[Any]:
    """A partition spec as the model takes it: PyIceberg's, or a list of names, `day(ts)`, and ordinals."""
    if isinstance(given, PartitionSpec):
        return [
            {"source": _named(field.source_id, ids, "partition_spec"), "name": field.name, **_transform(str(field.transform))}
            for field in given.fields
        ]
    return [_source(one, ids, "partition_spec") for one in _listed(given, "partition_spec", "PartitionSpec")]


def sort_fields(given: Any, ids: Mapping[int, str]) -> list[Any]:
    """A sort order in the same way: PyIceberg's, or a list of `ts desc`, `id` and ordinals."""
    if isinstance(given, SortOrder):
        return [
            {
                "of": {"source": _named(field.source_id, ids, "sort_order"), **_transform(str(field.transform))},
                "direction": field.direction.value,
                "nulls": field.null_order.value.removeprefix("nulls-"),
            }
            for field in given.fields
        ]
    return [_source(one, ids, "sort_order") for one in _listed(given, "sort_order", "SortOrder")]


def _listed(given: Any, argument: str, kind: str) -> Iterable[Any]:
    if isinstance(given, list | tuple):
        return given
    raise ConfigError(
        CODE,
        f"{argument}: it must be PyIceberg's {kind}, or a list of field names and ordinals, not {type(given).__name__}.",
        fix=f'Write for example {argument}=["day(event_timestamp)", "device_id"], or [3, 1].',
    )


def _source(one: Any, ids: Mapping[int, str], argument: str) -> Any:
    if isinstance(one, bool) or not isinstance(one, int | str):
        raise ConfigError(CODE, f"{argument}: {one!r} is neither the name of a field nor its ordinal.")
    return one if isinstance(one, str) else _named(one, ids, argument)


def _named(number: int, ids: Mapping[int, str], argument: str) -> str:
    if number in ids:
        return ids[number]
    known = ", ".join(f"{n} {name}" for n, name in sorted(ids.items()))
    raise ConfigError(CODE, f"{argument}: the schema has no field with the ordinal {number}.", fix=f"It has: {known}.")


def _transform(text: str) -> dict[str, Any]:
    """`bucket[16]` as the model has it."""
    name, _, width = text.partition("[")
    return {"transform": name, "width": int(width.rstrip("]")) if width else None}
