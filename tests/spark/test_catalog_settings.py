"""Every catalog and store as the settings of Spark, the jars and the environment that its libraries read."""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import ConfigError
from frazil.model.sink import SinkSpec
from frazil.spark.catalogs import CatalogSettings, catalog_settings, jdbc_uri, warehouse_uri
from frazil.spark.session import export_environment


def settings(catalog: dict[str, Any], **sink: Any) -> CatalogSettings:
    return catalog_settings(SinkSpec.model_validate({"catalog": catalog, "namespace": "db", "table": "t", **sink}))


def options(catalog: dict[str, Any], **sink: Any) -> dict[str, str]:
    found = settings(catalog, **sink).options
    assert found.pop("cache-enabled") == "false", "a session must see the commits of others"
    return found


REST = {"type": "rest", "rest": {"uri": "https://catalog.example/api"}}


def rest(**more: Any) -> dict[str, Any]:
    return {"type": "rest", "rest": {"uri": "https://catalog.example/api"} | more}


def test_options_are_spelt_as_spark_wants_them() -> None:
    conf = settings({**rest(warehouse="sales"), "name": "ice"}).spark_conf
    assert conf == {
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.cache-enabled": "false",
        "spark.sql.catalog.ice.type": "rest",
        "spark.sql.catalog.ice.uri": "https://catalog.example/api",
        "spark.sql.catalog.ice.warehouse": "sales",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"credential": "id:secret"}, {"credential": "id:secret"}),
        ({"credential": "eyJhbGciOi"}, {"token": "eyJhbGciOi"}),
        ({"token": "eyJhbGciOi"}, {"token": "eyJhbGciOi"}),
        (
            {"credential": "secret-alone", "oauth2_server_uri": "https://login.example/token", "scope": "PRINCIPAL_ROLE:ALL"},
            {"credential": "secret-alone", "oauth2-server-uri": "https://login.example/token", "scope": "PRINCIPAL_ROLE:ALL"},
        ),
        (
            {"prefix": "ws1", "properties": {"header.X-Org": "a", "retries": 3}},
            {"prefix": "ws1", "header.X-Org": "a", "retries": "3"},
        ),
        ({"properties": {"uri": "https://other.example"}}, {"uri": "https://other.example"}),
    ],
    ids=["nothing", "id and secret", "no colon is a token", "token", "oauth2 server", "properties", "properties win"],
)
def test_rest(given: dict[str, Any], expected: dict[str, str]) -> None:
    shows_tokens = {"credential", "token"} & expected.keys()
    kind = {"catalog-impl": "frazil.RestCatalog", "rest.auth.type": "frazil.RestLogin"} if shows_tokens else {"type": "rest"}
    assert options(rest(**given)) == kind | {"uri": "https://catalog.example/api"} | expected


def test_a_password_in_the_address_of_a_rest_catalog_becomes_a_header() -> None:
    made = options(rest(uri="https://me:p%40ss@catalog.example:8181/api"))
    assert made == {
        "type": "rest",
        "uri": "https://catalog.example:8181/api",
        "header.Authorization": f"Basic {b64encode(b'me:p@ss').decode()}",
    }


@pytest.mark.parametrize("catalog", [rest(warehouse="sales"), {**REST, "warehouse": "sales"}], ids=["section", "beside it"])
def test_the_warehouse_of_a_rest_catalog_is_a_name_and_not_a_folder(catalog: dict[str, Any]) -> None:
    assert options(catalog)["warehouse"] == "sales"


HADOOP = {"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}


@pytest.mark.parametrize(
    "catalog",
    [
        rest(uri="http://localhost:8181", warehouse="sales"),
        rest(uri="http://127.0.0.1:8181"),
        rest(uri="http://me:pw@127.9.9.9:8181", warehouse="tabular://sales"),
        rest(uri="http://[::1]:8181", warehouse="sales"),
        rest(warehouse="file:///lake"),
        rest(warehouse="/lake"),
        rest(warehouse="hdfs://name/lake"),
        rest(warehouse="sales", properties=HADOOP),
    ],
    ids=lambda catalog: " ".join(map(str, catalog["rest"].values())),
)
def test_a_rest_catalog_whose_files_are_in_no_cloud_needs_no_cloud_jars(catalog: dict[str, Any]) -> None:
    assert settings(catalog).components == ("core",)


@pytest.mark.parametrize(
    ("host", "stores"),
    [
        ("glue.eu-west-1.amazonaws.com", ["aws"]),
        ("dbc-1.cloud.databricks.com", ["aws"]),
        ("api.tabular.io", ["aws"]),
        ("1.2.gcp.databricks.com", ["gcp"]),
        ("biglake.googleapis.com", ["gcp"]),
        ("adb-1.2.azuredatabricks.net", ["azure"]),
        ("me:pw@lake.westeurope.azure.com:8181", ["azure"]),
        ("catalog.example", ["aws", "gcp", "azure"]),
        ("notamazonaws.com", ["aws", "gcp", "azure"]),
        ("10.0.0.7:8181", ["aws", "gcp", "azure"]),
    ],
)
@pytest.mark.parametrize("warehouse", ["main", "arn:aws:s3tables:eu-west-1:1:bucket/b", "tabular://w", None])
def test_a_rest_catalog_that_hands_out_credentials_has_the_libraries_of_its_store(
    host: str, stores: list[str], warehouse: str | None
) -> None:
    """And no options of the store, which come from the catalog: its client finds the library by a file's scheme."""
    made = settings(rest(uri=f"https://{host}/api", warehouse=warehouse))
    assert made.components == ("core", *stores)
    assert not [key for key in made.options if key.startswith(("io-impl", "s3.", "gcs.", "adls.", "client."))]


@pytest.mark.parametrize(
    ("catalog", "sink", "stores"),
    [
        (rest(warehouse="main"), {"s3": {"region": "eu-west-1"}}, ["aws"]),
        (rest(warehouse="main"), {"gcs": {}}, ["gcp"]),
        (rest(uri="https://dbc-1.cloud.databricks.com"), {"azure": {}}, ["azure"]),
        (rest(uri="https://dbc-1.cloud.databricks.com", warehouse="gs://b/w"), {}, ["gcp"]),
        (rest(properties={"io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO"}), {}, ["azure"]),
        (rest(properties={"uri": "https://api.tabular.io"}), {}, ["aws"]),
    ],
    ids=["s3", "gcs", "azure", "warehouse", "io-impl", "the address that counts"],
)
def test_what_a_file_says_of_its_store_goes_before_the_address(
    catalog: dict[str, Any], sink: dict[str, Any], stores: list[str]
) -> None:
    assert settings(catalog, **sink).components == ("core", *stores)


@pytest.mark.parametrize("kind", ["sql", "hive", "hadoop", "memory"])
def test_other_catalogs_hand_out_nothing(kind: str) -> None:
    section = {"uri": {"sql": "postgresql://db.example/c", "hive": "thrift://db.example:9083"}.get(kind)}
    catalog = {"type": kind, "warehouse": "lake", **({kind: section} if section["uri"] else {})}
    assert not {"aws", "gcp", "azure"} & set(settings(catalog).components)


def sql(uri: str, **more: Any) -> dict[str, Any]:
    return {"type": "sql", "sql": {"uri": uri, "warehouse": "/lake", **more}}


def test_sqlite() -> None:
    made = settings(sql("sqlite:////lake/catalog.db"))
    assert made.components == ("core",)
    assert made.options["uri"] == "jdbc:sqlite:/lake/catalog.db"
    assert made.options["warehouse"] == "file:///lake"
    assert made.options["type"] == "jdbc"
    assert made.options["jdbc.schema-version"] == "V1"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sqlite:////lake/catalog.db", "jdbc:sqlite:/lake/catalog.db"),
        ("sqlite:///catalog.db", f"jdbc:sqlite:{Path.cwd()}/catalog.db"),
        ("jdbc:sqlite:/lake/catalog.db", "jdbc:sqlite:/lake/catalog.db"),
        ("sqlite:///~/catalog.db", f"jdbc:sqlite:{Path.home()}/catalog.db"),
        ("sqlite::memory:", "jdbc:sqlite::memory:"),
        ("postgresql://db.example:5433/cat?sslmode=require", "jdbc:postgresql://db.example:5433/cat?sslmode=require"),
        ("jdbc:postgresql://db.example/cat", "jdbc:postgresql://db.example/cat"),
    ],
)
def test_addresses_of_databases(given: str, expected: str) -> None:
    assert jdbc_uri(given) == (expected, None, None)


@pytest.mark.parametrize(
    "catalog",
    [
        sql("postgresql://me:p%40ss@db.example/cat"),
        sql("postgresql+psycopg2://me:p%40ss@db.example/cat"),
        sql("jdbc:postgresql://db.example/cat", user="me", password="p@ss"),
        {"type": "jdbc", "warehouse": "/lake", "jdbc": {"uri": "postgresql://db.example/cat", "user": "me", "password": "p@ss"}},
    ],
    ids=["in the address", "with a driver", "beside it", "jdbc is sql"],
)
def test_postgres_keeps_the_password_out_of_the_address(catalog: dict[str, Any]) -> None:
    made = settings(catalog)
    assert made.options["uri"] == "jdbc:postgresql://db.example/cat"
    assert (made.options["jdbc.user"], made.options["jdbc.password"]) == ("me", "p@ss")
    assert made.components == ("core", "postgres")


def test_hive() -> None:
    hive = {"type": "hive", "hive": {"uri": "thrift://meta:9083", "warehouse": "/lake", "properties": {"clients": 4}}}
    lock = "hadoop.iceberg.hive.lock-creation-timeout-ms"
    own = {"type": "hive", "uri": "thrift://meta:9083", "warehouse": "file:///lake", "clients": "4"}
    assert options(hive) == own | {lock: "5000"}
    hive["hive"] |= {"properties": {lock: "60000"}}  # type: ignore[operator]
    assert options(hive)[lock] == "60000"


def test_hadoop() -> None:
    assert options({"type": "hadoop", "warehouse": "hdfs://name/lake"}) == {"type": "hadoop", "warehouse": "hdfs://name/lake"}


def test_memory() -> None:
    impl = "org.apache.iceberg.inmemory.InMemoryCatalog"
    assert options({"type": "memory"}) == {"catalog-impl": impl}
    assert options({"type": "memory", "warehouse": "/lake"})["io-impl"] == "org.apache.iceberg.hadoop.HadoopFileIO"


def test_the_sessions_own_catalog_gets_no_settings() -> None:
    assert settings({"type": "spark", "name": "theirs"}).spark_conf == {}


def glue(**more: Any) -> dict[str, Any]:
    return {"type": "glue", "warehouse": "s3://bucket/lake", "glue": {"region": "eu-west-1", **more}}


def test_glue() -> None:
    made = settings(glue(catalog_id="123456789012", endpoint="http://localhost:5000"))
    assert made.components == ("core", "aws")
    assert made.environment == {}
    expected = {"type": "glue", "client.region": "eu-west-1", "glue.id": "123456789012", "glue.endpoint": "http://localhost:5000"}
    assert made.options.items() >= expected.items()
    assert made.options["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"


def test_glue_with_a_role() -> None:
    arn = "arn:aws:iam::123456789012:role/writer"
    made = options(glue(role_arn=arn))
    assert made["client.factory"] == "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"
    assert (made["client.assume-role.arn"], made["client.assume-role.region"]) == (arn, "eu-west-1")


def test_glue_finds_profile_and_keys_where_amazons_library_looks() -> None:
    assert settings(glue(profile="writer")).environment == {"AWS_PROFILE": "writer"}
    keys = settings(glue(access_key_id="AKIA1", secret_access_key="wJal")).environment
    assert keys == {"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": "wJal"}


def test_a_store_that_speaks_s3() -> None:
    s3 = {"endpoint": "http://minio:9000", "path_style_access": True, "access_key_id": "me", "secret_access_key": "pw"}
    made = settings(rest(warehouse="sales"), s3=s3)
    assert made.components == ("core", "aws")
    expected = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": "http://minio:9000",
        "s3.path-style-access": "true",
        "s3.access-key-id": "me",
        "s3.secret-access-key": "pw",
        "client.region": "us-east-1",
    }
    assert made.options.items() >= expected.items()


def test_amazons_own_s3_by_the_warehouse_alone() -> None:
    s3 = {"region": "eu-west-1", "session_token": "tok"}
    made = settings({"type": "sql", "sql": {"uri": "sqlite:////c.db", "warehouse": "s3://bucket/lake"}}, s3=s3)
    assert made.components == ("core", "aws")
    assert made.options["warehouse"] == "s3://bucket/lake"
    assert (
        made.options.items() >= {"client.region": "eu-west-1", "s3.session-token": "tok", "s3.path-style-access": "false"}.items()
    )
    assert "client.region" not in settings({"type": "hadoop", "warehouse": "s3://bucket/lake"}).options


def test_google() -> None:
    made = settings(
        {"type": "hadoop", "warehouse": "gs://bucket/lake"}, gcs={"project_id": "p1", "service_account_path": "/k.json"}
    )
    assert made.components == ("core", "gcp")
    assert made.options["io-impl"] == "org.apache.iceberg.gcp.gcs.GCSFileIO"
    assert made.options["gcs.project-id"] == "p1"
    assert made.environment == {"GOOGLE_APPLICATION_CREDENTIALS": "/k.json"}
    emulator = settings(rest(), gcs={"endpoint": "http://localhost:4443", "no_auth": True}).options
    assert (emulator["gcs.service.host"], emulator["gcs.no-auth"]) == ("http://localhost:4443", "true")


def test_a_google_key_in_the_configuration_becomes_a_private_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "before")
    made = settings(rest(), gcs={"service_account_key": '{"type": "service_account"}'})
    assert "service_account" not in str(made)
    export_environment([made])
    path = Path(os.environ["GOOGLE_APPLICATION_CREDENTIALS"])
    assert path.read_text() == '{"type": "service_account"}'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_credentials_that_only_a_whole_process_can_have_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "before")
    one, other = settings(glue(profile="one")), settings(glue(profile="other"))
    with pytest.raises(ConfigError, match="AWS_PROFILE"):
        export_environment([one, other])
    assert os.environ["AWS_PROFILE"] == "before"
    export_environment([one, one])
    assert os.environ["AWS_PROFILE"] == "one"


HOSTS = ("acc.dfs.core.windows.net", "acc.blob.core.windows.net")


def at_both(name: str, value: str) -> dict[str, str]:
    """An option that Iceberg looks up by the host in a location."""
    return {f"{name}.{host}": value for host in HOSTS}


@pytest.mark.parametrize("location", [f"abfss://box@{HOSTS[0]}/lake", f"wasbs://box@{HOSTS[1]}/lake"])
@pytest.mark.parametrize(
    ("azure", "expected"),
    [
        (
            {"storage_account": "acc", "access_key": "a2V5"},
            {"adls.auth.shared-key.account.name": "acc", "adls.auth.shared-key.account.key": "a2V5"},
        ),
        ({"access_key": "a2V5"}, {"adls.auth.shared-key.account.name": "acc", "adls.auth.shared-key.account.key": "a2V5"}),
        ({"storage_account": "acc", "sas_token": "sv=1&sig=x"}, at_both("adls.sas-token", "sv=1&sig=x")),
        ({"sas_token": "sv=1&sig=x"}, at_both("adls.sas-token", "sv=1&sig=x")),
        (
            {"connection_string": "Protocol=https;AccountName=acc;AccountKey=a2V5==;EndpointSuffix=core.windows.net"},
            {"adls.auth.shared-key.account.name": "acc", "adls.auth.shared-key.account.key": "a2V5=="},
        ),
        (
            {"connection_string": "BlobEndpoint=http://localhost:10000/acc;AccountName=acc;AccountKey=a2V5=="},
            {
                "adls.auth.shared-key.account.name": "acc",
                "adls.auth.shared-key.account.key": "a2V5==",
            }
            | at_both("adls.connection-string", "http://localhost:10000/acc"),
        ),
        ({}, {}),
    ],
    ids=["key", "key, account in the warehouse", "sas", "sas, account in the warehouse", "connection", "emulator", "nothing"],
)
def test_azure(azure: dict[str, str], expected: dict[str, str], location: str) -> None:
    made = settings({"type": "hadoop", "warehouse": location}, azure=azure)
    assert made.components == ("core", "azure")
    adls = {key: value for key, value in made.options.items() if key.startswith("adls.")}
    assert adls == expected
    assert made.options["io-impl"] == "org.apache.iceberg.azure.adlsv2.ADLSFileIO"


def test_azure_in_another_cloud_is_known_by_the_warehouse() -> None:
    store = {"storage_account": "acc", "sas_token": "sig=x"}
    options = settings({"type": "hadoop", "warehouse": "wasbs://box@acc.blob.core.chinacloudapi.cn/lake"}, azure=store).options
    assert {name for name in options if name.startswith("adls.")} == {
        "adls.sas-token.acc.blob.core.chinacloudapi.cn",
        "adls.sas-token.acc.dfs.core.chinacloudapi.cn",
    }


def test_a_sas_of_no_known_account_would_be_passed_over_in_silence() -> None:
    with pytest.raises(ConfigError, match="neither the settings nor the warehouse say which") as refused:
        settings(rest(), azure={"sas_token": "sig=x"})
    assert refused.value.code == "storage-account-missing"


def test_brotli_brings_its_codec() -> None:
    assert settings({"type": "memory"}, compression="brotli").components == ("core", "brotli")
    assert settings({"type": "memory"}, compression="zstd").components == ("core",)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("/lake dir", "file:///lake dir"), ("s3://b/lake", "s3://b/lake"), ("lake", f"file://{Path.cwd()}/lake")],
)
def test_a_plain_path_becomes_an_address_that_every_reader_understands(given: str, expected: str) -> None:
    assert warehouse_uri(given) == expected
