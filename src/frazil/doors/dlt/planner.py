"""What a load does, as the engine understands it: made of dlt's schema, its hints, and the files of a load package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.typing import PreparedTableSchema
from dlt.common.schema import Schema
from dlt.common.schema.exceptions import SchemaCorruptedException
from dlt.common.schema.utils import get_nested_tables, get_root_table, has_table_seen_data

from frazil.doors.dlt import hints
from frazil.doors.dlt.configuration import IcebergRestConfiguration, warn_once
from frazil.model.load import DeleteMark, Disposition, Load, TableLoad
from frazil.model.sink import SinkSpec


@dataclass(frozen=True)
class LoadPlanner:
    """Plans loads of one schema into one dataset."""

    schema: Schema
    config: IcebergRestConfiguration
    capabilities: DestinationCapabilitiesContext
    prepared: Callable[[str], PreparedTableSchema]
    """A table as dlt prepares it for a load."""

    @property
    def sink_id(self) -> str:
        """Packages of one schema are loaded one after the other, so that its last load is the one that may be repeated."""
        return f"dlt/{self.schema.name}"

    def require_loadable(self, table: PreparedTableSchema) -> None:
        """Raises for hints of a table that cannot be followed."""
        hints.require_precisions(self.schema.name, table)
        hints.partition_fields(self.schema.name, table, self.capabilities)
        hints.table_properties(self.schema.name, table)
        self._require_keys(table)
        self._require_root_keys(table)
        self._require_one_disposition(table)
        self._require_name_of_its_own(table)

    def chain_of(self, table_name: str) -> list[PreparedTableSchema]:
        """A table's root and all tables nested in that, as far as they have ever had data."""
        root = table_name
        while parent := self.schema.tables[root].get("parent"):
            root = parent
        nested = get_nested_tables(self.schema.tables, root)
        return [
            self.prepared(str(table["name"]))
            for table in nested
            if table["name"] in (root, table_name) or has_table_seen_data(table)
        ]

    def sink_as_loaded(self, name: str) -> SinkSpec:
        """The sink of a table as a load writes it, with its columns and keys."""
        chain = self.chain_of(name)
        load = self.load("", chain, {})
        return load.sink_of(next(table for table, given in zip(load.tables, chain, strict=True) if given["name"] == name))

    def load(self, load_id: str, chain: Sequence[PreparedTableSchema], files: Mapping[str, Sequence[Path]]) -> Load:
        """The load of a chain of tables, with the files of each."""
        root = chain[0]
        disposition = hints.disposition_of(self.schema.tables, root, self.capabilities)
        merges = disposition.merges
        return Load(
            key=load_id,
            sink_id=self.sink_id,
            disposition=disposition,
            tables=tuple(self._table_load(chain, table, files.get(hints.name_of(table), ())) for table in chain),
            primary_key=hints.keys_of(root, "primary_key") if merges else (),
            merge_key=hints.keys_of(root, "merge_key") if disposition is Disposition.DELETE_INSERT else (),
            newest=hints.newest_of(root) if merges else None,
            delete_mark=self._delete_mark(root, merges=merges),
            deduplicated=bool(root.get("x-stage-data-deduplicated", False)),
        )

    def _delete_mark(self, root: PreparedTableSchema, *, merges: bool) -> DeleteMark | None:
        """The column that marks rows which are gone. Where a merge has no keys and appends, only a hint makes it one."""
        if merges:
            return hints.delete_mark(root, self.config.hard_delete_column)
        return hints.delete_mark(root, None) if root["write_disposition"] == "merge" else None

    def _table_load(self, chain: Sequence[PreparedTableSchema], table: PreparedTableSchema, files: Sequence[Path]) -> TableLoad:
        schemas = [pyarrow.parquet.read_schema(path) for path in files]
        options: dict[str, Any] = {"columns": hints.declared_columns(table, self.capabilities, schemas)}
        if fields := hints.partition_fields(self.schema.name, table, self.capabilities):
            options["partition_by"] = fields
        if by := hints.sorted_by(table):
            options["sort_by"] = by
        if properties := hints.table_properties(self.schema.name, table):
            options["write_properties"] = properties
        return TableLoad(
            sink=self.config.sink(hints.name_of(table), **options),
            files=tuple(str(path) for path in files),
            row_key=hints.first_with(table, "row_key"),
            root_key=hints.root_key(chain, table) if hints.is_nested(table) else None,
            parent_key=hints.first_with(table, "parent_key"),
            parent=next((place for place, one in enumerate(chain) if one["name"] == table.get("parent")), 0),
        )

    def _require_keys(self, table: PreparedTableSchema) -> None:
        """A merge must be able to find the rows that it replaces or takes away."""
        if table["write_disposition"] != "merge" or hints.is_nested(table):
            return
        named = [(hint, name) for hint in ("primary_key", "merge_key") for name in hints.keys_of(table, hint)]
        deletes = hints.first_with(table, "hard_delete")
        if deletes is not None and not named:
            warn_once(
                f"Table {table['name']!r}: without a primary_key or a merge_key nothing tells which rows are gone. Rows that the "
                f"hard_delete hint of column {deletes!r} marks are left out, and those that they mean stay in the table."
            )
        for hint, name in named:
            if table["columns"][name]["data_type"] == "double":
                raise SchemaCorruptedException(
                    self.schema.name,
                    f"Table {table['name']!r}: the {hint} {name!r} is a double, which Iceberg does not find rows by. Make it a "
                    "decimal, a bigint or a text.",
                )

    def _require_root_keys(self, table: PreparedTableSchema) -> None:
        """The rows of nested tables must tell to which row of the root they belong, to be replaced together with it."""
        if hints.is_nested(table):
            return
        disposition = hints.disposition_of(self.schema.tables, table, self.capabilities)
        if disposition not in (Disposition.DELETE_INSERT, Disposition.UPSERT):
            return
        chain = self.chain_of(hints.name_of(table))
        for nested in chain[1:]:
            if hints.root_key(chain, nested) is None:
                raise SchemaCorruptedException(
                    self.schema.name,
                    f"Table {nested['name']!r}: it has no column that tells to which row of {table['name']!r} its rows belong, "
                    'because they were not merged from the beginning. Load the resource anew, with refresh="drop_resources"; '
                    "`source.root_key = True` before the first load adds the column in any case.",
                )

    def _require_one_disposition(self, table: PreparedTableSchema) -> None:
        """A nested table is written together with its root, and in the same way."""
        name = hints.name_of(table)
        own = self.schema.tables[name].get("write_disposition")
        root = get_root_table(self.schema.tables, name)
        whole = root.get("write_disposition")
        if own is not None and own != whole:
            raise SchemaCorruptedException(
                self.schema.name,
                f"Table {name!r}: its write_disposition is {own!r}, and that of {root['name']!r}, in which it is nested, is "
                f"{whole!r}. Nested tables are written as their root is: leave it out of nested_hints, or give the nested table "
                "a primary_key there, which makes it a table of its own.",
            )

    def _require_name_of_its_own(self, table: PreparedTableSchema) -> None:
        """With a prefix of its own, the name of one of dlt's tables may be that of somebody's."""
        name = self.config.physical_name(hints.name_of(table))
        for own in (self.schema.version_table_name, self.schema.loads_table_name, self.schema.state_table_name):
            if table["name"] != own and name.casefold() == self.config.physical_name(own).casefold():
                raise SchemaCorruptedException(
                    self.schema.name,
                    f"Table {table['name']!r}: with internal_table_prefix={self.config.internal_table_prefix!r} it has the name "
                    f"of dlt's own table {own!r} in the catalog. Rename the resource, or choose another prefix.",
                )
