"""Kinds of catalogs, logins, certificates and properties: what each changes for Spark, and for PyIceberg.

No server answers here. What servers make of these settings is shown by `tests/services_tests` and `tests/catalogs`.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import make_url

from frazil.errors import ConfigError
from frazil.model.catalog import CatalogSpec
from frazil.model.sink import SinkSpec
from frazil.observe.catalogs import open_catalog, pyiceberg_properties
from frazil.spark.catalogs import CatalogSettings, catalog_settings
from frazil.spark.databases import jdbc_uri


def sink_of(catalog: dict[str, Any], **sink: Any) -> SinkSpec:
    return SinkSpec.model_validate({"catalog": catalog, "namespace": "db", "table": "t", **sink})


def settings(catalog: dict[str, Any], **sink: Any) -> CatalogSettings:
    return catalog_settings(sink_of(catalog, **sink))


def python(catalog: dict[str, Any], **sink: Any) -> dict[str, Any]:
    return pyiceberg_properties(sink_of(catalog, **sink))


def holds(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return {key: found.get(key) for key in expected} == expected


def said(catalog: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as refused:
        CatalogSpec.model_validate(catalog)
    return str(refused.value)


def rest(uri: str = "https://catalog.example/api", **more: Any) -> dict[str, Any]:
    return {"type": "rest", "rest": {"uri": uri} | more}


def sql(uri: str, **more: Any) -> dict[str, Any]:
    return {"type": "sql", "sql": {"uri": uri, "warehouse": "/lake", **more}}


ARN = "arn:aws:s3tables:eu-west-1:123456789012:bucket/lake"
NESSIE = {"uri": "http://nessie:19120/api/v2", "warehouse": "/lake"}
EVERY_KIND: dict[str, dict[str, Any]] = {
    "rest": rest(),
    "sql": sql("sqlite:////lake/c.db"),
    "hive": {"type": "hive", "hive": {"uri": "thrift://h:9083"}},
    "glue": {"type": "glue", "glue": {"region": "eu-west-1"}},
    "glue by rest": {"type": "glue", "glue": {"region": "eu-west-1", "rest": True}},
    "s3tables": {"type": "s3tables", "s3tables": {"warehouse": ARN}},
    "nessie": {"type": "nessie", "nessie": NESSIE},
    "bigquery": {"type": "bigquery", "bigquery": {"project_id": "p", "warehouse": "gs://b/w"}},
    "hadoop": {"type": "hadoop", "hadoop": {"warehouse": "/lake"}},
    "memory": {"type": "memory"},
}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_properties_of_every_catalog_reach_spark_and_pyiceberg_as_written_and_win(kind: str) -> None:
    written = {"cache-enabled": True, "s3.endpoint": "http://mine", "made-up.option": 7}
    catalog = {**EVERY_KIND[kind], "properties": written}
    found = settings(catalog, s3={"endpoint": "http://derived"}).options
    assert holds(found, {"cache-enabled": "true", "s3.endpoint": "http://mine", "made-up.option": "7"})
    assert holds(python(catalog, s3={"endpoint": "http://derived"}), {"s3.endpoint": "http://mine", "made-up.option": "7"})


@pytest.mark.parametrize("kind", [kind for kind, catalog in EVERY_KIND.items() if catalog["type"] in catalog])
def test_properties_of_the_section_win_over_those_beside_it(kind: str) -> None:
    catalog = EVERY_KIND[kind]
    name = catalog["type"]
    nearer = {**catalog, "properties": {"a": "far", "b": "far"}, name: {**catalog[name], "properties": {"a": "near"}}}
    assert holds(settings(nearer).options, {"a": "near", "b": "far"})
    assert holds(python(nearer), {"a": "near", "b": "far"})


def test_secrets_among_the_properties_are_not_shown() -> None:
    secret = {"header.X-Api-Key": "c4nary-key", "made-up.token": "c4nary-token"}
    for catalog in EVERY_KIND.values():
        assert "c4nary" not in repr(sink_of({**catalog, "properties": secret}))


def test_the_sessions_own_catalog_takes_no_properties() -> None:
    assert "set them in Spark's own options" in said({"type": "spark", "name": "theirs", "properties": {"a": "b"}})


# --- SQL catalogs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "mysql://me:p%40ss@db:3307/cat",
        "mysql+pymysql://me:p%40ss@db:3307/cat",
        "mariadb://me:p%40ss@db:3307/cat",
        "mariadb+mariadbconnector://me:p%40ss@db:3307/cat",
        "jdbc:mysql://me:p%40ss@db:3307/cat",
        "jdbc:mariadb://me:p%40ss@db:3307/cat",
    ],
)
def test_mysql_and_mariadb_by_every_address_use_one_driver_of_java_and_one_of_python(uri: str) -> None:
    made = settings(sql(uri))
    assert made.components == ("core", "mysql")
    expected = {
        "uri": "jdbc:mariadb://db:3307/cat?nullDatabaseMeansCurrent=true",
        "jdbc.user": "me",
        "jdbc.password": "p@ss",
        "type": "jdbc",
    }
    assert holds(made.options, expected)
    address = make_url(python(sql(uri))["uri"])
    assert (address.drivername, address.username, address.password) == ("mysql+pymysql", "me", "p@ss")
    assert (address.host, address.port, address.database) == ("db", 3307, "cat")


@pytest.mark.parametrize(
    ("query", "java", "pymysql"),
    [
        ("?charset=utf8mb4", "&charset=utf8mb4", {"charset": "utf8mb4"}),
        (
            "?ssl_ca=/ca.pem",
            "&serverSslCert=/ca.pem&sslMode=verify-full",
            {"ssl_ca": "/ca.pem", "ssl_verify_cert": "true", "ssl_verify_identity": "true"},
        ),
        (
            "?sslMode=verify-ca&serverSslCert=/ca.pem",
            "&sslMode=verify-ca&serverSslCert=/ca.pem",
            {"ssl_ca": "/ca.pem", "ssl_verify_cert": "true", "ssl_verify_identity": "false"},
        ),
        ("?allowPublicKeyRetrieval=true", "&allowPublicKeyRetrieval=true", {}),
    ],
    ids=["charset", "an authority in Python's words", "in Java's words", "Java's alone"],
)
def test_options_of_an_address_of_mysql_reach_each_driver_in_its_words(query: str, java: str, pymysql: dict[str, str]) -> None:
    catalog = sql(f"mysql://db/cat{query}")
    assert settings(catalog).options["uri"] == f"jdbc:mariadb://db/cat?nullDatabaseMeansCurrent=true{java}"
    assert dict(make_url(python(catalog)["uri"]).query) == pymysql | {"connect_timeout": "5"}


@pytest.mark.parametrize(
    "uri", ["postgresql://db/c", "postgresql+psycopg2://db/c", "postgresql+asyncpg://db/c", "jdbc:postgresql://db/c"]
)
def test_postgres_by_every_driver_of_sqlalchemy(uri: str) -> None:
    assert settings(sql(uri)).options["uri"] == "jdbc:postgresql://db/c"
    assert make_url(python(sql(uri))["uri"]).drivername == "postgresql+psycopg2"


def test_sqlite_by_its_driver_of_sqlalchemy() -> None:
    assert jdbc_uri("sqlite+pysqlite:////lake/c.db") == ("jdbc:sqlite:/lake/c.db", None, None)


def test_other_databases_are_refused_with_those_that_there_are() -> None:
    assert "sqlite:, postgresql:, mysql: or mariadb:" in said(sql("oracle://db/c"))


def test_tables_of_the_catalog_are_not_created_where_that_is_forbidden(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/c.db"
    assert "jdbc.init-catalog-tables" not in settings(sql(uri)).options
    assert settings(sql(uri, init_catalog_tables=False)).options["jdbc.init-catalog-tables"] == "false"
    assert open_catalog(sink_of(sql(uri))) is None, "the first run makes it"
    with pytest.raises(ConfigError) as missing:
        open_catalog(sink_of(sql(uri, init_catalog_tables=False)))
    assert missing.value.code == "catalog-tables-missing"
    (tmp_path / "c.db").touch()
    with pytest.raises(ConfigError, match="has no tables of a catalog"):
        open_catalog(sink_of(sql(uri, init_catalog_tables=False)))


# --- Catalogs of clouds -----------------------------------------------------------------------------------------------------


SIGNED = {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-west-1"}


def test_s3_tables_are_a_rest_catalog_with_signed_requests() -> None:
    catalog = {"type": "s3tables", "s3tables": {"warehouse": ARN, "access_key_id": "AKIA", "secret_access_key": "hush"}}
    made = settings(catalog)
    assert made.components == ("core", "aws")
    expected = SIGNED | {
        "type": "rest",
        "uri": "https://s3tables.eu-west-1.amazonaws.com/iceberg",
        "warehouse": ARN,
        "rest.signing-name": "s3tables",
        "rest.access-key-id": "AKIA",
        "rest.secret-access-key": "hush",
        "client.region": "eu-west-1",
        "s3.access-key-id": "AKIA",
    }
    assert holds(made.options, expected)
    found = python(catalog)
    assert holds(found, SIGNED | {"client.access-key-id": "AKIA", "client.secret-access-key": "hush", "warehouse": ARN})


def test_s3_tables_by_the_warehouse_alone_elsewhere_and_with_other_keys_for_files() -> None:
    assert settings({"type": "s3tables", "warehouse": ARN}).options["rest.signing-region"] == "eu-west-1"
    china = ARN.replace("arn:aws:", "arn:aws-cn:").replace("eu-west-1", "cn-north-1")
    expected = "https://s3tables.cn-north-1.amazonaws.com.cn/iceberg"
    assert settings({"type": "s3tables", "warehouse": china}).options["uri"] == expected
    own = {"type": "s3tables", "s3tables": {"warehouse": ARN, "uri": "http://localhost:5000/iceberg"}}
    made = settings(own, s3={"region": "eu-west-1", "access_key_id": "FILES", "secret_access_key": "pw"}).options
    assert holds(made, {"uri": "http://localhost:5000/iceberg", "s3.access-key-id": "FILES", "rest.access-key-id": None})


@pytest.mark.parametrize(
    ("catalog", "words"),
    [
        ({"type": "s3tables"}, "Warehouse is the ARN of the table bucket"),
        ({"type": "s3tables", "warehouse": "s3://bucket"}, "Warehouse is the ARN of the table bucket"),
        ({"type": "s3tables", "warehouse": "arn:aws:s3tables:x"}, "AWS region is required"),
        ({"type": "s3tables", "s3tables": {"warehouse": ARN, "region": "us-east-1"}}, "the table bucket is in eu-west-1"),
        ({"type": "s3tables", "s3tables": {"warehouse": ARN, "uri": "s3tables"}}, "Invalid S3 Tables URI"),
        ({"type": "s3tables", "s3tables": {"warehouse": ARN, "access_key_id": "A"}}, "belong together"),
        ({"type": "glue", "glue": {"region": "r", "rest": True}, "warehouse": "/lake"}, "a folder on S3"),
        (
            {"type": "glue", "glue": {"region": "r", "rest": True, "catalog_id": "1:s3tablescatalog/b"}, "warehouse": "s3://b/w"},
            "named by catalog_id",
        ),
        ({"type": "glue", "glue": {"region": "r", "rest": True, "endpoint": "x"}}, "Invalid Glue endpoint"),
        ({"type": "nessie"}, "Nessie URI is required"),
        ({"type": "nessie", "nessie": NESSIE | {"uri": "nessie:19120"}}, "Invalid Nessie URI"),
        ({"type": "nessie", "nessie": NESSIE | {"uri": "http://n:19120/iceberg"}}, "write type: rest"),
        ({"type": "nessie", "nessie": {"uri": NESSIE["uri"]}}, "Warehouse is required for Nessie"),
        ({"type": "bigquery"}, "add project_id"),
        ({"type": "bigquery", "bigquery": {"project_id": "p"}}, "Warehouse is required for BigQuery"),
        ({"type": "nessie", "nessie": NESSIE, "rest": {"uri": "http://x"}}, "the section rest has no meaning"),
    ],
)
def test_catalogs_that_lack_something(catalog: dict[str, Any], words: str) -> None:
    assert words in said(catalog)


def test_glue_by_its_rest_endpoint() -> None:
    glue = {"region": "eu-west-1", "rest": True, "catalog_id": "123456789012:s3tablescatalog/lake", "profile": "writer"}
    catalog = {"type": "glue", "glue": glue | {"role_arn": "arn:aws:iam::1:role/r"}}
    made = settings(catalog)
    expected = SIGNED | {
        "type": "rest",
        "uri": "https://glue.eu-west-1.amazonaws.com/iceberg",
        "warehouse": "123456789012:s3tablescatalog/lake",
        "rest.signing-name": "glue",
        "client.region": "eu-west-1",
        "client.assume-role.arn": "arn:aws:iam::1:role/r",
        "glue.id": None,
    }
    assert holds(made.options, expected)
    assert made.environment == {"AWS_PROFILE": "writer"}
    assert holds(python(catalog), {"client.profile-name": "writer", "rest.signing-name": "glue"})
    keys = {"type": "glue", "glue": {"region": "r", "rest": True, "access_key_id": "A", "secret_access_key": "s"}}
    assert settings(keys).environment == {}, "they are signed with, and not for the whole process"
    assert settings(keys).options["rest.access-key-id"] == "A"


def test_glue_by_its_rest_endpoint_gets_the_place_of_a_new_table() -> None:
    glue = {"region": "eu-west-1", "rest": True, "catalog_id": "123456789012"}
    made = sink_of({"type": "glue", "glue": glue, "warehouse": "s3://bucket/lake/"}).catalog
    assert made.folder_of("db", "t") == "s3://bucket/lake/db.db/t"
    assert settings({"type": "glue", "glue": glue, "warehouse": "s3://bucket/lake/"}).options["warehouse"] == "123456789012"
    with pytest.raises(ConfigError, match=r"nothing says it for db\.t") as refused:
        sink_of({"type": "glue", "glue": glue}).catalog.folder_of("db", "t")
    assert refused.value.code == "location-missing"
    in_buckets = glue | {"catalog_id": "123456789012:s3tablescatalog/lake"}
    for others in ({"type": "glue", "glue": in_buckets}, {"type": "glue", "glue": {"region": "r"}}, rest()):
        assert sink_of(others).catalog.folder_of("db", "t") is None


def test_glues_own_calls_with_temporary_keys() -> None:
    keys = {"access_key_id": "A", "secret_access_key": "s", "session_token": "tok"}
    catalog = {"type": "glue", "glue": {"region": "r", **keys}}
    assert settings(catalog).environment["AWS_SESSION_TOKEN"] == "tok"
    assert python(catalog)["glue.session-token"] == "tok"


def test_nessie_by_its_own_protocol() -> None:
    catalog = {"type": "nessie", "nessie": NESSIE | {"ref": "team/dev", "token": "tok"}}
    made = settings(catalog)
    assert made.components == ("core",)
    expected = {
        "type": "nessie",
        "uri": "http://nessie:19120/api/v2",
        "ref": "team/dev",
        "warehouse": "file:///lake",
        "authentication.type": "BEARER",
        "authentication.token": "tok",
    }
    assert holds(made.options, expected)
    assert "authentication.type" not in settings(EVERY_KIND["nessie"]).options
    assert holds(python(catalog), {"uri": "http://nessie:19120/api/v2", "ref": None, "authentication.token": None})
    first = {"type": "nessie", "nessie": NESSIE | {"uri": "http://nessie:19120/api/v1/"}}
    assert python(first)["uri"] == "http://nessie:19120/api/v2", "only that version can be asked for several things at once"


def test_the_metastore_of_bigquery(tmp_path: Path) -> None:
    bigquery = {"project_id": "p1", "location": "EU", "warehouse": "gs://b/w", "impersonate_service_account": "w@p1"}
    catalog = {"type": "bigquery", "bigquery": bigquery}
    made = settings(catalog)
    assert made.components == ("core", "gcp")
    expected = {
        "type": "bigquery",
        "gcp.bigquery.project-id": "p1",
        "gcp.bigquery.location": "EU",
        "gcp.bigquery.impersonate.service-account": "w@p1",
        "warehouse": "gs://b/w",
    }
    assert holds(made.options, expected)
    key = python(catalog, gcs={"service_account_key": '{"type": "service_account"}'})
    assert key["gcp.bigquery.credentials-info"] == '{"type": "service_account"}'
    (path := tmp_path / "k.json").write_text("{}")
    assert python(catalog, gcs={"service_account_path": str(path)})["gcp.bigquery.credential-file"] == str(path)
    assert holds(python(catalog), {"gcp.bigquery.project-id": "p1", "gcp.bigquery.location": "EU"})


# --- REST: logins, headers, certificates ------------------------------------------------------------------------------------


OAUTH = {"credential": "id:secret"}
OAUTH_WORDS = {"credential": "id:secret"}


@pytest.mark.parametrize(
    ("given", "java", "pyiceberg"),
    [
        ({"sigv4": {}}, {"rest.sigv4-enabled": "true", "rest.signing-name": "execute-api"}, {"rest.sigv4-enabled": "true"}),
        (
            {"sigv4": {"region": "r", "name": "glue", "access_key_id": "A", "secret_access_key": "s", "session_token": "t"}},
            {"rest.signing-region": "r", "rest.signing-name": "glue", "rest.access-key-id": "A", "rest.session-token": "t"},
            {"rest.signing-region": "r", "rest.signing-name": "glue", "client.access-key-id": "A", "client.session-token": "t"},
        ),
        ({"headers": {"X-Org": "a", "X-N": 1}}, {"header.X-Org": "a", "header.X-N": "1"}, {"header.X-Org": "a"}),
        (
            {"user": "me", "password": "p@ss"},
            {"header.Authorization": f"Basic {b64encode(b'me:p@ss').decode()}"},
            {"header.Authorization": f"Basic {b64encode(b'me:p@ss').decode()}", "auth": {"type": "noop"}},
        ),
        (
            OAUTH | {"audience": "catalog", "resource": "urn:c"},
            OAUTH_WORDS | {"audience": "catalog", "resource": "urn:c"},
            OAUTH_WORDS | {"audience": "catalog", "resource": "urn:c"},
        ),
        (
            OAUTH | {"renew_early": False, "renew_by_exchange": False, "assumed_lifetime_secs": 300},
            {"token-refresh-enabled": "false", "token-exchange-enabled": "false", "token-expires-in-ms": "300000"},
            OAUTH_WORDS,
        ),
        (
            {"access_delegation": "vended-credentials"},
            {"header.X-Iceberg-Access-Delegation": "vended-credentials"},
            {"header.X-Iceberg-Access-Delegation": "vended-credentials", "s3.signer": None},
        ),
        (
            {"access_delegation": "remote-signing"},
            {"header.X-Iceberg-Access-Delegation": "remote-signing"},
            {"s3.signer": "S3V4RestSigner", "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"},
        ),
    ],
    ids=["signed", "signed with keys", "headers", "user", "oauth2", "tokens", "vended", "remote signing"],
)
def test_logins_of_a_rest_catalog(given: dict[str, Any], java: dict[str, str], pyiceberg: dict[str, Any]) -> None:
    assert holds(settings(rest(**given)).options, java)
    assert holds(python(rest(**given)), pyiceberg)


def test_tokens_are_renewed_as_iceberg_does_it_unless_something_else_is_asked_for() -> None:
    assert not [name for name in settings(rest(**OAUTH)).options if name.startswith("token")]


@pytest.mark.parametrize(
    "own",
    [
        {"properties": {"catalog-impl": "mine.Catalog"}},
        {"properties": {"rest.auth.type": "google"}},
        {"sigv4": {"region": "r"}},
    ],
    ids=["catalog", "login", "signatures"],
)
def test_a_login_of_the_users_own_is_left_as_it_is(own: dict[str, Any]) -> None:
    found = settings(rest(**OAUTH, **own)).options
    assert not [value for value in found.values() if value.startswith("frazil.")]


def test_what_makes_signatures_is_among_the_jars_and_its_name_comes_from_the_host() -> None:
    made = settings(rest("https://glue.eu-west-1.amazonaws.com/iceberg", warehouse="1", sigv4={}))
    assert (made.components, made.options["rest.signing-name"]) == (("core", "aws"), "glue")
    assert settings(rest("http://localhost:8181", sigv4={})).components == ("core", "aws")


def test_certificates_of_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    catalog = rest(tls={"ca_path": "/ca.pem", "cert_path": "own.pem", "key_path": "own.key"})
    expected = {
        "rest.client.tls.configurer-impl": "frazil.PemTls",
        "frazil.tls.ca-path": "/ca.pem",
        "frazil.tls.cert-path": f"{tmp_path}/own.pem",
        "frazil.tls.key-path": f"{tmp_path}/own.key",
    }
    assert holds(settings(catalog).options, expected)
    found = python(catalog)
    assert found["ssl"] == {"cabundle": "/ca.pem", "client": {"cert": "own.pem", "key": "own.key"}}
    assert not [name for name in found if "tls" in name]
    assert "ssl" not in python(rest())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"user": "me"}, "user and password belong together"),
        ({"user": "me", "password": "p", "token": "t"}, "user and token exclude each other"),
        ({"audience": "a"}, "audience has no meaning without credential"),
        ({"token": "t", "renew_early": False}, "renew_early has no meaning without credential"),
        ({"sigv4": {"access_key_id": "A"}}, "access_key_id and secret_access_key belong together"),
        ({"sigv4": {"session_token": "t"}}, "session_token has no meaning without"),
        ({"tls": {"key_path": "k"}}, "cert_path and key_path belong together"),
        ({"uri": "http://c", "tls": {"ca_path": "c"}}, "write https://"),
        ({"access_delegation": "vended-credentials", "headers": {"x-iceberg-access-delegation": "y"}}, "keep one"),
        ({"access_delegation": "yes"}, "Input should be 'vended-credentials' or 'remote-signing'"),
    ],
)
def test_options_of_a_rest_catalog_that_do_not_fit_together(given: dict[str, Any], words: str) -> None:
    assert words in said(rest(**given))
