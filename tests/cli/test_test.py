"""`frazil test`: the transforms of a pipeline on rows that the file itself holds."""

from __future__ import annotations

import hashlib
from pathlib import Path
from textwrap import indent

import pytest
from pyspark.sql import SparkSession

from cli.commands import Frazil, everything_in

HEAD = """\
sources:
  orders:
    connector: files
    config:
      path: nowhere
      format: json
      schema: {{id: long, at: timestamptz, price: "decimal(8, 2)", lines: "list<struct<sku: string>>"}}
    transforms:
      - {{type: rename_field, from: at, to: ordered_at}}
  events:
    connector: kafka
    config: {{bootstrap_servers: "nowhere:9092", topics: [events]}}
sinks:
  lake:
    connector: iceberg
    config:
      catalog: {{type: rest, rest: {{uri: "http://nowhere:1"}}}}
      namespace: shop
      table: orders
      {options}
    transforms:
      - {{type: hash_field, field: customer, salt: a-salt-for-tests}}
pipelines:
  load:
    source: orders
    sink: lake
    transforms:
      - {{type: add_field, field: customer, expression: "concat('c', id)"}}
      - {{type: unnest, field: lines, as: line}}
      - {{type: flatten}}
    tests:
{tests}
  other:
    source: events
    sink: lake
    transforms:
      - {{type: select, expressions: ["id div n as share", "'x' as customer"]}}
      - {{type: remove_field, field: customer}}
      - {{type: add_field, field: customer, value: null}}
    tests:
      - name: whole shares
        given: [{{id: 7, n: 2}}]
        expect: [{{share: 3}}]
      - name: by nothing
        given: [{{id: 7, n: 0}}]
        expect_error: batch-not-written
"""

HASH = hashlib.sha256(b"a-salt-for-tests" + b"c1").hexdigest()

LINES = f"""\
- name: a row of each line
  given:
    - {{id: 1, at: "2026-01-31T12:00:00+01:00", price: "9.90", lines: [{{sku: a}}, {{sku: b}}]}}
    - {{id: 2, lines: []}}
  expect:
    - {{id: 1, ordered_at: 2026-01-31T11:00:00Z, price: 9.9, line_sku: b, customer: {HASH}}}
    - {{id: 1, ordered_at: 2026-01-31T11:00:00Z, price: 9.90, line_sku: a, customer: {HASH}, nothing: null}}
"""

WRONG = """\
- name: a wrong price
  given:
    - {id: 1, price: 1, lines: [{sku: a}, {sku: b}]}
    - {id: 2, price: 5, lines: [{sku: c}]}
  expect:
    - {id: 1, price: 2, line_sku: a, customer: CUSTOMER}
    - {id: 1, price: 1, line_sku: b, customer: CUSTOMER}
    - {id: 3}
""".replace("CUSTOMER", HASH)

REFUSED = """\
- name: no number
  given: [{id: x, lines: [{sku: a}]}, {id: 1, lines: [{sku: b}]}]
  expect_error: value-not-convertible
"""


def file(folder: Path, tests: str = LINES, options: str = "batch_size: 10") -> Path:
    path = folder / "frazil.yaml"
    path.write_text(HEAD.format(tests=indent(tests, "      "), options=options))
    return path


@pytest.fixture
def on_spark(spark: SparkSession, frazil: Frazil) -> Frazil:
    return frazil


def test_tests_that_pass(on_spark: Frazil, tmp_path: Path) -> None:
    file(tmp_path)
    before = everything_in(tmp_path)
    result = on_spark("test")
    assert result.code == 0, result.text
    lines = [line.split() for line in result.out.splitlines() if line.strip()]
    assert ["load", "a", "row", "of", "each", "line", "ok", "2", "2"] in lines
    assert ["other", "by", "nothing", "ok", "1", "0"] in lines
    assert lines[-1] == ["3", "tests,", "0", "failed"]
    assert everything_in(tmp_path) == before


def test_a_pipeline_by_name_and_json(on_spark: Frazil, tmp_path: Path) -> None:
    result = on_spark("test", "other", "-c", file(tmp_path), "--json")
    assert (result.code, result.json["passed"], result.json["failed"]) == (0, 2, 0)
    assert [(each["pipeline"], each["test"], each["refused"]) for each in result.json["tests"]] == [
        ("other", "whole shares", []),
        ("other", "by nothing", ["batch-not-written"]),
    ]


def test_a_test_that_fails_tells_the_rows_by_column(on_spark: Frazil, tmp_path: Path) -> None:
    file(tmp_path, WRONG)
    result = on_spark("test", "load")
    assert result.code == 1
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    differs = lines.index("load: a wrong price") + 1
    assert lines[differs].startswith("differs {")
    assert '"line_sku": "a"' in lines[differs]
    assert lines[differs + 1 : differs + 3] == ["price: expected 2, found 1", 'missing {"id": 3}']
    assert lines[differs + 3].startswith("unexpected {")
    assert '"line_sku": "c"' in lines[differs + 3]
    assert lines[-1] == "1 test, 1 failed"
    found = on_spark("test", "load", "--json").json["tests"][0]
    assert found["differing"] == [{"price": {"expected": 2, "found": 1}}]
    assert found["missing"] == [{"id": 3}]
    assert [row["line_sku"] for row in found["unexpected"]] == ["c"]


@pytest.mark.parametrize("options", ["on_error: stop", "on_error: dead_letter"])
def test_rows_that_must_be_refused(on_spark: Frazil, tmp_path: Path, options: str) -> None:
    file(tmp_path, REFUSED, options)
    result = on_spark("test", "load", "--json")
    assert result.code == 0, result.text
    # A batch that is stopped is not written; beside a dead letter the other rows are.
    assert result.json["tests"][0]["found"] == (1 if "dead_letter" in options else 0)


def test_the_rest_of_the_rows_can_be_expected_too(on_spark: Frazil, tmp_path: Path) -> None:
    rest = f"  expect: [{{id: 1, line_sku: b, customer: {HASH}}}]\n"
    file(tmp_path, REFUSED + rest, "on_error: dead_letter")
    assert on_spark("test", "load").code == 0


def test_the_sink_s_declared_columns_count(on_spark: Frazil, tmp_path: Path) -> None:
    tests = f"""\
- name: a narrower price
  given: [{{id: 1, price: 1.5, lines: [{{sku: a}}]}}]
  expect: [{{id: 1, price: 1.5, customer: {HASH}, line_sku: a}}]
- name: too long a number
  given: [{{id: 9999999999, lines: [{{sku: a}}]}}]
  expect_error: value-not-convertible
"""
    file(tmp_path, tests, "schema: {id: {type: int, required: true}, price: double, customer: string, line_sku: string}")
    result = on_spark("test", "load")
    assert result.code == 0, result.text


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("- {name: a, given: [{id: x, lines: [{sku: a}]}], expect: []}", "[value-not-convertible] column 'id' cannot hold"),
        ("- {name: a, given: [{id: 1}], expect_error: some-code}", "no row was refused with some-code"),
        ("- {name: a, given: [{idd: 1}], expect: []}", "[given-column] given: the source declares no column 'idd'"),
    ],
)
def test_what_else_can_be_wrong(on_spark: Frazil, tmp_path: Path, tests: str, message: str) -> None:
    file(tmp_path, tests)
    result = on_spark("test", "load")
    assert result.code == 1
    assert f"  error       {message}" in result.out


def test_a_transform_that_cannot_be_applied_is_reported_with_its_place(on_spark: Frazil, tmp_path: Path) -> None:
    path = file(tmp_path)
    text = path.read_text().replace("id div n as share", "id div m as share")
    path.write_text(text)
    result = on_spark("test", "other")
    assert result.code == 1
    line, content = next(found for found in enumerate(text.splitlines(), 1) if "id div m" in found[1])
    place = f"frazil.yaml:{line}:{content.index('id div m')}"
    assert f"[transform-expression] {place}: select: there is no `m`" in result.out


def test_without_tests_there_is_nothing_to_run(frazil: Frazil, tmp_path: Path) -> None:
    path = file(tmp_path)
    path.write_text(path.read_text().replace("tests:", "x:").replace("x:\n", "tests: []\n").split("      - name")[0])
    for arguments in ((), ("load",)):
        result = frazil("test", *arguments)
        assert (result.code, "There are no tests in" in result.err) == (78, True)
    assert frazil("test", "lod").code == 2


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("- {given: [{id: 1}], expect: []}", "`name` is required in item 1 of `tests`"),
        ("- {name: a, given: [], expect: []}", "`given` must not be empty"),
        ("- {name: a, given: [{id: 1}]}", "a test expects something: add expect or expect_error"),
        ("- {name: a, given: [5], expect: []}", "item 1 of `given` must be a section with keys"),
        ("- {name: a, given: [{id: 1}], expcet: []}", "Unknown key `expcet`"),
    ],
)
def test_validate_looks_at_the_shape_of_tests(frazil: Frazil, tmp_path: Path, tests: str, message: str) -> None:
    file(tmp_path, tests)
    result = frazil("validate")
    assert result.code == 78
    assert message in result.err
