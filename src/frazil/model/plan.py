"""What a run would do, as values: made without changing anything."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.model.commit import Position


@dataclass(frozen=True)
class PlannedColumn:
    """A column as it would be in the table. ``change``: `keep`, `create` or `add`."""

    name: str
    type: str
    required: bool
    change: str


@dataclass(frozen=True)
class PipelinePlan:
    """What one pipeline would create, change and read."""

    pipeline: str
    sink_id: str
    catalog: str
    table: str
    create_namespaces: tuple[str, ...]
    create_table: bool
    columns: tuple[PlannedColumn, ...]
    partition: tuple[str, ...]
    identifier_fields: tuple[str, ...]
    format_version: int
    properties: tuple[tuple[str, str], ...]
    mode: str
    epoch: int
    start: Position | None
    end: Position | None
    rows: int | None
    notes: tuple[str, ...] = ()

    @property
    def changes_anything(self) -> bool:
        """Whether the table itself would be created or changed, apart from rows."""
        return self.create_table or any(column.change != "keep" for column in self.columns)
