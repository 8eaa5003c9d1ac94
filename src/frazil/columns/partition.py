"""Partition specs for new tables, and the choice between shuffling rows to their partitions and fanning out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from frazil.errors import ColumnMissing, ConfigError
from frazil.model.partition import PartitionField, transform_problem
from frazil.model.sort import SortField
from frazil.model.types import StructType

FIRST_PARTITION_ID = 1000

# Without a shuffle each task writes a file of its own for every partition that it meets. Beyond so many partitions a shuffle
# costs less than so many small files.
MOST_WITHOUT_SHUFFLE = 400

# What an open file takes before it has many rows, measured with Iceberg's writers: one page to compress into, and what each
# column begins with. A library that uploads by chunks takes a whole one for each file from its first byte on.
OPEN_FILE = 256 * 1024
OPEN_COLUMN = {"parquet": 32 * 1024, "orc": 64 * 1024, "avro": 8 * 1024}
_UPLOADS = {"gs:": 16 * 1024 * 1024, "abfs": 8 * 1024 * 1024, "wasb": 8 * 1024 * 1024}
# The share of a task's heap that is for open files; the rest is for the rows, and for Spark's own work.
OPEN_SHARE = 0.3

# A file's dictionaries are looked up for every value, and are lost time where they outgrow the processor's caches. One file at a
# time gets what Parquet itself allows; Iceberg allows twice that. Of the files that a task holds open at once, each gets less,
# and smaller row groups and pages, which is what it holds in memory. Measured by `benchmarks/append.py`: a fan-out at Iceberg's
# own sizes is slower than a shuffle, at these it takes two thirds of the time of one, for files about 4 % larger.
ONE_FILE_DEFAULTS = {"write.parquet.dict-size-bytes": str(1024 * 1024)}
FAN_OUT_DEFAULTS = {
    "write.parquet.dict-size-bytes": str(256 * 1024),
    "write.parquet.row-group-size-bytes": str(32 * 1024 * 1024),
    "write.parquet.page-size-bytes": str(OPEN_FILE),
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
        raise ColumnMissing("sort-column", f"sort_by: {why} {field.source!r}. Columns: {known}")
    return _source_id(field, schema, ids)


def _source_id(field: PartitionField, schema: StructType, ids: dict[str, Any]) -> int:
    column = schema.column(field.source)
    if column is None:
        known = ", ".join(c.name for c in schema.fields)
        raise ColumnMissing(
            "partition-column", f"{field} cannot be applied: there is no column {field.source!r}. Columns: {known}"
        )
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


def most_partitions(partition: Sequence[tuple[str, str]], rows: int | None) -> int | None:
    """The most partitions that a batch can touch, whatever its values are; None when only its values decide."""
    each = [_most_values(transform) for _, transform in partition]
    known = [values for values in each if values is not None]
    bounds = [prod(known)] if len(known) == len(each) else []
    return min([*bounds, *([rows] if rows is not None else [])], default=None)


def _most_values(transform: str) -> int | None:
    """How many values a transform can have: with nulls, one more than it has buckets."""
    name, _, width = transform.partition("[")
    return int(width.rstrip("]")) + 1 if name == "bucket" else 1 if name == "void" else None


@dataclass(frozen=True)
class Room:
    """What a task has for the files that it holds open: its share of the heap, and what one file of the table takes of it."""

    task_bytes: int
    file_bytes: int

    @property
    def files(self) -> int:
        """How many files a task can hold open."""
        return max(1, int(self.task_bytes * OPEN_SHARE) // self.file_bytes)


def open_file_bytes(file_format: str, columns: int, location: str) -> int:
    """What a file takes that is open for writing and has few rows yet, with so many columns, counting those within others."""
    upload = sum(chunk for scheme, chunk in _UPLOADS.items() if location.startswith(scheme))
    return OPEN_FILE + columns * OPEN_COLUMN[file_format] + upload


def distribution_options(distribution: str, partition: Sequence[tuple[str, str]], rows: int | None, room: Room) -> dict[str, str]:
    """Write options: whether rows are shuffled by partition, and whether a task keeps the files of all its partitions open.

    It does if the batch is certain to touch no more partitions than there is room for. Otherwise the rows of each task are
    sorted, on disk if memory is short, and written one partition at a time.
    """
    if distribution == "auto":
        distribution = "none" if expected_partitions(partition, rows) <= MOST_WITHOUT_SHUFFLE else "hash"
    most = most_partitions(partition, rows)
    fans_out = most is not None and most <= room.files
    return {"distribution-mode": distribution, "fanout-enabled": str(fans_out).lower()}


def write_defaults(options: Mapping[str, str], partition: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Table properties for a write with these options, where the table does not say otherwise."""
    fans_out = bool(partition) and options.get("fanout-enabled") == "true"
    return FAN_OUT_DEFAULTS if fans_out else ONE_FILE_DEFAULTS
