"""One message cannot take a topic hostage: with dead letters, the odd message is the letter, and the others are written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from helpers.lakes import Lake, sqlite_lake
from sources.topics import Value, run_topic

GOOD = [json.dumps({"id": 2**60 + n, "v": n, "s": {"a": n}, "l": [{"x": n}]}) for n in range(4)]
KAFKA = {"connector": "kafka", "bootstrap_servers": "nowhere:1", "topics": ["t"]}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return sqlite_lake(spark, tmp_path)


class Read:
    """A topic that grows, and a pipeline with dead letters that reads what is new, each time in a process of its own."""

    def __init__(self, patch: pytest.MonkeyPatch, lake: Lake, source: dict[str, Any] | None = None, **options: Any) -> None:
        self._patch = patch
        self._lake = lake
        self._pipeline = lake.pipeline({**KAFKA, **(source or {})}, on_error="dead_letter", **options)
        self._messages: list[Value] = []

    def more(self, *messages: Value) -> None:
        self._messages += messages
        run_topic(self._patch, self._pipeline, self._messages)

    @property
    def letters(self) -> dict[str, str]:
        """The codes of the dead letters, by what they were."""
        table = "db.frazil__dead_letters" if self._pipeline.sink.route is not None else "db.t__dead_letters"
        rows = self._lake.table(table).selectExpr("code", "raw").collect()
        return {bytes(row.raw).decode(errors="replace"): row.code for row in rows}


def texts(messages: Sequence[Value]) -> set[str]:
    return {one if isinstance(one, str) else (one or b"").decode(errors="replace") for one in messages}


NAMES = [
    '{"ID": 99, "v": 1}',
    '{"id": 9, "_file": 1}',
    '{"id": 9, "_POS": 1}',
    '{"id": 9, "_partition": {"a": 1}}',
    '{"id": 9, "_spec_id": 1}',
    '{"id": 9, "_deleted": false}',
    '{"id": 9, "__frazil_op": "delete"}',
    '{"id": 9, "": 1}',
    '{"id": 9, "%s": 1}' % ("x" * 5000),
    '{"id": 9, "%s": 1}' % ("y" * 60_000),
    '{"id": 9, "s": {"A": 2}}',
    '{"id": 9, "l": [{"X": 2}]}',
    '{"id": 9, "s.a": 1}',
    '{"id": 9, "l.element": 1}',
    json.dumps({"id": 9} | {f"c{n}": n for n in range(5000)}),
]
VALUES = [
    '{{"id": 9, "d": {}1{}}}'.format('{"a":' * 400, "}" * 400),
    '{{"id": 9, "d": {}1{}}}'.format("[" * 400, "]" * 400),
    '{{"id": 9, "d": {}1{}}}'.format('{"a":' * 2000, "}" * 2000),
    '{"id": 9, "v": {"a": 1}}',
    '{"id": 9, "v": [1]}',
    '{"id": 9, "v": "abc"}',
    '{"id": 1.5, "v": 1}',
    '{"id": 9, "v": 1e999}',
    '{"id": 9, "v": %s}' % ("9" * 400),
    '{"id": 9, "v": %s}' % ("9" * 1200),
    '{"id": 9, "s": "no object"}',
    '{"id": 9, "l": {"x": 1}}',
    '{"id": 9, "l": [[1]]}',
    b'{"id": 9, "v": "\xff"}',
    '{"id": 9, "v": 1, "v": "x"}',
    '{"id": 9, "\\ud800": 1}',
    "xx",
    "",
    "[1]",
]


# A name, a value and what is no JSON: one of each sort, and all of them.
SOME = [NAMES[0], VALUES[5], VALUES[16]]


@pytest.mark.parametrize(
    "odd", [SOME, pytest.param([*NAMES, *VALUES], marks=pytest.mark.slow(seconds=50))], ids=["one of each sort", "all"]
)
def test_odd_messages_are_letters_and_the_others_are_written(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, odd: list[Value]
) -> None:
    topic = Read(monkeypatch, lake)
    topic.more(*GOOD)
    topic.more(*odd, *GOOD)
    assert lake.table().columns == ["id", "l", "s", "v"]
    assert lake.rows("id, v, s.a, l[0].x") == sorted([(2**60 + n, n, n, n) for n in range(4)] * 2)
    assert topic.letters.keys() == texts(odd)
    # By itself, too, and when it is all that a new process has read.
    topic.more('{"ID": 98, "v": 1}')
    topic.more('{"id": 9, "s": "no object either"}')
    topic.more(*GOOD)
    assert (lake.count(), lake.table().columns) == (12, ["id", "l", "s", "v"])


def test_the_first_spelling_of_a_new_name_counts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Read(monkeypatch, lake)
    topic.more('{"id": 1, "v": 1}', '{"ID": 99, "junk": 1}', '{"id": 2, "w": {"it\'s \\"so\\"": 1}}', '{"id": 3, "`<:,": 1}')
    assert lake.rows("id") == [(1,), (2,), (3,)]
    assert set(lake.table().columns) == {"id", "v", "w", "`<:,"}, "a message that is refused brings no columns"
    assert topic.letters == {'{"ID": 99, "junk": 1}': "json-key"}


@pytest.mark.slow
def test_what_lies_deep_is_text(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Read(monkeypatch, lake)
    topic.more('{{"id": 1, "d": {}[1]{}}}'.format('{"a":' * 100, "}" * 100))
    assert topic.letters == {}
    ((text,),) = lake.rows("d" + ".a" * 29)
    assert json.loads(text.replace('{"a":', "").replace("}", "")) == [1]


@pytest.mark.slow
def test_columns_of_others_are_letters(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that the pipeline itself gives to columns, by metadata, by transforms and by the sink."""
    transforms = [
        {"type": "rename_field", "from": "v", "to": "w"},
        {"type": "add_field", "field": "added", "value": 1},
        {"type": "where", "condition": "w is null or w < 1000"},
        {"type": "flatten", "fields": ["s"]},
    ]
    topic = Read(monkeypatch, lake, {"metadata": ["offset"]}, op_column="change", transforms=transforms)
    good = '{"id": 1, "v": 1, "s": {"a": 1}}'
    topic.more(good)
    columns = lake.table().columns
    odd = {
        '{"id": 9, "kafka_offset": 1}': "column-exists",
        '{"id": 9, "KAFKA_offset": 1}': "json-key",
        '{"id": 9, "change": 1}': "column-exists",
        '{"id": 9, "W": 1}': "transform-clash",
        '{"id": 9, "added": 1}': "transform-clash",
        '{"id": 9, "s_a": 1}': "transform-clash",
    }
    topic.more(good, *odd)
    assert topic.letters == odd
    assert (lake.table().columns, lake.rows("id, w")) == (columns, [(1, 1), (1, 1)])
    topic.more('{"id": 2}')
    assert lake.rows("id, w") == [(1, 1), (1, 1), (2, None)], "a column that a batch lacks is null"


def test_a_record_for_which_an_expression_fails_is_a_letter(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    transforms = [
        {"type": "where", "condition": "cast(v as int) < 100"},
        {"type": "filter", "field": "kind", "equals": 1},
        {"type": "add_field", "field": "s.share", "expression": "100 / s.a"},
        {"type": "select", "expressions": ["*", "date(day) as d", "year(date(day)) as y"]},
    ]
    topic = Read(monkeypatch, lake, transforms=transforms)

    def record(**values: Any) -> str:
        return json.dumps({"id": 1, "v": "1", "kind": "1", "s": {"a": 4}, "day": "2026-01-31"} | values)

    odd = [record(v="7 of them"), record(kind="other"), record(s={"a": 0}), record(day="soon")]
    topic.more(record(id=1), record(id=2, v="500"))
    topic.more(record(id=3), *odd, record(id=4, v=None), record(id=5, day=None), record(id=6, s=None))
    assert topic.letters == dict.fromkeys(odd, "expression-failed")
    assert lake.rows("id, v, s.share, y") == [(1, "1", 25, 2026), (3, "1", 25, 2026), (5, "1", 25, None), (6, "1", None, 2026)]


@pytest.mark.slow
def test_a_record_whose_table_cannot_be_computed_is_a_letter(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Read(monkeypatch, lake, route={"expression": "if(cast(v as int) > 5, 'large', 'small')"})
    odd = '{"id": 9, "v": "many"}'
    topic.more('{"id": 1, "v": "7"}', odd, '{"id": 2, "v": "3"}')
    assert topic.letters == {odd: "expression-failed"}
    assert (lake.rows("id", "db.large"), lake.rows("id", "db.small")) == ([(1,)], [(2,)])


OPTIONS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"schema_evolution": "strict"}, {'{"id": 9, "w": 2}': "schema-strict", '{"id": 9, "s": {"b": 2}}': "schema-strict"}),
    ({"extra_columns": "refuse"}, {'{"id": 9, "w": 2}': "extra-column"}),
    ({"strict_casting": True}, {'{"id": 9, "v": 1.5}': "json-type", '{"id": 9, "v": "5"}': "json-type"}),
    ({"extra_columns": "ignore"}, {'{"id": 9, "V": 2}': "json-key"}),
    ({"commit_mode": "upsert", "key_fields": ["id"], "op_field": "op"}, {'{"v": 1}': "operation-unknown"}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("options", "odd"), OPTIONS, ids=["strict", "refuse", "casting", "ignore", "upsert"])
def test_what_an_option_refuses_is_a_letter(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], odd: dict[str, str]
) -> None:
    topic = Read(monkeypatch, lake, **options)
    topic.more('{"id": 1, "v": 1, "s": {"a": 1}, "op": "u"}')
    columns = lake.table().columns
    topic.more(*odd)
    assert topic.letters == odd
    topic.more('{"id": 2, "v": 2, "s": {"a": 1}, "op": "u"}')
    assert (lake.table().columns, lake.rows("id")) == (columns, [(1,), (2,)])


@pytest.mark.slow
def test_the_first_record_of_all_does_not_stop_a_pipeline(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Read(monkeypatch, lake, commit_mode="upsert", key_fields=["id"], batch_size=1)
    topic.more("xx", '{"no": "key"}', '{"id": 1, "v": 1}')
    assert lake.rows("id, v") == [(1, 1)]
    assert topic.letters.keys() == {"xx", '{"no": "key"}'}


@pytest.mark.slow
def test_a_value_that_leads_to_no_table_is_a_letter(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sink("select 1 id, 'x' kind", table="db.taken", partition_by=["id"]).write()
    route = {"route": {"field": "kind"}, "partition_by": ["kind"], "partition_evolution": "refuse"}
    topic = Read(monkeypatch, lake, commit_mode="upsert", key_fields=["id"], **route)
    topic.more('{"id": 1, "kind": "a.b"}')
    odd = {
        '{"id": 2, "kind": "a_b"}': "route-ambiguous",
        '{"id": 3, "kind": "%s"}' % ("x" * 300): "route-unknown",
        '{"id": 4, "kind": "\\u0000"}': "route-unknown",
        '{"id": 5, "kind": "taken"}': "partitioning-differs",
        '{"kind": "new"}': "value-not-convertible",
    }
    topic.more('{"id": 6, "kind": "a.b"}', '{"id": 7, "kind": "a.b"}', *odd)
    assert topic.letters == odd
    assert lake.rows("id", "db.a_b") == [(1,), (6,), (7,)]
    topic.more('{"id": 8, "kind": "a.b"}')
    assert lake.count("db.a_b") == 4
