"""Records as rows: keys, metadata, tombstones, and the formats without a structure."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pyspark.sql import SparkSession

from frazil.errors import ConfigError
from frazil.model.format import JsonFormat, MessageOptions
from frazil.model.sink import SinkSpec
from frazil.model.transform import TransformSpec
from frazil.sources.decode import decoder
from frazil.write.shape import source_rows
from sources.decode.records import WHEN, Decoded, decoded, decoder_of, records

BROKEN = b"\xff\xfe"
SINK = SinkSpec.model_validate({"catalog": {"type": "memory"}, "namespace": "n", "table": "t"})


def test_text(spark: SparkSession) -> None:
    found = decoded(spark, "string", ["é", "", BROKEN, None, "x" * 10_500_000])
    assert found.codes == [None, None, "text-encoding", None, None]
    assert [row["value"] for row in found.rows[:4]] == ["é", "", None, None]
    assert len(found.rows[4]["value"]) == 10_500_000
    assert found.ops == ["update", "update", "update", "ignore", "update"]


def test_bytes(spark: SparkSession) -> None:
    found = decoded(spark, "bytes", [BROKEN, b"", None])
    assert ([row["value"] for row in found.rows], found.codes) == ([BROKEN, b"", None], [None] * 3)


def test_csv(spark: SparkSession) -> None:
    schema = {"id": "long", "name": "string", "price": "decimal(5, 2)", "day": "date"}
    cases: dict[str, tuple[str | bytes | None, Any]] = {
        "plain": ("1,a,1.50,2026-01-02", {"id": 1, "name": "a", "price": Decimal("1.50"), "day": date(2026, 1, 2)}),
        "quoted": ('1,"a,""b""",,\n', {"id": 1, "name": 'a,"b"', "price": None, "day": None}),
        "a line inside": ('1,"a\nb",,', {"id": 1, "name": "a\nb", "price": None, "day": None}),
        "an empty text": ('1,"",,', {"id": 1, "name": "", "price": None, "day": None}),
        "null": (None, dict.fromkeys(schema)),
        "too few": ("1,a", "csv-malformed"),
        "too many": ("1,a,,,", "csv-malformed"),
        "empty": ("", "csv-malformed"),
        "two lines": ("1,a,,\n2,b,,", "csv-malformed"),
        "no number": ("x,a,,", "csv-type"),
        "no room": ("1,a,1.505,", "csv-type"),
        "no text": (BROKEN, "text-encoding"),
        "a zero byte": (b"1,a\0,,", "csv-malformed"),
    }
    found = decoded(spark, {"type": "csv", "schema": schema}, [value for value, _ in cases.values()])
    got = {name: code or row for name, code, row in zip(cases, found.codes, found.rows, strict=True)}
    assert got == {name: wanted for name, (_, wanted) in cases.items()}
    assert "column 'id' cannot hold this value as long: x" in (found.faults[9] or "")


def test_csv_options(spark: SparkSession) -> None:
    options = {"type": "csv", "schema": {"a": "string", "b": "string"}, "separator": ";", "quote": "'", "null_value": "\\N"}
    found = decoded(spark, options, ["\\N;'x;y'", ";''"])
    assert found.rows == [{"a": None, "b": "x;y"}, {"a": None, "b": ""}]


def test_raw(spark: SparkSession) -> None:
    found = decoded(spark, "raw", ['{"a": 1}', BROKEN, None], ['{"id": 1}', None, BROKEN])
    assert found.columns == ["topic", "offset", "partition", "timestamp", "keys", "headers", "value"]
    first = found.rows[0]
    assert (first["topic"], first["offset"], first["partition"], first["keys"], first["value"]) == (
        "t",
        0,
        0,
        '{"id": 1}',
        '{"a": 1}',
    )
    assert [(one.key, one.value) for one in first["headers"]] == [("trace", "Af8="), ("kind", "test")]
    assert [row["value"] for row in found.rows[1:]] == ["//4=", None]
    assert found.codes == [None] * 3


def test_metadata(spark: SparkSession) -> None:
    every = ["topic", "partition", "offset", "timestamp", "headers", "key"]
    found = decoded(spark, {"type": "json", "schema": {"a": "int"}}, ['{"a": 1}', "x"], ["k", "k"], metadata=every)
    row = found.rows[0]
    assert found.columns == [
        "a",
        "kafka_topic",
        "kafka_partition",
        "kafka_offset",
        "kafka_timestamp",
        "kafka_headers",
        "kafka_key",
    ]
    assert (row["kafka_topic"], row["kafka_partition"], row["kafka_offset"], row["kafka_key"]) == ("t", 0, 0, b"k")
    assert row["kafka_timestamp"].timestamp() == WHEN.timestamp()
    assert found.codes == [None, "json-malformed"]
    named = decoded(spark, "json", ['{"a": 1}'], metadata=["offset"], metadata_prefix="k_")
    assert named.columns == ["a", "k_offset"]
    assert decoded(spark, "json", ['{"kafka_offset": 1}', '{"a": 1}'], metadata=["offset"]).codes == ["column-exists", None]
    with pytest.raises(ConfigError, match="'kafka_offset'"):
        decoded(spark, {"type": "json", "schema": {"kafka_offset": "int"}}, ["{}"], metadata=["offset"])


def test_a_null_value_deletes_the_row_of_its_key(spark: SparkSession) -> None:
    found = decoded(
        spark,
        {"type": "json", "schema": {"id": "long", "name": "string"}},
        ['{"id": 1, "name": "a"}', None, '{"id": 2}', None, "x", None],
        ['{"id": 1}', '{"id": 1}', "broken", None, '{"id": 3}', "broken"],
        key_format={"type": "json", "schema": {"id": "int", "region": "string"}},
    )
    assert found.columns == ["id", "name", "region"]
    assert found.rows[:2] == [{"id": 1, "name": "a", "region": None}, {"id": 1, "name": None, "region": None}]
    assert found.ops[:2] == ["update", "delete"]
    assert found.codes == [None, None, "json-malformed", "message-empty", "json-malformed", "json-malformed"]
    assert (found.faults[2] or "").startswith("json-malformed: key: ")
    assert [row["__frazil_order"].offset for row in found.all] == [0, 1, 2, 3, 4, 5]


def test_what_a_value_lacks_comes_from_its_key(spark: SparkSession) -> None:
    found = decoded(
        spark,
        {"type": "json", "schema": {"id": "long", "v": "string"}},
        ['{"v": "a"}', '{"id": null, "v": "b"}', '{"id": 7, "v": "c"}'],
        ['{"id": 1}', '{"id": 2}', '{"id": 3}'],
        key_format={"type": "json", "schema": {"id": "int"}},
    )
    assert found.rows == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 7, "v": "c"}]


@pytest.mark.slow
def test_a_key_that_is_no_value_of_the_type_is_reported_where_it_is_needed(spark: SparkSession) -> None:
    found = decoded(
        spark,
        {"type": "json", "schema": {"id": "int"}},
        ["{}", "{}", '{"id": 7}', None],
        ['{"id": "1"}', '{"id": "x"}', '{"id": "x"}', '{"id": "2"}'],
        key_format={"type": "json", "schema": {"id": "string"}},
    )
    assert found.rows == [{"id": 1}, {"id": None}, {"id": 7}, {"id": 2}]
    assert found.faults[1] == "key-misfit: key: the field 'id' is not what the value has under this name: x"
    cut = decoded(
        spark, {"type": "json", "schema": {"id": "int"}}, ["{}", "{}"], ['{"id": 1.0}', '{"id": 1.5}'],
        key_format={"type": "json", "schema": {"id": "double"}},
    )  # fmt: skip
    assert cut.codes == [None, "key-misfit"]
    rounded = decoded(
        spark, {"type": "json", "schema": {"id": "decimal(5, 2)"}}, ["{}", "{}"], ['{"id": "1.25"}', '{"id": "1.255"}'],
        key_format={"type": "json", "schema": {"id": "string"}},
    )  # fmt: skip
    assert (rounded.rows[0], rounded.codes) == ({"id": Decimal("1.25")}, [None, "key-misfit"])
    assert decoded(spark, "json", ['{"id": 1}'], ['{"id": {"a": 1}}'], key_format="json").codes == ["column-exists"]


@pytest.mark.slow
def test_key_prefix_and_what_a_null_value_means(spark: SparkSession) -> None:
    options = {"type": "json", "schema": {"id": "long"}}
    keyed = decoded(spark, options, ['{"id": 1}', None], ["k", "k"], key_format="string", key_prefix="key_")
    assert keyed.rows == [{"id": 1, "key_value": "k"}, {"id": None, "key_value": "k"}]
    assert keyed.ops == ["update", "delete"]
    ignored = decoded(spark, options, ['{"id": 1}', None], ["k", "k"], key_format="bytes", tombstones="ignore")
    assert ignored.ops == ["update", "ignore"]
    assert decoded(spark, options, [None], tombstones="error").codes == ["message-empty"]
    assert decoded(spark, options, [b""], ["k"], key_format="bytes").codes == ["json-empty"]
    emptied = decoded(spark, options, ['{"id": 1}', b""], ["k", "k"], key_format="bytes", empty_is_none=True)
    assert (emptied.ops, emptied.codes) == (["update", "delete"], [None, None])
    assert decoded(spark, "string", ["a", b""], empty_is_none=True).ops == ["update", "ignore"]
    with pytest.raises(ConfigError, match="'k_value'"):
        decoded(spark, {"type": "json", "schema": {"k_value": "long"}}, ["{}"], ["k"], key_format="string", key_prefix="k_")


@pytest.mark.parametrize("kind", ["string", "bytes"])
def test_a_key_that_is_one_value_is_not_lost_behind_a_value(spark: SparkSession, kind: str) -> None:
    with pytest.raises(
        ConfigError, match="The column 'value', which comes from the record's key, is in its value already"
    ) as raised:
        decoded(spark, "string", ["v"], ["k"], key_format=kind)
    assert raised.value.fix == "Set key_prefix to something that no column begins with."
    assert decoded(spark, "string", ["v"], ["k"], key_format="string", key_prefix="key_").rows == [
        {"value": "v", "key_value": "k"}
    ]


@pytest.mark.slow
def test_a_filter_knows_changes_of_rows_from_events(spark: SparkSession) -> None:
    values = ['{"id": 1, "status": "paid"}', '{"id": 1, "status": "open"}', '{"id": 2}', None, "x"]
    keys = ['{"id": 1}', '{"id": 1}', '{"id": 2}', '{"id": 3}', '{"id": 4}']
    given = {"type": "json", "schema": {"id": "long", "status": "string"}}
    paid = TypeAdapter(list[TransformSpec]).validate_python([{"type": "filter", "field": "status", "equals": "paid"}])

    def kept(**options: Any) -> list[tuple[int, str]]:
        found = Decoded(source_rows(decoder_of(spark, given, **options).decode(records(spark, values, keys)), SINK, paid))
        return [(row["id"], op) for row, op in zip(found.rows, found.ops, strict=True)]

    changes = [(1, "update"), (1, "delete"), (2, "delete"), (3, "delete"), (None, "update")]
    assert kept(key_format={"type": "json", "schema": {"id": "long"}}) == changes
    assert kept() == kept(key_format="bytes", key_prefix="key_", tombstones="ignore") == [(1, "update"), (None, "update")]


def test_key_and_value_for_a_sink_with_tombstones(spark: SparkSession) -> None:
    found = decoded(
        spark, "json", ['{"id": 1, "a": 2}', None, "x"], ['{"id": 1}', '{"id": 2}', "{}"], key_format="json", key_and_value=True
    )
    assert found.columns == ["key", "value"]
    assert (found.rows[0]["value"].asDict(), found.rows[0]["key"].asDict()) == ({"id": 1, "a": 2}, {"id": 1})
    assert (found.rows[1]["value"], found.rows[1]["key"].id) == (None, 2)
    assert found.codes == [None, None, "json-malformed"]


def test_a_format_alone(spark: SparkSession) -> None:
    made = decoder(JsonFormat(), spark)
    made.check()
    assert Decoded(made.decode(records(spark, ['{"a": 1}']))).rows == [{"a": 1}]


def test_an_error_that_was_there_before_stays(spark: SparkSession) -> None:
    frame = records(spark, ['{"a": 1}']).selectExpr(
        "*", "named_struct('stage', 'read', 'code', 'c', 'text', 't') AS __frazil_error"
    )
    row = decoder(JsonFormat(), spark).decode(frame).first()
    assert row is not None
    assert row["__frazil_error"].code == "c"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"format": {"type": "jsn"}}, "tag"),
    ({"format": {"type": "json", "schema": {"a": "int"}, "infer": "evolve"}}, "exclude each other"),
    ({"format": {"type": "json", "schema": {"__frazil_op": "string"}}}, "frazil's own"),
    ({"format": {"type": "json", "schema": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]}}, "twice"),
    ({"format": {"type": "json", "truncates": "error"}}, "without envelope"),
    ({"format": "csv"}, "needs its columns"),
    ({"format": {"type": "csv", "schema": {"a": "int"}, "quote": ","}}, "must differ"),
    ({"format": "avro"}, "one of schema_registry"),
    ({"format": {"type": "avro", "schema": '"long"', "reader_schema": '"long"'}}, "without schema_registry"),
    ({"format": {"type": "avro", "schema_registry": {"url": "http://r", "user": "u"}}}, "belong together"),
    ({"format": {"type": "avro", "schema_registry": {"url": "ftp://r"}}}, "pattern"),
    ({"format": "json", "key_prefix": "k_"}, "without key_format"),
    ({"format": "json", "tombstones": "delete"}, "needs key_format"),
    ({"format": "json", "key_and_value": True}, "needs key_format"),
    ({"format": "json", "key_format": "raw"}, "whole records"),
    ({"format": "json", "key_format": {"type": "json", "envelope": "debezium"}}, "no envelope"),
    ({"format": "json", "metadata_prefix": "m_"}, "without metadata"),
    ({"format": "raw", "tombstones": "error"}, "its own way"),
    ({"format": "raw", "empty_is_none": True}, "keeps what came"),
    ({"format": {"type": "protobuf", "message": "m"}}, "descriptor_file"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[words for _, words in WRONG])
def test_options_that_do_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        MessageOptions.model_validate(options)


def test_secrets_do_not_show() -> None:
    registry = {"url": "https://r", "user": "u", "password": "s3cret"}
    options = MessageOptions.model_validate({"format": {"type": "avro", "schema_registry": registry}})
    assert "s3cret" not in repr(options) + json.dumps(options.model_dump(mode="json"))
