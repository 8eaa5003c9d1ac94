"""The slot and the publication: whether they and the tables behind them are as a source needs them, and making them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from frazil.errors import ConfigError, Halted, Retryable
from frazil.model.source import CdcStream, PostgresCdcSource
from frazil.sources.postgres import catalog
from frazil.sources.postgres.catalog import Connection
from frazil.sources.postgres.connection import asking
from frazil.sources.postgres.protocol import lsn_number

PLUGIN = "pgoutput"
OLDEST_SERVER = 13

# A reader that was killed leaves its slot in use until the server notices.
IN_USE_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 0.2

START_OVER = (
    "What changed in between cannot be had any more. Start again with a new sink id, which reads the tables anew, or compare "
    "the tables first. Keep the slot while the pipeline stands still, and max_slot_wal_keep_size above what is written meanwhile."
)


@dataclass(frozen=True)
class Slot:
    """A slot as it is now. ``confirmed`` is the position up to which everything was committed; the log before it may be gone."""

    plugin: str
    database: str
    confirmed: int | None
    reader: int | None
    wal_status: str | None

    @property
    def lost(self) -> bool:
        """Whether the server has removed log that the slot still needed."""
        return self.wal_status == "lost"


_SLOT = """
select plugin::text, database::text, confirmed_flush_lsn::text, active_pid, wal_status from pg_replication_slots
where slot_name = %s
"""


def slot(connection: Connection, name: str) -> Slot | None:
    """The slot of this name, if there is one."""
    row = connection.execute(_SLOT, (name,)).fetchone()
    if row is None:
        return None
    plugin, database, confirmed, reader, status = row
    return Slot(plugin or "", database or "", lsn_number(confirmed) if confirmed else None, reader, status)


# The names of both waits are written in different ways by different versions.
_WAITS = """
select coalesce(bool_or(lower(wait_event) in ('walsenderwaitforwal', 'walsendermain')), false)
from pg_stat_activity where pid = (select active_pid from pg_replication_slots where slot_name = %s)
"""


def waits_for_log(connection: Connection, name: str) -> bool:
    """Whether the server's process for the slot has read the whole log, and waits for more."""
    row = connection.execute(_WAITS, (name,)).fetchone()
    return row is not None and bool(row[0])


def require_shared_spool(spec: PostgresCdcSource, master: str) -> None:
    """Executors on other machines must see the files of changes that were read."""
    if spec.spool_path is None and not master.startswith("local"):
        raise ConfigError(
            "spool-path-missing",
            f"Spark runs on {master}, whose executors cannot read this machine's temporary folder.",
            fix="Set spool_path to a folder that the driver and all executors see, such as a network file system.",
        )


def check(connection: Connection, spec: PostgresCdcSource, own_reader: int | None = None) -> None:
    """Raises a FrazilError for the first thing that keeps a source from following its tables. Changes nothing."""
    with asking(f"Looking at the database {spec.database}"):
        _check_server(connection, spec)
        incremental = any(stream.sync_mode == "incremental" for stream in spec.streams) or not spec.streams
        if incremental:
            _check_replication(connection, spec)
        for stream in streams(connection, spec):
            _check_table(connection, spec, stream)
        if incremental:
            _check_publication(connection, spec)
            _check_slot(connection, spec, own_reader)


def _check_server(connection: Connection, spec: PostgresCdcSource) -> None:
    if connection.info.server_version < OLDEST_SERVER * 10000:
        raise ConfigError(
            "server-too-old",
            f"PostgreSQL at {spec.host}:{spec.port} has version {connection.info.server_version // 10000}.",
            fix=f"Changes can be followed from version {OLDEST_SERVER} on.",
        )


def _check_replication(connection: Connection, spec: PostgresCdcSource) -> None:
    level = _one(connection, "show wal_level")
    if level != "logical":
        raise ConfigError(
            "wal-level",
            f"PostgreSQL at {spec.host}:{spec.port} has wal_level={level}, which does not log enough to follow changes.",
            fix="Set wal_level = logical in postgresql.conf and restart the server.",
        )
    # Managed services give the right by membership in a role of their own.
    may = _one(
        connection,
        "select (select rolsuper or rolreplication from pg_roles where rolname = current_user) or exists (select 1 from pg_roles"
        " where rolname = 'rds_replication' and pg_has_role(current_user, oid, 'usage'))",
    )
    if not may:
        raise ConfigError(
            "replication-right",
            f"The user {spec.user} may not replicate.",
            fix=f'An administrator gives the right: ALTER ROLE "{spec.user}" REPLICATION.',
        )


def streams(connection: Connection, spec: PostgresCdcSource) -> tuple[CdcStream, ...]:
    """The tables to follow: those named, or all of the publication as it is now."""
    if spec.streams:
        return spec.streams
    name = spec.publication_name
    tables = catalog.published(connection, name)
    if tables is None:
        raise ConfigError(
            "publication-missing",
            f"There is no publication {name} in the database {spec.database}, and no streams are named.",
            fix="Name the tables under streams:, or make the publication: CREATE PUBLICATION ... FOR TABLE ...",
        )
    if not tables:
        raise ConfigError("publication-empty", f"The publication {name} has no tables.", fix="Add tables to it.")
    return tuple(CdcStream(name=table.name, namespace=table.namespace) for table in tables)


def _check_table(connection: Connection, spec: PostgresCdcSource, stream: CdcStream) -> None:
    name = stream.full_name
    table = catalog.table(connection, stream.namespace, stream.name)
    if table is None:
        raise ConfigError(
            "table-missing", f"There is no table {name} in the database {spec.database}.", fix="Correct the stream's name."
        )
    if table.kind not in "rp":
        raise ConfigError("not-a-table", f"{name} is a view or another thing that has no changes.", fix="Name a table.")
    if not table.readable and (spec.snapshot == "initial" or stream.sync_mode == "full_refresh"):
        raise ConfigError(
            "database-rights", f"The user {spec.user} may not read {name}.", fix=f'GRANT SELECT ON {name} TO "{spec.user}".'
        )
    if stream.sync_mode == "full_refresh" or (table.names_rows and not table.missing_key):
        return
    known = catalog.published(connection, spec.publication_name) is not None
    if known and not catalog.publishes_changes(connection, spec.publication_name):
        return
    if table.index is not None and table.missing_key:
        raise ConfigError(
            "replica-identity",
            f"Updates and deletes of {name} name rows by the index {table.index}, which does not have the primary key's "
            f"{', '.join(table.missing_key)}: a row whose primary key changes, or that is deleted, could not be found.",
            fix=f"Run: ALTER TABLE {name} REPLICA IDENTITY DEFAULT, or FULL, or USING INDEX one that has the whole primary key.",
        )
    why = {"n": "its replica identity is nothing", "i": "the index of its replica identity is gone"}.get(
        table.identity, "it has no primary key"
    )
    raise ConfigError(
        "replica-identity",
        f"Updates and deletes of {name} do not identify their row: {why}.",
        fix=f"Give it a primary key and REPLICA IDENTITY DEFAULT, or run: ALTER TABLE {name} REPLICA IDENTITY FULL.",
    )


def _check_publication(connection: Connection, spec: PostgresCdcSource) -> None:
    name = spec.publication_name
    tables = catalog.published(connection, name)
    if tables is None:
        if spec.create_publication:
            return
        wanted = ", ".join(stream.full_name for stream in spec.streams)
        raise ConfigError(
            "publication-missing",
            f"There is no publication {name} in the database {spec.database}, and create_publication is false.",
            fix=f"CREATE PUBLICATION {name} FOR TABLE {wanted}.",
        )
    has = {table.full_name for table in tables}
    for stream in spec.streams:
        if stream.sync_mode == "incremental" and stream.full_name not in has:
            raise ConfigError(
                "not-published",
                f"The publication {name} does not have the table {stream.full_name}.",
                fix=f"ALTER PUBLICATION {name} ADD TABLE {stream.full_name}. A partitioned table needs "
                "publish_via_partition_root = true as well.",
            )


def _check_slot(connection: Connection, spec: PostgresCdcSource, own_reader: int | None) -> None:
    found = slot(connection, spec.slot)
    if found is None:
        if spec.create_slot:
            return
        raise ConfigError(
            "slot-missing",
            f"There is no replication slot {spec.slot}, and create_slot is false.",
            fix=f"SELECT pg_create_logical_replication_slot('{spec.slot}', '{PLUGIN}') in the database {spec.database}.",
        )
    if found.plugin != PLUGIN or found.database != spec.database:
        raise ConfigError(
            "slot-of-another-kind",
            f"The slot {spec.slot} is one of {found.plugin or 'physical replication'} in {found.database or 'no database'}.",
            fix=f"Name another slot: one of {PLUGIN} in {spec.database}, or one that frazil makes.",
        )
    if found.lost:
        raise slot_lost(spec.slot)
    until = time.monotonic() + IN_USE_SECONDS
    while found is not None and found.reader is not None and found.reader != own_reader:
        if time.monotonic() > until:
            raise in_use(spec.slot, found.reader)
        time.sleep(_LOOK_AGAIN_SECONDS)
        found = slot(connection, spec.slot)


def slot_lost(name: str) -> Halted:
    """The error for a slot that the server gave up."""
    return Halted("slot-lost", f"The server has removed log that the slot {name} still needed.", fix=START_OVER)


def slot_gone(name: str) -> Halted:
    """The error for a slot that somebody dropped."""
    return Halted("slot-gone", f"The slot {name} is gone, and the ledger holds a position in it.", fix=START_OVER)


def in_use(name: str, reader: int | None) -> Retryable:
    """The error for a slot that somebody else reads."""
    who = f" (process {reader} of the server)" if reader is not None else ""
    return Retryable(
        "slot-in-use",
        f"The slot {name} is read by somebody else{who}.",
        fix="Each pipeline needs a slot of its own: stop the other one, or set another slot_name.",
    )


def ensure(connection: Connection, spec: PostgresCdcSource, following: Sequence[CdcStream]) -> Slot:
    """The slot, made when it is not there and may be made, behind a publication that has the tables."""
    with asking(f"Making the publication {spec.publication_name}"):
        if catalog.published(connection, spec.publication_name) is None:
            _create_publication(connection, spec, following)
    with asking(f"Making the slot {spec.slot}"):
        _check_publication(connection, spec)
        found = slot(connection, spec.slot)
        if found is None:
            if not spec.create_slot:
                _check_slot(connection, spec, None)
            connection.execute("select pg_create_logical_replication_slot(%s, %s)", (spec.slot, PLUGIN))
            found = slot(connection, spec.slot)
    if found is None or found.confirmed is None:
        raise slot_gone(spec.slot)
    if found.lost:
        raise slot_lost(spec.slot)
    return found


def _create_publication(connection: Connection, spec: PostgresCdcSource, following: Sequence[CdcStream]) -> None:
    _check_publication(connection, spec)
    tables = sql.SQL(", ").join(sql.Identifier(stream.namespace, stream.name) for stream in following)
    statement = sql.SQL("create publication {} for table {} with (publish_via_partition_root = true)")
    connection.execute(statement.format(sql.Identifier(spec.publication_name), tables))


def _one(connection: Connection, query: str) -> object:
    row = connection.execute(query.encode()).fetchone()
    return None if row is None else row[0]
