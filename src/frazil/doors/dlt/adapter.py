"""Partitioning and sorting of a resource's table, written in Python instead of column hints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dlt.destinations.utils import get_resource_for_adapter
from dlt.extract import DltResource

from frazil.doors.dlt.hints import NAME, PARTITION, PARTITION_PLACE, SORT, SORT_PLACE, TRANSFORM
from frazil.errors import ConfigError


@dataclass(frozen=True)
class PartitionTransform:
    """A partition field: the column, how its values are made from it, and its name."""

    column: str
    transform: str
    param: int | None = None
    name: str | None = None

    def to_hint_value(self) -> str:
        """As the column hint has it: `bucket[10]`."""
        return self.transform if self.param is None else f"{self.transform}[{self.param}]"


class iceberg_partition:  # noqa: N801 - the name that users import
    """Makes partition fields: `iceberg_partition.day("ts")`, `iceberg_partition.bucket(10, "user_id")`."""

    @staticmethod
    def identity(column: str, name: str | None = None) -> PartitionTransform:
        """The value itself."""
        return PartitionTransform(column, "identity", name=name)

    @staticmethod
    def year(column: str, name: str | None = None) -> PartitionTransform:
        """The year of a date or timestamp."""
        return PartitionTransform(column, "year", name=name)

    @staticmethod
    def month(column: str, name: str | None = None) -> PartitionTransform:
        """The month of a date or timestamp."""
        return PartitionTransform(column, "month", name=name)

    @staticmethod
    def day(column: str, name: str | None = None) -> PartitionTransform:
        """The day of a date or timestamp."""
        return PartitionTransform(column, "day", name=name)

    @staticmethod
    def hour(column: str, name: str | None = None) -> PartitionTransform:
        """The hour of a timestamp."""
        return PartitionTransform(column, "hour", name=name)

    @staticmethod
    def bucket(num_buckets: int, column: str, name: str | None = None) -> PartitionTransform:
        """One of so many buckets, by a hash of the value."""
        return PartitionTransform(column, "bucket", _positive("num_buckets", num_buckets), name)

    @staticmethod
    def truncate(width: int, column: str, name: str | None = None) -> PartitionTransform:
        """A text's beginning, or a number rounded down to a multiple of the width."""
        return PartitionTransform(column, "truncate", _positive("width", width), name)


def _positive(what: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{what} must be a number and comes first: bucket(10, 'user_id'); got {value!r}")  # noqa: TRY004
    if value <= 0:
        raise ValueError(f"{what} must be positive, got {value}")
    return value


Fields = str | PartitionTransform | Sequence[str | PartitionTransform]


def iceberg_adapter(data: Any, partition: Fields | None = None, sort: str | Sequence[str] | None = None) -> DltResource:
    """Says how the table of a resource is partitioned, and by which columns the rows of its files are sorted, in their order.

    ``data`` is a resource, a source with one resource, or plain data. A column given by its name alone is partitioned as its
    type suggests: dates and timestamps by month, others by their values.
    """
    resource = get_resource_for_adapter(data)
    columns: dict[str, dict[str, Any]] = {}
    fields = [] if partition is None else [partition] if isinstance(partition, str | PartitionTransform) else list(partition)
    for place, field in enumerate(fields, 1):
        if not isinstance(field, str | PartitionTransform):
            raise ConfigError(
                "partition-field",
                f"iceberg_adapter: partition: {field!r} is neither a column's name nor a partition field.",
                fix='Write "region", or iceberg_partition.day("ts").',
            )
        column = field if isinstance(field, str) else field.column
        if column in columns:
            raise ConfigError(
                "partition-field",
                f"iceberg_adapter: partition: the column {column!r} is named twice; a column has one partition field.",
            )
        columns[column] = {"name": column, PARTITION: True, PARTITION_PLACE: place}
        if isinstance(field, PartitionTransform):
            columns[column][TRANSFORM] = field.to_hint_value()
            if field.name:
                columns[column][NAME] = field.name
    for place, name in enumerate([sort] if isinstance(sort, str) else sort or (), 1):
        columns.setdefault(name, {"name": name}).update({SORT: True, SORT_PLACE: place})
    if columns:
        resource.apply_hints(columns=columns)  # type: ignore[arg-type]
    return resource
