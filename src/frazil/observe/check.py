"""Connection checks: does the catalog answer, may the table be used, can the storage be written, is the source there?

Every check really connects. Nothing is changed but for one probe file, which is deleted again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from frazil.errors import ConfigError, DataError, FrazilError, Retryable
from frazil.model.catalog import CatalogType
from frazil.model.connections import Place, no_transactions
from frazil.model.sink import SinkSpec
from frazil.observe.catalogs import greet_rest, open_catalog, pyiceberg_properties, sqlite_path
from frazil.observe.clouds import require_cloud
from frazil.observe.faults import translated
from frazil.observe.lake import head_of, local_path, open_table
from frazil.observe.stale_commit import probe_stale_commit
from frazil.observe.store_probe import existing_folder, probe_folder, probe_store
from frazil.spark.catalogs import warehouse_uri

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

# Catalogs that nobody but the run's own Spark can see.
INSIDE_THE_RUN = (CatalogType.MEMORY, CatalogType.SPARK)

# Who compares and swaps where no stale commit is sent: only a REST catalog can be sent one that changes nothing.
_COMPARES = {
    CatalogType.SQL: "the database compares and swaps for Iceberg, by a condition of the update",
    CatalogType.HIVE: "Iceberg compares and swaps itself, under a lock of the metastore",
    CatalogType.GLUE: "Glue is asked to compare the version of the table, and Iceberg alone can ask so",
    CatalogType.NESSIE: "Nessie compares the hash of its branch, and Iceberg alone can ask so",
    CatalogType.BIGQUERY: "BigQuery compares the version of the table, and Iceberg alone can ask so",
    CatalogType.HADOOP: "a hadoop catalog renames a file, which only file systems do for one writer alone",
    CatalogType.MEMORY: "a memory catalog exists only inside the run",
    CatalogType.SPARK: "the catalog is known to the run's Spark alone",
}


@dataclass(frozen=True)
class Check:
    """How one step ended: what was found, or the error."""

    subject: str
    step: str
    message: str
    error: FrazilError | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return self.error is None

    @classmethod
    def failed(cls, subject: str, step: str, error: FrazilError) -> Check:
        """A step that did not pass."""
        return cls(subject, step, error.message, error)


def check_sink(name: str, sink: SinkSpec) -> Iterator[Check]:
    """The steps of one sink, each as soon as it is done. Without a catalog the later ones are left out.

    For a sink with many tables, each table that the file names is checked.
    """
    subject = f"sink {name}"
    for step, attempt in (("names", _check_names), ("catalog", check_catalog)):
        done = _tried(subject, step, attempt, sink)
        yield done
        if not done.passed:
            return
    answering = []
    for table in known_tables(sink):
        yield (done := _tried(subject, "table", _check_table, table))
        if done.passed and sink.catalog.as_rest is not None:
            yield _tried(subject, "commits", _check_commits, table)
        if not isinstance(done.error, Retryable):  # whoever gave no answer is not waited for again
            answering.append(table)
    if sink.catalog.as_rest is None and answering:
        yield Check(subject, "commits", f"not checked: {_COMPARES[sink.catalog.type]}")
    yield from _check_storages(subject, answering)


def _tried(subject: str, step: str, attempt: Callable[[SinkSpec], str], sink: SinkSpec) -> Check:
    try:
        return Check(subject, step, attempt(sink))
    except FrazilError as error:
        return Check.failed(subject, step, error)


def known_tables(sink: SinkSpec) -> tuple[SinkSpec, ...]:
    """The sink of each table that is known before a row is read: its one, or its home and those that its route lists."""
    route = sink.route
    if route is None:
        return (sink,)
    names = dict.fromkeys(route.table_of(value) or value for value in route.tables)
    return (sink.home, *(sink.routed(name) for name in names))


def _check_names(sink: SinkSpec) -> str:
    for key, what, given in (("namespace", "Namespace", sink.namespace), ("table", "Table name", sink.home_table)):
        if not given:
            raise ConfigError(f"{key}-required", f"{what} is required", fix=f"Add {key}: to the sink.")
    if sink.route is not None:
        return f"writes to tables of {sink.namespace}, by the {sink.route.decides} of each row"
    return f"writes to {sink.full_name}"


def check_catalog(sink: SinkSpec) -> str:
    """Connects to the sink's catalog, and looks for its namespace if it has one."""
    spec = sink.catalog
    if spec.type in INSIDE_THE_RUN:
        return f"a {spec.type.value} catalog exists only inside the run: there is nothing to connect to"
    if spec.type is CatalogType.HADOOP:
        return f"a hadoop catalog is only a folder: {spec.address}"
    if (path := sqlite_path(spec)) is not None:
        _require_writable_database(path)
    server = _greeted(sink)
    catalog = open_catalog(sink)
    if catalog is None:
        return f"the {spec.type.value} catalog at {spec.address} will be made by the first run"
    if sink.route is not None and sink.route.atomic and getattr(catalog, "lacks_transactions", False):
        raise no_transactions(spec.address)
    connected = f"connected to the {spec.type.value} catalog at {spec.address}"
    with translated(spec):
        if sink.namespace is None:
            found = f"it has {len(catalog.list_namespaces())} namespaces"
        else:
            present = catalog.namespace_exists(sink.namespace_levels)
            found = f"namespace {sink.namespace} {'exists' if present else 'does not exist yet'}"
        return f"{connected}; {found}{server or _version_words(catalog)}"


def _greeted(sink: SinkSpec) -> str:
    """The server of a REST catalog, if it says which it is. Raises when its clock is far from this machine's."""
    spec = sink.catalog
    if spec.as_rest is None:
        return ""
    greeting = greet_rest(spec, pyiceberg_properties(sink))
    greeting.require_same_time(Place.catalog(spec.address))
    return greeting.words


def _version_words(catalog: Catalog) -> str:
    """The server of a catalog that is a database, a metastore or a Nessie, with its version, where it tells that."""
    version = getattr(catalog, "server", "") or _database_version(catalog)
    return f"; server: {version}" if version else ""


def _database_version(catalog: Catalog) -> str:
    dialect = getattr(getattr(catalog, "engine", None), "dialect", None)
    version = getattr(dialect, "server_version_info", None) if dialect is not None and dialect.name != "sqlite" else None
    return f"{dialect.name} {'.'.join(str(part) for part in version)}" if dialect is not None and version else ""


def _require_writable_database(path: Path) -> None:
    """SQLite writes its journal beside the file, so that the folder must be writable too."""
    folder = existing_folder(path.parent)
    for place in (folder, *((path,) if path.exists() else ())):
        if not os.access(place, os.W_OK):
            raise DataError(
                "no-permission",
                f"Failed to connect to catalog at {path}: this user may not write to {place}",
                fix="Give the user the right to write there, or choose another place for the catalog.",
            )


def _check_table(sink: SinkSpec) -> str:
    if sink.catalog.type in INSIDE_THE_RUN:
        return f"table {sink.full_name} is looked for by the run"
    table = open_table(sink)
    if table is not None:
        head = head_of(table, sink.written_branch)
        snapshot = f"snapshot {head.snapshot_id}" if head else "no snapshot yet"
        return f"table {sink.full_name} exists: {len(table.schema().fields)} columns, {snapshot}"
    if not sink.auto_create_table:
        raise ConfigError(
            "table-missing",
            f"Table {sink.full_name} does not exist and auto_create_table is disabled",
            fix="Create the table, or set auto_create_table: true.",
        )
    return f"table {sink.full_name} does not exist yet and will be made by the first run"


def _check_commits(sink: SinkSpec) -> str:
    table = open_table(sink)
    if table is None:
        return f"not checked: that the catalog compares and swaps is seen when {sink.full_name} exists"
    return probe_stale_commit(sink, table)


def _check_storages(subject: str, sinks: Sequence[SinkSpec]) -> Iterator[Check]:
    """Where the files of these tables are, or will be: each place once."""
    seen: set[str | None] = set()
    for sink in sinks:
        try:
            table = open_table(sink) if sink.catalog.type not in INSIDE_THE_RUN else None
            location = table.location() if table is not None else planned_location(sink)
            if location not in seen:
                seen.add(location)
                yield Check(subject, "storage", _check_storage(sink, table, location))
        except FrazilError as error:
            yield Check.failed(subject, "storage", error)


def _check_storage(sink: SinkSpec, table: Table | None, location: str | None) -> str:
    """Writes, reads and deletes a probe where the table's files are, or will be."""
    if location is None:
        return "the catalog decides where a new table is put: its storage can be checked when the table exists"
    if (path := local_path(location)) is not None:
        return f"wrote, read and deleted a probe in {probe_folder(path)}"
    with translated(sink.catalog):
        from pyiceberg.io import load_file_io

        io = table.io if table is not None else load_file_io(pyiceberg_properties(sink), location)
        if sink.catalog.type is not CatalogType.HADOOP:  # whoever looked for its table has asked the store already
            require_cloud(location, io.properties)
        return probe_store(location, io)


def planned_location(sink: SinkSpec) -> str | None:
    """Where a new table will be put, or None when only the catalog knows: a REST catalog's warehouse may be a mere name."""
    location = sink.location or sink.catalog.location
    if location is None:
        return None
    if sink.location is None and sink.catalog.as_rest is not None:
        known = ("file", "s3", "s3a", "gs", "abfs", "abfss", "wasb", "wasbs", "hdfs")
        return location if urlsplit(location).scheme in known else None
    return warehouse_uri(location)


def check_folder(path: Path) -> str:
    """A source folder that can be listed."""
    if not path.exists():
        raise ConfigError("folder-missing", f"The source folder {path} does not exist.", fix="Create it, or correct the path.")
    if not path.is_dir():
        raise ConfigError("not-a-folder", f"The source {path} is a file, and a folder is needed.", fix="Name its folder.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise DataError("no-permission", f"This user may not read the source folder {path}.", fix="Give the user that right.")
    return f"folder {path} can be read"
