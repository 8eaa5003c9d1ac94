"""Errors of other libraries become frazil's own at one boundary."""

from __future__ import annotations

import pytest

from frazil.commit.protocol import FailureKind
from frazil.errors import DataError, FrazilError, RequiredNull, StoreRefused
from frazil.iceberg import Restage
from frazil.iceberg.faults import JavaFault, attempt_failed, explain
from frazil.iceberg.jvm import fault_of, java_errors
from frazil.iceberg.staging_faults import explain_staging


def test_a_failure_that_nothing_is_known_of_is_internal_and_blames_no_configuration() -> None:
    with pytest.raises(FrazilError, match="in a way that is not known: it just broke") as raised, java_errors("rest:x"):
        raise RuntimeError("it just broke")
    assert (type(raised.value), raised.value.code, raised.value.exit_code) == (FrazilError, "internal", 1)


def test_an_unknown_failure_of_a_batch_is_of_its_data_if_spark_raised_it_and_internal_otherwise() -> None:
    divided = explain_staging(JavaFault(("org.apache.spark.SparkArithmeticException",), "[DIVIDE_BY_ZERO] Division by zero."))
    assert (type(divided), divided.code) == (DataError, "batch-not-written")
    mistake = explain_staging(fault_of(KeyError("surprise")))
    assert (type(mistake), mistake.code, mistake.exit_code) == (FrazilError, "internal", 1)
    assert "KeyError: 'surprise'" in mistake.message


def test_a_store_that_is_full_is_known_wherever_in_the_chain_it_says_so() -> None:
    full = JavaFault(("java.io.IOException",), "No space left on device")
    error = explain_staging(JavaFault(("org.apache.spark.SparkException",), "Job aborted", full))
    assert (type(error), error.code) == (StoreRefused, "storage-full")


@pytest.mark.parametrize("path", ["id", "a.b", "it's", "both ' and \"", "back\\slash"])
def test_a_value_that_is_missing_is_reported_with_its_column(path: str) -> None:
    text = f"[USER_RAISED_EXCEPTION] [frazil-null] column {path!r} is required, and has no value SQLSTATE: P0001"
    error = explain_staging(JavaFault(("org.apache.spark.SparkRuntimeException",), text))
    assert isinstance(error, RequiredNull)
    assert (error.code, error.column) == ("required-null", path)


def test_a_file_that_somebody_deleted_is_a_reason_to_look_at_the_table_again() -> None:
    """An erasure beside a pipeline expires snapshots that the pipeline reads, and deletes their files at once."""
    gone = JavaFault(("org.apache.iceberg.exceptions.NotFoundException",), "Failed to open input stream for file: a.avro")
    assert isinstance(explain_staging(JavaFault(("org.apache.spark.SparkException",), "Job aborted", gone)), Restage)
    attempt = attempt_failed(gone, "rest:x").outcome
    assert (attempt.error.code, attempt.final) == ("file-missing", False)


HIVE_REFUSED = JavaFault(("org.apache.thrift.TApplicationException",), "Internal error processing lock")
HIVE_AWAY = JavaFault(("org.apache.thrift.transport.TTransportException",), "Connection reset")


@pytest.mark.parametrize(
    ("cause", "code", "kind", "final"),
    [
        (HIVE_REFUSED, "locks-failed", FailureKind.REFUSED, True),
        (HIVE_AWAY, "catalog-unreachable", FailureKind.UNREACHABLE, False),
        (None, "table-locked", FailureKind.UNREACHABLE, False),
    ],
    ids=["broken", "away", "somebody-else-s"],
)
def test_a_lock_that_was_not_had_is_no_conflict(cause: JavaFault | None, code: str, kind: FailureKind, final: bool) -> None:
    lock = JavaFault(("org.apache.iceberg.hive.LockException",), "Timed out after 180000 ms waiting for lock on db.t", cause)
    failed = JavaFault(("org.apache.iceberg.exceptions.CommitFailedException",), "LockException", lock)
    attempt = attempt_failed(failed, "thrift:x").outcome
    assert (attempt.error.code, attempt.kind, attempt.final) == (code, kind, final)


def test_a_lock_that_was_lost_during_a_commit_leaves_its_outcome_unknown() -> None:
    lock = JavaFault(("org.apache.iceberg.hive.LockException",), "Failed to heartbeat for lock", HIVE_REFUSED)
    unknown = JavaFault(("org.apache.iceberg.exceptions.CommitStateUnknownException",), "Failed to heartbeat", lock)
    attempt = attempt_failed(unknown, "thrift:x").outcome
    assert (attempt.kind, attempt.final) == (FailureKind.UNKNOWN, False)


def test_a_warehouse_that_hadoop_does_not_know_is_not_tried_again() -> None:
    unknown = JavaFault(
        ("org.apache.hadoop.fs.UnsupportedFileSystemException", "java.io.IOException"), 'No FileSystem for scheme "s3"'
    )
    failed = JavaFault(("org.apache.iceberg.exceptions.RuntimeIOException",), "Failed to get file system", unknown)
    attempt = attempt_failed(failed, "s3://lake/warehouse").outcome
    assert (attempt.error.code, attempt.error.exit_code, attempt.final) == ("warehouse-unsupported", 78, True)


def test_a_catalog_that_only_reads_is_distinguished_from_a_failure() -> None:
    kind = ("java.lang.UnsupportedOperationException",)
    error = explain(JavaFault(kind, "Server does not support endpoint: POST /v1/{prefix}/namespaces"), "https://host/iceberg")
    assert error is not None
    assert (error.code, error.exit_code) == ("not-offered", 78)
    assert error.message.endswith("POST /v1/{prefix}/namespaces")
    assert explain(JavaFault(kind, "not supported"), "https://host/iceberg") is None


@pytest.mark.parametrize(
    "said",
    [
        "NotFoundException: Unable to find warehouse nowhere",
        "NoSuchWarehouseException: Warehouse 'nowhere' not found",
        "NoSuchCatalogException: Couldn't find Iceberg configuration for catalog nowhere",
    ],
)
def test_a_warehouse_that_the_catalog_does_not_know_in_the_words_of_servers(said: str) -> None:
    error = explain(JavaFault(("org.apache.iceberg.exceptions.RESTException",), said), "https://host/iceberg")
    assert error is not None
    assert error.code == "warehouse-missing"


AMAZON = "software.amazon.awssdk.core.exception"
SERVICE = ("software.amazon.awssdk.services.s3.model.S3Exception", f"{AMAZON}.SdkServiceException", f"{AMAZON}.SdkException")
GOOGLE, AZURE = "com.google.cloud.storage.StorageException", "com.azure.core.exception.HttpResponseException"
CLIENT = (f"{AMAZON}.SdkClientException", f"{AMAZON}.SdkException")


@pytest.mark.parametrize(
    "fault",
    [
        JavaFault(SERVICE, "Please reduce your request rate. (Service: S3, Status Code: 503)", state="SlowDown", status=503),
        JavaFault(SERVICE, "(Service: S3, Status Code: 429)", status=429),
        JavaFault(CLIENT, "Unable to execute HTTP request", JavaFault(("java.io.IOException",), "Connection reset")),
        JavaFault(SERVICE, "The upload is gone (Service: S3, Status Code: 404)", state="NoSuchUpload", status=404),
        JavaFault((GOOGLE,), "We encountered an internal error", status=503),
        JavaFault((GOOGLE,), "Connection reset", JavaFault(("java.io.IOException",), "Connection reset")),
        JavaFault((AZURE,), "Status code 503, ServerBusy"),
    ],
    ids=["overloaded", "too-many", "cut-off", "upload-gone", "google", "google-cut-off", "azure"],
)
def test_a_store_that_fails_is_tried_again_and_the_catalog_is_not_blamed(fault: JavaFault) -> None:
    attempt = attempt_failed(fault, "sqlite:x").outcome
    assert (attempt.error.code, attempt.kind, attempt.final) == ("storage-unreachable", FailureKind.UNREACHABLE, False)
    assert "sqlite" not in str(attempt.error)
    staged = explain_staging(JavaFault(("org.apache.spark.SparkException",), "Job aborted", fault))
    assert (staged.code, staged.exit_code) == ("storage-unreachable", 75)


def test_keys_that_nobody_gave_are_not_waited_for() -> None:
    error = explain_staging(JavaFault(CLIENT, "Unable to load credentials from any of the providers in the chain"))
    assert error.exit_code == 1


def of_azure(code: str, status: int = 403, words: str = "Server failed to authenticate the request.") -> JavaFault:
    """What Microsoft's library prints of an answer of Azurite's, whose body is XML of several lines."""
    advice = "If you are using a StorageSharedKeyCredential, and the server returned an error message that says 'Signature ...\n"
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>\n  <Code>{code}</Code>\n  <Message>{words}\nRequestId:1</Message>'
    return JavaFault(("com.azure.storage.blob.models.BlobStorageException",), f'{advice}Status code {status}, "{body}\n</Error>"')


NO_TOKEN = (
    'Error getting access token for service account: 400 Bad Request\nPOST https://tokens\n{"error":"invalid_grant"}, iss: w@p'
)
LOGIN = "com.google.auth.oauth2.GoogleAuthException"
REFUSED_BY_CLOUDS = {
    "google-keys": (JavaFault((GOOGLE,), "401 Unauthorized", status=401), "storage-keys-refused", 78),
    "google-right": (JavaFault((GOOGLE,), "403 Forbidden", status=403), "no-permission", 1),
    "google-bucket": (JavaFault((GOOGLE,), "404 Not Found", status=404), "no-such-bucket", 78),
    "google-login": (JavaFault((GOOGLE,), "no token", JavaFault((LOGIN,), NO_TOKEN)), "storage-keys-refused", 78),
    "azure-key": (of_azure("AuthorizationFailure"), "storage-keys-refused", 78),
    "azure-head": (JavaFault((AZURE,), "Status code 403, (AuthenticationFailed)"), "storage-keys-refused", 78),
    "azure-json": (
        JavaFault((AZURE,), 'Status code 401, "{"error":{"code":"InvalidAuthenticationInfo"}}"'),
        "storage-keys-refused",
        78,
    ),
    "azure-right": (of_azure("AuthorizationPermissionMismatch"), "no-permission", 1),
    "azure-container": (of_azure("ContainerNotFound", 404, "The specified container does not exist."), "no-such-bucket", 78),
}


@pytest.mark.parametrize("name", REFUSED_BY_CLOUDS)
def test_what_a_store_does_not_allow_is_not_tried_again_and_its_cause_is_told(name: str) -> None:
    fault, code, exit_code = REFUSED_BY_CLOUDS[name]
    attempt = attempt_failed(fault, "sqlite:x").outcome
    assert (attempt.error.code, attempt.error.exit_code, attempt.final) == (code, exit_code, True)
    staged = explain_staging(JavaFault(("org.apache.spark.SparkException",), "Job aborted", fault))
    assert (staged.code, staged.exit_code) == (code, exit_code)


def test_a_refusal_of_azure_is_told_in_its_own_words() -> None:
    error = explain(of_azure("AuthorizationFailure"))
    assert error is not None
    assert "AuthorizationFailure: Status code 403: Server failed to authenticate the request." in error.message
    assert "StorageSharedKeyCredential" not in error.message
    assert "<" not in error.message


def test_a_service_for_tokens_that_is_away_is_waited_for() -> None:
    away = JavaFault((LOGIN, "java.io.IOException"), "Error getting access token for service account: Connection refused, iss: w")
    assert explain_staging(JavaFault((GOOGLE,), "no token", away)).code == "storage-unreachable"


def test_a_cause_that_spark_only_passes_on_as_text_is_known() -> None:
    """Microsoft's exceptions cannot be sent as objects."""
    text = (
        "Job aborted due to stage failure: Task 0 in stage 9.0 failed 1 times, most recent failure: Lost task 0.0 in stage 9.0 "
        "(TID 10) (host executor driver): java.io.UncheckedIOException: Failed to close current writer\n"
        "\tat org.apache.iceberg.io.RollingFileWriter.closeCurrentWriter(RollingFileWriter.java:125)\n"
        "Caused by: java.io.IOException\n\t... 21 more\n"
        "Caused by: com.azure.storage.blob.models.BlobStorageException: If you are using a key, read this.\n"
        "Status code 503, ServerBusy\n\t... 9 more\n\n"
        "Driver stacktrace:"
    )
    error = explain_staging(JavaFault(("org.apache.spark.SparkException", "java.lang.Exception"), text))
    assert (error.code, error.exit_code) == ("storage-unreachable", 75)
    assert "Status code 503" in error.message


@pytest.mark.parametrize(
    ("state", "number", "code", "exit_code"),
    [
        ("28000", 1045, "not-authorized", 78),
        ("28P01", 0, "not-authorized", 78),
        ("42000", 1049, "database-missing", 78),
        ("3D000", 0, "database-missing", 78),
        ("42000", 1044, "no-permission", 1),
        ("42000", 1142, "no-permission", 1),
        ("42501", 0, "no-permission", 1),
        ("", 26, "not-a-catalog", 78),
        ("42S02", 1146, "catalog-tables-missing", 75),
    ],
)
def test_what_databases_answer(state: str, number: int, code: str, exit_code: int) -> None:
    """Also where the answer names the catalog's table: that it may not be read is another matter than that it is not there."""
    refused = JavaFault(("java.sql.SQLException",), "refused, for table `lake`.`iceberg_tables`", state=state, number=number)
    error = explain(JavaFault(("org.apache.iceberg.jdbc.UncheckedSQLException",), "Cannot initialize", refused))
    assert error is not None
    assert (error.code, error.exit_code) == (code, exit_code)
