"""Errors of the storage, told by their words and not by the digits in the names of files."""

from __future__ import annotations

import pytest

from frazil.observe.faults import storage_failed

PROBE = "s3://bucket/warehouse/.frazil-check-a401f403c4"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("Unexpected HTTP status 403", "s3-access-denied"),
        ("Unexpected HTTP status 401", "no-permission"),
        ("AWS Error NO_SUCH_BUCKET during PutObject", "no-such-bucket"),
        ("AWS Error NETWORK_CONNECTION: curlCode: 7, Couldn't connect to server", "storage-unreachable"),
    ],
)
def test_what_the_storage_said_decides(reason: str, code: str) -> None:
    told = storage_failed(OSError(f"When writing '{PROBE}': {reason}"), "s3://bucket/warehouse")
    assert told.code == code
