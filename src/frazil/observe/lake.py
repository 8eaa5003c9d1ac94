"""Tables without a JVM: what PyIceberg reads of a sink's table and of the ledger in it. Nothing here changes anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from frazil.model.catalog import CatalogType
from frazil.model.column_ids import COLUMNS_PREFIX
from frazil.model.commit import STATE_PREFIX, SinkState
from frazil.model.ledger import Ancestor, Lineage, ledger_entries, lineage_of
from frazil.model.pausing import Pause, pauses
from frazil.model.publishing import MAIN
from frazil.model.secrets import masked
from frazil.model.sink import SinkSpec
from frazil.observe.catalogs import open_catalog, pyiceberg_properties
from frazil.observe.clouds import require_cloud
from frazil.observe.faults import translated
from frazil.spark.catalogs import warehouse_uri

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True)
class ColumnFacts:
    """A column of a table."""

    id: int
    name: str
    type: str
    required: bool
    doc: str | None = None


@dataclass(frozen=True)
class SnapshotFacts:
    """A snapshot: when, what, and the counts of its summary. ``frazil`` is what the sink that made it wrote about itself."""

    id: int
    parent: int | None
    sequence: int
    at_ms: int
    operation: str
    current: bool
    added_rows: int
    deleted_rows: int
    total_rows: int
    added_files: int
    total_files: int
    added_bytes: int
    total_bytes: int
    frazil: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableFacts:
    """A table as its current metadata describes it. Snapshots are from old to new; properties are masked.

    ``branch`` is the one that the sink writes to, ``ancestors`` are its head and what came before, and ``unpublished`` is how
    many of them main does not have; None if main has snapshots that the branch does not have.
    """

    name: str
    uuid: str
    location: str
    metadata_location: str
    format_version: int
    columns: tuple[ColumnFacts, ...]
    identifier_fields: tuple[str, ...]
    partition: tuple[str, ...]
    properties: Mapping[str, str]
    snapshots: tuple[SnapshotFacts, ...]
    ledgers: Mapping[str, SinkState]
    paused: Mapping[str, Pause]
    branch: str
    ancestors: tuple[Ancestor, ...]
    unpublished: int | None

    @property
    def current(self) -> SnapshotFacts | None:
        """The head of the branch."""
        return next((snapshot for snapshot in reversed(self.snapshots) if snapshot.current), None)

    def was_rolled_back(self, state: SinkState) -> bool:
        """Whether somebody moved the table back behind the snapshot of a ledger's last entry, which stops a run."""
        return lineage_of(state, self.ancestors) is Lineage.ABANDONED


def table_facts(sink: SinkSpec) -> TableFacts | None:
    """What there is to know of the sink's table, or None when there is no such table."""
    with opened(sink) as table:
        return None if table is None else facts_of(table, sink.full_name, sink.written_branch)


def ledgers(sink: SinkSpec) -> dict[str, SinkState]:
    """The last entry of every sink that writes to this table, by sink id."""
    table = open_table(sink)
    return {} if table is None else ledger_entries(table.properties)


def ledger(sink: SinkSpec, sink_id: str) -> SinkState | None:
    """The last entry of one sink, or None when it has never committed."""
    return ledgers(sink).get(sink_id)


def sample(sink: SinkSpec, rows: int) -> list[dict[str, Any]]:
    """A few rows of the table."""
    table = open_table(sink)
    if table is None:
        return []
    with translated(sink.catalog):
        head = None if sink.branch is None else head_of(table, sink.branch)
        scan = table.scan(limit=rows, snapshot_id=None if head is None else head.snapshot_id)
        found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
        return found


def open_table(sink: SinkSpec) -> Table | None:
    """The table, or None when the catalog does not know it."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    if sink.catalog.type is CatalogType.HADOOP:
        with translated(sink.catalog):
            return _hadoop_table(sink)
    catalog = open_catalog(sink)
    if catalog is None:
        return None
    with translated(sink.catalog):
        try:
            return catalog.load_table((*sink.namespace_levels, sink.home_table or ""))
        except (NoSuchTableError, NoSuchNamespaceError):
            catalog.close()
            return None


@contextmanager
def opened(sink: SinkSpec) -> Iterator[Table | None]:
    """The table as long as the block, and then no connection to its catalog: for a process that looks again and again."""
    table = open_table(sink)
    try:
        yield table
    finally:
        if table is not None:
            table.catalog.close()


def local_path(location: str) -> Path | None:
    """The path of a location on this machine, or None when it is somewhere else. Iceberg keeps locations unquoted."""
    if location.startswith("file:"):
        path = location.removeprefix("file:")
        return Path("/" + path[2:].partition("/")[2] if path.startswith("//") else path)
    return None if urlsplit(location).scheme else Path(location).expanduser()


def _hadoop_table(sink: SinkSpec) -> Table | None:
    """The newest metadata of a table that is only a folder: the one that the hint names, or whatever is newer."""
    from pyiceberg.io import load_file_io
    from pyiceberg.table import StaticTable

    warehouse = warehouse_uri(sink.catalog.location or "").rstrip("/")
    folder = "/".join((warehouse, *sink.namespace_levels, sink.home_table or "", "metadata"))
    properties = pyiceberg_properties(sink)
    require_cloud(warehouse, properties)
    io = load_file_io(properties, folder)
    version = _version_hint(io, folder)
    newest: str | None = None
    while found := next((name for name in _metadata_names(folder, version) if io.new_input(name).exists()), None):
        newest, version = found, version + 1
    return None if newest is None else StaticTable.from_metadata(newest, properties)


def _version_hint(io: FileIO, folder: str) -> int:
    """A version to start from: the hint's. Without one the newest of a local folder, elsewhere the first."""
    hint = io.new_input(f"{folder}/version-hint.text")
    if hint.exists():
        with hint.open() as stream:
            text = stream.read().decode().strip()
        if text.isdigit():
            return int(text)
    path = local_path(folder)
    names = [entry.name for entry in path.iterdir()] if path is not None and path.is_dir() else []
    versions = [int(match[1]) for name in names if (match := re.fullmatch(r"v(\d+)(\.gz)?\.metadata\.json", name))]
    return max(versions, default=1)


def _metadata_names(folder: str, version: int) -> tuple[str, str]:
    return f"{folder}/v{version}.metadata.json", f"{folder}/v{version}.gz.metadata.json"


def facts_of(table: Table, name: str, branch: str = MAIN) -> TableFacts:
    """The facts of an open table, whose rows are those of a branch."""
    schema = table.schema()
    own = {key: value for key, value in table.properties.items() if not key.startswith((STATE_PREFIX, COLUMNS_PREFIX))}
    head = head_of(table, branch)
    snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: (snapshot.sequence_number or 0, snapshot.timestamp_ms))
    return TableFacts(
        name=name,
        uuid=str(table.metadata.table_uuid),
        location=table.location(),
        metadata_location=table.metadata_location,
        format_version=table.metadata.format_version,
        columns=tuple(ColumnFacts(c.field_id, c.name, _type_text(str(c.field_type)), c.required, c.doc) for c in schema.fields),
        identifier_fields=tuple(sorted(schema.identifier_field_names())),
        partition=tuple(_partition_texts(table)),
        properties=masked(own),
        snapshots=tuple(_snapshot_facts(snapshot, head) for snapshot in snapshots),
        ledgers=ledger_entries(table.properties),
        paused=pauses(table.properties),
        branch=branch,
        ancestors=tuple(ancestors_of(table, branch)),
        unpublished=_unpublished(table, branch),
    )


def _type_text(text: str) -> str:
    """A type as frazil writes it: PyIceberg also tells the id of every field of a struct, and whether it is required."""
    return re.sub(r"(?<=[<\s])\d+: (.+?): (?:required|optional) ", r"\1: ", text)


def _partition_texts(table: Table) -> Iterator[str]:
    for part in table.spec().fields:
        source = table.schema().find_column_name(part.source_id) or f"#{part.source_id}"
        kind, _, width = str(part.transform).rstrip("]").partition("[")
        arguments = f"{width}, {source}" if width else source
        yield source if kind == "identity" else f"{kind}({arguments})"


def _snapshot_facts(snapshot: Snapshot, head: Snapshot | None) -> SnapshotFacts:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}

    def number(key: str) -> int:
        return int(summary.get(key, 0))

    return SnapshotFacts(
        id=snapshot.snapshot_id,
        parent=snapshot.parent_snapshot_id,
        sequence=snapshot.sequence_number or 0,
        at_ms=snapshot.timestamp_ms,
        operation=snapshot.summary.operation.value if snapshot.summary else "",
        current=head is not None and head.snapshot_id == snapshot.snapshot_id,
        added_rows=number("added-records"),
        deleted_rows=number("deleted-records"),
        total_rows=number("total-records"),
        added_files=number("added-data-files"),
        total_files=number("total-data-files"),
        added_bytes=number("added-files-size"),
        total_bytes=number("total-files-size"),
        frazil={key: value for key, value in summary.items() if key.startswith("frazil.")},
    )


def head_of(table: Table, branch: str) -> Snapshot | None:
    """The head of a branch; of one that is missing it is main's, where a sink begins it."""
    return table.snapshot_by_name(branch) or table.current_snapshot()


def _unpublished(table: Table, branch: str) -> int | None:
    """How many snapshots of a branch main does not have; None if main has others than the branch."""
    of_main = {one.snapshot for one in ancestors_of(table, MAIN)}
    line = [one.snapshot for one in ancestors_of(table, branch)]
    main = table.current_snapshot()
    if main is not None and main.snapshot_id not in line and not (line and line[0] in of_main):
        return None
    return sum(1 for one in line if one not in of_main)


def ancestors_of(table: Table, branch: str) -> Iterator[Ancestor]:
    """The head of a branch and its ancestors, as far back as they have not expired."""
    head = head_of(table, branch)
    known = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    while head is not None:
        parent = head.parent_snapshot_id
        yield Ancestor(head.snapshot_id, head.sequence_number or 0, parent)
        head = None if parent is None else known.get(parent)
