"""The columns of a table as it is in the catalog, in dlt's words."""

from __future__ import annotations

from typing import cast

from dlt.common.destination.capabilities import DestinationCapabilitiesContext
from dlt.common.schema.typing import TColumnSchema, TColumnType, TTableSchemaColumns

from frazil.model.types import Column, Decimal, StructType, Type

_PLAIN = {"boolean": "bool", "long": "bigint", "float": "double", "double": "double", "date": "date", "string": "text",
          "uuid": "text", "binary": "binary", "fixed": "binary"}  # fmt: skip


def columns_of(schema: StructType, caps: DestinationCapabilitiesContext) -> TTableSchemaColumns:
    """The columns by name. What dlt has no type for is nested, and JSON to it."""
    return {column.name: _column(column, caps) for column in schema.fields}


def _column(column: Column, caps: DestinationCapabilitiesContext) -> TColumnSchema:
    hints: TColumnSchema = {"name": column.name, "nullable": not column.required, **_type(column.type, caps)}  # type: ignore[typeddict-item]
    if column.doc:
        hints["description"] = column.doc
    return hints


def _type(kind: Type, caps: DestinationCapabilitiesContext) -> TColumnType:
    match kind:
        case Decimal(precision, scale) if (precision, scale) == tuple(caps.wei_precision):
            return {"data_type": "wei"}
        case Decimal(precision, scale):
            return {"data_type": "decimal", "precision": precision, "scale": scale}
    match kind.name:
        case "int":
            return {"data_type": "bigint", "precision": 32}
        case "timestamptz":
            return {"data_type": "timestamp"}
        case "timestamp":
            return {"data_type": "timestamp", "timezone": False}
        case name:
            return cast(TColumnType, {"data_type": _PLAIN.get(name, "json")})
