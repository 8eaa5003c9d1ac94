"""Addresses of databases that a SQL catalog is kept in, for Java's drivers and for Python's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from frazil.model.catalog import database_of

# The component with Java's driver of a database, and the driver of SQLAlchemy that PyIceberg uses. One driver of Java's speaks
# to MySQL and MariaDB alike, under the name of MariaDB.
COMPONENTS = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}
PYTHON_DRIVERS = {"postgresql": "postgresql+psycopg2", "mariadb": "mysql+pymysql"}

# Options of an address that PyMySQL and MariaDB's driver in Java name otherwise. Java's passes over what it does not know;
# Python's refuses it.
_JAVA_NAMES = {"ssl_ca": "serverSslCert"}
# Iceberg looks for the tables of a catalog without naming the database. It would find those of another one on the same server.
_OWN_DATABASE = {"nullDatabaseMeansCurrent": "true"}
_VERIFIES = ("verify-ca", "verify-full")
_PYMYSQL = ("charset", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity", "unix_socket")


def jdbc_uri(uri: str) -> tuple[str, str | None, str | None]:
    """A `jdbc:` URL without credentials, and the user and password that stood in the given one."""
    plain = uri.removeprefix("jdbc:")
    _, _, rest = plain.partition(":")
    kind = database_of(uri)
    if kind == "sqlite":
        path = rest.removeprefix("//").removeprefix("/") if rest.startswith("///") else rest
        if path.startswith(":") or not path:
            return f"jdbc:sqlite:{path}", None, None
        return f"jdbc:sqlite:{Path(path).expanduser().resolve()}", None, None
    parts = urlsplit(f"{kind}:{rest}")
    host = parts.hostname or "localhost"
    port = f":{parts.port}" if parts.port else ""
    query = _java_query(parts.query) if kind in ("mysql", "mariadb") else parts.query
    scheme = "mariadb" if kind in ("mysql", "mariadb") else kind
    address = f"jdbc:{scheme}://{host}{port}{quote(parts.path)}{'?' if query else ''}{query}"
    return address, unquote(parts.username) if parts.username else None, unquote(parts.password) if parts.password else None


def _java_query(query: str) -> str:
    """Options of PyMySQL's under the names of Java's driver. With an authority the server must show a certificate of it."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    if "ssl_ca" in options and "sslMode" not in options:
        whole = options.get("ssl_verify_identity", "true").lower() not in ("false", "0")
        options["sslMode"] = "verify-full" if whole else "verify-ca"
    return urlencode(_OWN_DATABASE | {_JAVA_NAMES.get(name, name): value for name, value in options.items()}, safe="/:,")


def python_options(query: Mapping[str, str]) -> dict[str, str]:
    """Options of an address for Java's driver of MariaDB as PyMySQL takes them; it refuses every other one."""
    back = {java: ours for ours, java in _JAVA_NAMES.items()}
    options = {back.get(name, name): value for name, value in query.items()}
    mode = options.pop("sslMode", "")
    if mode in _VERIFIES and "ssl_ca" in options:
        options.setdefault("ssl_verify_cert", "true")
        options.setdefault("ssl_verify_identity", str(mode == "verify-full").lower())
    return {name: value for name, value in options.items() if name in _PYMYSQL}
