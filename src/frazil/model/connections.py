"""Why a catalog or a store cannot be used, in words for people: one code and one cure for each cause, whoever met it.

`frazil check` meets them in Python, a run in Java. Both say them with what is here.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from datetime import UTC, datetime

from frazil.errors import CatalogAway, ConfigError, CredentialsRefused, DataError, FrazilError, Retryable

# Ages of files are hours; a clock is wrong that differs by more than this from a service's.
CLOCKS_MAY_DIFFER_MS = 600_000

READ, WRITE, DELETE = "read", "write", "delete"

CHECK_LOGIN = "Check the credential or token of the catalog, and where tokens come from: oauth2_server_uri, with scope."

# Which right each use of a store needs.
S3_RIGHTS = {WRITE: "s3:PutObject", READ: "s3:GetObject", DELETE: "s3:DeleteObject"}

# What stores that speak S3 say of keys that they do not know, that do not fit, or that are too old.
_WRONG_KEYS = (
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidSecurity",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "XMinioInvalidAccessKeyId",
)
_OTHER_REGION = (
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "IncorrectEndpoint",
    "PermanentRedirect",
    "TemporaryRedirect",
)
_OTHER_CLOCK = ("RequestExpired", "RequestTimeTooSkewed")
# What else Amazon's services say of a request that was signed at another time than theirs.
_SIGNED_AT_ANOTHER_TIME = re.compile(r"(?i)signature (expired|not yet current)|RequestTimeTooSkewed|RequestExpired")


@dataclass(frozen=True)
class Place:
    """What is to be reached: how a message about it begins, and whether it is the catalog."""

    failed: str
    is_catalog: bool = False

    @classmethod
    def catalog(cls, address: str) -> Place:
        """A catalog, by its address."""
        return cls(f"Failed to connect to catalog at {address}", is_catalog=True)

    @classmethod
    def storage(cls, address: str = "") -> Place:
        """Where the files of tables are."""
        return cls(f"Failed to reach the storage at {address}" if address else "Failed to reach the storage")

    def away(self, code: str, message: str, *, fix: str) -> Retryable:
        """The error of a service that may answer later."""
        return (CatalogAway if self.is_catalog else Retryable)(code, message, fix=fix)


def unreachable(place: Place, reason: str) -> Retryable:
    """No answer as it should be, and nothing more is known."""
    if place.is_catalog:
        fix = "Verify that the catalog is running and accessible; check network and firewall rules, and the credentials."
        return place.away("catalog-unreachable", f"{place.failed}: {reason}", fix=fix)
    return place.away("storage-unreachable", f"{place.failed}: {reason}", fix="Check endpoint, region and network.")


def host_not_found(place: Place, reason: str) -> Retryable:
    """No name server knows the host."""
    return place.away(
        "host-not-found",
        f"{place.failed}: the host name cannot be resolved ({reason})",
        fix="Check the spelling of the host in the address, and the DNS of this machine or container.",
    )


def resolves(host: str) -> bool:
    """Whether a name server knows a host."""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def connection_refused(place: Place, reason: str) -> Retryable:
    """The host is there, and nothing listens at the port."""
    return place.away(
        "connection-refused",
        f"{place.failed}: the connection was refused ({reason})",
        fix="Verify that the service is running and accessible, and check the port. Within a container, localhost is the "
        "container itself.",
    )


def connection_timeout(place: Place, reason: str) -> Retryable:
    """No answer in time, not even a refusal."""
    return place.away(
        "connection-timeout",
        f"{place.failed}: no answer in time ({reason})",
        fix="Check network and firewall rules: a firewall, a security group, a proxy or a missing route drops the packets. "
        "Or the service is overloaded.",
    )


def tls_untrusted(place: Place, reason: str) -> ConfigError:
    """The certificate was signed by nobody whom this machine knows."""
    return ConfigError(
        "tls-untrusted",
        f"{place.failed}: its certificate is not trusted ({reason})",
        fix="Let this machine trust the authority that signed it: SSL_CERT_FILE and REQUESTS_CA_BUNDLE name a file with its "
        "certificate. A Java of your own needs it in its trust store (-Djavax.net.ssl.trustStore in "
        "spark.driver.extraJavaOptions).",
    )


def tls_wrong_host(place: Place, reason: str) -> ConfigError:
    """The certificate is another host's."""
    return ConfigError(
        "tls-wrong-host",
        f"{place.failed}: its certificate is for another host name ({reason})",
        fix="Use the host name that stands in the certificate, or have a certificate made for this one.",
    )


def tls_not_spoken(place: Place, reason: str) -> ConfigError:
    """The address says https, and the server speaks plain HTTP."""
    return ConfigError(
        "tls-not-spoken",
        f"{place.failed}: the address begins with https:// and the server does not speak TLS ({reason})",
        fix="Write http:// in the address, or name the port at which the server speaks TLS.",
    )


def tls_needed(place: Place) -> ConfigError:
    """The address says http, and the server speaks TLS."""
    return ConfigError(
        "tls-needed",
        f"{place.failed}: the address begins with http:// and the server speaks TLS at this port",
        fix="Write https:// in the address.",
    )


# The REST specification has a name for it; catalogs that are older than it say it in words of their own.
_LACKS_WAREHOUSE = re.compile(
    r"NoSuch(Warehouse|Catalog)Exception|(?i:(unable to find|unknown|no such|could not find|no) warehouse|"
    r"warehouse\b[^.]*\b(not found|does not exist|unknown|is required|not specified))"
)


def lacks_warehouse(answer: str) -> bool:
    """Whether a REST catalog says that it does not know the warehouse, or that it needs the name of one."""
    return _LACKS_WAREHOUSE.search(answer) is not None


def warehouse_missing(place: Place, reason: str) -> ConfigError:
    """A REST catalog that does not know the warehouse."""
    return ConfigError(
        "warehouse-missing",
        f"{place.failed}: it has no such warehouse ({reason})",
        fix="Correct catalog.rest.warehouse: most REST catalogs want the name of a warehouse or catalog there, not a bucket. "
        "Or create it in the catalog.",
    )


# The numbers of MySQL and MariaDB, which say more than their states of the SQL standard: an account that may not log in, or not
# from this host; a database that is not there; and rights that are missing, to the database, a table, a column, or at all.
_MYSQL_LOGIN = (1045, 1130, 1698)
_MYSQL_NO_DATABASE = (1049,)
_MYSQL_DENIED = (1044, 1142, 1143, 1227)
_SQLITE_NOT_A_DATABASE = 26


def database_refused(place: Place, state: str, number: int, reason: str) -> FrazilError | None:
    """A database that answers, and will answer the same the next time; None for what may pass, and for what is not known.

    ``state`` is that of the SQL standard, ``number`` the database's own.
    """
    text = f"{place.failed}: {reason}"
    if state.startswith("28") or number in _MYSQL_LOGIN:
        return CredentialsRefused("not-authorized", text, fix="Check user and password of the catalog's database.")
    if state.startswith("3D") or number in _MYSQL_NO_DATABASE:
        return ConfigError("database-missing", text, fix="Create the database, or correct its name in the uri.")
    if state == "42501" or number in _MYSQL_DENIED:
        return DataError("no-permission", text, fix="Check the rights of the user in the catalog's database.")
    if number == _SQLITE_NOT_A_DATABASE:
        return ConfigError("not-a-catalog", text, fix="The uri names a file of another kind; name another one.")
    return None


def clocks_differ(place: Place, here_ms: int, there_ms: int) -> Retryable | None:
    """The error of a service whose clock is far from this machine's; None when it is not."""
    if abs(here_ms - there_ms) <= CLOCKS_MAY_DIFFER_MS:
        return None
    clocks = f"this machine says {_iso(here_ms)}, and the service {_iso(there_ms)}"
    return clock_differs(place, clocks)


def is_of_another_time(answer: str) -> bool:
    """Whether a service says that a request was signed at another time than its own."""
    return _SIGNED_AT_ANOTHER_TIME.search(answer) is not None


def clock_differs(place: Place, reason: str) -> Retryable:
    """A service that takes no request from another time, or says another one."""
    return place.away(
        "clock-differs",
        f"{place.failed}: the clocks differ too much ({reason})",
        fix="Set the clock of this machine, or of the service, for example by NTP.",
    )


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def s3_refused(place: Place, code: str, reason: str, *, use: str = "", region: str = "") -> FrazilError | None:
    """What a store that speaks S3 answered, by the code in its answer; None for a code that says nothing about settings.

    ``use`` is what was tried (read, write or delete), ``region`` where the store says that the bucket is.
    """
    if code in _OTHER_CLOCK:
        return clock_differs(place, reason)
    if code in _WRONG_KEYS:
        return CredentialsRefused(
            "s3-keys-refused",
            f"{place.failed}: it refused the keys, {code} (Service: S3): {reason}",
            fix="Verify AWS credentials are set: access_key_id, secret_access_key and, for temporary keys, session_token.",
        )
    if code == "NoSuchBucket":
        return ConfigError(
            "no-such-bucket",
            f"{place.failed}: there is no such bucket ({reason})",
            fix="Create it, or correct the warehouse. A store that is not Amazon's may need path_style_access: true.",
        )
    if code in _OTHER_REGION:
        where = f"Set s3.region: {region}." if region else "Set s3.region to the region of the bucket."
        return ConfigError("wrong-region", f"{place.failed}: the bucket is in another region ({reason})", fix=where)
    if code in ("AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden"):
        return s3_denied(reason, use=use)
    return None


# What Azure's stores say of a key or a signature that does not fit, and of containers that are not there.
_AZURE_KEYS = ("AuthenticationFailed", "AuthorizationFailure", "InvalidAuthenticationInfo", "NoAuthenticationInformation")
_AZURE_NO_CONTAINER = ("ContainerNotFound", "FilesystemNotFound")


def cloud_refused(place: Place, code: str, status: int, reason: str) -> FrazilError | None:
    """What a store of Google's or Microsoft's answered, by the answer's code and status; None where these tell nothing."""
    if status == 401 or code in _AZURE_KEYS:
        return storage_keys_refused(place, reason)
    if code in _AZURE_NO_CONTAINER:
        return bucket_missing(place, reason)
    if status == 403:
        text = f"{place.failed}: access denied ({reason})"
        return DataError("no-permission", text, fix="Check who may read, write and delete there, and the network rules.")
    return None


def storage_keys_refused(place: Place, reason: str) -> CredentialsRefused:
    """A store of Google's or Microsoft's that takes no request with these credentials."""
    return CredentialsRefused(
        "storage-keys-refused",
        f"{place.failed}: it refused the credentials ({reason})",
        fix="Check the key, token or signature of the store (azure, gcs), and whether it has expired. Without any in the file, "
        "those of this machine are used.",
    )


def bucket_missing(place: Place, reason: str) -> ConfigError:
    """A bucket, or a container, that is not there."""
    text = f"{place.failed}: there is no such bucket or container ({reason})"
    return ConfigError("no-such-bucket", text, fix="Create it, or correct the warehouse.")


def s3_refused_unsaid(place: Place, reason: str) -> CredentialsRefused:
    """A store that refuses to describe an object, and has no room in that answer for a code."""
    return CredentialsRefused(
        "s3-keys-refused",
        f"{place.failed}: it refused a request and did not say why, as stores do when keys have expired ({reason})",
        fix="Verify that the keys are still good, and that region is that of the bucket.",
    )


def s3_denied(reason: str, *, use: str = "") -> DataError:
    """A store that takes the keys, and does not let them do this."""
    missing = f"may not {use} files, which needs {S3_RIGHTS[use]}: " if use else ""
    every = "s3:GetObject, s3:PutObject, s3:DeleteObject"
    cure = f"Grant {S3_RIGHTS[use]} (a sink needs {every})" if use else f"Check the keys, and IAM permissions for {every},"
    return DataError(
        "s3-access-denied",
        f"Access Denied (Service: S3, Status Code: 403): {missing}{reason}",
        fix=f"{cure} on the bucket's objects. For path-style access (MinIO), set path_style_access: true.",
    )


def path_style_needed(place: Place, host: str) -> ConfigError:
    """A store that is found by its own name, and not by one with the bucket in front."""
    return ConfigError(
        "path-style-needed",
        f"{place.failed}: the bucket stands in the host name, and {host} cannot be resolved",
        fix="Set s3.path_style_access: true, which puts the bucket into the path.",
    )


def no_transactions(address: str) -> ConfigError:
    """A catalog that cannot commit several tables at once."""
    return ConfigError(
        "atomic-unsupported",
        f"route.atomic is set, and the catalog at {address} cannot commit several tables at once: it does not offer "
        "transactions/commit.",
        fix="Leave out route.atomic, or use a SQL catalog, or a REST catalog with multi-table transactions.",
    )


def no_compare_and_swap(place: Place, table: str) -> ConfigError:
    """A catalog that accepted a commit on a state that the table does not have."""
    return ConfigError(
        "no-compare-and-swap",
        f"{place.failed}: it accepted a stale commit to {table}, which changed nothing. Commits of two writers at once, or one "
        "that is repeated, would be lost or doubled",
        fix="Use a catalog that compares and swaps: it must refuse such a commit with status 409.",
    )
