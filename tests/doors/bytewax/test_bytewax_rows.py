"""From dictionaries to Arrow: what fits goes in as it is, and what does not is reported with the field's name."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.bytewax import error_row, from_epoch_ms, to_json, uplink_row, with_errors
from frazil.doors.bytewax.rows import RowMaker
from frazil.doors.bytewax.schema import from_arrow, to_arrow
from frazil.errors import DataError
from frazil.model.coercion import EpochUnit
from frazil.model.types import Column, StructType, parse_type
from tiers import examples

NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
IDENTIFIER = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def maker(**columns: str) -> RowMaker:
    return RowMaker(StructType(tuple(Column(name, parse_type(kind)) for name, kind in columns.items())))


def one(kind: str, value: Any) -> Any:
    return maker(x=kind).table([{"x": value}]).to_pylist()[0]["x"]


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("boolean", True, True),
        ("int", 2**31 - 1, 2**31 - 1),
        ("int", 5.0, 5),
        ("long", -(2**63), -(2**63)),
        ("float", 0.5, 0.5),
        ("double", 3, 3.0),
        ("decimal(5, 2)", Decimal("1.5"), Decimal("1.50")),
        ("decimal(38, 0)", 10**38 - 1, Decimal(10**38 - 1)),
        ("decimal(38, 0)", Decimal("9" * 38 + "." + "0" * 20), Decimal("9" * 38)),
        ("decimal(5, 2)", Decimal("0E-500"), Decimal("0.00")),
        ("float", 2**24, float(2**24)),
        ("float", 0.1, 0.10000000149011612),
        ("string", "ü", "ü"),
        ("string", {"a": [1, NOON]}, '{"a":[1,"2026-01-02T12:00:00+00:00"]}'),
        ("string", ["x", b"\x01"], '["x","01"]'),
        ("string", {"a": "\ud800ü"}, '{"a":"\\ud800\\u00fc"}'),
        ("string", IDENTIFIER, str(IDENTIFIER)),
        ("uuid", str(IDENTIFIER).upper(), str(IDENTIFIER)),
        ("uuid", IDENTIFIER.bytes, str(IDENTIFIER)),
        ("binary", bytearray(b"ab"), b"ab"),
        ("fixed[2]", b"ab", b"ab"),
        ("date", dt.date(2026, 1, 2), dt.date(2026, 1, 2)),
        ("timestamptz", NOON, NOON),
        ("timestamptz", NOON.replace(tzinfo=None), NOON),
        ("timestamptz", NOON.astimezone(dt.timezone(dt.timedelta(hours=5))), NOON),
        ("timestamptz", 1767355200123, NOON.replace(microsecond=123000)),
        ("timestamp", 1767355200123, NOON.replace(microsecond=123000, tzinfo=None)),
        ("timestamp", NOON.astimezone(dt.timezone(dt.timedelta(hours=5))), NOON.replace(tzinfo=None)),
        ("list<int>", (1, None), [1, None]),
        ("map<string, long>", {"a": 1}, [("a", 1)]),
        ("struct<a: int, b: string>", {"a": 1}, {"a": 1, "b": None}),
        ("boolean", np.bool_(True), True),
        ("int", np.uint8(255), 255),
        ("long", np.int64(-(2**63)), -(2**63)),
        ("long", np.float32(5), 5),
        ("float", np.float32(0.1), 0.10000000149011612),
        ("double", np.float16(0.5), 0.5),
        ("decimal(5, 2)", np.int16(7), Decimal("7.00")),
        ("timestamptz", np.int64(1767355200123), NOON.replace(microsecond=123000)),
        ("list<long>", [np.int64(1)], [1]),
        ("string", {"a": np.int64(1), "b": [np.bool_(False)]}, '{"a":1,"b":[false]}'),
    ],
)
def test_a_value_that_fits(kind: str, value: Any, stored: Any) -> None:
    assert one(kind, value) == stored


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("boolean", 1, "neither True nor False"),
        ("int", 2**31, "too large for int"),
        ("int", 1.5, "not a whole number"),
        ("long", True, "True (bool) is not a whole number"),
        ("long", np.bool_(True), "True (bool) is not a whole number"),
        ("long", np.timedelta64(5, "ns"), "(timedelta64) is not a whole number"),
        ("int", np.int64(2**31), "2147483648 is too large for int"),
        ("float", np.int32(123456789), "123456789 is too large to be a float without loss"),
        ("timestamptz", np.datetime64(5, "ns"), "(datetime64) is neither a datetime"),
        ("long", "5", "'5' (str) is not a whole number"),
        ("float", 1e300, "too large for float"),
        ("double", 2**60 + 1, "without loss"),
        ("double", 10**400, "too large for double"),
        ("double", Decimal("1e400"), "too large for double"),
        ("float", Decimal("-1e39"), "too large for float"),
        ("double", Decimal("sNaN"), "signaling NaN"),
        ("double", "1", "is not a number"),
        ("decimal(5, 2)", Decimal("1.234"), "does not fit into decimal(5, 2) without loss"),
        ("decimal(5, 2)", 1000, "does not fit"),
        ("decimal(5, 2)", 1.5, "neither a Decimal"),
        ("decimal(5, 2)", Decimal("NaN"), "not a number with digits"),
        ("string", 5, "5 (int) is not a text"),
        ("string", b"x", "is not a text"),
        ("string", "a\ud800", "'a\\ud800' (str) has half a character in it"),
        ("list<string>", ["\udc00"], "has half a character in it"),
        ("string", {(1, 2): 3}, "{(1, 2): 3} (dict) cannot be JSON: keys must be str, int, float, bool or None, not tuple"),
        ("string", {"a": float("nan")}, "{'a': nan} (dict) cannot be JSON: Out of range float values"),
        ("string", [float("inf")], "cannot be JSON: Out of range float values"),
        ("uuid", "no", "is not a UUID"),
        ("binary", "text", "is not bytes"),
        ("fixed[2]", b"abc", "is not 2 bytes"),
        ("date", NOON, "is not a date"),
        ("timestamptz", "2026-01-02", "neither a datetime nor a whole number of millis since 1970"),
        ("timestamptz", 1e12, "neither a datetime"),
        ("timestamptz", dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5))), "in UTC not a moment"),
        ("timestamptz", 10**18, "not a moment that there is a date for"),
        ("list<int>", 5, "is not a list"),
        ("list<int>", [1.5], "not a whole number"),
        ("map<string, long>", [], "is not a dictionary"),
        ("struct<a: int>", {"a": "x"}, "in a, 'x' (str) is not a whole number"),
        ("struct<a: struct<b: list<int>>>", {"a": {"b": [1, "x"]}}, "in a.b[1], 'x' (str) is not a whole number"),
        ("map<string, int>", {"k": "x"}, "in ['k'], 'x' (str) is not a whole number"),
        ("map<int, string>", {"k": "x"}, "in key, 'k' (str) is not a whole number"),
        ("float", 123456789, "123456789 is too large to be a float without loss"),
        ("float", 2**24 + 1, "is too large to be a float without loss"),
        ("decimal(38, 0)", Decimal(10**38), "does not fit into decimal(38, 0) without loss"),
        ("decimal(5, 2)", Decimal("1." + "0" * 450 + "1"), "does not fit into decimal(5, 2) without loss"),
    ],
)
def test_a_value_that_does_not_fit_is_reported_with_its_field(kind: str, value: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        one(kind, value)
    assert caught.value.message.startswith(f"The field 'x' ({parse_type(kind)}): ")
    assert message in caught.value.message


def test_missing_fields_are_null_and_extra_ones_are_left_out_or_refused() -> None:
    columns = maker(a="int", b="string").columns
    assert RowMaker(columns).table([{"a": 1, "c": 2}, {}]).to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": None}]
    with pytest.raises(DataError, match="A row has the field 'c', which is not in the schema: a, b"):
        RowMaker(columns, refuse_extra=True).table([{"a": 1, "c": 2}])


def test_extra_fields_of_a_struct_are_left_out_or_refused_likewise() -> None:
    columns, row = maker(s="struct<a: struct<b: int>>").columns, {"s": {"a": {"b": 1, "c": 2}}}
    assert RowMaker(columns).table([row]).to_pylist() == [{"s": {"a": {"b": 1}}}]
    with pytest.raises(DataError, match=r"The field 's' .*: in a, there is no field 'c'"):
        RowMaker(columns, refuse_extra=True).table([row])


def test_a_required_field_without_a_value_is_reported() -> None:
    columns = StructType((Column("a", parse_type("int"), required=True),))
    with pytest.raises(DataError, match=r"The field 'a' \(int\): it is required"):
        RowMaker(columns).table([{"a": 1}, {"b": 2}])


def test_a_wrong_value_in_a_required_field_is_reported_as_what_it_is() -> None:
    columns = StructType((Column("a", parse_type("int"), required=True), Column("error", parse_type("string"))))
    for made in (RowMaker(columns), RowMaker(columns, error_column="error")):
        with pytest.raises(DataError, match=r"The field 'a' \(int\): 'x' \(str\) is not a whole number") as caught:
            made.table([{"a": 1}, {"a": "x"}])
        assert caught.value.fix == (
            "Correct it in the step before the sink: the column is required, so that the row cannot be kept without it."
        )


@pytest.mark.parametrize(
    ("value", "message", "raw"),
    [
        ("\ud800", "x: '\\ud800' (str) has half a character in it, which a text cannot have", '{"id":1,"x":"\\ud800"}'),
        (
            {(1, 2): 3},
            "x: {(1, 2): 3} (dict) cannot be JSON: keys must be str, int, float, bool or None, not tuple",
            '{"id":1,"x":"{(1, 2): 3}"}',
        ),
        ({"a": float("nan")}, "x: {'a': nan} (dict) cannot be JSON", '{"id":1,"x":"{\'a\': nan}"}'),
    ],
)
def test_a_row_that_cannot_be_a_text_is_kept_with_its_error(value: Any, message: str, raw: str) -> None:
    columns = maker(id="int", x="string", error="string", raw="string").columns
    made = RowMaker(columns, error_column="error", raw_column="raw").table([{"id": 1, "x": value}, {"id": 2, "x": "fine"}])
    wrong, right = made.to_pylist()
    assert (wrong["id"], wrong["x"], wrong["raw"]) == (1, None, raw)
    assert wrong["error"].startswith(message)
    assert right == {"id": 2, "x": "fine", "error": None, "raw": None}


@pytest.mark.parametrize(("unit", "number"), [("seconds", 86_400), ("micros", 86_400 * 10**6), ("nanos", 86_400 * 10**9)])
def test_numbers_count_what_the_unit_says(unit: str, number: int) -> None:
    columns = maker(x="timestamptz").columns
    table = RowMaker(columns, unit=EpochUnit(unit)).table([{"x": number}])
    assert table.to_pylist() == [{"x": dt.datetime(1970, 1, 2, tzinfo=dt.UTC)}]


TEXTS = st.text(st.characters(), max_size=5)  # with halves of characters
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), TEXTS, st.binary(max_size=4),
    st.datetimes(), st.dates(), st.decimals(), st.lists(st.integers(), max_size=2),
    st.dictionaries(TEXTS, st.integers(), max_size=2), st.dictionaries(st.tuples(st.integers()), st.floats(), max_size=2),
)  # fmt: skip
KINDS = ("boolean", "int", "long", "float", "double", "decimal(9, 3)", "string", "uuid", "binary", "fixed[2]", "date",
         "timestamp", "timestamptz", "list<long>", "map<string, int>", "struct<a: int>")  # fmt: skip


@given(st.sampled_from(KINDS), st.lists(VALUES, max_size=4))
@settings(deadline=None, max_examples=examples(400))
def test_any_value_fits_without_loss_or_is_reported(kind: str, values: list[Any]) -> None:
    try:
        stored = maker(x=kind).table([{"x": value} for value in values])["x"].to_pylist()
    except DataError:
        return
    for value, got in zip(values, stored, strict=True):
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and kind not in ("timestamp", "timestamptz"):
            # A Decimal becomes the nearest number of a column that holds no Decimals; all others stay what they were.
            expected = float(value) if isinstance(value, Decimal) and kind == "double" else value
            assert got == expected or value != value or (kind == "float" and not isinstance(value, int))
        if value is None:
            assert got is None


def test_an_arrow_schema_comes_back_as_it_was() -> None:
    fields = [
        ("a", pa.int32()), ("b", pa.list_(pa.string())), ("c", pa.map_(pa.string(), pa.float64())), ("d", pa.decimal128(9, 2)),
        ("e", pa.struct([("x", pa.timestamp("us")), ("y", pa.timestamp("us", "UTC"))])), ("f", pa.date32()),
    ]  # fmt: skip
    assert to_arrow(from_arrow(pa.schema(fields)).columns) == pa.schema(fields)


def test_an_uplink_message_becomes_a_flat_row() -> None:
    nested = {
        "device": {"id": "d-1"},
        "organizationId": "o-1",
        "event": {"type": "uplink", "timestamp": 1767355200000, "payload": {"temperature": 21.5}},
    }
    row = {
        "device_id": "d-1", "organization_id": "o-1", "event_timestamp": NOON, "event_type": "uplink",
        "payload": '{"temperature":21.5}', "error": None, "raw": None,
    }  # fmt: skip
    assert uplink_row(nested) == row
    assert uplink_row(json.dumps(nested)) == row
    assert uplink_row(json.dumps(nested).encode()) == row
    flat = {
        "device_id": "d-1",
        "organization_id": "o-1",
        "event_timestamp": NOON,
        "type": "uplink",
        "payload": '{"temperature":21.5}',
    }
    assert uplink_row({"metadata": flat}) == row


def test_a_message_that_cannot_be_read_keeps_what_it_was() -> None:
    assert uplink_row("{not json")["raw"] == "{not json"
    assert uplink_row("{not json")["error"].startswith("the message is not JSON")
    wrong = uplink_row({"device_id": "d-1", "timestamp": "yesterday"})
    assert (wrong["device_id"], wrong["event_timestamp"]) == ("d-1", None)
    assert wrong["error"].startswith("'yesterday' (str) is neither a datetime")
    assert json.loads(wrong["raw"]) == {"device_id": "d-1", "timestamp": "yesterday"}
    row = uplink_row({"device_id": "d-1", "error": "low battery"})
    assert (row["error"], json.loads(row["raw"])["device_id"]) == ("low battery", "d-1")


def test_helpers() -> None:
    assert from_epoch_ms(1767355200000) == NOON
    with pytest.raises(DataError, match="neither a datetime"):
        from_epoch_ms("soon")  # type: ignore[arg-type]
    assert to_json({"at": NOON}) == '{"at":"2026-01-02T12:00:00+00:00"}'
    assert error_row({"a": 1}, ValueError("no"), id=5) == {"id": 5, "error": "ValueError: no", "raw": '{"a":1}'}
    assert with_errors(lambda row: {"id": row["id"]})({"x": 1}) == {"error": "KeyError: 'id'", "raw": '{"x":1}'}
    assert with_errors(lambda row: {"id": row["id"]})({"id": 1}) == {"id": 1}


def test_helpers_make_rows_that_can_be_written_of_whatever_comes() -> None:
    with pytest.raises(DataError, match="cannot be JSON"):
        to_json({"a": float("nan")})
    assert error_row("a\ud800", "b\ud800") == {"error": "b\\ud800", "raw": "a\\ud800"}
    assert json.loads(error_row({"a": float("nan"), (1,): 2}, "no")["raw"]) == {"a": "nan", "(1,)": 2}
    assert error_row([float("nan")], "no")["raw"] == '"[nan]"'
    for name in ("payload", "organization_id", "error"):
        half = uplink_row({"device_id": "d-1", name: "a\ud800"})
        assert (half["device_id"], half["error"]) == ("d-1", "'a\\ud800' has half a character in it, which a text cannot have")
        assert json.loads(half["raw"]) == {"device_id": "d-1", name: "a\ud800"}
    wrong = uplink_row({"device_id": "d-1", "payload": {"t": float("nan")}})
    assert (wrong["device_id"], wrong["payload"]) == ("d-1", None)
    assert wrong["error"].startswith("{'t': nan} (dict) cannot be JSON")
