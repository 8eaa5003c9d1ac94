"""Logins and encryption of object stores: what each option changes for Spark, and for PyIceberg."""

from __future__ import annotations

from base64 import b64encode
from hashlib import md5
from typing import Any

import pytest
from pydantic import ValidationError

from frazil.model.sink import SinkSpec
from frazil.observe.catalogs import pyiceberg_properties
from frazil.spark.catalogs import CatalogSettings, catalog_settings

KEY = b64encode(bytes(range(32))).decode()
ROLE = "arn:aws:iam::123456789012:role/writer"


def sink_of(**store: Any) -> SinkSpec:
    catalog = {"type": "rest", "rest": {"uri": "https://catalog.example"}}
    return SinkSpec.model_validate({"catalog": catalog, "namespace": "db", "table": "t", **store})


def settings(**store: Any) -> CatalogSettings:
    return catalog_settings(sink_of(**store))


def holds(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("store", "java", "pyiceberg"),
    [
        (
            {"s3": {"region": "r", "role_arn": ROLE, "role_session_name": "frazil"}},
            {
                "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
                "client.assume-role.arn": ROLE,
                "client.assume-role.region": "r",
                "client.assume-role.session-name": "frazil",
            },
            {"s3.role-arn": ROLE, "s3.role-session-name": "frazil"},
        ),
        (
            {"s3": {"region": "r", "role_arn": ROLE, "external_id": "x"}},
            {"client.assume-role.external-id": "x"},
            {"s3.role-arn": None},
        ),
        ({"s3": {"sse_type": "s3"}}, {"s3.sse.type": "s3", "s3.sse.key": None}, {"s3.server-side-encryption": "AES256"}),
        (
            {"s3": {"sse_type": "kms", "kms_key": "alias/lake"}},
            {"s3.sse.type": "kms", "s3.sse.key": "alias/lake"},
            {"s3.server-side-encryption": "aws:kms", "s3.sse-kms-key-id": "alias/lake"},
        ),
        ({"s3": {"sse_type": "dsse-kms"}}, {"s3.sse.type": "dsse-kms"}, {"s3.server-side-encryption": "aws:kms:dsse"}),
        (
            {"s3": {"sse_type": "custom", "encryption_key": KEY}},
            {"s3.sse.type": "custom", "s3.sse.key": KEY, "s3.sse.md5": b64encode(md5(bytes(range(32))).digest()).decode()},
            {"s3.server-side-encryption": None},
        ),
        (
            {"s3": {"max_retries": 0, "retry_min_wait_ms": 10, "retry_max_wait_ms": 20}},
            {"s3.retry.num-retries": "0", "s3.retry.min-wait-ms": "10", "s3.retry.max-wait-ms": "20"},
            {},
        ),
        ({"s3": {}}, {"s3.retry.num-retries": None, "s3.sse.type": None, "client.factory": None}, {"s3.role-arn": None}),
        (
            {"gcs": {"token": "ya29", "expires_at_ms": 1900000000000, "user_project": "payer"}},
            {"gcs.oauth2.token": "ya29", "gcs.oauth2.token-expires-at": "1900000000000", "gcs.user-project": "payer"},
            {"gcs.oauth2.token": "ya29", "gcs.oauth2.token-expires-at": "1900000000000", "py-io-impl": None},
        ),
        (
            {"gcs": {"impersonate_service_account": "w@p"}},
            {"gcs.impersonate.service-account": "w@p", "gcs.oauth2.token": None},
            {"gcs.oauth2.token": None},
        ),
        (
            {"azure": {"storage_account": "acc", "token": "eyJ"}},
            {"adls.token": "eyJ"},
            {"adls.token": "eyJ", "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"},
        ),
        (
            {"azure": {"storage_account": "acc", "client_id": "c", "tenant_id": "t", "client_secret": "hush"}},
            {"adls.token": None},
            {"adls.client-id": "c", "adls.tenant-id": "t", "adls.client-secret": "hush"},
        ),
        (
            {"azure": {"connection_string": "BlobEndpoint=http://h/a;", "storage_account": "a", "sas_token": "sv=1&sig=x"}},
            {"adls.sas-token.a.dfs.core.windows.net": "sv=1&sig=x", "adls.connection-string.a.dfs.core.windows.net": "http://h/a"},
            {"adls.connection-string": "BlobEndpoint=http://h/a;AccountName=a;SharedAccessSignature=sv=1&sig=x"},
        ),
        ({"azure": {"storage_account": "acc", "client_id": "c"}}, {}, {"adls.client-id": None, "adls.account-name": "acc"}),
    ],
    ids=[
        "role", "role with an external id", "s3's key", "kms", "twice kms", "own key", "retries", "nothing", "google's token",
        "google as another", "azure's token", "service principal", "signature beside a connection string", "managed identity",
    ],
)  # fmt: skip
def test_stores(store: dict[str, Any], java: dict[str, str | None], pyiceberg: dict[str, str | None]) -> None:
    assert holds(settings(**store).options, java)
    assert holds(pyiceberg_properties(sink_of(**store)), pyiceberg)


def test_a_token_of_google_without_an_end_gets_one_for_pyarrow_which_wants_to_know() -> None:
    assert int(pyiceberg_properties(sink_of(gcs={"token": "ya29"}))["gcs.oauth2.token-expires-at"]) > 1_700_000_000_000
    assert "gcs.oauth2.token-expires-at" not in settings(gcs={"token": "ya29"}).options


@pytest.mark.parametrize(
    ("store", "environment"),
    [
        ({"s3": {"profile": "writer"}}, {"AWS_PROFILE": "writer"}),
        ({"azure": {"client_id": "c"}}, {"AZURE_CLIENT_ID": "c"}),
        (
            {"azure": {"client_id": "c", "tenant_id": "t", "client_secret": "hush"}},
            {"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "hush"},
        ),
        ({"azure": {"access_key": "k"}}, {}),
    ],
    ids=["profile", "managed identity", "service principal", "nothing"],
)
def test_what_the_libraries_of_clouds_read_in_the_environment_alone(store: dict[str, Any], environment: dict[str, str]) -> None:
    assert settings(**store).environment == environment


def test_a_profile_is_used_by_pyiceberg_too() -> None:
    assert pyiceberg_properties(sink_of(s3={"profile": "writer"}))["client.profile-name"] == "writer"


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ({"s3": {"role_arn": ROLE}}, "role_arn needs region"),
        ({"s3": {"external_id": "x"}}, "external_id has no meaning without role_arn"),
        ({"s3": {"region": "r", "role_arn": ROLE, "access_key_id": "A"}}, "role_arn and access_key_id exclude each other"),
        ({"s3": {"profile": "p", "access_key_id": "A"}}, "profile and access_key_id exclude each other"),
        ({"s3": {"sse_type": "aes"}}, "Input should be 's3', 'kms', 'dsse-kms' or 'custom'"),
        ({"s3": {"kms_key": "k"}}, "kms_key has no meaning without sse_type: kms"),
        ({"s3": {"sse_type": "s3", "kms_key": "k"}}, "kms_key has no meaning without sse_type: kms"),
        ({"s3": {"sse_type": "custom"}}, "sse_type: custom and encryption_key belong together"),
        ({"s3": {"sse_type": "custom", "encryption_key": "c2hvcnQ="}}, "32 bytes in base64"),
        ({"s3": {"sse_type": "custom", "encryption_key": "not base64!"}}, "32 bytes in base64"),
        ({"s3": {"retry_min_wait_ms": 9, "retry_max_wait_ms": 3}}, "is more than retry_max_wait_ms"),
        ({"gcs": {"token": "t", "no_auth": True}}, "token and no_auth exclude each other"),
        ({"gcs": {"service_account_path": "p", "service_account_key": "{}"}}, "exclude each other"),
        ({"gcs": {"expires_at_ms": 1}}, "expires_at_ms has no meaning without token"),
        ({"gcs": {"no_auth": True, "impersonate_service_account": "w"}}, "exclude each other"),
        ({"azure": {"access_key": "k", "token": "t"}}, "access_key and token exclude each other"),
        ({"azure": {"client_id": "c", "tenant_id": "t"}}, "tenant_id and client_secret belong together"),
        ({"azure": {"tenant_id": "t", "client_secret": "s"}}, "client_secret has no meaning without client_id"),
    ],
)
def test_options_that_do_not_fit_together(store: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        sink_of(**store)
    assert words in str(refused.value)


def test_a_catalog_and_its_files_cannot_have_different_roles_or_profiles() -> None:
    """Both are options of the whole catalog, and of the whole process."""
    glue = {"region": "r", "role_arn": ROLE, "profile": "one"}
    catalog = {"type": "glue", "warehouse": "s3://b/w", "glue": glue}
    for other in ({"role_arn": f"{ROLE}2"}, {"profile": "other"}):
        with pytest.raises(ValidationError, match="one for the catalog and its files"):
            sink_of(catalog=catalog, s3={"region": "r", **other})
    assert sink_of(catalog=catalog, s3={"region": "r", "role_arn": ROLE, "profile": "one"}).s3 is not None
