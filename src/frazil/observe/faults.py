"""Errors of PyIceberg and of the libraries under it, in words for people. The one place where they become frazil's."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from frazil.errors import ConfigError, CredentialsRefused, DataError, EnvironmentFault, FrazilError, Retryable
from frazil.model import connections
from frazil.model.catalog import CatalogSpec, CatalogType
from frazil.model.connections import Place
from frazil.model.packages import BROUGHT_BY, BROUGHT_BY_FOR
from frazil.observe.greeting import connection_fault, first_line
from frazil.observe.store_faults import cloud_failed, is_of, storage_failed

# What Amazon's library and its services say of credentials that are missing, wrong or too old.
_AMAZON_CREDENTIALS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "SSOTokenLoadError",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
)
_AMAZON_SETTINGS = ("InvalidRegionError", "ProfileNotFound")

# How PostgreSQL's library says why there is no connection.
_DATABASE_CONNECTION = (
    (re.compile(r"could not translate host name|Name or service not known"), connections.host_not_found),
    (re.compile(r"Connection refused"), connections.connection_refused),
    (re.compile(r"timeout expired|timed out"), connections.connection_timeout),
    (re.compile(r"certificate verify failed|root certificate file .* does not exist"), connections.tls_untrusted),
    (re.compile(r"server certificate for .* does not match host name"), connections.tls_wrong_host),
    (re.compile(r"server does not support SSL"), connections.tls_not_spoken),
)
# What the server answers to a login, of which that library passes on the words alone, and the states that belong to them.
_LOGIN_STATES = (
    (
        re.compile(r'authentication failed|no pg_hba\.conf entry|role "[^"]*" (does not exist|is not permitted to log in)'),
        "28000",
    ),
    (re.compile(r'database "[^"]*" does not exist'), "3D000"),
    (re.compile(r"permission denied"), "42501"),
)

Describe = Callable[[Exception, CatalogSpec], FrazilError]


@contextmanager
def translated(spec: CatalogSpec) -> Iterator[None]:
    """Turns foreign errors that are known into frazil's. What is not known stays as it is."""
    try:
        yield
    except FrazilError:
        raise
    except Exception as error:
        known = explain(error, spec)
        if known is None:
            raise
        raise known from error


def explain(error: Exception, spec: CatalogSpec) -> FrazilError | None:
    """The error in words for people, or None when nothing more is known than its own."""
    if is_of(error, "botocore"):
        return _amazon_failed(error, spec)
    if is_of(error, "thrift"):
        return unreachable(spec, first_line(error))
    if spec.type is not CatalogType.BIGQUERY and (refused := cloud_failed(error, _location(spec))) is not None:
        return refused
    return next((describe(error, spec) for kinds, describe in _known() if isinstance(error, kinds)), None)


def _known() -> tuple[tuple[tuple[type[Exception], ...], Describe], ...]:
    """In this order: an access that is denied is also an answer of a REST catalog, and a failed request is an OSError."""
    from pydantic import ValidationError
    from pyiceberg import exceptions as iceberg
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    busy = (iceberg.ServerError, iceberg.ServiceUnavailableError, iceberg.TooManyRequestsError)
    return (
        ((ModuleNotFoundError, iceberg.NotInstalledError), _package_missing),
        ((iceberg.UnauthorizedError, iceberg.OAuthError, iceberg.AuthorizationExpiredError), _not_authorized),
        ((iceberg.ForbiddenError,), _forbidden),
        ((RequestException,), lambda error, spec: connection_fault(error, _place(spec)) or unreachable(spec, first_line(error))),
        (busy, lambda error, spec: unreachable(spec, first_line(error))),
        ((iceberg.RESTError, ValidationError), _not_a_catalog),
        ((SQLAlchemyError,), _database_failed),
        ((OSError,), _storage_failed),
    )


def _storage_failed(error: Exception, spec: CatalogSpec) -> FrazilError:
    location = _location(spec)
    if urlsplit(location).scheme == "hdfs" and not _reads_hdfs():
        return EnvironmentFault(
            "libhdfs-missing",
            f"To look into {location} without Spark takes Hadoop's native library, libhdfs, which is not found. A run does not "
            "need it.",
            fix="Install a Hadoop client, and set JAVA_HOME, ARROW_LIBHDFS_DIR and CLASSPATH as PyArrow's page on HDFS says.",
        )
    return storage_failed(error, location)


def _location(spec: CatalogSpec) -> str:
    return spec.location or "the table's location"


def _reads_hdfs() -> bool:
    import pyarrow

    return bool(pyarrow.have_libhdfs())


def unreachable(spec: CatalogSpec, reason: str) -> Retryable:
    """Nobody answers at the catalog's address."""
    return connections.unreachable(_place(spec), reason)


def _place(spec: CatalogSpec) -> Place:
    return Place.catalog(spec.address)


def _failed(spec: CatalogSpec) -> str:
    return _place(spec).failed


def _package_missing(error: Exception, spec: CatalogSpec) -> FrazilError:
    module = (getattr(error, "name", None) or "").partition(".")[0]
    package = BROUGHT_BY.get(module) or BROUGHT_BY_FOR.get(spec.type.value, module)
    return EnvironmentFault(
        "package-missing",
        f"Looking at this {spec.type.value} catalog without Spark needs a package that is not installed: {package}.",
        fix=f"pip install '{package}'. A run does not need it.",
    )


def _not_authorized(error: Exception, spec: CatalogSpec) -> FrazilError:
    text = f"{_failed(spec)}: it refused the credentials ({first_line(error)})"
    return CredentialsRefused("not-authorized", text, fix=connections.CHECK_LOGIN)


def _forbidden(error: Exception, spec: CatalogSpec) -> FrazilError:
    if connections.is_of_another_time(str(error)):
        return connections.clock_differs(_place(spec), first_line(error))
    text = f"{_failed(spec)}: access denied ({first_line(error)})"
    return DataError("no-permission", text, fix="Check the permissions of the user or role in the catalog.")


def _amazon_failed(error: Exception, spec: CatalogSpec) -> FrazilError:
    """What Amazon's library says: by the name of the exception, or by the code in the answer of the service."""
    said = getattr(error, "response", {}).get("Error", {}).get("Code", "") or type(error).__name__
    if connections.is_of_another_time(f"{said} {error}"):
        return connections.clock_differs(_place(spec), first_line(error))
    if said.startswith("AccessDenied"):
        return _forbidden(error, spec)
    if said in _AMAZON_CREDENTIALS:
        return _not_authorized(error, spec)
    if said in _AMAZON_SETTINGS:
        return ConfigError(
            "catalog-settings", f"{_failed(spec)}: {first_line(error)}", fix="Check catalog.glue.region and profile."
        )
    return unreachable(spec, first_line(error))


def _not_a_catalog(error: Exception, spec: CatalogSpec) -> FrazilError:
    if connections.lacks_warehouse(str(error)):
        return connections.warehouse_missing(_place(spec), first_line(error))
    return ConfigError(
        "not-a-catalog",
        f"{_failed(spec)}: it does not answer as an Iceberg REST catalog does ({first_line(error)})",
        fix="Check the path of the catalog's uri: many end with /api/catalog, /catalog or /iceberg.",
    )


def _database_failed(error: Exception, spec: CatalogSpec) -> FrazilError:
    origin: Exception = getattr(error, "orig", None) or error
    reason = first_line(origin)
    if (known := connection_fault(origin, _place(spec))) is not None:
        return known
    for said, describe in _DATABASE_CONNECTION:
        if said.search(reason):
            return describe(_place(spec), reason)
    number = _database_number(origin)
    if number == sqlite3.SQLITE_CANTOPEN:
        text = f"{_failed(spec)}: {reason}"
        return DataError("no-permission", text, fix="Check who may read the catalog's database.")
    refused = connections.database_refused(_place(spec), _database_state(origin, reason), number, reason)
    return refused or unreachable(spec, reason)


def _database_state(origin: Exception, reason: str) -> str:
    """The state of the SQL standard that a database's answer has."""
    state = getattr(origin, "pgcode", None) or getattr(origin, "sqlstate", None)
    return state or next((known for said, known in _LOGIN_STATES if said.search(reason)), "")


def _database_number(origin: Exception) -> int:
    """The number that SQLite, or MySQL, has for what went wrong."""
    if isinstance(origin, sqlite3.Error):
        return getattr(origin, "sqlite_errorcode", 0) & 0xFF  # without what it adds for details
    number = origin.args[0] if is_of(origin, "pymysql") and origin.args else 0
    return number if isinstance(number, int) else 0
