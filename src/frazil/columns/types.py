"""Iceberg's types as Spark's, and Spark's as Iceberg's: pure functions over both trees.

Spark has no type of its own for ``uuid`` and ``fixed``: they become string and binary, and do not come back. Spark's ``byte``
and ``short`` become ``int``, its ``char`` and ``varchar`` become ``string``: Iceberg knows nothing narrower. Everything else
survives the round trip, with required fields and comments.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as spark

from frazil.errors import ConfigError, DataError
from frazil.model.types import (
    NOT_WRITABLE,
    Column,
    Decimal,
    Fixed,
    ListType,
    MapType,
    Primitive,
    StructType,
    Type,
    unwritable,
)

_TO_SPARK: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "date": spark.DateType(),
    "timestamp": spark.TimestampNTZType(),
    "timestamptz": spark.TimestampType(),
    "string": spark.StringType(),
    "uuid": spark.StringType(),
    "binary": spark.BinaryType(),
    "variant": spark.VariantType(),
}

_TO_ICEBERG: dict[type[spark.DataType], str] = {
    spark.BooleanType: "boolean",
    spark.ByteType: "int",
    spark.ShortType: "int",
    spark.IntegerType: "int",
    spark.LongType: "long",
    spark.FloatType: "float",
    spark.DoubleType: "double",
    spark.DateType: "date",
    spark.TimestampNTZType: "timestamp",
    spark.TimestampType: "timestamptz",
    spark.StringType: "string",
    spark.CharType: "string",
    spark.VarcharType: "string",
    spark.BinaryType: "binary",
    spark.VariantType: "variant",
}


def spark_type(kind: Type) -> spark.DataType:
    """Spark's type of an Iceberg type. A ConfigError when Spark cannot write it (``time``, nanoseconds)."""
    match kind:
        case StructType():
            return spark_schema(kind)
        case ListType():
            return spark.ArrayType(spark_type(kind.element), containsNull=not kind.element_required)
        case MapType():
            return spark.MapType(spark_type(kind.key), spark_type(kind.value), valueContainsNull=not kind.value_required)
        case Decimal():
            return spark.DecimalType(kind.precision, kind.scale)
        case Fixed():
            return spark.BinaryType()
        case Primitive() if kind.name in _TO_SPARK:
            return _TO_SPARK[kind.name]
        case _:
            raise ConfigError(
                "type-not-in-spark",
                f"Spark cannot write Iceberg's type {kind}.",
                fix=f"Declare the column as {NOT_WRITABLE.get(kind.name, 'string')}.",
            )


def is_writable(kind: Type) -> bool:
    """Whether Spark has a type for it."""
    try:
        spark_type(kind)
    except ConfigError:
        return False
    return True


def require_writable(schema: StructType, format_version: int) -> None:
    """A ConfigError when a table of this version and these columns could not be made or written."""
    for found in unwritable(schema, format_version):
        raise ConfigError(found.code, f"{found.why[0].upper()}{found.why[1:]}.", fix=found.fix)


def spark_schema(schema: StructType) -> spark.StructType:
    """Spark's schema of Iceberg's; required columns are not nullable, docs are comments."""
    return spark.StructType([_spark_field(column) for column in schema.fields])


def _spark_field(column: Column) -> spark.StructField:
    metadata = {"comment": column.doc} if column.doc else None
    return spark.StructField(column.name, spark_type(column.type), nullable=not column.required, metadata=metadata)


def iceberg_type(kind: spark.DataType, path: str = "") -> Type:
    """Iceberg's type of a Spark type. A DataError, naming the column at ``path``, when Iceberg has none."""
    match kind:
        case spark.StructType():
            return StructType(tuple(_iceberg_column(field, path) for field in kind.fields))
        case spark.ArrayType():
            return ListType(iceberg_type(kind.elementType, f"{path}.element".lstrip(".")), not kind.containsNull)
        case spark.MapType():
            return MapType(
                iceberg_type(kind.keyType, f"{path}.key".lstrip(".")),
                iceberg_type(kind.valueType, f"{path}.value".lstrip(".")),
                not kind.valueContainsNull,
            )
        case spark.DecimalType():
            return Decimal(kind.precision, kind.scale)
        case _ if (name := _TO_ICEBERG.get(type(kind))) is not None:
            return Primitive(name)
        case _:
            where = f"The column {path!r}" if path else "A column"
            raise DataError(
                "type-not-in-iceberg",
                f"{where} has Spark's type {kind.simpleString()}, for which Iceberg has none.",
                fix="Cast it in the query or declare the column, e.g. as string.",
            )


def iceberg_schema(schema: spark.StructType) -> StructType:
    """Iceberg's schema of Spark's."""
    return StructType(tuple(_iceberg_column(field, "") for field in schema.fields))


def _iceberg_column(field: spark.StructField, path: str) -> Column:
    metadata: dict[str, Any] = field.metadata or {}
    own_path = f"{path}.{field.name}" if path else field.name
    return Column(field.name, iceberg_type(field.dataType, own_path), not field.nullable, metadata.get("comment"))
