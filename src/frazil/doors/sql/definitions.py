"""The catalog of definitions: what was created, kept as SQL in a SQLite file that only its owner can read.

Secrets are kept beside the definitions, never in their text. Every change counts the catalog's version up, so that a run that
watches it sees that something is new.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from frazil.doors.sql.grammar import Kind
from frazil.doors.sql.parse import parse
from frazil.doors.sql.render import render
from frazil.doors.sql.statements import Create, CreateSecret
from frazil.errors import ConfigError, Retryable
from frazil.model.secrets import MASK, remember

DEFAULT_FILE = Path("frazil-sql.db")

_APPLICATION = 0x46525A4C
_SCHEMA = """
CREATE TABLE definitions (
    name TEXT PRIMARY KEY, kind TEXT NOT NULL, sql TEXT NOT NULL, created_ms INTEGER NOT NULL, number INTEGER NOT NULL
);
CREATE TABLE secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE version (number INTEGER NOT NULL);
INSERT INTO version VALUES (0);
"""
# What sinks have written outlives them. Files that were made without this table get it when there is something to note.
_WRITTEN = """
CREATE TABLE IF NOT EXISTS written (
    sink TEXT NOT NULL, into_table TEXT NOT NULL, reads TEXT NOT NULL, sums TEXT NOT NULL, PRIMARY KEY (sink, into_table)
)
"""


@dataclass(frozen=True)
class Definition:
    """An object: its kind, its canonical SQL (a secret's without the value), and when it was created."""

    name: str
    kind: Kind
    sql: str
    created_ms: int

    @cached_property
    def statement(self) -> Create:
        """The statement that defines it."""
        (statement,) = parse(self.sql, f"<{self.kind.lower()} {self.name}>")
        assert isinstance(statement, Create), "only such are kept"
        return statement


@dataclass(frozen=True)
class DefinitionChange:
    """What one statement does to the definitions: an object is new, is another one now, or some are gone."""

    added: Create | None = None
    altered: Create | None = None
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """What a sink has written into a table: rows of what, and sums of which view, as a digest. Empty where it does not matter."""

    sink: str
    table: str
    reads: str = ""
    sums: str = ""


class Definitions:
    """The definitions of one file."""

    def __init__(self, path: Path | str = DEFAULT_FILE) -> None:
        self.path = Path(path)

    @property
    def version(self) -> int:
        """A number that grows with every change; 0 when there is no file."""
        with self._reading() as connection:
            return 0 if connection is None else int(connection.execute("SELECT number FROM version").fetchone()[0])

    def all(self) -> dict[str, Definition]:
        """Every object by its name, in the order of creation."""
        with self._reading() as connection:
            if connection is None:
                return {}
            rows = connection.execute("SELECT name, kind, sql, created_ms FROM definitions ORDER BY number").fetchall()
        return {name: Definition(name, Kind(kind), sql, created_ms) for name, kind, sql, created_ms in rows}

    def secrets(self) -> Mapping[str, str]:
        """The values of all secrets, which nothing prints from now on."""
        with self._reading() as connection:
            found = {} if connection is None else dict(connection.execute("SELECT name, value FROM secrets").fetchall())
        remember(found.values())
        return found

    def traces(self) -> tuple[Trace, ...]:
        """What sinks have written, also those that were dropped since."""
        with self._reading() as connection:
            if connection is None or not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'written'").fetchone():
                return ()
            return tuple(Trace(*row) for row in connection.execute("SELECT sink, into_table, reads, sums FROM written"))

    def note(self, trace: Trace) -> None:
        """Keeps what a sink has written. That is no change of the definitions."""
        if not self.path.exists() or trace in self.traces():
            return
        with self._connected() as connection:
            connection.execute(_WRITTEN)
            row = (trace.sink, trace.table, trace.reads, trace.sums)
            connection.execute("INSERT OR REPLACE INTO written VALUES (?, ?, ?, ?)", row)

    def apply(self, changes: Iterable[DefinitionChange], version: int | None = None) -> bool:
        """Keeps all these changes, or none of them: false when the definitions have another version than was looked at."""
        real = [change for change in changes if change != DefinitionChange()]
        if not real:
            return True
        with self._writing() as connection:
            now = int(connection.execute("SELECT number FROM version").fetchone()[0])
            if version is not None and version != now:
                return False
            for change in real:
                if change.added is not None:
                    _add(connection, change.added)
                if change.altered is not None:
                    _alter(connection, change.altered)
                for name in change.removed:
                    connection.execute("DELETE FROM definitions WHERE name = ?", (name,))
                    connection.execute("DELETE FROM secrets WHERE name = ?", (name,))
            connection.execute("UPDATE version SET number = number + 1")
        return True

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        if not self.path.exists():
            yield None
            return
        with self._connected() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        new = not self.path.exists()
        if new:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # The journal beside it gets the same rights.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(self.path, timeout=10, isolation_level=None)
            try:
                self._require_own(connection)
                yield connection
            finally:
                connection.close()
        except sqlite3.OperationalError as error:
            raise Retryable("definitions-unreachable", f"The definitions in {self.path} cannot be used: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise self._foreign() from error

    def _require_own(self, connection: sqlite3.Connection) -> None:
        if self.path.stat().st_mode & 0o077 and self.path.stat().st_uid == os.getuid():
            self.path.chmod(0o600)
        if connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION:
            return
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise self._foreign()
            for command in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(command)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute("COMMIT")

    def _foreign(self) -> ConfigError:
        return ConfigError(
            "definitions-foreign",
            f"{self.path} holds no definitions of frazil.",
            fix="Name another file with --definitions.",
        )


def _add(connection: sqlite3.Connection, statement: Create) -> None:
    known = connection.execute("SELECT kind FROM definitions WHERE name = ?", (statement.name.text,)).fetchone()
    if known is not None:
        words = f"the {known[0].lower()} {statement.name.text!r} is there already"
        raise statement.wrong("sql-exists", statement.name.at, words)
    number = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM definitions").fetchone()[0]
    row = (statement.name.text, statement.kind.value, _kept(statement), time.time_ns() // 1_000_000, number)
    connection.execute("INSERT INTO definitions VALUES (?, ?, ?, ?, ?)", row)
    _keep_secret(connection, statement)


def _alter(connection: sqlite3.Connection, statement: Create) -> None:
    done = connection.execute("UPDATE definitions SET sql = ? WHERE name = ?", (_kept(statement), statement.name.text))
    if not done.rowcount:
        raise statement.wrong("sql-unknown-object", statement.name.at, f"{statement.name.text!r} was dropped meanwhile")
    _keep_secret(connection, statement)


def _kept(statement: Create) -> str:
    plain = replace(statement, if_not_exists=False)
    return render(replace(plain, value=MASK) if isinstance(plain, CreateSecret) else plain)


def _keep_secret(connection: sqlite3.Connection, statement: Create) -> None:
    if isinstance(statement, CreateSecret):
        connection.execute("INSERT OR REPLACE INTO secrets VALUES (?, ?)", (statement.name.text, statement.value))
