"""The boundary for what Iceberg, its catalogs and its stores raise in the JVM, as errors for people.

What is not known is `internal` where a catalog or a table is opened or looked at (:func:`frazil.iceberg.jvm.java_errors`). In an
attempt of a commit it is an unknown outcome, which the commit protocol looks up. Other boundaries: what executors raise while
they write a batch (:mod:`frazil.iceberg.staging_faults`), what reading a source raises (:mod:`frazil.sources.failures`), and what
PyIceberg and its libraries raise, without a JVM (:mod:`frazil.observe.faults`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from frazil.commit.protocol import CONFLICT_MESSAGE, AttemptFailed, FailureKind
from frazil.errors import (
    CatalogAway,
    CatalogUnborn,
    ConfigError,
    CredentialsRefused,
    DataError,
    FrazilError,
    Halted,
    Retryable,
    StoreRefused,
    TableGone,
)
from frazil.iceberg.changes import Restage
from frazil.model import connections
from frazil.model.connections import Place
from frazil.model.secrets import scrub

ICEBERG = "org.apache.iceberg.exceptions."

# What a REST catalog says, as a malformed request, when the branch is where it was but another commit took the sequence number:
# one on another branch, or one that was rolled back since.
OUTRUN = "older than last sequence number"

# What Iceberg throws when a Hive metastore does not lock a table; around it may be the word for a conflict.
_LOCKS = "org.apache.iceberg.hive.LockException"
_THRIFT_AWAY = "org.apache.thrift.transport.TTransportException"

_CLOCK = "clock-differs"
_CLOCK_FIX = "Set the clocks of all machines that write to the table, for example by NTP. Commits succeed again after that time."
# Iceberg adds nothing to a table whose last change is more than a minute after the clock of the writer.
_TOLERATED_MS = 60_000
# What Iceberg says when it builds metadata for a table that was last changed in the future.
_FROM_THE_FUTURE = re.compile(
    r"Expected sorted (snapshot|previous metadata) log entries|Invalid (update|snapshot) timestamp \S+: before"
)


@dataclass(frozen=True)
class JavaFault:
    """What a Java exception says: the names of its classes, its own first, its message, and its causes' in turn.

    ``state`` is the code of an error that a database reported, or a service of Amazon's kind; ``number`` the database's own
    number for it; ``status`` the status of the answer of a store. ``of_python``: it is an exception of Python's own, which
    neither Java nor Spark has raised.
    """

    classes: tuple[str, ...]
    message: str
    cause: JavaFault | None = None
    state: str = ""
    status: int = 0
    of_python: bool = False
    number: int = 0

    @property
    def chain(self) -> tuple[JavaFault, ...]:
        """This fault and its causes."""
        return (self,) if self.cause is None else (self, *self.cause.chain)

    def find(self, *names: str) -> JavaFault | None:
        """The first in the chain that is an instance of one of the classes, given by full name or by its last part."""
        return next((fault for fault in self.chain if fault.is_of(*names)), None)

    def is_of(self, *names: str) -> bool:
        """Whether this one itself is an instance of one of the classes."""
        return any(known == name or known.endswith(f".{name}") for known in self.classes for name in names)

    @property
    def text(self) -> str:
        """All messages of the chain."""
        return "\n".join(fault.message for fault in self.chain)

    @property
    def line(self) -> str:
        """The message as one line, without secrets."""
        text = self.message.strip().splitlines()
        return scrub(text[0].strip()) if text else self.classes[0].rpartition(".")[2]


def attempt_failed(fault: JavaFault, address: str) -> AttemptFailed:
    """What a failed call to the catalog means for the commit loop."""
    overtaken = fault.find(f"{ICEBERG}CommitFailedException", f"{ICEBERG}AlreadyExistsException") or OUTRUN in fault.text
    if overtaken and fault.find(_LOCKS) is None:
        return AttemptFailed(FailureKind.CONFLICT, Retryable("conflict", CONFLICT_MESSAGE))
    error = explain(fault, address)
    if fault.find(f"{ICEBERG}CommitStateUnknownException"):
        known = error if isinstance(error, StoreRefused) else None
        return AttemptFailed(FailureKind.UNKNOWN, known or Retryable("commit-unknown", f"The catalog did not say: {fault.line}"))
    if isinstance(error, Retryable):
        return AttemptFailed(FailureKind.UNREACHABLE, error)
    if error is None:
        return AttemptFailed(FailureKind.UNKNOWN, Retryable("catalog-error", f"The catalog failed: {fault.line}"))
    return AttemptFailed(FailureKind.REFUSED, error, final=True)


def explain(fault: JavaFault, address: str = "the catalog") -> FrazilError | None:
    """The fault as an error for people, or None when nothing more is known than its message."""
    if (refused := _store_refused(fault, address) or _not_connected(fault, address)) is not None:
        return refused
    for classes, describe in KNOWN:
        if (found := fault.find(*classes)) and (error := describe(found, address)):
            return error
    return None


def _not_authorized(fault: JavaFault, address: str) -> FrazilError:
    text = f"The catalog at {address} refused the credentials: {fault.line}"
    return CredentialsRefused("not-authorized", text, fix=connections.CHECK_LOGIN)


def _forbidden(fault: JavaFault, address: str) -> FrazilError:
    if connections.is_of_another_time(fault.message):
        return connections.clock_differs(Place.catalog(address), fault.line)
    return DataError("no-permission", f"Access denied: {fault.line}", fix="Check the permissions of the user or role.")


# The clients of a REST catalog, of a catalog's database, and of stores and other services of Amazon's kind.
_OF_REST = f"{ICEBERG}RESTException"
_OF_DATABASE = ("java.sql.SQLException", "org.apache.iceberg.jdbc.UncheckedSQLException")
_OF_AMAZON_CORE = "software.amazon.awssdk.core.exception"
_OF_AMAZON = f"{_OF_AMAZON_CORE}.SdkException"
_OF_GOOGLE = "com.google.cloud.storage.StorageException"
_OF_OTHER_STORES = (
    _OF_GOOGLE,
    "com.azure.core.exception.HttpResponseException",
    "com.azure.storage.blob.models.BlobStorageException",
    "com.azure.storage.file.datalake.models.DataLakeStorageException",
)
# What Microsoft's exceptions print of an answer: its status; its code, within XML or JSON, or alone; and its words.
_AZURE_STATUS = re.compile(r"^Status code (\d{3})\b", re.MULTILINE)
_AZURE_CODE = re.compile(r'<Code>(\w+)</Code>|"code"\s*:\s*"(\w+)"|\AStatus code \d{3}, \(?(?!empty\b)(\w+)')
_AZURE_WORDS = re.compile(r'<Message>([^<\n]+)|"message"\s*:\s*"([^"\\]+)')
# What Google's store says of a missing object. Of a missing bucket it says so, and others that speak its protocol nothing more.
_NO_OBJECT = "No such object"
# What is thrown by those who get tokens for the stores of Google and Microsoft, and how Google's says that it was refused one.
_GOOGLE_LOGIN = "com.google.auth.oauth2.GoogleAuthException"
_LOGINS = (
    _GOOGLE_LOGIN,
    "com.azure.core.exception.ClientAuthenticationException",
    "com.microsoft.aad.msal4j.MsalServiceException",
)
_NO_TOKEN = re.compile(r": 4\d\d\b")
# What Google's client says when a store has refused a token that was given to it, and that it cannot get anew.
_TOKEN_ENDED = "does not support refreshing the access token"
# What clients of stores throw, or wrap, when no whole answer came.
_CLIENTS = (f"{_OF_AMAZON_CORE}.SdkClientException", *_OF_OTHER_STORES)
_NO_ANSWER = (
    "java.io.IOException",
    f"{_OF_AMAZON_CORE}.ApiCallTimeoutException",
    f"{_OF_AMAZON_CORE}.ApiCallAttemptTimeoutException",
)

# How the names of classes begin that only Microsoft's library brings.
_AZURE_NETWORK = ("org.apache.iceberg.azure.shaded.", "reactor.")

# How Java says that a certificate was signed by nobody whom it knows, that it is another host's, and that there is no TLS.
_UNTRUSTED = ("PKIX path", "unable to find valid certification path")
_WRONG_HOST = ("No subject alternative", "No name matching", "doesn't match any of the subject alternative names")
_NO_TLS = ("Unsupported or unrecognized SSL message",)


def _not_connected(fault: JavaFault, address: str) -> FrazilError | None:
    """Why there is no connection to the catalog, or to the store; None when there is one, or the faults do not tell."""
    of_store = fault.find(_OF_AMAZON, *_OF_OTHER_STORES) is not None or _is_of_azure(fault)
    if not of_store and fault.find(_OF_REST, *_OF_DATABASE) is None:
        return None
    place = Place.storage() if of_store else Place.catalog(address)
    for part in fault.chain:
        if of_store or fault.find(_OF_REST):
            for marks, describe in (
                (_UNTRUSTED, connections.tls_untrusted),
                (_WRONG_HOST, connections.tls_wrong_host),
                (_NO_TLS, connections.tls_not_spoken),
            ):
                if any(mark in part.message for mark in marks):
                    return describe(place, part.line)
        if part.is_of("java.net.UnknownHostException"):
            return _host_not_found(part, place)
        if part.is_of("java.net.ConnectException") and "refused" in part.message:
            return connections.connection_refused(place, part.line)
        if part.is_of("java.net.SocketTimeoutException"):
            return connections.connection_timeout(place, part.line)
    return None


def _is_of_azure(fault: JavaFault) -> bool:
    """Whether Microsoft's library has met it: of a connection that failed it passes on what its network library has thrown."""
    return any(name.startswith(_AZURE_NETWORK) for part in fault.chain for name in part.classes)


def _host_not_found(fault: JavaFault, place: Place) -> FrazilError:
    """Java's client of a store puts the bucket in front of the store's name, and only the latter may be known."""
    host = fault.line.partition(":")[0].strip()
    endpoint = host.partition(".")[2]
    if not place.is_catalog and endpoint and connections.resolves(endpoint):
        return connections.path_style_needed(place, host)
    return connections.host_not_found(place, fault.line)


def _s3_refused(fault: JavaFault, _address: str) -> FrazilError | None:
    """By the code in the store's answer. An answer without a body has only a status."""
    code = "PermanentRedirect" if "Status Code: 301" in fault.message else fault.state
    if (known := connections.s3_refused(Place.storage(), code, fault.line)) is not None:
        return known
    if not code and "Status Code: 400" in fault.message:
        return connections.s3_refused_unsaid(Place.storage(), fault.line)
    denied = re.search(r"\b403\b", fault.message) or "Access Denied" in fault.message
    return connections.s3_denied(fault.line) if denied else None


def _with_answer(fault: JavaFault) -> JavaFault:
    """Microsoft's exceptions lose the answer on their way from an executor. Advice about signatures may come before it."""
    if fault.status or (found := _AZURE_STATUS.search(fault.message)) is None:
        return fault
    text = fault.message[found.start() :]
    words = _first_of(_AZURE_WORDS, text)
    said = f"{found[0]}: {words}" if words else found[0]
    return replace(fault, message=said, state=_first_of(_AZURE_CODE, text), status=int(found[1]))


def _first_of(pattern: re.Pattern[str], text: str) -> str:
    """What the first match has in whichever of its groups; nothing without one."""
    found = pattern.search(text)
    return next((group for group in found.groups() if group), "") if found else ""


def is_missing(fault: JavaFault) -> bool:
    """Whether a file or a folder is not there."""
    if fault.find(f"{ICEBERG}NotFoundException", "java.io.FileNotFoundException"):
        return True
    return any(one.is_of(*_OF_OTHER_STORES) and _with_answer(one).status == 404 for one in fault.chain)


def _not_logged_in(fault: JavaFault, _address: str) -> FrazilError | None:
    """Nobody gives out a token for a store, or there is nothing to get one for. A service that is away is another matter."""
    if fault.is_of(_GOOGLE_LOGIN) and _NO_TOKEN.search(fault.message) is None:
        return None
    return connections.storage_keys_refused(Place.storage(), fault.line)


def _token_ended(fault: JavaFault, _address: str) -> FrazilError | None:
    return connections.storage_keys_refused(Place.storage(), fault.line) if _TOKEN_ENDED in fault.message else None


def _store_failed(fault: JavaFault, _address: str) -> FrazilError | None:
    """A store that did not do what it was asked for, and may later: it is overloaded, broken, or cut off. Or it never will."""
    fault = _with_answer(fault)
    status = fault.status
    said = f"{fault.state}: {fault.line}" if fault.state else fault.line
    if fault.is_of(*_OF_OTHER_STORES) and (known := connections.cloud_refused(Place.storage(), fault.state, status, said)):
        return known
    if fault.is_of(_OF_GOOGLE) and status == 404 and _NO_OBJECT not in fault.message:
        return connections.bucket_missing(Place.storage(), said)
    of_store = fault.is_of("S3Exception", *_OF_OTHER_STORES)
    # An upload in parts is unknown when the answer to its end was lost: the file is written again, under another name.
    overloaded = of_store and (status >= 500 or status == 429 or fault.state == "NoSuchUpload")
    cut_off = fault.is_of(*_CLIENTS) and status == 0 and any(part.is_of(*_NO_ANSWER) for part in fault.chain)
    return connections.unreachable(Place.storage(), said) if overloaded or cut_off else None


def _replaced(fault: JavaFault, _address: str) -> FrazilError | None:
    if "UUID does not match" not in fault.message:
        return None
    return Halted(
        "table-replaced",
        f"The table was dropped and made again while the sink was writing: {fault.line}",
        fix="Start the pipeline again if the new table is the one to write to.",
    )


def _table_missing(fault: JavaFault, _address: str) -> FrazilError:
    return TableGone("table-missing", f"The table is not there any more: {fault.line}", fix="Start the pipeline again.")


def _file_missing(fault: JavaFault, _address: str) -> FrazilError:
    """Somebody may have expired the snapshot that was read, and deleted its files: then a look at the newest one helps."""
    return Restage(
        "file-missing",
        f"A file of the table is not there any more: {fault.line}",
        fix="If this lasts, the current snapshot has lost a file: restore it, or roll the table back to a snapshot without it.",
    )


def _warehouse_missing(fault: JavaFault, address: str) -> FrazilError | None:
    if fault.is_of(f"{ICEBERG}NoSuchWarehouseException") or connections.lacks_warehouse(fault.message):
        return connections.warehouse_missing(Place.catalog(address), fault.line)
    return None


def _not_locked(fault: JavaFault, address: str) -> FrazilError:
    """A Hive metastore that fails by itself when it is to lock a table does so until it is mended; a lock of another ends."""
    if fault.find(_THRIFT_AWAY):
        return _unreachable(fault, address)
    text = f"The Hive metastore at {address} did not lock the table for a commit: {' '.join(part.line for part in fault.chain)}"
    if fault.find("org.apache.thrift.TApplicationException"):
        fix = "Look into its log. Often its database lacks the tables for locks (HIVE_LOCKS): schematool -initSchema makes them."
        return DataError("locks-failed", text, fix=fix)
    return Retryable("table-locked", text, fix="If this lasts, a writer died with a lock: it ends with hive.txn.timeout.")


def _namespace_missing(fault: JavaFault, _address: str) -> FrazilError:
    return ConfigError("namespace-missing", fault.line, fix="Create it, or set auto_create_table: true.")


def _refused(fault: JavaFault, _address: str) -> FrazilError:
    return DataError("refused-by-iceberg", fault.line)


def _bad_request(fault: JavaFault, address: str) -> FrazilError:
    return DataError(
        "refused-by-catalog", f"The catalog at {address} refused the request: {fault.line}", fix="Check the catalog's address."
    )


# What Iceberg's client says when a REST catalog lists what it offers, and a request that is needed is not on the list.
_NOT_LISTED = re.compile(r"Server does not support endpoint: (.+)")


def _not_offered(fault: JavaFault, address: str) -> FrazilError | None:
    if (found := _NOT_LISTED.match(fault.line)) is None:
        return None
    return ConfigError(
        "not-offered",
        f"The catalog at {address} does not offer what is needed here: {found[1]}",
        fix="Check the path of the catalog's uri: some services have one address that only reads, and another one that writes.",
    )


def _database_refused(fault: JavaFault, address: str) -> FrazilError | None:
    return connections.database_refused(Place.catalog(address), fault.state, fault.number, fault.line)


# How file systems, object stores and databases say that they are full.
_FULL = (
    "No space left on device",
    "Disk quota exceeded",
    "SQLITE_FULL",
    "XMinioStorageFull",
    "InsufficientStorage",
    "Status Code: 507",
    "exceeds the DiskSpace quota",
)
_FULL_DATABASE = "53100"
# How they say that they only let themselves be read. Hadoop makes a folder, or says that it failed and not why.
_NOT_WRITABLE = ("Read-only file system", "Mkdirs failed", "Name node is in safe mode")
_DENIED = "Permission denied"
_READ_ONLY_CATALOG = ("SQLITE_READONLY", "attempt to write a readonly database")
_READ_ONLY_DATABASE = "25006"


def _store_refused(fault: JavaFault, address: str) -> StoreRefused | None:
    """A store that is full, or that cannot be written to: until somebody makes room, or lets it be written to again."""
    for part in fault.chain:
        if part.state == _FULL_DATABASE or any(mark in part.message for mark in _FULL):
            return StoreRefused(
                "storage-full",
                f"No space is left where something was to be written: {part.line}",
                fix="Make room where the warehouse is, or the catalog, or Spark's scratch (spark.local.dir).",
            )
        if part.state == _READ_ONLY_DATABASE or any(mark in part.message for mark in _READ_ONLY_CATALOG):
            text = f"The catalog at {address} is read-only: {part.line}"
            return StoreRefused("catalog-read-only", text, fix="Let the catalog's database be written to.")
        if not part.is_of("java.io.IOException", f"{ICEBERG}RuntimeIOException"):
            continue
        if _DENIED in part.message:  # it may be a file of the source, too
            text = f"A file cannot be read or written: {part.line}"
            return StoreRefused("no-permission", text, fix="Check who may read and write there.")
        if any(mark in part.message for mark in _NOT_WRITABLE):
            text = f"The warehouse cannot be written to: {part.line}"
            return StoreRefused(
                "warehouse-not-writable", text, fix="Check that it is not mounted read-only, and its permissions."
            )
    return None


def too_early(changed_ms: int, now_ms: int | None = None) -> Retryable | None:
    """The error of a table that was changed last at a time too far in the future; None when it is not."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    wait_ms = changed_ms - _TOLERATED_MS - now_ms
    if wait_ms <= 0:
        return None
    seconds = (wait_ms + 100) / 1000
    return Retryable(
        _CLOCK,
        f"The table was last changed at {_iso(changed_ms)}, and this machine says {_iso(now_ms)}: the clock of another writer is "
        f"ahead, or this one is behind. Iceberg adds nothing to such a table for another {seconds:,.0f} s.",
        fix=_CLOCK_FIX,
        after=seconds,
    )


def clock_off(store_ms: int, now_ms: int) -> Retryable | None:
    """The error of a machine whose clock is far from that of the store; None when it is not.

    How old a file is, and whether readers had their time, cannot be known there.
    """
    off_ms = now_ms - store_ms
    if abs(off_ms) <= connections.CLOCKS_MAY_DIFFER_MS:
        return None
    return Retryable(
        _CLOCK,
        f"This machine says {_iso(now_ms)}, and the store {_iso(store_ms)}: how old files are is not known here, and none is "
        "deleted.",
        fix="Set the clock of this machine, for example by NTP.",
    )


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _from_the_future(fault: JavaFault, _address: str) -> FrazilError | None:
    if not _FROM_THE_FUTURE.search(fault.message):
        return None
    text = "The table was last changed in the future: the clock of another writer is ahead, or that of this machine is behind."
    return Retryable(_CLOCK, text, fix=_CLOCK_FIX)


def _files_failed(fault: JavaFault, _address: str) -> FrazilError:
    """Iceberg reports so what goes wrong with a file, and never what goes wrong with a catalog's service."""
    line = fault.chain[-1].line
    if "No FileSystem for scheme" in line:
        text = f"The warehouse is at a place that a hadoop catalog cannot be in: {line}"
        return ConfigError(
            "warehouse-unsupported", text, fix="Take a local folder, or a SQL or REST catalog with that warehouse."
        )
    if "not a directory" in line:
        text = f"The warehouse cannot be written to: {line}"
        return DataError("warehouse-not-writable", text, fix="Check the path.")
    return Retryable("storage-failed", f"The warehouse failed: {line}", fix="Check that the warehouse can be reached from here.")


# The table that a SQL catalog keeps its tables in. Databases name it when it is missing.
_CATALOG_TABLE = "iceberg_tables"


def _unreachable(fault: JavaFault, address: str) -> FrazilError:
    text = f"Failed to connect to catalog at {address}: {fault.chain[-1].line}"
    fix = "Check that the catalog runs and can be reached from here, and the credentials."
    if any(_CATALOG_TABLE in part.message for part in fault.chain):
        return CatalogUnborn(
            "catalog-tables-missing",
            f"The database at {address} has no tables of a catalog: {fault.chain[-1].line}",
            fix="Create them by a run with init_catalog_tables: true, as a user who may; or correct the address.",
        )
    return CatalogAway("catalog-unreachable", text, fix=fix)


Describe = Callable[[JavaFault, str], FrazilError | None]

# In this order: a store has a class of its own for an access that is denied, and that also fails as an input or output error.
KNOWN: tuple[tuple[tuple[str, ...], Describe], ...] = (
    (("S3Exception",), _s3_refused),
    ((_LOCKS,), _not_locked),
    ((f"{ICEBERG}NotAuthorizedException",), _not_authorized),
    ((f"{ICEBERG}ForbiddenException", "AccessDeniedException", "AccessControlException"), _forbidden),
    (("java.lang.IllegalStateException",), _replaced),
    (("java.lang.IllegalStateException",), _token_ended),
    (("java.lang.IllegalArgumentException", f"{ICEBERG}ValidationException"), _from_the_future),
    ((f"{ICEBERG}NoSuchTableException",), _table_missing),
    ((f"{ICEBERG}NotFoundException",), _file_missing),
    (_LOGINS, _not_logged_in),
    ((_OF_AMAZON, *_OF_OTHER_STORES), _store_failed),
    ((f"{ICEBERG}NoSuchWarehouseException", f"{ICEBERG}RESTException", f"{ICEBERG}BadRequestException"), _warehouse_missing),
    ((f"{ICEBERG}NoSuchNamespaceException",), _namespace_missing),
    (("java.lang.UnsupportedOperationException",), _not_offered),
    ((f"{ICEBERG}ValidationException",), _refused),
    ((f"{ICEBERG}BadRequestException",), _bad_request),
    (("java.sql.SQLException",), _database_refused),
    ((f"{ICEBERG}RuntimeIOException",), _files_failed),
    (
        (
            f"{ICEBERG}ServiceUnavailableException",
            f"{ICEBERG}ServiceFailureException",
            f"{ICEBERG}RESTException",
            "java.io.IOException",
            "java.sql.SQLException",
            "org.apache.iceberg.jdbc.UncheckedSQLException",
            "org.apache.iceberg.hive.RuntimeMetaException",
            _THRIFT_AWAY,
        ),
        _unreachable,
    ),
)
