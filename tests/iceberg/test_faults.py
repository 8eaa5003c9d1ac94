"""Errors of other libraries become frazil's own at one boundary."""

from __future__ import annotations

import pytest

from frazil.errors import FrazilError, RequiredNull, StoreRefused
from frazil.iceberg import Restage
from frazil.iceberg.faults import JavaFault, attempt_failed
from frazil.iceberg.jvm import java_errors
from frazil.iceberg.staging_faults import explain_staging


def test_a_failure_that_nothing_is_known_of_is_internal_and_blames_no_configuration() -> None:
    with pytest.raises(FrazilError, match="in a way that is not known: it just broke") as raised, java_errors("rest:x"):
        raise RuntimeError("it just broke")
    assert (type(raised.value), raised.value.code, raised.value.exit_code) == (FrazilError, "internal", 1)


def test_a_store_that_is_full_is_known_wherever_in_the_chain_it_says_so() -> None:
    full = JavaFault(("java.io.IOException",), "No space left on device")
    error = explain_staging(JavaFault(("org.apache.spark.SparkException",), "Job aborted", full))
    assert (type(error), error.code) == (StoreRefused, "storage-full")


@pytest.mark.parametrize("path", ["id", "a.b", "it's", "both ' and \"", "back\\slash"])
def test_a_value_that_is_missing_is_told_with_its_column(path: str) -> None:
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
