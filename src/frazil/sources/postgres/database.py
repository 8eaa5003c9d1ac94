"""What a source asks its database: who it is, what its tables are now, and how far its log goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import psycopg

from frazil.errors import FrazilError, Halted, Retryable
from frazil.model.source import CdcStream, PostgresCdcSource
from frazil.sources.postgres import catalog
from frazil.sources.postgres.catalog import Connection, DatabaseTable, PublishedTable, TableColumn
from frazil.sources.postgres.changes import Described
from frazil.sources.postgres.connection import Login, asking
from frazil.sources.postgres.frames import is_among
from frazil.sources.postgres.numbering import Attribute, NewValues, Shape, Storage, numbered
from frazil.sources.postgres.position import Member, PostgresPlace
from frazil.sources.postgres.protocol import Relation, lsn_number, lsn_text
from frazil.sources.postgres.spool import Columns, SpooledColumn
from frazil.sources.postgres.types import PgType, Types

T = TypeVar("T")


class Database:
    """A database that is asked on one connection, which is made when it is needed first and again when it has broken."""

    def __init__(self, spec: PostgresCdcSource, login: Login) -> None:
        self._spec = spec
        self._login = login
        self._connection: Connection | None = None
        self._types = Types(self._type, spec.unbounded_numeric)

    def ask(self, ask: Callable[[Connection], T]) -> T:
        """Asks on the connection that is there, and once more on a new one when that has broken."""
        for last in (False, True):
            if self._connection is None or self._connection.closed:
                self._connection = self._login.connect()
            try:
                return ask(self._connection)
            except (Retryable, psycopg.OperationalError) as error:
                broken = self._connection.broken or self._connection.closed
                if last or not broken:
                    if isinstance(error, FrazilError):
                        raise
                    with asking(f"Asking the database {self._spec.database}"):
                        raise
        raise AssertionError("unreachable")

    @cached_property
    def system(self) -> str:
        """The number that identifies the server."""
        return str(self._ask_as_replica("IDENTIFY_SYSTEM")[0])

    def timeline(self) -> int:
        """The branch of its history that the server is on: each failover and each restored backup begins another one."""
        return int(self._ask_as_replica("IDENTIFY_SYSTEM")[1])

    def located(self, place: PostgresPlace) -> PostgresPlace:
        """The place on the branch that the server is on.

        Stops when the server does not have the log up to there: what it writes from now on up to the place would be passed over.
        """
        timeline = self.timeline()
        lsn, end = place.lsn or 0, self.log_end()
        if place.timeline is not None and place.timeline != timeline:
            end = min(end, self._branches(timeline).get(place.timeline, 0))
        if lsn > end:
            raise Halted(
                "log-behind",
                f"The ledger has changes up to {lsn_text(lsn)}, the server at {self._login} only those up to {lsn_text(end)}: "
                "it has lost the others, as by a failover or a restored backup.",
                fix="Connect to the server that has them. If there is none, the target holds rows that the database has lost: "
                "start again with a new sink id and an empty target, which reads the tables anew.",
            )
        return place.on(timeline)

    def _branches(self, timeline: int) -> Mapping[int, int]:
        """The earlier timelines of this one, and where in the log each of them ended."""
        if timeline == 1:
            return {}  # nothing was before, and the server has no file that says so
        found = self._ask_as_replica(f"TIMELINE_HISTORY {timeline}")[1]
        lines = (found if isinstance(found, str) else bytes(found).decode()).splitlines()
        branches = [line.split() for line in lines if line.strip() and not line.startswith("#")]
        return {int(number): lsn_number(left) for number, left, *_ in branches}

    def _ask_as_replica(self, command: str) -> tuple[Any, ...]:
        with self._login.connect(replication="database") as connection, asking("Looking who the server is"):
            row = connection.execute(command.encode()).fetchone()
        assert row is not None
        return row

    def log_end(self) -> int:
        """Where the log ends now."""
        return self.ask(lambda database: lsn_number(_text(database, "select pg_current_wal_insert_lsn()::text")))

    def table(self, stream: CdcStream) -> DatabaseTable:
        """A followed table as it is now."""
        table = self.ask(lambda database: catalog.table(database, stream.namespace, stream.name))
        if table is None:
            raise Halted("table-missing", f"The table {stream.full_name} is not there any more.", fix="Remove the stream.")
        return table

    def members(self) -> Mapping[str, Member]:
        """How the publication has the tables that it names."""
        return self.ask(lambda database: catalog.members(database, self._spec.publication_name))

    def published(self, name: str) -> PublishedTable | None:
        """What the publication lets through of a table."""
        tables = self.ask(lambda database: catalog.published(database, self._spec.publication_name)) or ()
        return next((table for table in tables if table.full_name == name), None)

    def columns(self, table: DatabaseTable, published: PublishedTable | None) -> Columns:
        """The columns of a table that the publication lets through, with their types."""
        return tuple(
            SpooledColumn(
                column.name, self._types.column_type(column.type_oid, column.type_modifier), _id(table.oid, column.number)
            )
            for column in passed(table, published)
        )

    def key_columns(self, table: DatabaseTable) -> Columns:
        """The columns of the primary key."""
        return tuple(column for column in self.columns(table, None) if column.name in table.primary_key)

    def naming_columns(self, table: DatabaseTable) -> Columns:
        """The columns of the index that is the table's replica identity; none when it is not an index."""
        return tuple(one for one in self.columns(table, None) if table.identity == "i" and one.name in table.index_columns)

    def describe(self, relation: Relation, before: Shape | None) -> Described:
        """What a table that the log speaks of was like there. ``before``: what it was known to be like until then."""
        listed = [(column.name, column.type_oid) for column in relation.columns]
        # First the files: a change of the columns that rewrites the table and is not seen below has not touched them yet.
        files = self.files(relation.oid)
        attributes = self.ask(lambda database: catalog.attributes(database, self._spec.publication_name, relation.oid))
        chosen = self.ask(lambda database: catalog.chosen(database, self._spec.publication_name, relation.oid))
        found = numbered(relation.oid, listed, attributes, before, chosen)
        columns = tuple(
            SpooledColumn(
                column.name,
                self._types.column_type(column.type_oid, column.type_modifier),
                None if number is None else _id(relation.oid, number),
            )
            for column, number in zip(relation.columns, found.numbers, strict=True)
        )
        table = self.ask(lambda database: catalog.table(database, relation.namespace, relation.name))
        keys = () if table is None else self.key_columns(table)
        key_names = tuple(column.name for column in columns if is_among(column, keys))
        identified = {column.name for column in relation.columns if column.is_key or relation.identity != "i"}
        missing_key = tuple(name for name in key_names if name not in identified)
        shape = found.shape
        unlogged: tuple[str, ...] = ()
        if shape is not None:
            storage = Storage.of(files, [column.type_modifier for column in relation.columns])
            known = before if before is not None and before.oid == relation.oid else None
            if known is not None:
                unlogged = self._unlogged(known, shape, storage, attributes)
            # If the table now has other columns, its files may have been rewritten for these, which has not been read from the
            # log yet.
            now = [one for one in attributes if one.listed and (chosen is None or one.number in chosen)]
            current = [(one.name, one.type_oid, one.modifier) for one in now] == [
                (column.name, column.type_oid, column.type_modifier) for column in relation.columns
            ]
            shape = replace(shape, storage=storage if current else None if known is None else known.storage)
        return Described(columns, key_names or tuple(column.name for column in columns), shape, missing_key, unlogged)

    def _unlogged(self, before: Shape, now: Shape, storage: Storage, attributes: Sequence[Attribute]) -> tuple[str, ...]:
        """The columns, by their names of today, in which rows have values that the log did not and will not carry."""
        names = {one.number: one.name for one in attributes if one.listed}
        found = NewValues.between(before, now, storage)
        added = {names[number] for number in found.added if number in names}
        prefilled = self.ask(lambda database: catalog.prefilled(database, now.oid, added)) if added else frozenset()
        others = found.revealed | found.rewritten
        return tuple(name for number, name in names.items() if number in others or (number in found.added and name in prefilled))

    def files(self, oid: int) -> str:
        """A sum of the files that hold a table: another one after it was rewritten."""
        return self.ask(lambda database: catalog.files(database, oid))

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _type(self, oid: int) -> PgType | None:
        return self.ask(lambda database: catalog.pg_type(database, oid))


def passed(table: DatabaseTable, published: PublishedTable | None) -> tuple[TableColumn, ...]:
    """The columns that the publication lets through; of those that are generated, the ones that it names."""
    names = None if published is None else published.columns
    return tuple(column for column in table.columns if (not column.generated if names is None else column.name in names))


def _id(oid: int, number: int) -> str:
    return f"{oid}.{number}"


def _text(database: Connection, query: str) -> str:
    row = database.execute(query.encode()).fetchone()
    return str(row[0]) if row is not None else ""
