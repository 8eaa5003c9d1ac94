"""`frazil check`: it really connects, says what is wrong in words that users search for, and leaves nothing behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog as PyIcebergRest

from cli.answering import S3_DENIED, answering
from cli.commands import Frazil, Outcome, everything_in, frazil_process, sink_file, sql_pipeline, without_java
from cli.tables import make_table, sqlite_catalog
from services.kafka import Kafka
from services.postgres import Postgres
from services.rest_catalog import RestCatalog


def failures(result: Outcome) -> dict[str, dict[str, Any]]:
    """The errors by the step that failed."""
    return {check["step"]: check["error"] for check in result.json["checks"] if not check["ok"]}


def sql(folder: Path) -> str:
    return f"{{type: sql, sql: {{uri: 'sqlite:///{folder}/catalog.db', warehouse: '{folder}/warehouse'}}}}"


def rest(uri: str, more: str = "") -> str:
    return f"{{type: rest, rest: {{uri: '{uri}'{more}}}}}"


def test_a_place_where_nothing_is_yet_will_do(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    before = everything_in(tmp_path)
    result = frazil("check")
    assert result.code == 0
    assert result.out.count("ok  ") == 6
    assert "not checked: the database compares and swaps for Iceberg" in result.out
    assert everything_in(tmp_path) == before


def test_a_table_that_is_there_is_checked_where_its_files_are(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    table = make_table(sqlite_catalog(tmp_path))
    before = everything_in(tmp_path)
    result = frazil("check", "--json")
    assert (result.code, result.json["ok"]) == (0, True)
    messages = {check["step"]: check["message"] for check in result.json["checks"]}
    assert "shop.events exists: 2 columns" in messages["table"]
    assert messages["storage"].endswith(table.location().removeprefix("file://"))
    assert {name: size for name, (size, _) in everything_in(tmp_path).items()} == {
        name: size for name, (size, _) in before.items()
    }


def test_one_source_or_one_sink_alone(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    assert {check["subject"] for check in frazil("check", "--sink", "lake", "--json").json["checks"]} == {"sink lake"}
    assert [check["subject"] for check in frazil("check", "--source", "numbers", "--json").json["checks"]] == ["source numbers"]
    assert frazil("check", "--sink", "puddle").code == 2


def test_a_missing_table_that_may_not_be_made(frazil: Frazil, tmp_path: Path) -> None:
    sink_file(tmp_path, sql(tmp_path), "auto_create_table: false")
    result = frazil("check", "--json")
    assert result.code == 78
    assert failures(result)["table"]["message"] == "Table shop.events does not exist and auto_create_table is disabled"


def test_a_catalog_where_nobody_answers(frazil: Frazil, tmp_path: Path) -> None:
    sink_file(tmp_path, rest("http://127.0.0.1:9"))
    result = frazil("check")
    assert result.code == 75
    assert "Failed to connect to catalog at http://127.0.0.1:9" in result.out
    assert "Traceback" not in result.text


@pytest.mark.parametrize(
    ("status", "body", "code", "exit_code"),
    [
        (401, b"", "not-authorized", 78),
        (403, b"", "no-permission", 1),
        (404, b"<html>not here</html>", "not-a-catalog", 78),
        (200, b"<html>welcome</html>", "not-a-catalog", 78),
        (503, b"", "catalog-unreachable", 75),
        (500, b"oops", "catalog-unreachable", 75),
    ],
)
def test_a_catalog_that_answers_otherwise(
    frazil: Frazil, tmp_path: Path, status: int, body: bytes, code: str, exit_code: int
) -> None:
    with answering(status, body) as uri:
        sink_file(tmp_path, rest(uri, ", token: c4nary-in-the-mine"))
        result = frazil("check", "--json")
    assert result.code == exit_code
    assert failures(result)["catalog"]["code"] == code
    assert failures(result)["catalog"]["message"].startswith(f"Failed to connect to catalog at {uri}")
    assert "c4nary" not in result.text


def test_a_catalog_that_answers_is_asked_for_its_namespaces(frazil: Frazil, tmp_path: Path, rest_catalog: RestCatalog) -> None:
    sink_file(tmp_path, rest(rest_catalog.uri), "location: " + (tmp_path / "away").as_uri())
    result = frazil("check", "--json")
    messages = {check["step"]: check["message"] for check in result.json["checks"]}
    assert result.code == 0
    assert "namespace shop does not exist yet; server: Jetty(" in messages["catalog"]
    assert messages["storage"].endswith(str(tmp_path))
    known = PyIcebergRest("lake", uri=rest_catalog.uri)
    assert ("shop",) not in known.list_namespaces()


def test_status_of_a_rest_catalog(frazil: Frazil, tmp_path: Path, rest_catalog: RestCatalog) -> None:
    file = sink_file(tmp_path, rest(rest_catalog.uri))
    file.write_text(file.read_text().replace("namespace: shop", "namespace: status.of"))
    make_table(PyIcebergRest("lake", uri=rest_catalog.uri), ("status", "of", "events"))
    assert frazil("inspect", "--json").json["tables"][0]["name"] == "status.of.events"
    result = frazil("check", "--json")
    assert (result.code, result.json["ok"]) == (0, True)


@pytest.mark.parametrize("style", ["url", "settings", "jdbc"])
def test_a_catalog_on_postgres(frazil: Frazil, tmp_path: Path, postgres: Postgres, style: str) -> None:
    address = postgres.create_database(f"cli_{style}")
    user, password = postgres.user, postgres.password
    warehouse = f"warehouse: '{tmp_path}/warehouse'"
    with_login = address.replace("://", f"://{user}:{password}@")
    login = f"user: '{user}', password: '{password}'"
    catalog = {
        "url": f"{{type: sql, sql: {{uri: '{with_login}', {warehouse}}}}}",
        "settings": f"{{type: sql, sql: {{uri: '{address}', {login}, {warehouse}}}}}",
        "jdbc": f"{{type: jdbc, jdbc: {{uri: 'jdbc:{address}', {login}, {warehouse}}}}}",
    }[style]
    sink_file(tmp_path, catalog)
    result = frazil("check", "--json")
    assert (result.code, failures(result)) == (0, {})
    opened = postgres.connect(f"cli_{style}")
    with opened.cursor() as cursor:
        cursor.execute("select count(*) from information_schema.tables where table_name like 'iceberg%'")
        assert cursor.fetchone() == (0,)
    opened.close()
    from pyiceberg.catalog.sql import SqlCatalog

    uri = with_login.replace("postgresql:", "postgresql+psycopg2:")
    made = SqlCatalog("lake", uri=uri, warehouse=(tmp_path / "warehouse").as_uri())
    make_table(made)
    made.close()
    assert frazil("inspect", "--json").json["tables"][0]["name"] == "shop.events"
    assert password not in frazil("check").text


def test_a_wrong_password_for_postgres(frazil: Frazil, tmp_path: Path, postgres: Postgres) -> None:
    uri = f"postgresql://{postgres.user}:c4nary-in-the-mine@{postgres.host}:{postgres.port}/postgres"
    sink_file(tmp_path, f"{{type: sql, sql: {{uri: '{uri}', warehouse: '{tmp_path}'}}}}")
    result = frazil("check", "--json")
    assert result.code == 78
    assert failures(result)["catalog"]["code"] == "not-authorized"
    assert "c4nary" not in result.text


def test_a_database_where_nobody_answers(frazil: Frazil, tmp_path: Path) -> None:
    sink_file(
        tmp_path, f"{{type: sql, sql: {{uri: 'postgresql://bob:c4nary-in-the-mine@127.0.0.1:9/x', warehouse: '{tmp_path}'}}}}"
    )
    result = frazil("check", "--json", "--debug")
    assert result.code == 75
    assert failures(result)["catalog"]["message"].startswith("Failed to connect to catalog at postgresql://bob:*****")
    assert "c4nary" not in result.text


@pytest.mark.parametrize(("kind", "library", "package"), [("hive", "thrift", "frazil[hive]"), ("glue", "boto3", "frazil[glue]")])
def test_a_catalog_whose_library_is_missing_names_it(
    frazil: Frazil, tmp_path: Path, kind: str, library: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith((f"{library}.", f"pyiceberg.catalog.{kind}"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)  # it cannot be imported
    section = {"hive": "hive: {uri: 'thrift://127.0.0.1:9'}", "glue": "glue: {region: eu-north-1}"}[kind]
    sink_file(tmp_path, f"{{type: {kind}, {section}, warehouse: '{tmp_path}'}}")
    result = frazil("check", "--json")
    assert result.code == 1
    assert package in failures(result)["catalog"]["fix"]


def test_a_warehouse_that_is_a_file(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("a file")
    sink_file(tmp_path, sql(tmp_path))
    result = frazil("check", "--json")
    assert (result.code, failures(result)["storage"]["code"]) == (78, "not-a-folder")


def test_a_place_where_nothing_may_be_written(frazil: Frazil, tmp_path: Path) -> None:
    # Not even the superuser may write there.
    sink_file(tmp_path, "{type: hadoop, warehouse: /proc/self}")
    result = frazil("check", "--json")
    assert result.code == 1
    assert list(failures(result)) == ["storage"]


def s3_options(endpoint: str) -> tuple[str, ...]:
    keys = "access_key_id: AKIA, secret_access_key: c4nary-in-the-mine"
    return (f"s3: {{endpoint: '{endpoint}', region: us-east-1, path_style_access: true, {keys}}}",)


def test_s3_that_denies_access(frazil: Frazil, tmp_path: Path) -> None:
    with answering(403, S3_DENIED, "application/xml") as endpoint:
        uri = f"sqlite:///{tmp_path}/catalog.db"
        sink_file(tmp_path, f"{{type: sql, sql: {{uri: '{uri}', warehouse: 's3://bucket/warehouse'}}}}", *s3_options(endpoint))
        result = frazil("check")
    assert result.code == 1
    assert "Access Denied (Service: S3, Status Code: 403)" in result.out
    assert "s3:PutObject" in result.out
    assert "c4nary" not in result.text


def test_s3_where_nobody_answers(frazil: Frazil, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    options = s3_options("http://127.0.0.1:9")
    sink_file(tmp_path, f"{{type: sql, sql: {{uri: '{uri}', warehouse: 's3://bucket/warehouse'}}}}", *options)
    result = frazil("check", "--json")
    assert (result.code, failures(result)["storage"]["code"]) == (75, "connection-refused")


def test_a_rest_warehouse_that_is_a_mere_name_is_left_to_the_catalog(
    frazil: Frazil, tmp_path: Path, rest_catalog: RestCatalog
) -> None:
    sink_file(tmp_path, rest(rest_catalog.uri, ", warehouse: analytics"))
    result = frazil("check", "--json")
    assert result.code == 0
    assert "the catalog decides" in result.json["checks"][-1]["message"]


@pytest.mark.parametrize(("path", "code"), [("missing", "folder-missing"), ("frazil.yaml", "not-a-folder")])
def test_a_source_folder_that_is_none(frazil: Frazil, tmp_path: Path, path: str, code: str) -> None:
    file = sql_pipeline(tmp_path)
    text = file.read_text().replace("connector: generator", "connector: files")
    file.write_text(text.replace("{rows: 1000, rows_per_second: 1000}", f"{{path: '{tmp_path / path}', format: json}}"))
    result = frazil("check", "--source", "numbers", "--json")
    assert (result.code, failures(result)["source"]["code"]) == (78, code)


def without_jvm(folder: Path) -> str:
    """What a check in a process of its own says, which must not start a JVM."""
    environment, started = without_java(folder)
    result = frazil_process("check", cwd=folder, env=environment)
    assert not started.exists(), result.text
    assert result.code == 0, result.text
    return result.out


def test_tables_of_a_database_are_checked_without_a_jvm(frazil: Frazil, tmp_path: Path, postgres: Postgres) -> None:
    postgres.create_database("cli_checked")
    login = f"host: {postgres.host}, port: {postgres.port}, user: {postgres.user}, password: '{postgres.password}'"
    file = tmp_path / "frazil.yaml"
    file.write_text(
        'version: "1.0"\nsources:\n  db:\n    connector: postgres-cdc\n'
        f"    config: {{{login}, database: cli_checked}}\n    streams: [{{name: orders}}]\n"
    )
    assert failures(frazil("check", "--json"))["source"]["code"] == "table-missing"
    opened = postgres.connect("cli_checked")
    with opened.cursor() as cursor:
        cursor.execute("create table orders (id int primary key)")
    opened.close()
    assert "the postgres-cdc source can be read" in without_jvm(tmp_path)
    # A cluster's executors need a folder that all see, which the file tells without a Spark.
    file.write_text(file.read_text() + "settings: {spark: {master: 'spark://127.0.0.1:9'}}\n")
    assert failures(frazil("check", "--json"))["source"]["code"] == "spool-path-missing"


def test_topics_are_checked_without_a_jvm(frazil: Frazil, tmp_path: Path, kafka: Kafka) -> None:
    topic = kafka.create_topic()

    def write(topics: str, more: str = "") -> None:
        config = f"{{bootstrap_servers: '{kafka.address()}', topics: [{topics}]{more}}}"
        text = f'version: "1.0"\nsources:\n  topics:\n    connector: kafka\n    config: {config}\n'
        (tmp_path / "frazil.yaml").write_text(text)

    write(f"{topic}, missing-topic")
    missing = failures(frazil("check", "--json"))["source"]
    assert (missing["code"], "missing-topic" in missing["message"], topic in missing["message"]) == (
        "source-missing",
        True,
        False,
    )
    write(topic, ", format: {type: avro, schema_registry: {url: 'http://127.0.0.1:9'}}")
    assert failures(frazil("check", "--json"))["source"]["code"] == "registry-unreachable"
    write(topic)
    assert "the kafka source can be read" in without_jvm(tmp_path)


def test_a_source_folder_that_is_there(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = sql_pipeline(tmp_path)
    text = file.read_text().replace("connector: generator", "connector: files")
    file.write_text(text.replace("{rows: 1000, rows_per_second: 1000}", f"{{path: '{tmp_path / 'in'}', format: json}}"))
    assert frazil("check").code == 0
