"""Columns of several files put together: the narrowest type that holds what each of them has."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import DataType, StringType, StructField, StructType

from frazil.columns.common_type import common_type
from frazil.errors import DataError


def merged_schema(schemas: Iterable[StructType], *, or_text: bool = False) -> StructType:
    """The columns of several files, in the order in which they appear.

    When a column has types with nothing in common it becomes text, where ``or_text`` says that this is what was in the
    file; otherwise that is a DataError.
    """
    found: dict[str, DataType] = {}
    for field in (field for schema in schemas for field in schema.fields):
        before = found.get(field.name, field.dataType)
        common = common_type(before, field.dataType) or (StringType() if or_text else None)
        if common is None:
            types = f"{before.simpleString()} in one and {field.dataType.simpleString()} in another"
            raise conflicting_files(f"the column {field.name!r} is {types}")
        found[field.name] = common
    return StructType([StructField(name, kind) for name, kind in found.items()])


def conflicting_files(what: str) -> DataError:
    """The error for files whose columns do not fit together."""
    return DataError(
        "file-schemas-conflict",
        f"The new files do not fit together: {what}.",
        fix="Declare the columns under the source's `schema`, or put the files into folders of their own.",
    )
