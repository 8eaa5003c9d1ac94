"""A catalog whose requests are signed, as PyIceberg is configured for it."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.io import AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN

from frazil.model.sink import SinkSpec
from frazil.observe.catalogs import pyiceberg_properties

SIGNED = {
    "rest.sigv4-enabled": "true",
    "rest.signing-name": "s3tables",
    "rest.signing-region": "eu-west-1",
    "rest.access-key-id": "AKIA",
    "rest.secret-access-key": "hush",
    "rest.session-token": "tok",
}


def properties(signing: dict[str, str], **s3: Any) -> dict[str, Any]:
    rest = {"uri": "https://s3tables.eu-west-1.amazonaws.com/iceberg", "warehouse": "arn:aws:s3tables:x", "properties": signing}
    sink = {"catalog": {"type": "rest", "rest": rest}, "namespace": "a", "table": "b", "s3": s3}
    return pyiceberg_properties(SinkSpec.model_validate(sink))


def test_requests_are_signed_with_the_keys_of_the_catalog_and_files_are_read_with_their_own() -> None:
    """PyIceberg signs with its keys for everything; those for files alone go before where it reads them."""
    found = properties(SIGNED, region="eu-west-1", access_key_id="FILES", secret_access_key="pw", session_token="own")
    assert (found[AWS_ACCESS_KEY_ID], found[AWS_SECRET_ACCESS_KEY], found[AWS_SESSION_TOKEN]) == ("AKIA", "hush", "tok")
    assert (found["s3.access-key-id"], found["s3.session-token"]) == ("FILES", "own")
    assert (found["rest.signing-name"], found["rest.signing-region"]) == ("s3tables", "eu-west-1")


@pytest.mark.parametrize("signing", [SIGNED, {"rest.sigv4-enabled": "true"}], ids=["with keys", "with the default chain"])
def test_a_role_is_not_assumed_beside_keys_which_py_arrow_refuses(signing: dict[str, str]) -> None:
    found = properties(signing | {"s3.role-arn": "arn:aws:iam::1:role/r"}, region="eu-west-1")
    assert (AWS_ACCESS_KEY_ID in found) != ("s3.role-arn" in found)
