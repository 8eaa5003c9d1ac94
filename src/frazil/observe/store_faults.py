"""Errors of stores, in words for people: of PyArrow, and of the libraries of Google and Microsoft."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from frazil.errors import DataError, FrazilError
from frazil.model import connections
from frazil.model.connections import Place
from frazil.observe.greeting import causes, connection_fault, first_line

# How PyArrow says what a store answered: `AWS Error ACCESS_DENIED during PutObject operation: the store's message`.
_ARROW = re.compile(r"AWS Error (?P<code>\w+)[^:]*? during (?P<operation>\w+) operation: (?P<said>.*)")
_ARROW_UNKNOWN = re.compile(r"ExceptionName: (?P<code>\w+) Message: (?P<said>.*)")
# How it says what Google's store answered: it gives the name of a status, the store's message, and more in braces.
_ARROW_OF_GOOGLE = re.compile(
    r"google::cloud::Status\(.*?with a last message of (?P<said>.*?) error_info=.*http_status_code=(?P<status>\d{3})"
)
_ARROW_USE = {"HeadObject": connections.READ, "GetObject": connections.READ, "DeleteObject": connections.DELETE} | dict.fromkeys(
    ("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"), connections.WRITE
)
_CURL = {
    "6": connections.host_not_found,
    "7": connections.connection_refused,
    "28": connections.connection_timeout,
    "60": connections.tls_untrusted,
}

# Libraries that stores of Google and Microsoft are reached with.
_CLOUDS = ("aiohttp", "azure", "gcsfs", "google")


def is_of(error: BaseException, *packages: str) -> bool:
    """Whether an error, or one that it is a kind of, comes from a package, which need not be installed to ask."""
    return any(kind.__module__.partition(".")[0] in packages for kind in type(error).__mro__)


def cloud_failed(error: Exception, location: str) -> FrazilError | None:
    """What a library of Google's or Microsoft's raised, or what was raised because of that; None when it was none of them."""
    place = Place.storage(location)
    parts = [part for part in causes(error) if is_of(part, *_CLOUDS)]
    for part in parts:
        if _is_login(part):
            return connections.storage_keys_refused(place, first_line(part))
        code, status = _answer(part)
        if known := connections.cloud_refused(place, code, status, first_line(part)):
            return known
    if not parts or isinstance(error, FileNotFoundError):
        return None
    return connection_fault(error, place) or connections.unreachable(place, first_line(parts[0]))


def _is_login(part: BaseException) -> bool:
    """Whether nobody gave out a token, or there is nothing to get one for. A service that is away is another matter."""
    kinds = {kind.__name__ for kind in type(part).__mro__}
    return ("GoogleAuthError" in kinds and "TransportError" not in kinds) or "ClientAuthenticationError" in kinds


def _answer(part: BaseException) -> tuple[str, int]:
    """The code and the status of the answer of a store."""
    code, status = getattr(part, "error_code", None), getattr(part, "status_code", None) or getattr(part, "code", None)
    return str(getattr(code, "value", code) or ""), status if isinstance(status, int) else 0


def storage_failed(error: Exception, location: str) -> FrazilError:
    """A file that could not be read or written, in words that users search for."""
    text = first_line(error)
    scheme = urlsplit(location).scheme
    if isinstance(error, FileNotFoundError):
        return DataError("file-missing", f"A file is not there: {text}", fix="It was deleted, or the warehouse was moved.")
    if scheme.startswith("s3") and (known := _s3_failed(text, location)) is not None:
        return known
    if (found := _ARROW_OF_GOOGLE.search(text)) is not None:
        known = connections.cloud_refused(Place.storage(location), "", int(found["status"]), found["said"])
        if known is not None:
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
