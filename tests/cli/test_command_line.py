"""What all commands share: options, exit codes, JSON, colours, errors."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from cli.commands import FRAZIL, Frazil, frazil_process, sql_pipeline
from frazil.cli import validate as frazil_cli_validate
from frazil.errors import DataError, Retryable
from frazil.model import secrets


def test_the_command_alone_explains_itself(frazil: Frazil) -> None:
    result = frazil()
    assert result.code == 0
    for name in (
        "demo",
        "init",
        "validate",
        "test",
        "check",
        "plan",
        "run",
        "status",
        "inspect",
        "schema",
        "connectors",
        "doctor",
        "jars",
        "version",
    ):
        assert name in result.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "other.yaml", "validate"),
        ("validate", "-c", "other.yaml"),
        ("validate", "other.yaml"),
        ("--config=other.yaml", "validate"),
    ],
    ids=" ".join,
)
def test_the_file_is_named_before_or_after_the_command(frazil: Frazil, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    sql_pipeline(tmp_path, name="other.yaml")
    result = frazil(*arguments)
    assert (result.code, result.out.splitlines()[0]) == (0, "other.yaml: OK")


def test_two_files_are_one_too_many(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    for arguments in (
        ("-c", "frazil.yaml", "validate", "-c", "x.yaml"),
        ("run", "-c", "frazil.yaml", "x.yaml"),
        ("run", "a.yml", "b.yml"),
    ):
        result = frazil(*arguments)
        assert (result.code, "Several pipeline files are given" in result.err) == (2, True)


@pytest.mark.parametrize("arguments", [("--json", "validate"), ("validate", "--json")], ids=" ".join)
def test_json_is_asked_for_before_or_after_the_command(frazil: Frazil, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    sql_pipeline(tmp_path)
    result = frazil(*arguments)
    assert result.code == 0
    assert result.json["pipelines"][0]["table"] == "shop.events"
    assert result.err == ""


@pytest.mark.parametrize(
    "arguments", [("unknown",), ("run", "--onse"), ("check", "--sink"), ("inspect", "-n", "0")], ids=" ".join
)
def test_a_wrong_command_line_is_usage(frazil: Frazil, arguments: tuple[str, ...]) -> None:
    result = frazil(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "--help" in result.err
    as_json = frazil(*arguments, "--json") if arguments != ("check", "--sink") else frazil("--json", *arguments)
    assert as_json.code == 2
    assert as_json.json["error"]["code"] == "usage"


def test_a_near_name_is_suggested(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    assert "Did you mean load?" in frazil("run", "laod").err
    assert "Did you mean lake?" in frazil("check", "--sink", "lakes").err
    assert "Did you mean generator?" in frazil("schema", "generato").err


def test_without_a_file_the_cure_is_named(frazil: Frazil) -> None:
    result = frazil("run")
    assert (result.code, result.out) == (78, "")
    assert "There is no frazil.yaml" in result.err
    assert "frazil init" in result.err
    assert frazil("run", "-c", "missing.yaml").code == 78


@pytest.mark.parametrize(
    ("raised", "code", "exit_code"),
    [
        (DataError("bad-row", "A row is bad.", fix="Mend it."), "bad-row", 1),
        (Retryable("catalog-unreachable", "Nobody answers.", fix="Wait."), "catalog-unreachable", 75),
        (KeyError("surprise"), "internal", 1),
    ],
    ids=["failed", "retryable", "unexpected"],
)
def test_an_error_has_a_code_a_message_and_an_exit_code(
    frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, code: str, exit_code: int
) -> None:
    sql_pipeline(tmp_path)

    def fail(_: object) -> None:
        raise raised

    monkeypatch.setattr(frazil_cli_validate, "summary_of", fail)
    result = frazil("validate")
    assert result.code == exit_code
    assert f"[{code}]" in result.err
    assert "Traceback" not in result.err
    assert "Traceback" in frazil("validate", "--debug").err
    as_json = frazil("validate", "--json")
    assert (as_json.code, as_json.json["error"]["code"]) == (exit_code, code)
    assert list(as_json.json["error"]) == ["code", "message", "fix", "location"]
    assert [error["code"] for error in as_json.json["errors"]] == [code]


def test_an_unexpected_error_is_one_line_and_points_at_debug(
    frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql_pipeline(tmp_path)

    def fail(_: object) -> None:
        raise RuntimeError("first line\nat java.lang.Thread.run\n")

    monkeypatch.setattr(frazil_cli_validate, "summary_of", fail)
    result = frazil("validate")
    assert "RuntimeError: first line" in result.err
    assert "java.lang" not in result.err
    assert "--debug" in result.err


def test_a_secret_is_in_no_error_and_no_trace(frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql_pipeline(tmp_path)
    secrets.remember(["c4nary-in-the-mine"])

    def fail(_: object) -> None:
        raise RuntimeError("driver said: password=c4nary-in-the-mine at postgresql://bob:c4nary-in-the-mine@db/x")

    monkeypatch.setattr(frazil_cli_validate, "summary_of", fail)
    for arguments in (("validate",), ("validate", "--json"), ("validate", "--debug"), ("validate", "--json", "--debug")):
        result = frazil(*arguments)
        assert "driver said" in result.text
        assert "c4nary" not in result.text


def test_colours_follow_the_terminal_and_no_color(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "NO_COLOR")}
    assert "\x1b[" not in frazil_process("run", cwd=tmp_path, env=environment).text
    forced = environment | {"FORCE_COLOR": "1"}
    assert "\x1b[" in frazil_process("run", cwd=tmp_path, env=forced).err
    assert "\x1b[1;31m" not in frazil_process("run", cwd=tmp_path, env=forced | {"NO_COLOR": "1"}).err


def test_a_reader_that_has_enough_is_no_error_to_shout_about(tmp_path: Path) -> None:
    command = subprocess.Popen([FRAZIL, "schema"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.read(10)
    command.stdout.close()
    printed = command.stderr.read().decode()
    command.stderr.close()
    command.wait(60)
    assert printed == ""


def test_data_goes_to_stdout_and_messages_to_stderr(tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    result = frazil_process("status", "--json", cwd=tmp_path)
    assert json.loads(result.out)["pipelines"][0]["table_exists"] is False
    failed = frazil_process("validate", "-c", "missing.yaml", cwd=tmp_path)
    assert (failed.code, failed.out) == (78, "")
    assert "missing.yaml" in failed.err
