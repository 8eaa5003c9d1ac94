"""A sink's catalog and store in PyIceberg's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from frazil.errors import ConfigError
from frazil.model.sink import SinkSpec
from frazil.observe.catalogs import pyiceberg_properties


def properties(catalog: dict[str, Any], **options: Any) -> dict[str, Any]:
    return pyiceberg_properties(SinkSpec.model_validate({"catalog": catalog, "namespace": "a", "table": "b", **options}))


def chosen(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ({"credential": "id:secret"}, {"credential": "id:secret"}),
        ({"credential": "bearer"}, {"token": "bearer"}),
        ({"credential": "bearer", "properties": {"oauth2-server-uri": "https://a/t"}}, {"credential": "bearer"}),
        ({"credential": "bearer", "oauth2_server_uri": "https://a/t"}, {"credential": "bearer"}),
        ({"token": "bearer"}, {"token": "bearer"}),
    ],
)
def test_a_credential_is_a_token_unless_there_is_somewhere_to_trade_it(rest: dict[str, Any], expected: dict[str, str]) -> None:
    found = properties({"type": "rest", "rest": {"uri": "http://catalog:8181", "warehouse": "analytics", **rest}})
    assert chosen(found, "credential", "token") == expected
    assert chosen(found, "uri", "warehouse") == {"uri": "http://catalog:8181", "warehouse": "analytics"}
    assert "type" not in found


def sqlite_file(uri: str) -> tuple[str | None, object]:
    address = make_url(uri)
    assert address.query["uri"] == "true"
    return address.database, address.query["mode"]


@pytest.mark.parametrize("uri", ["sqlite:////data/my lake/c.db", "jdbc:sqlite:/data/my lake/c.db", "sqlite:/data/my lake/c.db"])
def test_every_way_to_write_a_sqlite_file_is_opened_read_only(uri: str) -> None:
    found = properties({"type": "sql", "sql": {"uri": uri, "warehouse": "/data"}})
    assert sqlite_file(found["uri"]) == ("file:/data/my%20lake/c.db", "ro")


def test_a_relative_sqlite_file_is_below_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = properties({"type": "sql", "sql": {"uri": "sqlite:///lake/c.db", "warehouse": "lake"}})
    assert sqlite_file(found["uri"]) == (f"file:{tmp_path}/lake/c.db", "ro")
    assert found["warehouse"] == f"file://{tmp_path}/lake"


@pytest.mark.parametrize(
    "sql",
    [
        {"uri": "postgresql://bob:p%40ss%2Fword@db:5433/lake?sslmode=require"},
        {"uri": "postgresql://db:5433/lake?sslmode=require", "user": "bob", "password": "p@ss/word"},
        {"uri": "jdbc:postgresql://db:5433/lake?sslmode=require", "user": "bob", "password": "p@ss/word"},
    ],
)
def test_postgres_is_reached_with_psycopg2(sql: dict[str, str]) -> None:
    found = properties({"type": "sql", "sql": {**sql, "warehouse": "/data"}})
    address = make_url(found["uri"])
    assert (address.drivername, address.username, address.password) == ("postgresql+psycopg2", "bob", "p@ss/word")
    assert (address.host, address.port, address.database) == ("db", 5433, "lake")
    assert address.query == {"sslmode": "require", "connect_timeout": "5"}
    assert not [name for name in found if name.startswith("jdbc.")]


def test_s3_keys_and_addressing() -> None:
    catalog = {"type": "rest", "rest": {"uri": "http://c"}}
    keys = {"access_key_id": "a", "secret_access_key": "s", "session_token": "t"}
    minio = properties(catalog, s3={"endpoint": "http://minio:9000", "path_style_access": True, "region": "eu", **keys})
    assert chosen(minio, "s3.endpoint", "s3.access-key-id", "s3.secret-access-key", "s3.session-token", "client.region") == {
        "s3.endpoint": "http://minio:9000",
        "s3.access-key-id": "a",
        "s3.secret-access-key": "s",
        "s3.session-token": "t",
        "client.region": "eu",
    }
    assert minio["s3.force-virtual-addressing"] == "false"
    assert properties(catalog, s3={"endpoint": "http://store"})["s3.force-virtual-addressing"] == "true"


def test_azure_and_google(tmp_path: Path) -> None:
    catalog = {"type": "rest", "rest": {"uri": "http://c"}}
    azure = properties(catalog, azure={"storage_account": "acc", "access_key": "k"})
    assert chosen(azure, "adls.account-name", "adls.account-key") == {"adls.account-name": "acc", "adls.account-key": "k"}
    assert properties(catalog, azure={"storage_account": "acc", "sas_token": "s"})["adls.sas-token"] == "s"
    assert "py-io-impl" not in properties(catalog, gcs={"project_id": "p"})
    (tmp_path / "key.json").write_text('{"type": "service_account"}')
    assert properties(catalog, gcs={"service_account_path": str(tmp_path / "key.json")})["gcs.oauth2.token"] == {
        "type": "service_account"
    }
    assert properties(catalog, gcs={"service_account_key": '{"type": "service_account"}'})["gcs.oauth2.token"] == {
        "type": "service_account"
    }
    by_blobs = {"type": "hadoop", "warehouse": "wasbs://box@acc.blob.core.windows.net/lake"}
    assert properties(by_blobs)["py-io-impl"].rpartition(".")[2] == "AzureFileIO"
    with pytest.raises(ConfigError, match="cannot be read"):
        properties(catalog, gcs={"service_account_path": "/nowhere/key.json"})
    with pytest.raises(ConfigError) as refused:
        properties(catalog, gcs={"service_account_key": "c4nary-in-the-mine"})
    assert "c4nary" not in str(refused.value)
