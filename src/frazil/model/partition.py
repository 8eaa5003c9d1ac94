"""Partitioning as values: a transform of a source column, with its width and name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from pydantic import Field, model_serializer, model_validator

from frazil.model.base import Model


class Transform(StrEnum):
    """The transforms of the Iceberg specification."""

    IDENTITY = "identity"
    BUCKET = "bucket"
    TRUNCATE = "truncate"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    VOID = "void"


# Spark and SQL users write the plural; both mean the same transform.
_ALIASES = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_SIZED = (Transform.BUCKET, Transform.TRUNCATE)
_NUMBER = re.compile(r"^[0-9]{1,9}$")
_CALL = re.compile(r"^\s*(?P<name>\w+)\s*\(\s*(?P<arguments>.*?)\s*\)\s*$")

_TEMPORAL = ("date", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_BUCKETABLE = ("int", "long", "decimal", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns",
               "string", "uuid", "fixed", "binary")  # fmt: skip
_TRUNCATABLE = ("int", "long", "decimal", "string", "binary")
_ACCEPTED: dict[Transform, tuple[str, ...]] = {
    Transform.BUCKET: _BUCKETABLE,
    Transform.TRUNCATE: _TRUNCATABLE,
    Transform.YEAR: _TEMPORAL,
    Transform.MONTH: _TEMPORAL,
    Transform.DAY: _TEMPORAL,
    Transform.HOUR: tuple(kind for kind in _TEMPORAL if kind != "date"),
}


class PartitionField(Model):
    """One partition field. In a file also a text: `bucket(16, id)`, `day(ts)`, `truncate(4, name)`, `region`."""

    source: str = Field(min_length=1, description="Column of the source that the value is made from.")
    transform: Transform = Field(Transform.IDENTITY, description="How the value is made.")
    width: int | None = Field(None, ge=1, description="Number of buckets, or width of truncation.")
    name: str | None = Field(None, description="Name of the partition field; made from the others when left out.")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return parse_partition_text(data) if isinstance(data, str) else data

    @model_validator(mode="after")
    def _sized(self) -> PartitionField:
        if self.transform in _SIZED and self.width is None:
            raise ValueError(f"{self.transform} needs a width: {self.transform}(16, {self.source})")
        if self.transform not in _SIZED and self.width is not None:
            raise ValueError(f"{self.transform} takes no width")
        return self

    @model_serializer
    def _as_text(self) -> str | dict[str, Any]:
        if self.name is None:
            return str(self)
        return {"source": self.source, "transform": self.transform.value, "width": self.width, "name": self.name}

    @property
    def field_name(self) -> str:
        """The name in the table: the given one, or Iceberg's custom (`ts_day`, `id_bucket_16`, `region`)."""
        if self.name:
            return self.name
        column = self.source.replace(".", "_")
        match self.transform:
            case Transform.IDENTITY:
                return column
            case Transform.BUCKET:
                return f"{column}_bucket_{self.width}"
            case Transform.TRUNCATE:
                return f"{column}_trunc_{self.width}"
            case _:
                return f"{column}_{self.transform.value}"

    @property
    def iceberg_transform(self) -> str:
        """The transform as Iceberg's metadata spells it: `bucket[16]`."""
        return f"{self.transform.value}[{self.width}]" if self.width is not None else self.transform.value

    def __str__(self) -> str:
        if self.transform is Transform.IDENTITY:
            return self.source
        size = f"{self.width}, " if self.width is not None else ""
        return f"{self.transform.value}({size}{self.source})"


def name_problems(fields: Sequence[PartitionField]) -> list[str]:
    """What is wrong with the names of a table's partition fields: two cannot have the same."""
    by_name: dict[str, list[str]] = {}
    for field in fields:
        by_name.setdefault(field.field_name, []).append(str(field))
    problems = []
    for name, same in by_name.items():
        if len(same) > 1:
            if len(set(same)) == 1:
                problems.append(f"{same[0]} partitions the table twice: keep one of them")
            else:
                problems.append(f"{' and '.join(same)} would both be the partition field {name!r}: give one of them a `name`")
    return problems


def whole_fields(value: Any) -> Any:
    """`[day(ts), bucket(16, id)]` is cut at every comma by YAML and by whoever splits a text: the parts of a call are joined."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple):
        return value
    fields: list[Any] = []
    for item in value:
        last = fields[-1] if fields else None
        if isinstance(item, str) and isinstance(last, str) and last.count("(") > last.count(")"):
            fields[-1] = f"{last}, {item.strip()}"
        else:
            fields.append(item)
    return fields


def parse_partition_text(text: str) -> dict[str, Any]:
    """Reads `transform(width, column)`; the width may also come second, as PyIceberg and dlt users write it."""
    call = _CALL.match(text)
    if call is None:
        if "(" in text or ")" in text:
            raise ValueError(f"cannot read {text!r}; write a column, transform(column) or transform(width, column)")
        return {"source": text.strip()}
    name = call["name"].lower()
    arguments = [part.strip() for part in call["arguments"].split(",")] if call["arguments"] else []
    transform = _ALIASES.get(name, name)
    if transform not in [known.value for known in Transform]:
        raise ValueError(f"unknown transform {name!r}; known: {', '.join(known.value for known in Transform)}")
    widths = [int(part) for part in arguments if _NUMBER.match(part)]
    columns = [part for part in arguments if not _NUMBER.match(part)]
    if len(columns) != 1 or len(widths) > 1:
        raise ValueError(f"cannot read {text!r}; write {transform}(column) or {transform}(width, column)")
    return {"source": columns[0], "transform": transform, "width": widths[0] if widths else None}


def transform_problem(field: PartitionField, type_name: str) -> str | None:
    """Why the transform cannot be applied to a column of this Iceberg type, or None."""
    if type_name in ("struct", "list", "map", "variant"):
        return f"{field} cannot be applied: column {field.source!r} has type {type_name}, which is not a single value"
    accepted = _ACCEPTED.get(field.transform)
    if accepted is None or type_name in accepted:
        return None
    return (
        f"{field} cannot be applied: column {field.source!r} has type {type_name}, "
        f"and {field.transform} takes {', '.join(accepted)}"
    )
