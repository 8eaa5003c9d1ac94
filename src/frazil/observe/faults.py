"""Errors of PyIceberg and of the libraries under it, in words for people. The one place where they become frazil's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from frazil.errors import ConfigError, DataError, EnvironmentFault, FrazilError, Retryable
from frazil.model.catalog import CatalogSpec
from frazil.model.secrets import scrub

# What brings a module that is missing.
_PACKAGES = {
    "thrift": "pyiceberg[hive]",
    "boto3": "pyiceberg[glue]",
    "psycopg2": "frazil[postgres]",
    "gcsfs": "pyiceberg[gcsfs]",
    "adlfs": "pyiceberg[adlfs]",
}

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
        ((RequestException, *busy), lambda error, spec: unreachable(spec, first_line(error))),
        ((iceberg.RESTError, ValidationError), _not_a_catalog),
        ((SQLAlchemyError,), _database_failed),
        ((OSError,), lambda error, spec: storage_failed(error, spec.location or "the table's location")),
    )


def unreachable(spec: CatalogSpec, reason: str) -> Retryable:
    """Nobody answers at the catalog's address."""
    return Retryable(
        "catalog-unreachable",
        f"{_failed(spec)}: {reason}",
        fix="Verify that the catalog runs and can be reached from here; check the network and the credentials.",
    )


def _failed(spec: CatalogSpec) -> str:
    return f"Failed to connect to catalog at {spec.address}"


def _package_missing(error: Exception, spec: CatalogSpec) -> FrazilError:
    module = (getattr(error, "name", None) or "").partition(".")[0]
    package = _PACKAGES.get(module) or {"hive": "pyiceberg[hive]", "glue": "pyiceberg[glue]"}.get(spec.type.value, module)
    return EnvironmentFault(
        "package-missing",
        f"Looking at this {spec.type.value} catalog without Spark needs a package that is not installed: {package}.",
        fix=f"pip install '{package}'. A run does not need it.",
    )


def _not_authorized(error: Exception, spec: CatalogSpec) -> FrazilError:
    text = f"{_failed(spec)}: it refused the credentials ({first_line(error)})"
    return ConfigError("not-authorized", text, fix="Check the credential or token of the catalog.")


def _forbidden(error: Exception, spec: CatalogSpec) -> FrazilError:
    text = f"{_failed(spec)}: access denied ({first_line(error)})"
    return DataError("no-permission", text, fix="Check the permissions of the user or role in the catalog.")


def _amazon_failed(error: Exception, spec: CatalogSpec) -> FrazilError:
    """What Amazon's library says: by the name of the exception, or by the code in the answer of the service."""
    said = getattr(error, "response", {}).get("Error", {}).get("Code", "") or type(error).__name__
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
    return ConfigError(
        "not-a-catalog",
        f"{_failed(spec)}: it does not answer as an Iceberg REST catalog does ({first_line(error)})",
        fix="Check the path of the catalog's uri: many end with /api/catalog, /catalog or /iceberg.",
    )


def _database_failed(error: Exception, spec: CatalogSpec) -> FrazilError:
    reason = first_line(getattr(error, "orig", None) or error)
    text = f"{_failed(spec)}: {reason}"
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
    if scheme.startswith("s3") and _says(text, "ACCESS_DENIED", "403", "Forbidden"):
        return DataError(
            "s3-access-denied",
            f"Access Denied (Service: S3, Status Code: 403): {text}",
            fix="Check the keys and the permissions s3:GetObject, s3:PutObject, s3:DeleteObject. MinIO: path_style_access: true.",
        )
    if isinstance(error, PermissionError) or _says(text, "denied", "403", "Forbidden", "401", "Unauthorized"):
        return DataError("no-permission", f"Access denied at {location}: {text}", fix="Check who may read and write there.")
    if _says(text, "NO_SUCH_BUCKET", "NoSuchBucket"):
        return ConfigError("no-such-bucket", f"No such bucket: {location}", fix="Create it, or correct the warehouse.")
    if scheme in ("", "file"):
        return DataError("storage-failed", f"Cannot use {location}: {text}", fix="Check the disk and the path.")
    text = f"Failed to reach the storage at {location}: {text}"
    return Retryable("storage-unreachable", text, fix="Check endpoint, region and network.")


def _says(text: str, *marks: str) -> bool:
    """As whole words: the names of files hold all kinds of digits."""
    return any(re.search(rf"\b{mark}\b", text) for mark in marks)


def first_line(error: BaseException) -> str:
    """The message of an exception as one line, without secrets; its type's name when it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return scrub(lines[0]) if lines else type(error).__name__
