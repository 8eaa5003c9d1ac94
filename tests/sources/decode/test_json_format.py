"""JSON messages: what is read, what is found out about columns, and what is a bad record."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sources.decode.records import Decoded, decoded, decoder_of, records

TYPED = {
    "type": "json",
    "schema": {
        "id": "long",
        "n": "int",
        "price": "decimal(10, 2)",
        "ratio": "double",
        "ok": "boolean",
        "name": "string",
        "day": "date",
        "at": "timestamptz",
        "wall": "timestamp",
        "uid": "uuid",
        "blob": "binary",
        "tags": "list<string>",
        "attrs": "map<string, long>",
        "inner": "struct<a: int, b: decimal(38, 10)>",
    },
}


def test_declared_columns_have_their_types(spark: SparkSession) -> None:
    message = {
        "id": 2**63 - 1,
        "n": -5,
        "price": 12.34,
        "ratio": 0.1,
        "ok": True,
        "name": "größe 😀 \u0000",
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.123456+02:00",
        "wall": "2026-01-02T03:04:05",
        "uid": "6F9619FF-8B86-D011-B42D-00C04FC964FF",
        "blob": "AAH/",
        "tags": ["a", None],
        "attrs": {"x": 1},
        "inner": {"a": 1, "b": 1.5},
        "more": "is not declared",
    }
    (row,) = decoded(spark, TYPED, [json.dumps(message)]).rows
    assert row == {
        "id": 2**63 - 1,
        "n": -5,
        "price": Decimal("12.34"),
        "ratio": 0.1,
        "ok": True,
        "name": "größe 😀 \u0000",
        "day": date(2026, 1, 2),
        "at": row["at"],
        "wall": datetime(2026, 1, 2, 3, 4, 5),
        "uid": "6f9619ff-8b86-d011-b42d-00c04fc964ff",
        "blob": bytearray(b"\x00\x01\xff"),
        "tags": ["a", None],
        "attrs": {"x": 1},
        "inner": row["inner"],
    }
    assert row["at"].astimezone(UTC) == datetime(2026, 1, 2, 1, 4, 5, 123456, tzinfo=UTC)
    assert (row["inner"].a, row["inner"].b) == (1, Decimal("1.5"))


GOOD: dict[str, tuple[str, Any]] = {
    "plain": ('{"id": 1}', 1),
    "a mark of the byte order": ('\ufeff{"id": 1}', 1),
    "space around": (' \r\n\t{"id": 1} \n', 1),
    "a key that stands twice": ('{"id": 1, "id": 2}', 2),
    "absent": ("{}", None),
    "null": ('{"id": null}', None),
    "the smallest": (f'{{"id": {-(2**63)}}}', -(2**63)),
    "beyond 53 bits": ('{"id": 9007199254740993}', 9007199254740993),
    "escaped key": ('{"\\u0069d": 7}', 7),
}

BAD: dict[str, tuple[bytes, str, str]] = {
    "empty": (b"", "json-empty", ""),
    "blank": (b" \n ", "json-empty", ""),
    "cut off": (b'{"id": 1, "na', "json-malformed", '{"id": 1, "na'),
    "cut off after a value": (b'{"id": 1', "json-malformed", ""),
    "more behind it": (b'{"id": 1} x', "json-malformed", ""),
    "two objects": (b'{"id": 1}{"id": 2}', "json-malformed", ""),
    "two objects with a comma": (b'{"id": 1},{"id": 2}', "json-malformed", ""),
    "a closing bracket too many": (b'{"id": 1}]', "json-malformed", ""),
    "a closing brace too many": (b'{"id": 1}}', "json-malformed", ""),
    "a list": (b'[{"id": 1}]', "json-not-object", ""),
    "a number": (b"12", "json-not-object", "12"),
    "null": (b"null", "json-not-object", "null"),
    "no JSON": (b"hello", "json-malformed", "hello"),
    "single quotes": (b"{'id': 1}", "json-malformed", ""),
    "Python's NaN": (b'{"ratio": NaN}', "json-malformed", ""),
    "no UTF-8": (b'{"name": "\xff"}', "text-encoding", ""),
    "half a character": (b'{"name": "\\ud83d"}', "json-unicode", ""),
    "a text for a number": (b'{"id": "abc"}', "json-type", "column 'id' cannot hold this value as bigint: \"abc\""),
    "a fraction for an integer": (b'{"id": 1.5}', "json-type", "'id'"),
    "too large for a long": (b'{"id": 9223372036854775808}', "json-type", "'id'"),
    "too large for an int": (b'{"n": 2147483648}', "json-type", "'n'"),
    "too many digits": (b'{"price": 12.345}', "json-type", "column 'price' cannot hold this value as decimal(10, 2): 12.345"),
    "too large a decimal": (b'{"price": 123456789.00}', "json-type", "'price'"),
    "smaller than any double": (b'{"price": 1e-324}', "json-type", "column 'price' cannot hold this value as decimal(10, 2)"),
    "much smaller": (b'{"price": 5e-330}', "json-type", "'price'"),
    "a text that is smaller": (b'{"price": "1e-400"}', "json-type", "decimal(10, 2): 1e-400"),
    "an exponent of ten digits": (b'{"price": 1e-1000000000}', "json-type", "'price'"),
    "an exponent of ten digits in a text": (b'{"price": "1e-1000000000"}', "json-type", "'price'"),
    "a one behind many zeros": (b'{"price": 1.' + 44 * b"0" + b"1}", "json-type", "'price'"),
    "more digits than a double has": (b'{"inner": {"b": 9100000000000001e0}}', "json-type", "'inner.b'"),
    "the year 0": (b'{"day": "0000-01-01"}', "json-type", "column 'day' cannot hold this value as date: 0000-01-01"),
    "a time in the year 0": (b'{"at": "0000-06-01T00:00:00Z"}', "json-type", "'at'"),
    "before the year 1 by its zone": (b'{"at": "0001-01-01T00:00:00+14:00"}', "json-type", "'at'"),
    "after the year 9999 by its zone": (b'{"wall": "9999-12-31T23:59:59-14:00"}', "json-type", "'wall'"),
    "no decimal": (b'{"price": "x"}', "json-type", "'price'"),
    "infinite": (b'{"ratio": 1e999}', "json-type", "'ratio'"),
    "an integer that no double is": (b'{"ratio": 9007199254740993}', "json-type", "'ratio'"),
    "a number for a boolean": (b'{"ok": 1}', "json-type", "'ok'"),
    "no date": (b'{"day": "2026-02-30"}', "json-type", "'day'"),
    "no time": (b'{"at": "yesterday"}', "json-type", "'at'"),
    "no base64": (b'{"blob": "%%"}', "json-type", "'blob'"),
    "an object for a list": (b'{"tags": {}}', "json-type", "'tags'"),
    "within a struct": (b'{"inner": {"a": "x"}}', "json-type", "inside does not fit its type: inner"),
    "digits within a struct": (b'{"inner": {"b": 0.12345678901}}', "json-type", "'inner.b'"),
    "within a map": (b'{"attrs": {"x": "y"}}', "json-type", "attrs"),
}


@pytest.fixture(scope="module")
def matrix(spark: SparkSession) -> Decoded:
    """All messages in one batch: one that is bad does no harm to the others."""
    values = [text.encode() for text, _ in GOOD.values()] + [message for message, _, _ in BAD.values()]
    return decoded(spark, TYPED, values)


@pytest.mark.parametrize("case", GOOD)
def test_a_good_message(matrix: Decoded, case: str) -> None:
    place = list(GOOD).index(case)
    assert (matrix.faults[place], matrix.rows[place]["id"]) == (None, GOOD[case][1])


@pytest.mark.parametrize("case", BAD)
def test_a_bad_message(matrix: Decoded, case: str) -> None:
    place = len(GOOD) + list(BAD).index(case)
    _, code, words = BAD[case]
    assert matrix.codes[place] == code, matrix.faults[place]
    assert words in (matrix.faults[place] or "")


@pytest.mark.slow
def test_hidden_columns_are_kept(spark: SparkSession) -> None:
    good, bad = decoded(spark, TYPED, ['{"id": 1}', "x"]).all
    assert good["__frazil_error"] is None
    assert (bytes(bad["__frazil_raw"]), json.loads(bad["__frazil_at"])["offset"]) == (b"x", 1)
    assert bad["__frazil_error"].stage == "decode"


def test_required_columns(spark: SparkSession) -> None:
    options = {"type": "json", "schema": [{"name": "id", "type": "long", "required": True}, {"name": "n", "type": "int"}]}
    found = decoded(spark, options, ['{"id": 1}', '{"n": 1}', '{"id": null}', None])
    assert found.codes == [None, "json-type", "json-type", None]
    assert "required" in (found.faults[1] or "")


@pytest.mark.slow
def test_a_message_of_10_megabytes(spark: SparkSession, tmp_path: Path) -> None:
    text = "x" * 10_500_000
    values = [json.dumps({"id": 1, "text": text}).encode(), json.dumps({"id": 2, "text": text})[:-1].encode()]
    # From a file, as from a broker: Spark keeps the rows of a local frame in the plan itself, several times over.
    big = pyarrow.table({"offset": [0, 1], "big": values})
    pyarrow.parquet.write_table(big, tmp_path / "big.parquet", row_group_size=1)
    few = records(spark, ["", ""]).drop("value", "__frazil_raw").join(spark.read.parquet(str(tmp_path / "big.parquet")), "offset")
    frame = decoder_of(spark, "json").decode(few.withColumnsRenamed({"big": "value"}).selectExpr("*", "value as __frazil_raw"))
    found = frame.selectExpr("id", "length(text)", "__frazil_error.code", "length(__frazil_error.text)").collect()
    whole, cut_off = sorted(found, key=lambda row: row[0] is None)
    assert tuple(whole) == (1, len(text), None, None)
    assert (cut_off[0], cut_off[1], cut_off[2]) == (None, None, "json-malformed")
    assert cut_off[3] < 400


def test_a_decimal_keeps_all_its_digits(spark: SparkSession) -> None:
    options = {"type": "json", "schema": {"d": "decimal(38, 18)"}}
    digits = "12345678901234567890.123456789012345678"
    found = decoded(spark, options, [f'{{"d": {digits}}}', f'{{"d": "{digits}"}}', f'{{"d": {digits}9}}', '{"d": 1.5e3}'])
    assert [row["d"] for row in found.rows] == [Decimal(digits), Decimal(digits), None, Decimal(1500)]
    assert found.codes == [None, None, "json-type", None]


def test_columns_are_found(spark: SparkSession) -> None:
    values = [
        {"id": 1, "name": "a", "nested": {"x": 1, "y": [1, 2]}, "nothing": None, "odd name.`": True},
        {"id": 2, "ratio": 1.5, "nested": {"z": "t"}, "mixed": 1},
        {"id": 3, "ratio": 2, "mixed": "b", "big": 12345678901234567890},
    ]
    found = decoded(spark, "json", [json.dumps(value) for value in values])
    assert found.types() == {
        "big": "decimal(38,0)",
        "id": "bigint",
        "mixed": "string",
        "name": "string",
        "nested": "struct<x:bigint,y:array<bigint>,z:string>",
        "odd name.`": "boolean",
        "ratio": "double",
    }
    assert found.codes == [None] * 3
    assert [row["mixed"] for row in found.rows] == [None, "1", "b"]
    assert found.rows[2]["big"] == Decimal(12345678901234567890)
    assert found.rows[0]["nested"].asDict(recursive=True) == {"x": 1, "y": [1, 2], "z": None}


def test_new_fields_are_added_and_known_types_stay(spark: SparkSession) -> None:
    json_decoder = decoder_of(spark, {"type": "json", "infer": "evolve"})
    first = Decoded(json_decoder.decode(records(spark, ['{"a": 1, "s": {"x": 1}}'])))
    assert first.types() == {"a": "bigint", "s": "struct<x:bigint>"}
    values = ['{"a": 2, "b": "new", "s": {"x": 2, "y": true}}', '{"a": "text"}', '{"a": 1.5}', '{"s": "text"}']
    second = Decoded(json_decoder.decode(records(spark, values)))
    assert second.types() == {"a": "bigint", "s": "struct<x:bigint,y:boolean>", "b": "string"}
    assert second.codes == [None, "json-type", "json-type", "json-type"]
    assert second.faults[1] == "json-type: column 'a' cannot hold this value as bigint: \"text\""
    assert second.rows[0]["b"] == "new"
    assert second.rows[0]["s"].asDict() == {"x": 2, "y": True}
    third = Decoded(json_decoder.decode(records(spark, ['{"b": 1.10}'])))
    assert third.rows == [{"a": None, "s": None, "b": "1.1"}], "what became text stays text"


@pytest.mark.slow
def test_a_sample_decides_once(spark: SparkSession) -> None:
    json_decoder = decoder_of(spark, {"type": "json", "infer": "sample"})
    empty = Decoded(json_decoder.decode(records(spark, ["x", None])))
    assert (empty.columns, empty.codes) == ([], ["json-malformed", None])
    first = Decoded(json_decoder.decode(records(spark, ['{"a": 1, "n": null}'])))
    assert first.types() == {"a": "bigint", "n": "string"}
    second = Decoded(json_decoder.decode(records(spark, ['{"a": 2, "b": 3, "n": {"x": 1.50}}', '{"a": "x"}'])))
    assert second.rows[0] == {"a": 2, "n": '{"x":1.5}'}
    assert second.codes == [None, "json-type"]


def test_keys_that_cannot_be_columns(spark: SparkSession) -> None:
    values = ['{"id": 1}', '{"ID": 2}', '{"__frazil_op": "delete", "id": 3}', '{"": 1}', '{"s": {"a": 1, "A": 2}}']
    found = decoded(spark, "json", values)
    assert found.types() == {"id": "bigint", "s": "string"}, "the first spelling counts"
    assert found.codes == [None, "json-key", "json-key", "json-key", None]
    assert json.loads(found.rows[4]["s"]) == {"a": 1, "A": 2}


def test_unwrap(spark: SparkSession) -> None:
    values = [
        '{"schema": null, "payload": {"id": 1}}',
        '{"payload": null}',
        '{"id": 1}',
        '{"payload": {"id": "x"}}',
        '{"payload": 3}',
    ]
    for more in ({"schema": {"id": "long"}}, {}):
        found = decoded(spark, {"type": "json", "unwrap": True, **more}, values[: 5 if more else 3])
        assert found.codes == [None, None, "json-envelope", "json-type", "json-type"][: len(found.codes)]
        assert found.rows[0] == {"id": 1}
        assert found.ops[:2] == ["update", "ignore"]


def connect(fields: list[dict[str, Any]], payload: Any) -> str:
    return json.dumps({"schema": {"type": "struct", "optional": False, "fields": fields}, "payload": payload})


@pytest.mark.slow
def test_a_schema_inside_the_message(spark: SparkSession) -> None:
    numbers = {"field": "m", "type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}}
    one = [{"field": "id", "type": "int32"}, {"field": "f", "type": "float"}, numbers]
    two = [{"field": "id", "type": "int64"}, {"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}]
    values = [
        connect(one, {"id": 1, "f": 0.5, "m": {"k": 2}}),
        connect(two, {"id": 2**40, "at": 1_700_000_000_123}),
        connect(one, {"id": "x"}),
        connect(two, None),
        '{"payload": {"id": 1}}',
        '{"schema": {"type": "odd"}, "payload": {"id": 1}}',
        "x",
        None,
    ]
    found = decoded(spark, {"type": "json", "infer": "embedded"}, values)
    assert found.codes == [None, None, "json-type", None, "json-schema", "json-schema", "json-schema", None]
    assert found.types() == {"id": "bigint", "f": "float", "m": "map<string,bigint>", "at": "timestamp_ntz"}
    assert found.rows[0] == {"id": 1, "f": 0.5, "m": {"k": 2}, "at": None}
    assert found.rows[1] == {"id": 2**40, "f": None, "m": None, "at": datetime(2023, 11, 14, 22, 13, 20, 123000)}


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c", "d e", "f.g"]), VALUES, max_size=5)
# Many messages in few batches: planning a batch takes longer than reading it.
FEW = settings(max_examples=6, deadline=None, suppress_health_check=[*HealthCheck], phases=[Phase.reuse, Phase.generate])


@pytest.mark.slow(seconds=25)
@given(messages=st.lists(OBJECTS, min_size=1, max_size=40))
@FEW
def test_what_goes_in_comes_out_or_is_reported(spark: SparkSession, messages: list[dict[str, Any]]) -> None:
    found = decoded(spark, "json", [json.dumps(message) for message in messages])
    for message, row, fault in zip(messages, found.rows, found.faults, strict=True):
        if fault is None:
            for name, value in message.items():
                assert same(row.get(name), value), (name, value, row)


def same(got: Any, sent: Any) -> bool:
    """Whether a value came through: as itself, or, where types differ between messages, as its JSON."""
    if hollow(sent):
        # Nothing in it says what it is: there may be no column for it, or one whose parts are null.
        if isinstance(got, list) and isinstance(sent, list) and len(got) == len(sent):
            return all(same(one, other) for one, other in zip(got, sent, strict=True))
        return same_json(json.loads(got), sent) if isinstance(got, str) else hollow(got)
    if isinstance(got, str) and not isinstance(sent, str):
        return same_json(json.loads(got, parse_float=Decimal), sent)
    if isinstance(sent, dict):
        return all(same(got[key] if key in got.__fields__ else None, value) for key, value in sent.items())
    if isinstance(sent, list):
        return len(got) == len(sent) and all(same(one, other) for one, other in zip(got, sent, strict=True))
    if isinstance(sent, bool) or isinstance(got, bool):
        return got is sent
    return bool(got == sent)


def hollow(value: Any) -> bool:
    """Whether there is no value anywhere in it."""
    parts = value.values() if isinstance(value, dict) else value
    return value is None or (isinstance(value, dict | list | tuple) and all(map(hollow, parts)))


def same_json(got: Any, sent: Any) -> bool:
    if isinstance(sent, dict):
        return all(same_json(got[key], value) for key, value in sent.items())
    if isinstance(sent, list):
        return all(same_json(one, other) for one, other in zip(got, sent, strict=True))
    if isinstance(sent, float):
        return float(got) == sent
    return bool(got == sent)


WRITTEN = (
    NUMBERS.map(json.dumps)
    | st.decimals(-(10**25), 10**25, places=6).map(lambda number: f"{number:f}")
    | st.decimals(-100, 100, places=3).map(lambda number: f"{number:e}")
    | st.booleans().map(json.dumps)
    | st.integers(-100, 100).map(lambda number: json.dumps(str(number)))
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["long", "int", "decimal(20, 4)", "decimal(38, 18)", "double"])
@given(written=st.lists(WRITTEN, min_size=1, max_size=60))
@settings(FEW, max_examples=3)
def test_a_declared_number_is_right_or_reported(spark: SparkSession, kind: str, written: list[str]) -> None:
    found = decoded(spark, {"type": "json", "schema": {"v": kind}}, [f'{{"v": {text}}}' for text in written])
    for text, row, fault in zip(written, found.rows, found.faults, strict=True):
        if fault is None:
            exact = Decimal(text.strip('"'))
            assert row["v"] == (float(exact) if kind == "double" else exact), (kind, text)


def test_a_message_is_read_once_whatever_is_asked_of_its_columns(spark: SparkSession) -> None:
    frame = decoder_of(spark, TYPED).decode(records(spark, ['{"id": 1, "at": "2026-01-02T03:04:05Z", "price": 1.5}', "{"]))
    asked = frame.where("at > timestamp'2026-01-01' and price > 1").where("__frazil_error is null and id is not null")
    plan = asked._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(") == 1
    assert [row.id for row in asked.collect()] == [1]
