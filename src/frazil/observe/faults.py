"""Errors of PyIceberg and of the libraries under it, in words for people. The one place where they become frazil's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from frazil.errors import ConfigError, CredentialsRefused, DataError, EnvironmentFault, FrazilError, Retryable
from frazil.model import connections
from frazil.model.catalog import CatalogSpec
from frazil.model.connections import Place
from frazil.model.packages import BROUGHT_BY, BROUGHT_BY_FOR
from frazil.observe.greeting import connection_fault, first_line

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

# How PyArrow says what a store answered: `AWS Error ACCESS_DENIED during PutObject operation: the store's message`.
_ARROW = re.compile(r"AWS Error (?P<code>\w+)[^:]*? during (?P<operation>\w+) operation: (?P<said>.*)")
_ARROW_UNKNOWN = re.compile(r"ExceptionName: (?P<code>\w+) Message: (?P<said>.*)")
_ARROW_USE = {"HeadObject": connections.READ, "GetObject": connections.READ, "DeleteObject": connections.DELETE} | dict.fromkeys(
    ("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"), connections.WRITE
)
_CURL = {
    "6": connections.host_not_found,
    "7": connections.connection_refused,
    "28": connections.connection_timeout,
    "60": connections.tls_untrusted,
}

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
    if _is_of("botocore", error):
        return _amazon_failed(error, spec)
    if _is_of("thrift", error):
        return unreachable(spec, first_line(error))
    return next((describe(error, spec) for kinds, describe in _known() if isinstance(error, kinds)), None)


def _is_of(package: str, error: Exception) -> bool:
    """Whether an error, or one that it is a kind of, comes from a package, which need not be installed to ask."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(error).__mro__)


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
    location = spec.location or "the table's location"
    if urlsplit(location).scheme == "hdfs" and not _reads_hdfs():
        return EnvironmentFault(
            "libhdfs-missing",
            f"To look into {location} without Spark takes Hadoop's native library, libhdfs, which is not found. A run does not "
            "need it.",
            fix="Install a Hadoop client, and set JAVA_HOME, ARROW_LIBHDFS_DIR and CLASSPATH as PyArrow's page on HDFS says.",
        )
    return storage_failed(error, location)


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
    reason = first_line(getattr(error, "orig", None) or error)
    text = f"{_failed(spec)}: {reason}"
    for said, describe in _DATABASE_CONNECTION:
        if said.search(reason):
            return describe(_place(spec), reason)
    if re.search(r'database "[^"]*" does not exist', reason):
        return ConfigError("database-missing", text, fix="Create the database, or correct its name in the uri.")
    if "authentication failed" in reason:
        return ConfigError("not-authorized", text, fix="Check user and password of the catalog's database.")
    if "not a database" in reason:
        return ConfigError("not-a-catalog", text, fix="The uri names a file of another kind; name another one.")
    if "permission denied" in reason or "unable to open" in reason:
        return DataError("no-permission", text, fix="Check who may read the catalog's database.")
    return unreachable(spec, reason)


def storage_failed(error: Exception, location: str) -> FrazilError:
    """A file that could not be read or written, in words that users search for."""
    text = first_line(error)
    scheme = urlsplit(location).scheme
    if isinstance(error, FileNotFoundError):
        return DataError("file-missing", f"A file is not there: {text}", fix="It was deleted, or the warehouse was moved.")
    if scheme.startswith("s3") and (known := _s3_failed(text, location)) is not None:
        return known
    if isinstance(error, PermissionError) or _says(text, "denied", "403", "Forbidden", "401", "Unauthorized"):
        return DataError("no-permission", f"Access denied at {location}: {text}", fix="Check who may read and write there.")
    if scheme in ("", "file"):
        return DataError("storage-failed", f"Cannot use {location}: {text}", fix="Check the disk and the path.")
    return connections.unreachable(Place.storage(location), text)


def _s3_failed(text: str, location: str) -> FrazilError | None:
    """What PyArrow tells of a store that speaks S3."""
    place = Place.storage(location)
    if (found := _ARROW.search(text)) is not None:
        code, said = found["code"].title().replace("_", ""), found["said"]
        if code == "NetworkConnection":
            return _curl_failed(said, place)
        if (unknown := _ARROW_UNKNOWN.search(said)) is not None:
            code, said = unknown["code"], unknown["said"]
        elif "HTTP status 301" in text:
            code = "PermanentRedirect"
        if known := connections.s3_refused(place, code, said, use=_ARROW_USE.get(found["operation"], "")):
            return known
    if _says(text, "NO_SUCH_BUCKET", "NoSuchBucket"):
        return connections.s3_refused(place, "NoSuchBucket", text)
    return connections.s3_denied(text) if _says(text, "ACCESS_DENIED", "403", "Forbidden") else None


def _curl_failed(said: str, place: Place) -> FrazilError | None:
    """By the number that the library under PyArrow gives to a connection that failed."""
    if "wrong version number" in said:
        return connections.tls_not_spoken(place, said)
    if "subject name" in said:
        return connections.tls_wrong_host(place, said)
    number = re.search(r"curlCode: (\d+)", said)
    describe = _CURL.get(number[1]) if number is not None else None
    return describe(place, said) if describe is not None else None


def _says(text: str, *marks: str) -> bool:
    """As whole words: the names of files hold all kinds of digits."""
    return any(re.search(rf"\b{mark}\b", text) for mark in marks)
