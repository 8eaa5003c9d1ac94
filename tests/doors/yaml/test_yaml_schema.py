from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from json_schema_check import complaints
from ruamel.yaml import YAML
from yaml_cases import DATA, ROOT, file_text

from frazil.doors.yaml import json_schema, load_text, template
from frazil.doors.yaml.template import SCHEMA_FILE

SCHEMA = json_schema()

FILES = [*sorted((ROOT / "examples").glob("*.yaml")), *sorted(DATA.glob("*.yaml"))]


def read(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def wrong(text: str) -> list[str]:
    return sorted(set(complaints(SCHEMA, read(text))))


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_files_conform(file: Path) -> None:
    text = re.sub(r"timestamp: (\S+Z)", r"timestamp: '\1'", file.read_text())
    assert wrong(text) == []


def test_whole_blocks_of_the_documents_conform() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (DATA / "fragments.md").read_text(), re.DOTALL)
    whole = [block for block in blocks if "sinks:" in block]
    assert len(whole) >= 10
    assert [wrong(block) for block in whole] == [[]] * len(whole)


def test_it_is_json_of_the_right_draft_with_every_reference_resolved() -> None:
    text = json.dumps(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(re.findall(r'"#/\$defs/([^"]+)"', text)) <= set(SCHEMA["$defs"])
    assert "writeOnly" not in text
    assert "password" not in [each.get("format") for each in SCHEMA["$defs"]["SqlCatalog"]["properties"].values()]


def test_both_forms_are_described() -> None:
    assert set(SCHEMA["properties"]) == {"version", "broker", "sources", "sinks", "pipelines", "settings"}
    assert set(SCHEMA["$defs"]["SinkEntry"]["properties"]) == {
        "connector", "config", "enabled", "topics", "consumer_group", "start_offset", "rate_limit", "transforms",
        "dead_letter_topic",
    }  # fmt: skip


NAMED = "namespace: db\ntable: t\n"
LAKE = ".sinks.lake"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (file_text(NAMED + "tabel: x\n"), [f"{LAKE}.config.tabel"]),
        (file_text(NAMED + "batch_size: 0\n"), [f"{LAKE}.config.batch_size"]),
        (file_text(NAMED + "batch_size: ten\n"), [f"{LAKE}.config.batch_size"]),
        (file_text(NAMED + "compression: snapy\n"), [f"{LAKE}.config.compression"]),
        (file_text(NAMED + "auto_create_table: 5\n"), [f"{LAKE}.config.auto_create_table"]),
        (file_text(NAMED, entry="batch_size: 5\n"), [f"{LAKE}.batch_size"]),
        (file_text(NAMED).replace("type: sql", "type: sqll"), [f"{LAKE}.config.catalog.type"]),
        (file_text(source="config: {row: 5}\n"), [".sources.events.config.row"]),
        (file_text(source="config: {connector: generator}\n"), [".sources.events.config.connector"]),
        (file_text().replace("generator", "files"), [".sources.events"]),
        (file_text().replace("generator", "genrator"), [".sources.events.connector"]),
        (file_text(top="settings: {retry: {max_retries: -1}}\n"), [".settings.retry.max_retries"]),
        (file_text(entry="transforms: [{type: filter, field: a}]\n"), [f"{LAKE}.transforms.0"]),
        (file_text(top="pipelines: {p: {source: events}}\n"), [".pipelines"]),
        (file_text(top="extra: 1\n"), [".extra"]),
    ],
)
def test_mistakes_are_marked(text: str, places: list[str]) -> None:
    assert wrong(text) == places


@pytest.mark.parametrize(
    "text",
    [
        file_text(
            """
            namespace: ${A}
            table: "${B:-t}"
            batch_size: ${SIZE}
            auto_create_table: ${FLAG:-true}
            compression: ${CODEC}
            format_version: ${VERSION}
            """
        ),
        file_text(NAMED + "write_properties: {a: 1, b: true, c: x, d: 1.5}\n"),
        file_text(NAMED + "schema: {id: long, n: {type: string, required: true}}\n"),
        file_text(NAMED + "schema: [{name: a, type: long}]\npartition_by: [bucket(4, a), {source: a, transform: void}]\n"),
        file_text(entry="rate_limit: {events_per_second: 5}\ntransforms: [{type: remove_field, config: {field: a}}]\n"),
        file_text(entry="rate_limit: ${LIMIT}\n", source="topic: a\n"),
        file_text(top="x-mine: [1, {a: b}]\nversion: 1.0\n"),
        file_text(top="settings: {log_level: '${LEVEL:-info}', spark: {conf: {spark.x: 5}}}\n"),
        file_text(top="settings: {log_level: trace}\n"),
        file_text(top="settings: {log_level: CRITICAL}\n"),
        template("any"),
    ],
)
def test_what_loads_conforms(text: str) -> None:
    env = dict.fromkeys(["A", "SIZE", "LIMIT"], "7") | {"CODEC": "zstd", "VERSION": "3"}
    assert load_text(text, "p.yaml", env)
    assert wrong(text) == []


def test_every_option_is_described_for_editors() -> None:
    for name, definition in SCHEMA["$defs"].items():
        for key, option in definition.get("properties", {}).items():
            described = "description" in option or "$ref" in option
            assert described, f"{name}.{key}"


def test_the_template_names_the_schema_and_says_its_name() -> None:
    text = template("orders")
    assert text.splitlines()[0] == f"# yaml-language-server: $schema=./{SCHEMA_FILE}"
    (pipeline,) = load_text(text, "frazil.yaml", {}).pipelines
    assert pipeline.name == "orders"
    assert pipeline.source.connector == "generator"
    assert pipeline.sink.catalog.type == "sql"


@pytest.mark.parametrize(
    ("name", "safe"), [("my pipeline!", "my_pipeline"), ("", "events"), ("///", "events"), ("a" * 300, "a" * 100)]
)
def test_the_template_loads_whatever_the_name(name: str, safe: str) -> None:
    (pipeline,) = load_text(template(name), "frazil.yaml", {}).pipelines
    assert pipeline.name == safe


def test_what_the_template_suggests_loads_too() -> None:
    """Every commented alternative of the template is a key that exists."""
    suggested = re.sub(r"^(\s*)# (?=[a-z_]+:|  [ -])", r"\1", template("orders"), flags=re.MULTILINE)
    keys = set(re.findall(r"^\s*# (?:- )?\{?(\w+):", template("orders"), re.MULTILINE))
    assert {"partition_by", "transforms", "metrics", "health", "spark"} <= keys
    assert "partition_by:" in suggested
    assert keys - {"instead", "lake"} <= set(re.findall(r'"(\w+)": \{', json.dumps(SCHEMA)))
