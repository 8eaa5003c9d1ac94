"""`frazil validate`, and `init`, `schema`, `connectors`: everything about the file, nothing about the world."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cli.commands import Frazil, frazil_process, sink_file, sql_pipeline

BAD_FILES = {
    "broken YAML": ('version: "1.0"\nsinks: [\n', "frazil.yaml:3:1"),
    "a wrong type": ('version: "1.0"\nsources:\n  a:\n    connector: generator\n    config: {rows: many}\n', "frazil.yaml:5:20"),
    "an unknown connector": ('version: "1.0"\nsources:\n  a:\n    connector: teleporter\n', "frazil.yaml:4:16"),
    "an unknown key": (
        'version: "1.0"\nsources:\n  a:\n    connector: generator\n    config:\n      rows_per_secnd: 5\n',
        "frazil.yaml:6:7",
    ),
    "a value out of range": (
        'version: "1.0"\nsources:\n  a:\n    connector: generator\n    config: {rows_per_second: 0}\n',
        "frazil.yaml:5:31",
    ),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_refused_at_its_place(frazil: Frazil, tmp_path: Path, kind: str) -> None:
    content, place = BAD_FILES[kind]
    (tmp_path / "frazil.yaml").write_text(content)
    result = frazil("validate")
    assert (result.code, result.out) == (78, "")
    assert place in result.err
    as_json = frazil("validate", "--json")
    assert as_json.code == 78
    location = as_json.json["error"]["location"]
    assert f"{location['file']}:{location['line']}:{location['column']}" == place
    for command in ("run", "plan", "check", "status", "inspect"):
        assert frazil(command).code == 78
    assert [path.name for path in tmp_path.iterdir()] == ["frazil.yaml"]


def test_an_unknown_catalog_type_is_refused_with_those_that_are_known(frazil: Frazil, tmp_path: Path) -> None:
    sink_file(tmp_path, "{type: cupboard}")
    result = frazil("validate")
    assert result.code == 78
    for known in ("rest", "sql", "hive", "glue", "hadoop", "memory"):
        assert known in result.err


def test_the_line_is_shown_with_a_caret_and_the_cure(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "frazil.yaml").write_text(BAD_FILES["an unknown key"][0])
    lines = frazil("validate").err.splitlines()
    shown = next(number for number, line in enumerate(lines) if "6 |" in line)
    assert lines[shown].index("rows_per_secnd") == lines[shown + 1].index("^")
    assert "rows_per_second" in "\n".join(lines[shown + 2 :])


def test_every_problem_is_reported_at_once(frazil: Frazil, tmp_path: Path) -> None:
    content = 'version: "1.0"\nsources:\n  a:\n    connector: generator\n    config: {rows: -1, speed: 2}\nsinkz: {}\n'
    (tmp_path / "frazil.yaml").write_text(content)
    result = frazil("validate", "--json")
    assert result.code == 78
    assert sorted(error["location"]["line"] for error in result.json["errors"]) == [5, 5, 6]
    assert frazil("validate").err.count("frazil.yaml:") == 3


@pytest.mark.parametrize(
    ("catalog", "message"),
    [
        ("{type: rest}", "REST catalog URI is required for REST catalog type"),
        ("{type: rest, rest: {uri: localhost}}", "Invalid REST catalog URI: localhost"),
    ],
)
def test_the_messages_that_users_search_for(frazil: Frazil, tmp_path: Path, catalog: str, message: str) -> None:
    sink_file(tmp_path, catalog)
    result = frazil("validate")
    assert result.code == 78
    assert message in result.err


@pytest.mark.parametrize(("key", "message"), [("namespace", "Namespace is required"), ("table", "Table name is required")])
def test_a_table_needs_a_whole_name(frazil: Frazil, tmp_path: Path, key: str, message: str) -> None:
    file = sql_pipeline(tmp_path)
    file.write_text(
        "".join(line for line in file.read_text().splitlines(keepends=True) if not line.strip().startswith(f"{key}:"))
    )
    result = frazil("check")
    assert result.code == 78
    assert message in result.text


def test_a_table_stays_in_the_warehouse(frazil: Frazil, tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path)
    file.write_text(file.read_text().replace("table: events", "table: ../../x"))
    result = frazil("validate")
    assert result.code == 78
    assert "table cannot be '../../x': it has a '/', and is the name of a folder in the warehouse" in result.err


def test_a_secret_in_a_bad_line_is_not_shown(tmp_path: Path) -> None:
    catalog = "{type: rest, rest: {uri: 'http://h', credential: '${CANARY}', tokn: '${CANARY}'}}"
    sink_file(tmp_path, catalog)
    result = frazil_process("validate", "--json", "--debug", cwd=tmp_path, env={**os.environ, "CANARY": "c4nary-in-the-mine"})
    assert result.code == 78
    assert "tokn" in result.out
    assert "c4nary" not in result.text


def test_init_writes_a_file_that_is_valid_and_replaces_nothing(frazil: Frazil, tmp_path: Path) -> None:
    assert frazil("init", "first").code == 0
    file, schema = tmp_path / "first" / "frazil.yaml", tmp_path / "first" / "frazil.schema.json"
    assert frazil("validate", file).code == 0
    assert schema.name in file.read_text().splitlines()[0]
    assert json.loads(schema.read_text()) == frazil("schema").json
    file.write_text("mine")
    again = frazil("init", "first")
    assert (again.code, file.read_text()) == (2, "mine")
    assert "--force" in again.err
    assert frazil("init", "first", "--force", "--json").json == {"written": ["first/frazil.yaml", "first/frazil.schema.json"]}
    assert file.read_text() != "mine"


def test_init_says_why_it_cannot_write(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    result = frazil("init", "taken")
    assert (result.code, "cannot-write" in result.err) == (1, True)


def test_schema_of_the_file_and_of_each_connector(frazil: Frazil) -> None:
    whole = frazil("schema").json
    assert {"sources", "sinks", "pipelines"} <= set(whole["properties"])
    for connector in frazil("connectors", "--json").json:
        one = frazil("schema", connector["name"]).json
        assert one["type"] == "object"
        assert one["additionalProperties"] is False
    assert "rows_per_second" in frazil("schema", "generator").json["properties"]


def test_connectors_are_named_with_what_they_are(frazil: Frazil) -> None:
    named = {entry["name"]: entry["kind"] for entry in frazil("connectors", "--json").json}
    sources = ["generator", "files", "table", "query", "postgres-cdc", "kafka"]
    assert named == dict.fromkeys(sources, "source") | {"iceberg": "sink"}
    assert "source" in next(line for line in frazil("connectors").out.splitlines() if "postgres-cdc" in line)
