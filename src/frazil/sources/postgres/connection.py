"""Connections to the database, and its refusals in frazil's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import errors as pg

from frazil.errors import ConfigError, FrazilError, SourceAway
from frazil.model.secrets import scrub
from frazil.model.source import PostgresCdcSource

CONNECT_SECONDS = 15

# The texts of values must not depend on what the server or the user has set, nothing may end a long reading, and a policy
# that hides rows from the user must be an error.
_SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "row_security": "off",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}


@dataclass(frozen=True)
class Login:
    """How to reach the database. Executors get it too."""

    host: str
    port: int
    database: str
    user: str
    password: str | None = field(repr=False)
    sslmode: str | None = None
    sslrootcert: str | None = None

    @classmethod
    def of(cls, spec: PostgresCdcSource) -> Login:
        """The login that a source describes."""
        password = spec.password.get_secret_value() if spec.password is not None else None
        return cls(spec.host, spec.port, spec.database, spec.user, password, spec.sslmode, spec.sslrootcert)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"

    def connect(self, **more: str) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection on which every statement commits by itself. A FrazilError when there is none."""
        given: dict[str, Any] = {
            "host": self.host,
            "port": str(self.port),
            "dbname": self.database,
            "user": self.user,
            "password": self.password,
            "sslmode": self.sslmode,
            "sslrootcert": self.sslrootcert,
            "connect_timeout": str(CONNECT_SECONDS),
            "client_encoding": "UTF8",
            "application_name": "frazil",
            "options": " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items()),
            **more,
        }
        try:
            return psycopg.connect("", autocommit=True, **{name: value for name, value in given.items() if value is not None})
        except psycopg.OperationalError as error:
            raise _refused(self, error) from None


def _refused(login: Login, error: psycopg.OperationalError) -> FrazilError:
    text = one_line(error)
    if "password authentication failed" in text or "no password supplied" in text:
        return ConfigError(
            "database-login", f"PostgreSQL at {login} refuses the password of {login.user}.", fix="Correct user and password."
        )
    if f'database "{login.database}" does not exist' in text:
        return ConfigError(
            "database-missing",
            f"There is no database {login.database} at {login.host}:{login.port}.",
            fix="Correct the source's database.",
        )
    if "no pg_hba.conf entry" in text or f'role "{login.user}" does not exist' in text:
        return ConfigError("database-login", f"PostgreSQL at {login} does not admit {login.user}: {text}")
    if "SSL" in text or "certificate" in text:
        # The client does not always say why it broke off.
        text = text.replace("no SSL error reported", "perhaps the server's certificate is not one that is trusted")
        return ConfigError(
            "database-tls", f"The connection to PostgreSQL at {login} cannot be encrypted as asked: {text}", fix="See sslmode."
        )
    return SourceAway(
        "source-unreachable", f"PostgreSQL at {login} cannot be reached: {text}", fix="Is it running? Are host and port right?"
    )


def one_line(error: BaseException) -> str:
    """The message of an error, without secrets."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return scrub(lines[-1] if lines else type(error).__name__)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turns what PostgreSQL refuses within into frazil's errors."""
    try:
        yield
    except psycopg.Error as error:
        raise explained(error, what) from error


def explained(error: psycopg.Error, what: str) -> FrazilError:
    """What an error of the database means to a person."""
    text = one_line(error)
    if isinstance(error, pg.InsufficientPrivilege):
        return ConfigError("database-rights", f"{what}: the user lacks the right to it: {text}", fix="Grant it.")
    if isinstance(error, pg.ConfigurationLimitExceeded | pg.InsufficientResources):
        return ConfigError(
            "database-limits", f"{what}: {text}", fix="Raise max_replication_slots and max_wal_senders, or drop an unused slot."
        )
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return SourceAway("source-unreachable", f"{what}: the connection to PostgreSQL is gone: {text}")
    return ConfigError("database-refuses", f"{what}: PostgreSQL refuses: {text}")
