"""What dlt's schema says about a table, as values of the model: columns, partitioning, keys, and what a load does."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pyarrow
from dlt.common.destination.capabilities import DestinationCapabilitiesContext
from dlt.common.destination.typing import PreparedTableSchema
from dlt.common.destination.utils import resolve_merge_strategy
from dlt.common.schema.exceptions import SchemaCorruptedException
from dlt.common.schema.typing import TColumnSchema, TSchemaTables, TTableSchema
from dlt.common.schema.utils import (
    get_columns_names_with_prop,
    get_dedup_sort_tuple,
    get_first_column_name_with_prop,
    is_nested_table,
)
from pydantic import ValidationError

from frazil.model.load import DeleteMark, Disposition, Newest
from frazil.model.names import nearest
from frazil.model.partition import PartitionField, Transform, transform_problem
from frazil.model.types import parse_type

PARTITION, TRANSFORM, NAME = "x-partition", "x-partition-transform", "x-partition-name"
SORT = "sort"
# Which of several columns comes first: dlt keeps columns in the order in which the data brought them.
PARTITION_PLACE, SORT_PLACE = "x-partition-place", "x-sort-place"
# The hints of dlt's own adapter for Iceberg tables.
DLT_PARTITION, DLT_PROPERTIES = "x-iceberg-partition", "x-iceberg-table-properties"

_KNOWN_HINTS = (PARTITION, TRANSFORM, NAME, PARTITION_PLACE)
_CALL = re.compile(r"^(?P<name>[a-z]+)(?:\[(?P<width>\d+)\])?$")
_PLAIN = {"text": "string", "double": "double", "bool": "boolean", "date": "date", "time": "string", "binary": "binary",
          "json": "string"}  # fmt: skip
_MOMENTS = ("date", "timestamp", "timestamptz")
_INT_BITS = 32
_BEYOND_INT = (pyarrow.int64(), pyarrow.uint32(), pyarrow.uint64())
_NANOSECONDS = 9


def name_of(table: PreparedTableSchema) -> str:
    """The table's name in dlt's schema."""
    return str(table["name"])


def is_nested(table: PreparedTableSchema) -> bool:
    """Whether the table is nested in another."""
    return is_nested_table(_plain(table))


def _plain(table: PreparedTableSchema) -> TTableSchema:
    return cast(TTableSchema, table)


def column_type(column: TColumnSchema, caps: DestinationCapabilitiesContext) -> str:
    """The Iceberg type of a column, as dlt writes its values into files."""
    kind = column["data_type"]
    precision, scale = column.get("precision"), column.get("scale")
    match kind:
        case "timestamp":
            return "timestamp" if column.get("timezone") is False else "timestamptz"
        case "bigint":
            return "int" if precision is not None and precision <= _INT_BITS else "long"
        case "decimal":
            digits, after = caps.decimal_precision if precision is None else (precision, scale or 0)
            return f"decimal({digits}, {after})"
        case "wei":
            return "decimal({}, {})".format(*caps.wei_precision)
        case _:
            return _PLAIN[str(kind)]


def require_precisions(schema_name: str, table: PreparedTableSchema) -> None:
    """Moments have at most nanoseconds. Those are written as microseconds where nothing is lost by that."""
    for name, column in table["columns"].items():
        precision = column.get("precision")
        if column.get("data_type") == "timestamp" and precision is not None and precision > _NANOSECONDS:
            raise _wrong(schema_name, table, f"column {name!r}: a timestamp has no precision {precision}; write 6 or less")


def declared_columns(
    table: PreparedTableSchema, caps: DestinationCapabilitiesContext, files: Sequence[pyarrow.Schema] = ()
) -> list[dict[str, Any]]:
    """The columns of a table, as its hints and the schemas of its files say."""
    return [
        {
            "name": name,
            "type": _as_files_need(name, column_type(column, caps), files),
            "required": column.get("nullable") is False,
            "doc": column.get("description"),
        }
        for name, column in table["columns"].items()
    ]


def _as_files_need(name: str, declared: str, files: Sequence[pyarrow.Schema]) -> str:
    """An int whose files have more bits is a long: dlt keeps the precision of the first data, and knows no sign."""
    beyond = any(name in file.names and file.field(name).type in _BEYOND_INT for file in files)
    return "long" if declared == "int" and beyond else declared


def partition_fields(schema_name: str, table: PreparedTableSchema, caps: DestinationCapabilitiesContext) -> list[PartitionField]:
    """The partition fields that the hints of a table ask for."""
    columns = _by_place(table, table["columns"], PARTITION_PLACE)
    fields = [_from_column(schema_name, table, name, table["columns"][name], caps) for name in columns]
    known = [field for field in fields if field is not None]
    for one in cast(list[Mapping[str, Any]], table.get(DLT_PARTITION, [])):
        known.append(_from_dlt(schema_name, table, one, caps))
    names = [field.field_name for field in known]
    for name in names:
        if names.count(name) > 1:
            raise _wrong(schema_name, table, f"the partition field {name!r} is asked for twice")
    return known


def _from_column(
    schema_name: str, table: PreparedTableSchema, name: str, column: TColumnSchema, caps: DestinationCapabilitiesContext
) -> PartitionField | None:
    given = cast(Mapping[str, Any], column)
    for hint in given:
        if hint.startswith("x-part") and hint not in _KNOWN_HINTS:
            near = nearest(hint, _KNOWN_HINTS) or _KNOWN_HINTS[0]
            raise _wrong(schema_name, table, f"column {name!r}: unknown hint {hint!r}; did you mean {near!r}?")
    wanted = bool(given.get(PARTITION) or given.get("partition"))
    if not wanted:
        if alone := [hint for hint in (TRANSFORM, NAME, PARTITION_PLACE) if given.get(hint)]:
            raise _wrong(schema_name, table, f"column {name!r}: the hint {alone[0]!r} has no meaning without {PARTITION!r}: True")
        return None
    kind = column_type(column, caps)
    text = given.get(TRANSFORM) or ("month" if kind in _MOMENTS else "identity")
    call = _CALL.match(str(text).strip().lower())
    if call is None:
        known = "identity, year, month, day, hour, bucket[N], truncate[N]"
        raise _wrong(schema_name, table, f"column {name!r}: cannot read {TRANSFORM} {text!r}; write one of {known}")
    width = int(call["width"]) if call["width"] else None
    return _field(schema_name, table, name, kind, transform=call["name"], width=width, field_name=given.get(NAME))


def _from_dlt(
    schema_name: str, table: PreparedTableSchema, hint: Mapping[str, Any], caps: DestinationCapabilitiesContext
) -> PartitionField:
    name = str(hint["source_column"])
    if name not in table["columns"]:
        known = ", ".join(table["columns"])
        raise _wrong(schema_name, table, f"{DLT_PARTITION}: there is no column {name!r}. Columns: {known}")
    kind = column_type(table["columns"][name], caps)
    width, field_name = hint.get("param_value"), hint.get("partition_field")
    return _field(schema_name, table, name, kind, transform=str(hint["transform"]), width=width, field_name=field_name)


def _field(
    schema_name: str,
    table: PreparedTableSchema,
    column: str,
    kind: str,
    *,
    transform: str,
    width: int | None,
    field_name: str | None,
) -> PartitionField:
    where = f"column {column!r}: {TRANSFORM}"
    known = [one.value for one in Transform if one is not Transform.VOID]
    if transform not in known:
        near = nearest(transform, known)
        hint = f"; did you mean {near!r}?" if near else ""
        raise _wrong(schema_name, table, f"{where}: unknown transform {transform!r}{hint} Known: {', '.join(known)}")
    size = "" if width is None else f"_{width}"
    try:
        field = PartitionField(
            source=column, transform=Transform(transform), width=width, name=field_name or f"{column}_{transform}{size}"
        )
    except ValidationError as error:
        raise _wrong(schema_name, table, f"{where}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    if (problem := transform_problem(field, parse_type(kind).name)) is not None:
        raise _wrong(schema_name, table, f"{where}: {problem}")
    return field


def sorted_by(table: PreparedTableSchema) -> tuple[str, ...]:
    """The columns that the rows of each file are sorted by."""
    return tuple(_by_place(table, get_columns_names_with_prop(_plain(table), SORT), SORT_PLACE))


def _by_place(table: PreparedTableSchema, names: Iterable[str], hint: str) -> list[str]:
    """Columns in the order that a hint tells, and those without it behind them."""
    places: dict[str, float] = {name: cast(Mapping[str, Any], table["columns"][name]).get(hint, math.inf) for name in names}
    return sorted(places, key=lambda name: places[name])


def table_properties(schema_name: str, table: PreparedTableSchema) -> dict[str, str]:
    """The properties of a new table that dlt's own adapter has set."""
    given = cast(Mapping[str, Any], table.get(DLT_PROPERTIES) or {})
    if wrong := [name for name, value in given.items() if not isinstance(value, str)]:
        raise _wrong(schema_name, table, f"{DLT_PROPERTIES}: the value of {wrong[0]!r} is no text")
    return dict(given)


def disposition_of(tables: TSchemaTables, root: PreparedTableSchema, caps: DestinationCapabilitiesContext) -> Disposition:
    """What a load does to the tables of a chain. A merge without keys has nothing to compare, and appends."""
    if root["write_disposition"] != "merge":
        # dlt's own tables are skipped by its normalizer, and written by the client.
        return Disposition.REPLACE if root["write_disposition"] == "replace" else Disposition.APPEND
    strategy = Disposition(cast(str, resolve_merge_strategy(tables, _plain(root), caps)))
    return strategy if keys_of(root, "primary_key") or keys_of(root, "merge_key") else Disposition.APPEND


def keys_of(table: PreparedTableSchema, hint: str) -> tuple[str, ...]:
    """The columns that have a hint."""
    return tuple(get_columns_names_with_prop(_plain(table), hint))


def first_with(table: PreparedTableSchema, hint: str) -> str | None:
    """The first column that has a hint."""
    return get_first_column_name_with_prop(_plain(table), hint)


def newest_of(table: PreparedTableSchema) -> Newest | None:
    """Which of several rows with one key counts."""
    hint = get_dedup_sort_tuple(_plain(table))
    return None if hint is None else Newest(column=hint[0], order=hint[1])


def delete_mark(table: PreparedTableSchema, default: str | None) -> DeleteMark | None:
    """The column that marks rows which are gone: that with the hint, or the one of the destination's settings."""
    name = first_with(table, "hard_delete") or (default if default in table["columns"] else None)
    if name is None:
        return None
    return DeleteMark(column=name, flag=table["columns"][name]["data_type"] == "bool")


def root_key(chain: Sequence[PreparedTableSchema], table: PreparedTableSchema) -> str | None:
    """The column that says to which row of the root table a nested row belongs.

    In a table that is nested in the root itself that is the key of its parent: all rows have it, also those that were appended
    before the resource was merged.
    """
    own = first_with(table, "parent_key") if table.get("parent") == chain[0]["name"] else None
    return own or first_with(table, "root_key")


def _wrong(schema_name: str, table: PreparedTableSchema, text: str) -> SchemaCorruptedException:
    return SchemaCorruptedException(schema_name, f"Table {table['name']!r}, {text}.")
