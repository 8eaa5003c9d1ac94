"""Who the destination says it is, as the catalog sees it: in the requests of Spark, and in those for tables as PyIceberg's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dlt.common.schema import Schema
from noting_catalog import FETCHED, TOKENS, NotingCatalog, noting_catalog
from pyspark.sql import SparkSession

from frazil.dlt import IcebergRestClient, IcebergRestConfiguration, iceberg_rest
from frazil.spark.catalogs import catalog_settings


@pytest.fixture
def catalog() -> Iterator[NotingCatalog]:
    with noting_catalog() as started:
        yield started


def client(uri: str, **options: Any) -> IcebergRestClient:
    """The client that dlt would be given."""
    destination = iceberg_rest(catalog_uri=uri, max_retries=0, **options)
    made = destination.client(Schema("s"), IcebergRestConfiguration()._bind_dataset_name("ds"))
    assert isinstance(made, IcebergRestClient)
    return made


def seen(catalog: NotingCatalog) -> set[str | None]:
    """What the requests of the catalog were authorized by, but for the one that only asks whether somebody answers."""
    asked = [one for one in catalog.requests if not one.headers["user-agent"].startswith("python-requests")]
    assert asked
    return {one.headers.get("authorization") for one in asked}


def test_a_token_is_sent_as_it_is(spark: SparkSession, catalog: NotingCatalog) -> None:
    asking = client(catalog.uri, token="t0ken")
    assert asking.is_storage_initialized()
    assert seen(catalog) == {"Bearer t0ken"}
    assert asking.get_open_table_catalog("iceberg").list_namespaces() == [("default",)]
    assert (seen(catalog), catalog.logins) == ({"Bearer t0ken"}, [])


@pytest.mark.filterwarnings("ignore:Deprecated in 0.8.0")  # PyIceberg does not like to ask the catalog itself for tokens
@pytest.mark.parametrize(
    ("options", "place", "scope"),
    [
        ({"oauth2_server_uri": "{uri}" + TOKENS}, TOKENS, "PRINCIPAL_ROLE:ALL"),
        ({"scope": "catalog"}, "/v1/oauth/tokens", "catalog"),
    ],
)
def test_a_credential_is_changed_for_a_token(
    spark: SparkSession, catalog: NotingCatalog, options: dict[str, str], place: str, scope: str
) -> None:
    given = {name: value.format(uri=catalog.uri) for name, value in options.items()}
    asking = client(catalog.uri, credential="id:secret", **given)
    assert asking.is_storage_initialized()
    assert asking.get_open_table_catalog("iceberg").list_namespaces() == [("default",)]
    assert seen(catalog) == {f"Bearer {FETCHED}"}
    assert len(catalog.logins) >= 2, "Spark's and PyIceberg's"
    for login in catalog.logins:
        assert login.path == place
        assert login.form["grant_type"] == "client_credentials"
        assert (login.form["client_id"], login.form["client_secret"], login.form["scope"]) == ("id", "secret", scope)


def test_of_a_token_and_a_credential_one_is_sent(spark: SparkSession, catalog: NotingCatalog) -> None:
    """The token, unless the credential has a service that changes it for another."""
    given = {"token": "t0ken", "credential": "id:secret"}
    assert client(catalog.uri, **given).is_storage_initialized()
    assert (seen(catalog), catalog.logins) == ({"Bearer t0ken"}, [])
    catalog.requests.clear()
    assert client(catalog.uri, **given, oauth2_server_uri=catalog.uri + TOKENS).is_storage_initialized()
    assert seen(catalog) == {f"Bearer {FETCHED}"}
    assert {login.headers.get("authorization") for login in catalog.logins} == {None}


def test_nobody_is_named_where_nothing_is_given(spark: SparkSession, catalog: NotingCatalog) -> None:
    assert client(catalog.uri).is_storage_initialized()
    assert (seen(catalog), catalog.logins) == ({None}, [])


def test_a_signed_catalog_has_the_library_that_signs() -> None:
    """Also where the region is left to Amazon's own settings."""
    config = IcebergRestConfiguration(catalog_uri="https://h/c", sigv4_enabled=True)
    assert "aws" in catalog_settings(config.sink("t")).components
