"""`frazil doctor` and `frazil version`: what they say of the machine."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

import pytest

from cli.commands import Frazil, sql_pipeline
from frazil.spark.java import java_home
from frazil.version import __version__


def states(options: dict[str, object]) -> dict[str, str]:
    checks = options["checks"]
    assert isinstance(checks, list)
    return {check["name"]: check["state"] for check in checks}


def test_version_names_everything_that_matters(frazil: Frazil) -> None:
    versions = frazil("version", "--json").json
    assert versions["frazil"] == __version__
    assert versions["pyspark"].startswith("4.1")
    assert versions["iceberg"] == "1.12.0"
    assert all(versions[name] for name in ("python", "pyiceberg", "java"))
    assert __version__ in frazil("version").out


def test_the_version_alone_is_an_option_as_elsewhere(frazil: Frazil) -> None:
    assert frazil("--version").out == f"frazil {__version__}\n"
    assert frazil("--version", "--json").json == {"frazil": __version__}


def test_doctor_finds_a_machine_that_works(frazil: Frazil) -> None:
    result = frazil("doctor", "--json")
    assert (result.code, result.json["ok"]) == (0, True)
    found = states(result.json)
    assert [found[name] for name in ("python", "java", "pyspark", "cache", "jars (core)")] == ["ok"] * 5


def test_doctor_warns_of_a_busy_port_and_of_missing_jars(frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        file = sql_pipeline(tmp_path)
        file.write_text(file.read_text() + f"settings: {{health: {{port: {busy.getsockname()[1]}}}}}\n")
        monkeypatch.setenv("FRAZIL_CACHE_DIR", str(tmp_path / "cache"))
        result = frazil("doctor")
    assert result.code == 0
    warned = [line for line in result.out.splitlines() if line.startswith("warn")]
    assert [line.split()[1] for line in warned] == ["jars", "port"]
    assert "settings.health.port" in result.out


def findings(options: dict[str, object]) -> dict[str, tuple[str, str, str]]:
    checks = options["checks"]
    assert isinstance(checks, list)
    return {check["name"]: (check["state"], check["message"], check["fix"]) for check in checks}


FILE = """\
version: "1.0"
sources:
{sources}
sinks:
  lake: {{connector: iceberg, config: {{namespace: a, table: b, catalog: {catalog}{more}}}}}
"""
NUMBERS = "  numbers: {connector: generator}"


def write_file(folder: Path, catalog: str, more: str = "", sources: str = NUMBERS) -> None:
    (folder / "other.yaml").write_text(FILE.format(catalog=catalog, more=more, sources=sources))


@pytest.mark.parametrize(
    ("catalog", "more", "module", "package"),
    [
        ("{type: hive, hive: {uri: 'thrift://h:9083', warehouse: 's3://b/w'}}", "", "thrift", "frazil[hive]"),
        ("{type: glue, warehouse: 's3://b/w', glue: {region: eu-west-1}}", "", "boto3", "frazil[glue]"),
        ("{type: rest, rest: {uri: 'https://h', properties: {rest.sigv4-enabled: 'true'}}}", "", "boto3", "frazil[glue]"),
        ("{type: rest, rest: {uri: 'https://h'}}", ", gcs: {no_auth: true}", "gcsfs", "pyiceberg[gcsfs]"),
    ],
    ids=["hive", "glue", "signed rest", "gcs"],
)
def test_doctor_names_what_looking_at_the_files_catalog_lacks(
    frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: str, more: str, module: str, package: str
) -> None:
    without(monkeypatch, module)
    write_file(tmp_path, catalog, more)
    result = frazil("doctor", "-c", "other.yaml", "--json")
    state, message, fix = findings(result.json)[f"package ({module})"]
    assert (result.code, state, fix) == (0, "warn", f"pip install '{package}'. A run does not need it.")
    assert "sink lake needs it for" in message
    assert "optional packages" not in findings(result.json)


def without(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """The package is not there, whether this machine has it or not: none can be taken away from the tests' own."""
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *others: None if name == module else found(name, *others))


@pytest.mark.parametrize(
    ("source", "module", "extra"),
    [
        ("connector: postgres-cdc, config: {host: h, user: u, database: d, streams: [{name: t}]}", "psycopg", "postgres"),
        (
            "connector: kafka, config: {bootstrap_servers: 'h:9092', topics: [t], format: {type: protobuf, message: M, "
            "descriptor_file: d.bin}}",
            "google.protobuf",
            "protobuf",
        ),
    ],
    ids=["postgres", "protobuf"],
)
def test_doctor_fails_where_a_run_would_lack_a_package(
    frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, module: str, extra: str
) -> None:
    write_file(tmp_path, "{type: hadoop, warehouse: w}", sources=f"  orders: {{{source}}}")
    there = frazil("doctor", "-c", "other.yaml", "--json")
    assert findings(there.json)[f"package ({module})"][0] == "ok", there.out
    without(monkeypatch, module)
    result = frazil("doctor", "-c", "other.yaml", "--json")
    state, message, fix = findings(result.json)[f"package ({module})"]
    assert (result.code, state, fix) == (1, "fail", f"pip install 'frazil[{extra}]'")
    assert "source orders needs it for" in message


def test_doctor_names_the_jars_that_the_file_needs(frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_CACHE_DIR", str(tmp_path / "cache"))
    kafka = "  orders: {connector: kafka, config: {bootstrap_servers: 'h:9092', topics: [t]}}"
    write_file(tmp_path, "{type: sql, sql: {uri: 'postgresql://h/d', warehouse: 's3://b/w'}}", sources=kafka)
    found = findings(frazil("doctor", "-c", "other.yaml", "--json").json)
    lacking = {name: fix for name, (state, _, fix) in found.items() if name.startswith("jars") and state == "warn"}
    assert set(lacking) == {f"jars ({component})" for component in ("core", "avro", "aws", "kafka", "postgres")}
    assert lacking["jars (aws)"].endswith("At once: frazil setup aws")
    assert "iceberg-aws-bundle-" in found["jars (aws)"][1]


def test_doctor_fails_without_java_and_names_the_cure(frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.spark.java._candidates", lambda _: iter([tmp_path]))
    monkeypatch.setattr("frazil.spark.java._bundled_home", lambda: None)
    java_home.cache_clear()
    try:
        result = frazil("doctor")
        assert result.code == 1
        assert "fail  java: no Java 17 or 21" in result.out
        assert "frazil[java]" in result.out
        assert frazil("doctor", "--json").json["ok"] is False
        assert frazil("version", "--json").json["java"] is None
    finally:
        java_home.cache_clear()


def test_doctor_fails_when_the_cache_is_no_folder(frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("FRAZIL_CACHE_DIR", str(tmp_path / "cache"))
    result = frazil("doctor", "--json")
    assert (result.code, states(result.json)["cache"]) == (1, "fail")


def test_doctor_fails_with_a_bad_pipeline_file(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "frazil.yaml").write_text("sinks: [")
    result = frazil("doctor", "--json")
    assert (result.code, states(result.json)["pipeline file"]) == (1, "fail")
