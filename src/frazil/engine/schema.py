"""Brings a data frame into the shape of the table: columns by name, nested fields too, conversions that fail loudly."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, functions

from frazil.engine.types import iceberg_schema, spark_type
from frazil.model.types import Column as TableColumn
from frazil.model.types import ListType, MapType, StructType, Type

HIDDEN = "__frazil_"
"""How the names of columns begin that a frame has beside its data."""

OP = f"{HIDDEN}op"
"""What a row does to the table: insert, update, delete or ignore."""
DELETE = "delete"


def data_columns(frame: DataFrame) -> list[str]:
    """The columns that go into the table."""
    return [name for name in frame.columns if not name.startswith(HIDDEN)]


def schema_of(frame: DataFrame) -> StructType:
    """The frame's data columns in Iceberg's types."""
    schema = iceberg_schema(frame.schema)
    return StructType(tuple(column for column in schema.fields if not column.name.startswith(HIDDEN)))


def added_to(schema: StructType, path: str, column: TableColumn) -> StructType:
    """The schema with a column more, at the dotted path of its parent (empty: at the top)."""
    if not path:
        return StructType((*schema.fields, column))
    head, _, rest = path.partition(".")
    return StructType(
        tuple(
            TableColumn(field.name, _inner_added(field.type, rest, column), field.required, field.doc)
            if field.name == head
            else field
            for field in schema.fields
        )
    )


def _inner_added(kind: Type, path: str, column: TableColumn) -> Type:
    head, _, rest = path.partition(".")
    match kind:
        case ListType() if head == "element":
            return ListType(_inner_added(kind.element, rest, column), kind.element_required)
        case MapType() if head == "value":
            return MapType(kind.key, _inner_added(kind.value, rest, column), kind.value_required)
        case StructType():
            return added_to(kind, path, column)
        case _:
            raise TypeError(f"{kind} has no fields")


def alignment(
    data: StructType, table: StructType, keys: Collection[str] = (), unless: Column | None = None
) -> tuple[Column, ...] | None:
    """The table's columns in its order, made from the data's: absent ones null, nested ones aligned, required ones checked.

    Not checked are ``keys``, which are looked at by themselves, and rows ``unless`` which the condition does not hold: those
    that only delete. None when the data's columns already are the table's, so that nothing needs to be selected.
    """
    given = {column.name: column for column in data.fields}
    if [*given] == [target.name for target in table.fields] and all(_fits(given[target.name], target) for target in table.fields):
        return None
    columns = []
    for target in table.fields:
        source = given.get(target.name)
        if source is None:
            columns.append(functions.lit(None).cast(spark_type(target.type)).alias(target.name))
            continue
        value = _aligned_value(functions.col(quoted(target.name)), source.type, target.type, target.name)
        if target.required and not source.required and target.name not in keys:
            value = _not_null(value, target.name, unless)
        columns.append(value.alias(target.name))
    return tuple(columns)


def _fits(source: TableColumn, target: TableColumn) -> bool:
    return _same_shape(source.type, target.type) and (source.required or not target.required)


def _aligned_value(value: Column, data: Type, table: Type, path: str) -> Column:
    if _same_shape(data, table):
        return value
    match data, table:
        case StructType(), StructType():
            given = {field.name: field for field in data.fields}
            fields = [
                (
                    _aligned_value(value.getField(f.name), given[f.name].type, f.type, f"{path}.{f.name}")
                    if f.name in given
                    else functions.lit(None).cast(spark_type(f.type))
                ).alias(f.name)
                for f in table.fields
            ]
            return functions.when(value.isNotNull(), functions.struct(*fields))
        case ListType(), ListType():
            return functions.transform(value, lambda item: _aligned_value(item, data.element, table.element, f"{path}.element"))
        case MapType(), MapType():
            return functions.transform_values(
                value, lambda _key, item: _aligned_value(item, data.value, table.value, f"{path}.value")
            )
        case _:
            return _converted(value, table, path)


def _converted(value: Column, table: Type, path: str) -> Column:
    """The value in the table's type; a value that has no such form stops the batch, and never becomes null unseen."""
    target = spark_type(table)
    text = functions.concat(
        functions.lit(f"[frazil-cast] column {path!r} cannot hold this value as {table}: "), value.cast("string")
    )
    return functions.when(value.isNotNull(), functions.coalesce(value.try_cast(target), functions.raise_error(text).cast(target)))


def _not_null(value: Column, path: str, unless: Column | None) -> Column:
    complaint = functions.raise_error(functions.lit(f"[frazil-null] column {path!r} is required, and a row has no value for it"))
    checked = functions.coalesce(value, complaint)
    return checked if unless is None else functions.when(unless, value).otherwise(checked)


def _same_shape(data: Type, table: Type) -> bool:
    """Whether Spark's writer needs no help: the same type in Spark, apart from what may be null."""
    return _bare(data) == _bare(table)


def _bare(kind: Type) -> object:
    match kind:
        case StructType():
            return tuple((field.name, _bare(field.type)) for field in kind.fields)
        case ListType():
            return ("list", _bare(kind.element))
        case MapType():
            return ("map", _bare(kind.key), _bare(kind.value))
        case _:
            return spark_type(kind)


def quoted(name: str) -> str:
    """A column's name that Spark takes as it is, dots too."""
    return "`" + name.replace("`", "``") + "`"
