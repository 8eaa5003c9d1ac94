"""Partition specs for new tables, and the choice between shuffling rows to their partitions and fanning out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from frazil.errors import ConfigError
from frazil.model.partition import PartitionField, transform_problem
from frazil.model.sort import SortField
from frazil.model.types import StructType

FIRST_PARTITION_ID = 1000

# With fan-out a task holds a file open for every partition that it meets. So many are cheap in memory; more are shuffled.
MOST_OPEN_FILES = 400

# A file's dictionaries are looked up for every value, and are lost time where they outgrow the processor's caches. One file at a
# time gets what Parquet itself allows; Iceberg allows twice that. Of the files that a task holds open at once, each gets less,
# and smaller row groups, which is what it holds in memory. Measured by `benchmarks/append.py`: a fan-out at Iceberg's own
# sizes is slower than a shuffle, at these it takes two thirds of the time of one, for files about 4 % larger.
ONE_FILE_DEFAULTS = {"write.parquet.dict-size-bytes": str(1024 * 1024)}
FAN_OUT_DEFAULTS = {
    "write.parquet.dict-size-bytes": str(256 * 1024),
    "write.parquet.row-group-size-bytes": str(32 * 1024 * 1024),
}

_UNORDERED = ("struct", "list", "map", "variant")

# How many partitions a batch is expected to touch by a transform whose number of values is not bounded by its width.
_TYPICAL = {"year": 10, "month": 60, "day": 366, "hour": 1000, "identity": 1000, "truncate": 1000, "void": 1}


def partition_json(fields: Sequence[PartitionField], schema: StructType, ids: dict[str, Any]) -> dict[str, Any]:
    """Iceberg's JSON of the spec, on top of the schema's JSON with its ids; refuses a transform that cannot be applied."""
    return {
        "spec-id": 0,
        "fields": [
            {
                "name": field.field_name,
                "transform": field.iceberg_transform,
                "source-id": _source_id(field, schema, ids),
                "field-id": FIRST_PARTITION_ID + number,
            }
            for number, field in enumerate(fields)
        ],
    }


def sort_json(fields: Sequence[SortField], schema: StructType, ids: dict[str, Any]) -> dict[str, Any]:
    """Iceberg's JSON of a sort order, in the same way; no fields make the order that is none."""
    return {
        "order-id": 1 if fields else 0,
        "fields": [
            {
                "transform": field.of.iceberg_transform,
                "source-id": _sort_source_id(field.of, schema, ids),
                "direction": field.direction.value,
                "null-order": f"nulls-{field.null_order.value}",
            }
            for field in fields
        ],
    }


def _sort_source_id(field: PartitionField, schema: StructType, ids: dict[str, Any]) -> int:
    column = schema.column(field.source)
    if column is None or column.type.name in _UNORDERED:
        known = ", ".join(c.name for c in schema.fields if c.type.name not in _UNORDERED)
        why = "there is no column" if column is None else "rows cannot be sorted by"
        raise ConfigError("sort-column", f"sort_by: {why} {field.source!r}. Columns: {known}")
    return _source_id(field, schema, ids)


def _source_id(field: PartitionField, schema: StructType, ids: dict[str, Any]) -> int:
    column = schema.column(field.source)
    if column is None:
        known = ", ".join(c.name for c in schema.fields)
        raise ConfigError("partition-column", f"{field} cannot be applied: there is no column {field.source!r}. Columns: {known}")
    if problem := transform_problem(field, column.type.name):
        raise ConfigError("partition-transform", problem, fix="Choose another transform, or change the column's type.")
    level: dict[str, Any] = ids
    number = 0
    for name in field.source.split("."):
        found = next(item for item in level["fields"] if item["name"] == name)
        number, level = found["id"], found["type"] if isinstance(found["type"], dict) else {}
    return int(number)


def expected_partitions(partition: Sequence[tuple[str, str]], rows: int | None) -> int:
    """About how many partitions a batch touches, by the transforms of the table (`bucket[16]`, `day`, ...)."""
    if not partition:
        return 1
    each = [_values(transform) for _, transform in partition]
    return min(prod(each), rows) if rows is not None else prod(each)


def _values(transform: str) -> int:
    name, _, width = transform.partition("[")
    return int(width.rstrip("]")) if name == "bucket" else _TYPICAL.get(name, 1000)


def distribution_options(distribution: str, partition: Sequence[tuple[str, str]], rows: int | None) -> dict[str, str]:
    """Write options: fan-out without a shuffle where few files stay open, otherwise a shuffle to the partitions."""
    if distribution == "auto":
        distribution = "none" if expected_partitions(partition, rows) <= MOST_OPEN_FILES else "hash"
    return {"distribution-mode": distribution, "fanout-enabled": "true"}


def write_defaults(options: Mapping[str, str], partition: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Table properties for a write with these options, where the table does not say otherwise."""
    fans_out = bool(partition) and options.get("distribution-mode") == "none"
    return FAN_OUT_DEFAULTS if fans_out else ONE_FILE_DEFAULTS
