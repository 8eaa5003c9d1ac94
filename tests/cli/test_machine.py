"""`frazil doctor` and `frazil version`: what they say of the machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cli.commands import Frazil, sql_pipeline
from frazil.spark.java import java_home
from frazil.version import __version__


def states(told: dict[str, object]) -> dict[str, str]:
    checks = told["checks"]
    assert isinstance(checks, list)
    return {check["name"]: check["state"] for check in checks}


def test_version_names_everything_that_matters(frazil: Frazil) -> None:
    told = frazil("version", "--json").json
    assert told["frazil"] == __version__
    assert told["pyspark"].startswith("4.1")
    assert told["iceberg"] == "1.12.0"
    assert all(told[name] for name in ("python", "pyiceberg", "java"))
    assert __version__ in frazil("version").out


def test_the_version_alone_is_an_option_as_elsewhere(frazil: Frazil) -> None:
    assert frazil("--version").out == f"frazil {__version__}\n"
    assert frazil("--version", "--json").json == {"frazil": __version__}


def test_doctor_finds_a_machine_that_works(frazil: Frazil) -> None:
    told = frazil("doctor", "--json")
    assert (told.code, told.json["ok"]) == (0, True)
    found = states(told.json)
    assert [found[name] for name in ("python", "java", "pyspark", "cache", "jars (core)")] == ["ok"] * 5


def test_doctor_warns_of_a_busy_port_and_of_missing_jars(frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        file = sql_pipeline(tmp_path)
        file.write_text(file.read_text() + f"settings: {{health: {{port: {busy.getsockname()[1]}}}}}\n")
        monkeypatch.setenv("FRAZIL_CACHE_DIR", str(tmp_path / "cache"))
        told = frazil("doctor")
    assert told.code == 0
    warned = [line for line in told.out.splitlines() if line.startswith("warn")]
    assert [line.split()[1] for line in warned] == ["jars", "port"]
    assert "settings.health.port" in told.out


def test_doctor_fails_without_java_and_names_the_cure(frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.spark.java._candidates", lambda _: iter([tmp_path]))
    monkeypatch.setattr("frazil.spark.java._bundled_home", lambda: None)
    java_home.cache_clear()
    try:
        told = frazil("doctor")
        assert told.code == 1
        assert "fail  java: no Java 17 or 21" in told.out
        assert "frazil[java]" in told.out
        assert frazil("doctor", "--json").json["ok"] is False
        assert frazil("version", "--json").json["java"] is None
    finally:
        java_home.cache_clear()


def test_doctor_fails_when_the_cache_is_no_folder(frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("FRAZIL_CACHE_DIR", str(tmp_path / "cache"))
    told = frazil("doctor", "--json")
    assert (told.code, states(told.json)["cache"]) == (1, "fail")


def test_doctor_fails_with_a_bad_pipeline_file(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "frazil.yaml").write_text("sinks: [")
    told = frazil("doctor", "--json")
    assert (told.code, states(told.json)["pipeline file"]) == (1, "fail")
