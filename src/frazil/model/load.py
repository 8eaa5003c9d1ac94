"""A load: Parquet files of tables that belong together, and what their rows do to the tables."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from frazil.model.base import Model
from frazil.model.changes import CommitMode
from frazil.model.sink import SinkSpec

ALL_ROWS = "true"
"""The condition of an overwrite that leaves nothing of what was there, however the table is partitioned."""


class Disposition(StrEnum):
    """What a load does to the rows that are there."""

    APPEND = "append"
    REPLACE = "replace"
    DELETE_INSERT = "delete-insert"
    UPSERT = "upsert"
    INSERT_ONLY = "insert-only"

    @property
    def merges(self) -> bool:
        """Whether rows are compared with those that are there."""
        return self not in (Disposition.APPEND, Disposition.REPLACE)

    @property
    def only_adds(self) -> bool:
        """Whether a table without new rows is left as it is."""
        return self in (Disposition.APPEND, Disposition.INSERT_ONLY)


class Newest(Model):
    """Which of several rows with one key counts: the one with the greatest value in a column, or with the least."""

    column: str
    order: Literal["asc", "desc"] = "desc"


class DeleteMark(Model):
    """The column that marks deleted rows: by any value, or, if it is a ``flag``, by true."""

    column: str
    flag: bool = False


class TableLoad(Model):
    """One table of a load: the table, and the files with its rows.

    ``row_key`` is the column that names each row, ``root_key`` that which says to which row of the root table a nested one
    belongs. ``parent_key`` says the same for the table that it is nested in, whose place among the load's tables is ``parent``.
    """

    sink: SinkSpec
    files: tuple[str, ...] = ()
    row_key: str | None = None
    root_key: str | None = None
    parent_key: str | None = None
    parent: int = 0


class Load(Model):
    """Files of a root table and of the tables nested in it, under a key by which a repeated load is known."""

    key: str
    sink_id: str
    disposition: Disposition
    tables: tuple[TableLoad, ...] = Field(min_length=1)
    primary_key: tuple[str, ...] = ()
    merge_key: tuple[str, ...] = ()
    newest: Newest | None = None
    delete_mark: DeleteMark | None = None
    deduplicated: bool = False

    @property
    def root(self) -> TableLoad:
        """The table that the others are nested in."""
        return self.tables[0]

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The lists of columns by which rows of the root table are found."""
        by_primary_key = self.disposition is not Disposition.DELETE_INSERT
        return tuple(key for key in (self.primary_key, () if by_primary_key else self.merge_key) if key)

    def sink_of(self, table: TableLoad) -> SinkSpec:
        """The sink that writes one of the tables, with the mode that the load asks for."""
        return table.sink.with_options(**self._mode(table))

    def _mode(self, table: TableLoad) -> dict[str, Any]:
        nested = table is not self.root
        match self.disposition:
            case Disposition.APPEND:
                return {"commit_mode": CommitMode.APPEND}
            case Disposition.REPLACE:
                return {"commit_mode": CommitMode.OVERWRITE, "overwrite_where": ALL_ROWS}
            case Disposition.INSERT_ONLY:
                keys = (table.row_key,) if nested else self.primary_key
                return {"commit_mode": CommitMode.UPSERT, "key_fields": keys, "when_matched_update_all": False}
            case Disposition.UPSERT if not nested:
                return {"commit_mode": CommitMode.UPSERT, "key_fields": self.primary_key}
            case _ if nested:
                return {"commit_mode": CommitMode.DELETE_INSERT, "replace_by": ((table.root_key,),)}
            case _:
                identity = {"key_fields": self.primary_key} if self.primary_key else {}
                return {"commit_mode": CommitMode.DELETE_INSERT, "replace_by": self.keys, **identity}
