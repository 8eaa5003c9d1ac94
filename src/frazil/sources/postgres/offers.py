"""The tables that a database has to offer. Nothing is made for it, and no right to replicate is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from frazil.model.discovery import Discovery, OfferedColumn, OfferedTable
from frazil.model.names import nearest
from frazil.model.source import PostgresCdcSource
from frazil.model.types import parse_type
from frazil.sources.postgres import catalog
from frazil.sources.postgres.catalog import Connection, DatabaseTable
from frazil.sources.postgres.connection import Login, asking
from frazil.sources.postgres.database import Database
from frazil.sources.postgres.types import ColumnType

# Where Spark and Iceberg call the same type by different names, or different types by the same.
_ICEBERG = {"bigint": "long", "timestamp_ntz": "timestamp", "timestamp": "timestamptz"}

# The rows of a partition are those of its table.
_READABLE = """
select n.nspname::text, c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and not c.relispartition and n.nspname <> 'information_schema' and n.nspname not like 'pg\\_%'
  and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')
order by 1, 2
"""


def discovered(name: str, spec: PostgresCdcSource) -> Discovery:
    """The tables that the user may read, and those that the source takes, as they are now."""
    database = Database(spec, Login.of(spec))
    try:
        with asking(f"Looking at the database {spec.database}"):
            taken = database.ask(lambda connection: _taken(connection, spec))
            found = database.ask(lambda connection: _tables(connection, taken))
            tables = tuple(_offered(database, table, taken=(table.namespace, table.name) in taken) for table in found)
    finally:
        database.close()
    return Discovery(name, spec.connector, tables=tables, notes=tuple(_notes(spec, found)))


def _taken(connection: Connection, spec: PostgresCdcSource) -> tuple[tuple[str, str], ...]:
    """Schema and name of what the source reads: the streams that it names, or what its publication has, if there is one."""
    if spec.streams:
        return tuple((stream.namespace, stream.name) for stream in spec.streams)
    published = catalog.published(connection, spec.publication_name) or ()
    return tuple((table.namespace, table.name) for table in published)


def _tables(connection: Connection, taken: Iterable[tuple[str, str]]) -> list[DatabaseTable]:
    names = dict.fromkeys([*connection.execute(_READABLE.encode()), *taken])
    found = (catalog.table(connection, namespace, name) for namespace, name in names)
    return [table for table in found if table is not None]


def _offered(database: Database, table: DatabaseTable, *, taken: bool) -> OfferedTable:
    columns = database.columns(table, database.published(table.full_name) if taken else None)
    shown = tuple(OfferedColumn(column.name, str(parse_type(_iceberg(column.type)))) for column in columns)
    return OfferedTable(table.full_name, shown, table.primary_key, taken)


def _iceberg(kind: ColumnType) -> str:
    if kind.element is not None:
        return f"list<{_iceberg(kind.element)}>"
    return _ICEBERG.get(kind.spark, kind.spark)


def _notes(spec: PostgresCdcSource, tables: Sequence[DatabaseTable]) -> Iterator[str]:
    names = [table.full_name for table in tables]
    for stream in spec.streams:
        if stream.full_name not in names:
            near = nearest(stream.full_name, names)
            yield f"There is no table {stream.full_name}, which streams names.{f' Did you mean {near}?' if near else ''}"
    for table in tables:
        if not table.readable:
            yield f"The user {spec.user} may not read {table.full_name}, which the source takes."
    if not tables:
        yield f"The user {spec.user} may read no table of the database {spec.database}."
