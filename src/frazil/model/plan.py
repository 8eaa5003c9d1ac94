"""What a run would do, as values: made without changing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frazil.model.commit import Position
from frazil.model.evolution import (
    AddColumn,
    DropColumn,
    MakeOptional,
    RenameColumn,
    TableChange,
    WidenColumn,
    evolved,
    renamed,
)
from frazil.model.html import facts_html, rows_html
from frazil.model.types import Column, StructType


@dataclass(frozen=True)
class PlannedColumn:
    """A column as it would be in the table, and as it is.

    ``change``: `keep`, `create`, `add`, `widen`, `optional`, `rename` or `drop`; several at once are joined by a comma.
    ``old_name`` and ``old_type`` are there when they differ from what would be.
    """

    name: str
    type: str
    required: bool
    change: str
    old_name: str | None = None
    old_type: str | None = None


def planned_columns(table: StructType, changes: Sequence[TableChange]) -> tuple[PlannedColumn, ...]:
    """The table's columns as they would be, then what changes inside of them, then what would go."""
    old_names = {renamed(column.name, changes): column.name for column in table.fields}
    now = {column.name: column for column in table.fields}
    after = evolved(table, changes)
    kept = [_planned(column, old_names.get(column.name, column.name), now, changes) for column in after.fields]
    names = {column.name for column in after.fields}
    inside = [_inside(change) for change in changes if not isinstance(change, DropColumn) and _path(change) not in names]
    gone = [now[change.path] for change in changes if isinstance(change, DropColumn)]
    dropped = [PlannedColumn(column.name, str(column.type), column.required, "drop") for column in gone]
    return (*kept, *(column for column in inside if column is not None), *dropped)


def _path(change: TableChange) -> str | None:
    """The path of the column that a change is about, as it would be."""
    match change:
        case RenameColumn():
            return change.name
        case AddColumn() | WidenColumn() | MakeOptional() | DropColumn():
            return change.path
        case _:
            return None


def _planned(column: Column, old_name: str, now: Mapping[str, Column], changes: Sequence[TableChange]) -> PlannedColumn:
    about = list(dict.fromkeys(_WORDS[type(c)] for c in changes if _path(c) == column.name and type(c) in _WORDS))
    old = now.get(old_name, column)
    widened = any(isinstance(change, WidenColumn) and change.path == column.name for change in changes)
    return PlannedColumn(
        column.name,
        str(column.type),
        column.required,
        ", ".join(about) or "keep",
        old_name=old_name if old_name != column.name else None,
        old_type=str(old.type) if widened else None,
    )


def _inside(change: TableChange) -> PlannedColumn | None:
    match change:
        case AddColumn():
            return PlannedColumn(change.path, str(change.column.type), False, _WORDS[AddColumn])
        case WidenColumn():
            return PlannedColumn(change.path, str(change.new), False, _WORDS[WidenColumn], old_type=str(change.old))
        case MakeOptional():
            return PlannedColumn(change.path, "", False, _WORDS[MakeOptional])
        case _:
            return None


_WORDS: Mapping[type, str] = {AddColumn: "add", WidenColumn: "widen", MakeOptional: "optional", RenameColumn: "rename"}


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
    """How many a run would read, or, unless they are counted, about as many as the first batch has."""
    counted: bool
    notes: tuple[str, ...] = ()
    old_partition: tuple[str, ...] | None = None
    """The table's partitioning when it would be changed; what is in the table stays under it."""

    @property
    def changes_anything(self) -> bool:
        """Whether the table itself would be created or changed, apart from rows."""
        changes = self.old_partition is not None or any(column.change != "keep" for column in self.columns)
        return self.create_table or changes

    @property
    def rows_text(self) -> str:
        """How many rows a run would read, as far as that is known, in words."""
        if self.rows is None:
            return "unknown"
        return f"{self.rows:,}" if self.counted else f"about {self.rows:,} in the first batch"

    def _repr_html_(self) -> str:
        """For notebooks: what a run would do, and the columns as they would be."""
        action = "create" if self.create_table else "change" if self.changes_anything else "keep"
        facts = [
            ("table", f"{action} {self.table}"),
            ("catalog", self.catalog),
            ("partitioned by", ", ".join(self.partition) or "nothing"),
            ("mode", self.mode),
            ("reads from", self.start or "the beginning"),
            ("rows to read", self.rows_text),
            *(("note", note) for note in self.notes),
        ]
        columns = [(one.name, one.type, "required" if one.required else "", one.change) for one in self.columns]
        return facts_html(f"Plan of {self.pipeline}", facts) + rows_html(("column", "type", "", "change"), columns)
