"""The table of a sink as a plan needs it, read by PyIceberg: what a run would find in it, and the namespaces that it lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.model.catalog import CatalogType
from frazil.model.ledger import Ancestor
from frazil.model.sink import SinkSpec
from frazil.model.types import StructType, type_from_json
from frazil.observe.catalogs import open_catalog
from frazil.observe.faults import translated
from frazil.observe.lake import ancestors_of, head_of, local_path, open_table
from frazil.spark.catalogs import warehouse_uri

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table


@dataclass(frozen=True)
class TableDescription:
    """A table as its metadata describes it, in the same values as :class:`frazil.iceberg.IcebergTable` has them.

    ``compared_columns`` are those that live equality deletes compare; they are read from files, and only for a sink that may
    drop columns. ``branch`` is the head of the branch that is written to, and its ancestors.
    """

    schema: StructType
    field_ids: Mapping[str, int]
    partition: tuple[tuple[str, str], ...]
    sort_order: tuple[str, ...]
    layout_columns: frozenset[str]
    compared_columns: frozenset[str]
    identifier_fields: tuple[str, ...]
    properties: Mapping[str, str]
    format_version: int
    holds_no_files: bool
    branch: tuple[Ancestor, ...]

    def property_text(self, name: str) -> str | None:
        """One of the table's properties."""
        return self.properties.get(name)


def can_describe(sink: SinkSpec) -> bool:
    """Whether PyIceberg can look for the sink's table: not where only Spark knows the catalog, or can list its folders."""
    match sink.catalog.type:
        case CatalogType.MEMORY | CatalogType.SPARK:
            return False
        case CatalogType.HADOOP:
            return _warehouse(sink) is not None
        case _:
            return True


def described_table(sink: SinkSpec) -> TableDescription | None:
    """The sink's table, or None when there is no such table."""
    table = open_table(sink)
    if table is None:
        return None
    with translated(sink.catalog):
        return _description(table, sink.written_branch, reads_deletes=sink.drops_columns)


def missing_namespaces(sink: SinkSpec) -> tuple[str, ...]:
    """Which of the sink's nested namespaces do not exist yet, from the outermost."""
    if sink.catalog.type is CatalogType.HADOOP:
        with translated(sink.catalog):
            return tuple(".".join(levels) for levels in sink.namespaces if not _is_folder_namespace(sink, levels))
    catalog = open_catalog(sink)
    with translated(sink.catalog):
        return tuple(".".join(levels) for levels in sink.namespaces if catalog is None or not catalog.namespace_exists(levels))


def _is_folder_namespace(sink: SinkSpec, levels: tuple[str, ...]) -> bool:
    """Whether a folder is a namespace: it is there, and no table."""
    warehouse = _warehouse(sink)
    if warehouse is None:
        raise TypeError("a warehouse elsewhere is listed by Spark")
    folder = warehouse.joinpath(*levels)
    return folder.is_dir() and not any((folder / "metadata").glob("*.metadata.json"))


def _warehouse(sink: SinkSpec) -> Path | None:
    """The folder of a hadoop catalog on this machine, or None when it is elsewhere."""
    return local_path(warehouse_uri(sink.catalog.location or ""))


def _description(table: Table, branch: str, *, reads_deletes: bool) -> TableDescription:
    schema, metadata, head = table.schema(), table.metadata, head_of(table, branch)
    columns = type_from_json(json.loads(schema.model_dump_json()))
    if not isinstance(columns, StructType):
        raise TypeError(columns)
    summary = head.summary.additional_properties if head is not None and head.summary is not None else {}
    made = [field.source_id for spec in metadata.partition_specs for field in spec.fields]
    made += [field.source_id for order in metadata.sort_orders for field in order.fields]
    layout = {schema.find_column_name(number) for number in made}
    return TableDescription(
        schema=columns,
        field_ids={field.name: field.field_id for field in schema.fields},
        partition=tuple((str(schema.find_column_name(f.source_id)), str(f.transform)) for f in table.spec().fields),
        sort_order=tuple(_order_texts(table)),
        layout_columns=frozenset(name for name in layout if name is not None),
        compared_columns=_compared_columns(table) if reads_deletes else frozenset(),
        identifier_fields=tuple(sorted(schema.identifier_field_names())),
        properties=dict(table.properties),
        format_version=metadata.format_version,
        holds_no_files=head is None or summary.get("total-data-files") == "0",
        branch=tuple(ancestors_of(table, branch)),
    )


def _order_texts(table: Table) -> Iterator[str]:
    for field in table.sort_order().fields:
        name, transform = str(table.schema().find_column_name(field.source_id)), str(field.transform)
        ways = f"{field.direction.value} {field.null_order.value}".replace("-", " ")
        yield f"{name if transform == 'identity' else f'{transform}({name})'} {ways}"


def _compared_columns(table: Table) -> frozenset[str]:
    """The columns that live equality deletes compare, by the manifests of the head."""
    from pyiceberg.manifest import DataFileContent, ManifestContent

    head = table.current_snapshot()
    if head is None or (head.summary is not None and head.summary.additional_properties.get("total-equality-deletes") == "0"):
        return frozenset()
    names = {field.field_id: field.name for field in table.schema().fields}
    deletes = [one for one in head.manifests(table.io) if one.content is ManifestContent.DELETES]
    files = [entry.data_file for manifest in deletes for entry in manifest.fetch_manifest_entry(table.io)]
    compared = {n for file in files if file.content is DataFileContent.EQUALITY_DELETES for n in file.equality_ids or ()}
    return frozenset(names[number] for number in compared if number in names)
