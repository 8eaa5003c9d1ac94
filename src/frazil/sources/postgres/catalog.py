"""What the database's catalog says of tables, columns and types."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import psycopg

from frazil.sources.postgres.numbering import Attribute
from frazil.sources.postgres.position import Member
from frazil.sources.postgres.types import PgType

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True)
class TableColumn:
    """A column of a table as it is now. One that is ``generated`` is in the log only where a publication names it."""

    number: int
    name: str
    type_oid: int
    type_modifier: int
    generated: bool = False


@dataclass(frozen=True)
class DatabaseTable:
    """A table as it is now. ``identity`` is how its changes name rows: d(efault), n(othing), f(ull), i(ndex).

    ``index`` is the index of the last of these, if it is still there, with its columns. ``last`` is the highest number that a
    column was given.
    """

    oid: int
    namespace: str
    name: str
    kind: str
    identity: str
    primary_key: tuple[str, ...]
    readable: bool
    last: int
    columns: tuple[TableColumn, ...]
    index: str | None = None
    index_columns: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """With its schema."""
        return f"{self.namespace}.{self.name}"

    @property
    def names_rows(self) -> bool:
        """Whether updates and deletes identify their row."""
        by_index = self.identity == "i" and self.index is not None
        return by_index or self.identity == "f" or (self.identity == "d" and bool(self.primary_key))

    @property
    def missing_key(self) -> tuple[str, ...]:
        """The columns of the primary key that updates and deletes do not contain, since the replica identity is an index
        without them.
        """
        return tuple(name for name in self.primary_key if self.identity == "i" and name not in self.index_columns)


@dataclass(frozen=True)
class PublishedTable:
    """A table of a publication, with the columns and the rows that it lets through."""

    namespace: str
    name: str
    columns: frozenset[str] | None
    row_filter: str | None

    @property
    def full_name(self) -> str:
        """With its schema."""
        return f"{self.namespace}.{self.name}"


# An index lists its key first, then columns that it only includes.
_TABLE = """
select c.oid::bigint, c.relkind::text, c.relreplident::text, has_table_privilege(c.oid, 'select'), c.relnatts,
  array(select a.attname::text from pg_index i join pg_attribute a
        on a.attrelid = c.oid and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1])
        where i.indrelid = c.oid and i.indisprimary),
  (select i.indexrelid::regclass::text from pg_index i where i.indrelid = c.oid and i.indisreplident),
  array(select a.attname::text from pg_index i join pg_attribute a
        on a.attrelid = c.oid and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1])
        where i.indrelid = c.oid and i.indisreplident)
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s
"""

_COLUMNS = """
select attnum, attname::text, atttypid::bigint, atttypmod, attgenerated <> '' from pg_attribute
where attrelid = %s and attnum > 0 and not attisdropped order by attnum
"""

_ATTRIBUTES = """
select attnum, case when attisdropped then '' else attname::text end, atttypid::bigint,
  not attisdropped and (attgenerated = '' or {published}), atttypmod
from pg_attribute where attrelid = %(oid)s and attnum > 0 order by attnum
"""

# From version 18 on a publication can let stored generated columns through.
_PUBLISHES_GENERATED = 180000
_GENERATED_TOO = """exists (
  select 1 from pg_publication_tables p join pg_class c on c.oid = %(oid)s join pg_namespace n on n.oid = c.relnamespace
  where p.pubname = %(publication)s and p.schemaname = n.nspname and p.tablename = c.relname and attname = any(p.attnames))
"""

_LEAVES = """
select %(oid)s::oid as oid union select relid::oid from pg_partition_tree(%(oid)s::oid::regclass) where isleaf
"""

# Rows that were there before such a column was added have its value without being written.
_PREFILLED = f"""
select distinct attname::text from pg_attribute
where attrelid in ({_LEAVES}) and attname = any(%(names)s) and atthasmissing and not attisdropped
"""

_FILES = f"""
select left(md5(string_agg(concat(oid, ':', pg_relation_filenode(oid)), ',' order by oid)), 6) from ({_LEAVES}) leaves
"""

_CHOSEN = """
select r.prattrs::int2[] from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
where p.pubname = %s and r.prrelid = %s
"""

# Only a type's own array type counts: vectors have elements too, and are written otherwise. So are arrays with another delimiter.
_TYPE = """
select t.typname::text, t.typtype::text, t.typbasetype::bigint, t.typtypmod,
  coalesce((select e.oid::bigint from pg_type e where e.typarray = t.oid and e.typdelim = ','), 0)
from pg_type t where t.oid = %s
"""


def table(connection: Connection, namespace: str, name: str) -> DatabaseTable | None:
    """The table of this name, if there is one."""
    row = connection.execute(_TABLE, (namespace, name)).fetchone()
    if row is None:
        return None
    oid, kind, identity, readable, last, key, index, index_columns = row
    found = (TableColumn(*column) for column in connection.execute(_COLUMNS, (oid,)))
    # Earlier versions list generated columns among those of a publication, too, and never let them through.
    newer = connection.info.server_version >= _PUBLISHES_GENERATED
    columns = tuple(column for column in found if newer or not column.generated)
    parts = (tuple(key), readable, last, columns, index, tuple(index_columns))
    return DatabaseTable(oid, namespace, name, kind, identity, *parts)


def attributes(connection: Connection, publication: str, oid: int) -> tuple[Attribute, ...]:
    """All columns that a table has or had."""
    newer = connection.info.server_version >= _PUBLISHES_GENERATED
    query = _ATTRIBUTES.format(published=_GENERATED_TOO if newer else "false")
    return tuple(Attribute(*row) for row in connection.execute(query.encode(), {"oid": oid, "publication": publication}))


def prefilled(connection: Connection, oid: int, names: Collection[str]) -> frozenset[str]:
    """Which of a table's columns were added with a constant default that is not null, unless the table was rewritten since."""
    return frozenset(name for (name,) in connection.execute(_PREFILLED, {"oid": oid, "names": list(names)}))


def files(connection: Connection, oid: int) -> str:
    """A sum of the files that hold a table and its partitions: another one after the table was rewritten."""
    row = connection.execute(_FILES, {"oid": oid}).fetchone()
    return str(row[0]) if row is not None else ""


def chosen(connection: Connection, publication: str, oid: int) -> tuple[int, ...] | None:
    """The numbers of the columns that a publication lets through of a table; None when that is all."""
    if connection.info.server_version < 150000:
        return None
    row = connection.execute(_CHOSEN, (publication, oid)).fetchone()
    return None if row is None or row[0] is None else tuple(row[0])


def pg_type(connection: Connection, oid: int) -> PgType | None:
    """The type with this number, if it is still there."""
    row = connection.execute(_TYPE, (oid,)).fetchone()
    if row is None:
        return None
    name, kind, base, modifier, element = row
    return PgType(oid, name, kind, base, modifier, element)


def published(connection: Connection, publication: str) -> tuple[PublishedTable, ...] | None:
    """The tables of a publication; None when there is no such publication."""
    if connection.execute("select 1 from pg_publication where pubname = %s", (publication,)).fetchone() is None:
        return None
    newer = connection.info.server_version >= 150000
    more = "attnames::text[], rowfilter" if newer else "null, null"
    rows = connection.execute(
        f"select schemaname::text, tablename::text, {more} from pg_publication_tables where pubname = %s order by 1, 2",
        (publication,),
    )
    return tuple(
        PublishedTable(namespace, name, None if columns is None else frozenset(columns), row_filter)
        for namespace, name, columns, row_filter in rows
    )


_MEMBERS = """
select n.nspname::text, c.relname::text, r.oid::bigint, {choice}
from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
join pg_class c on c.oid = r.prrelid join pg_namespace n on n.oid = c.relnamespace where p.pubname = %s
"""
_CHOICE = "left(md5(concat(r.prattrs, '/', pg_get_expr(r.prqual, r.prrelid))), 6)"


def members(connection: Connection, publication: str) -> dict[str, Member]:
    """The tables that a publication names one by one."""
    choice = _CHOICE if connection.info.server_version >= 150000 else "''"
    rows = connection.execute(_MEMBERS.format(choice=choice).encode(), (publication,))
    return {f"{namespace}.{name}": Member(oid, chosen) for namespace, name, oid, chosen in rows}


def publishes_changes(connection: Connection, publication: str) -> bool:
    """Whether a publication lets updates or deletes through."""
    row = connection.execute("select pubupdate or pubdelete from pg_publication where pubname = %s", (publication,)).fetchone()
    return row is not None and bool(row[0])


def leaves(connection: Connection, found: DatabaseTable) -> list[tuple[str, int]]:
    """The tables that hold the rows of a table, as SQL names them, with their bytes: itself, or its partitions."""
    if found.kind != "p":
        sql = "select %s::oid::regclass::text, pg_relation_size(%s::oid)"
        return [(str(name), int(size)) for name, size in connection.execute(sql, (found.oid, found.oid))]
    sql = "select relid::oid::regclass::text, pg_relation_size(relid::oid) from pg_partition_tree(%s::oid::regclass) where isleaf"
    return [(str(name), int(size)) for name, size in connection.execute(sql, (found.oid,))]


def estimated_rows(connection: Connection, names: Collection[str]) -> int | None:
    """How many rows these tables have, as the last ANALYZE counted; None when there was none."""
    row = connection.execute(
        "select sum(reltuples)::bigint, min(reltuples) from pg_class where oid = any(%s::regclass[]::oid[])", (list(names),)
    ).fetchone()
    return None if row is None or row[1] is None or row[1] < 0 else int(row[0])
