"""Errors of the storage, known by their words and not by the digits in the names of files; of catalogs, by their packages; of
databases, by their numbers."""

from __future__ import annotations

import socket

import psycopg2  # type: ignore[import-untyped]
import pymysql
import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from gcsfs.retry import HttpError  # type: ignore[import-untyped]
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError
from sqlalchemy.exc import DBAPIError

from frazil.errors import FrazilError
from frazil.model.catalog import CatalogSpec
from frazil.observe.faults import storage_failed, translated

PROBE = "s3://bucket/warehouse/.frazil-check-a401f403c4"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("Unexpected HTTP status 403", "s3-access-denied"),
        ("Unexpected HTTP status 401", "no-permission"),
        ("AWS Error NO_SUCH_BUCKET during PutObject", "no-such-bucket"),
        ("AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 7, Couldn't connect", "connection-refused"),
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 6, Couldn't resolve", "host-not-found"),
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 28, Timeout was reached", "connection-timeout"),
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 35, wrong version number", "tls-not-spoken"),
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 60, unable to get local issuer", "tls-untrusted"),
        ("AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 56, Recv failure", "storage-unreachable"),
        ("AWS Error SIGNATURE_DOES_NOT_MATCH during PutObject operation: The signature ...", "s3-keys-refused"),
        ("AWS Error REQUEST_TIME_TOO_SKEWED during PutObject operation: The difference ...", "clock-differs"),
        (
            "AWS Error UNKNOWN (HTTP status 400) during PutObject operation: Unable to parse "
            "ExceptionName: AuthorizationHeaderMalformed Message: the region 'us-east-1' is wrong; expecting 'eu-west-1'",
            "wrong-region",
        ),
        ("AWS Error UNKNOWN (HTTP status 301) during HeadObject operation: No response body.", "wrong-region"),
    ],
)
def test_what_the_storage_said_decides(reason: str, code: str) -> None:
    error = storage_failed(OSError(f"When writing '{PROBE}': {reason}"), "s3://bucket/warehouse")
    assert error.code == code


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(401, "storage-keys-refused", 78), (403, "no-permission", 1), (503, "storage-unreachable", 75)],
)
def test_what_google_said_decides_when_it_was_asked_with_a_token(status: int, code: str, exit_code: int) -> None:
    """In the words of PyArrow, which turns all refusals into one error of the operating system's."""
    told = (
        "[Errno 13] google::cloud::Status(X: Permanent error, with a last message of Invalid Credentials error_info={reason=x, "
    )
    more = f"metadata={{gcloud-cpp.retry.function=CreateResumableUpload, http_status_code={status}}}}}). Detail: [errno 13]"
    kind = OSError if status == 503 else PermissionError
    error = storage_failed(kind(f"{told}{more}"), "gs://bucket/warehouse")
    assert (error.code, error.exit_code) == (code, exit_code)
    assert "(Invalid Credentials)" in error.message or status == 503


# The packages botocore and thrift cannot be had here. These are made after theirs: the module, the name, what is kind of what.
BotoCoreError = type("BotoCoreError", (Exception,), {"__module__": "botocore.exceptions"})
VendoredError = type("RequestException", (OSError,), {"__module__": "botocore.vendored.requests.exceptions"})
TException = type("TException", (Exception,), {"__module__": "thrift.Thrift"})


def of_botocore(name: str, words: str, *kinds: type[Exception]) -> Exception:
    made: Exception = type(name, kinds or (BotoCoreError,), {"__module__": "botocore.exceptions"})(words)
    return made


def client_error(code: str) -> Exception:
    error = of_botocore("ClientError", f"An error occurred ({code}) when calling the GetDatabase operation", Exception)
    error.response = {"Error": {"Code": code, "Message": "..."}}  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [
        (of_botocore("EndpointConnectionError", "Could not connect to the endpoint URL"), "catalog-unreachable", 75),
        (of_botocore("ConnectTimeoutError", "Connect timeout", BotoCoreError, VendoredError), "catalog-unreachable", 75),
        (client_error("ThrottlingException"), "catalog-unreachable", 75),
        (of_botocore("NoCredentialsError", "Unable to locate credentials"), "not-authorized", 78),
        (client_error("UnrecognizedClientException"), "not-authorized", 78),
        (client_error("ExpiredTokenException"), "not-authorized", 78),
        (client_error("AccessDeniedException"), "no-permission", 1),
        (client_error("AccessDenied"), "no-permission", 1),
        (of_botocore("ProfileNotFound", "The config profile (shop) could not be found"), "catalog-settings", 78),
    ],
)
def test_what_amazons_library_raises(error: Exception, code: str, exit_code: int) -> None:
    spec = CatalogSpec.model_validate({"type": "glue", "warehouse": "s3://bucket/w", "glue": {"region": "eu-west-1"}})
    with pytest.raises(FrazilError) as caught, translated(spec):
        raise error
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)
    assert caught.value.message.startswith("Failed to connect to catalog at ")
    assert str(error) in caught.value.message
    assert caught.value.fix


def of_pymysql(number: int, state: str | None = None) -> Exception:
    return pymysql.err.OperationalError(number, "as the server says it", sqlstate=state)


def of_psycopg2(words: str) -> Exception:
    """As for a login that fails: the state is not passed on."""
    return psycopg2.OperationalError(f'connection to server at "127.0.0.1", port 5432 failed: FATAL:  {words}')


def of_pymysql_behind(cause: OSError) -> Exception:
    """A connection that could not be made."""
    error = of_pymysql(2003)
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [
        (of_pymysql(1045, "28000"), "not-authorized", 78),
        (of_pymysql(1698), "not-authorized", 78),
        (of_pymysql(1049, "42000"), "database-missing", 78),
        (of_pymysql(1044, "42000"), "no-permission", 1),
        (of_pymysql(1142, "42000"), "no-permission", 1),
        (of_pymysql(1064, "42000"), "catalog-unreachable", 75),
        (of_pymysql(1040, "08004"), "catalog-unreachable", 75),
        (of_pymysql_behind(ConnectionRefusedError(111, "Connection refused")), "connection-refused", 75),
        (of_pymysql_behind(socket.gaierror(-2, "Name or service not known")), "host-not-found", 75),
        (of_psycopg2('password authentication failed for user "bob"'), "not-authorized", 78),
        (of_psycopg2('role "bob" does not exist'), "not-authorized", 78),
        (of_psycopg2('database "puddle" does not exist'), "database-missing", 78),
        (of_psycopg2('permission denied for database "lake"'), "no-permission", 1),
        (of_psycopg2("the database system is starting up"), "catalog-unreachable", 75),
    ],
)
def test_what_databases_answer(error: Exception, code: str, exit_code: int) -> None:
    spec = CatalogSpec.model_validate({"type": "sql", "sql": {"uri": "mariadb://h/db", "warehouse": "/w"}})
    with pytest.raises(FrazilError) as caught, translated(spec):
        raise DBAPIError("select 1", {}, error)
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)
    assert caught.value.message.startswith("Failed to connect to catalog at ")


def of_azure(code: str, status: int) -> Exception:
    """As adlfs wraps it."""
    error = HttpResponseError("Server failed to authenticate the request.")
    error.status_code, error.error_code = status, code  # type: ignore[attr-defined]
    wrapped = RuntimeError(f"Failed to upload block: {error}!")
    wrapped.__cause__ = error
    return wrapped


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [
        (of_azure("AuthenticationFailed", 403), "storage-keys-refused", 78),
        (of_azure("AuthorizationPermissionMismatch", 403), "no-permission", 1),
        (of_azure("ContainerNotFound", 404), "no-such-bucket", 78),
        (of_azure("ServerBusy", 503), "storage-unreachable", 75),
        (ClientAuthenticationError("DefaultAzureCredential failed to retrieve a token"), "storage-keys-refused", 78),
        (HttpError({"code": 401, "message": "Invalid Credentials"}), "storage-keys-refused", 78),
        (HttpError({"code": 403, "message": "no access"}), "no-permission", 1),
        (HttpError({"code": 503, "message": "busy"}), "storage-unreachable", 75),
        (RefreshError("invalid_grant: Invalid JWT Signature."), "storage-keys-refused", 78),
        (DefaultCredentialsError("Your default credentials were not found."), "storage-keys-refused", 78),
        (TransportError("Connection aborted"), "storage-unreachable", 75),
        (FileNotFoundError("box/metadata.json"), "file-missing", 1),
    ],
)
def test_what_stores_of_google_and_microsoft_answer(error: Exception, code: str, exit_code: int) -> None:
    """However deep the library's own error is within another one."""
    spec = CatalogSpec.model_validate({"type": "hadoop", "warehouse": "gs://box/lake"})
    with pytest.raises(FrazilError) as caught, translated(spec):
        raise error
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)


def test_what_thrift_raises_of_a_metastore() -> None:
    spec = CatalogSpec.model_validate({"type": "hive", "hive": {"uri": "thrift://127.0.0.1:9083", "warehouse": "/w"}})
    kind = type("TTransportException", (TException,), {"__module__": "thrift.transport.TTransport"})
    with pytest.raises(FrazilError) as caught, translated(spec):
        raise kind("Could not connect to any of [('127.0.0.1', 9083)]")
    assert (caught.value.code, caught.value.exit_code) == ("catalog-unreachable", 75)
    assert caught.value.message == (
        "Failed to connect to catalog at thrift://127.0.0.1:9083: Could not connect to any of [('127.0.0.1', 9083)]"
    )


def test_an_error_of_nobody_known_stays_what_it_is() -> None:
    spec = CatalogSpec.model_validate({"type": "hive", "hive": {"uri": "thrift://127.0.0.1:9083", "warehouse": "/w"}})
    with pytest.raises(ZeroDivisionError), translated(spec):
        raise ZeroDivisionError
