"""The order of rows within files, as values: a column or a transform of one, a direction, and where nulls go."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from pydantic import Field, model_serializer, model_validator

from frazil.model.base import Model
from frazil.model.partition import PartitionField

_FORM = re.compile(
    r"^\s*(?P<of>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*$", re.IGNORECASE | re.DOTALL
)


class Direction(StrEnum):
    """Which values come first."""

    ASC = "asc"
    DESC = "desc"


class Nulls(StrEnum):
    """Where rows without a value go."""

    FIRST = "first"
    LAST = "last"


class SortField(Model):
    """One field of a sort order. In a file also a text: `ts`, `ts desc`, `bucket(16, id) asc nulls last`."""

    of: PartitionField = Field(description="Column, or a transform of one.")
    direction: Direction = Field(Direction.ASC, description="Which values come first.")
    nulls: Nulls | None = Field(None, description="Where nulls go; first with asc and last with desc when left out.")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        if isinstance(data, str):
            found = _FORM.match(data)
            data = {"of": data} if found is None else {name: value for name, value in found.groupdict().items() if value}
        if not isinstance(data, dict):
            return data
        return {name: value.lower() if name != "of" and isinstance(value, str) else value for name, value in data.items()}

    @property
    def null_order(self) -> Nulls:
        """Where nulls go."""
        return self.nulls or (Nulls.LAST if self.direction is Direction.DESC else Nulls.FIRST)

    @property
    def iceberg_text(self) -> str:
        """The field as a table describes it, transforms under Iceberg's own names."""
        named = self.of.transform == "identity"
        source = self.of.source if named else f"{self.of.iceberg_transform}({self.of.source})"
        return f"{source} {self.direction} nulls {self.null_order}"

    @model_serializer
    def _as_text(self) -> str:
        return str(self)

    def __str__(self) -> str:
        source = self.of.source if self.of.transform == "identity" else str(self.of)
        return f"{source} {self.direction} nulls {self.null_order}"
