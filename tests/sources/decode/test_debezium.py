"""Debezium's envelopes in JSON and Avro, written by hand after the structure that its documentation gives."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.model.hidden import OP
from frazil.model.sink import SinkSpec
from frazil.write.modes.rows import with_operations
from services.registry import SchemaRegistry
from sources.decode.records import decoded, decoder_of, records
from sources.decode.test_avro_format import framed

UNAVAILABLE = "__debezium_unavailable_value"
PLAIN = {"type": "json", "envelope": "debezium"}
CATALOG = {"type": "memory"}


def source(lsn: int | None, **more: Any) -> dict[str, Any]:
    return {
        "version": "3.0.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1_700_000_000_000, "snapshot": "false",
        "db": "shop", "sequence": f'["{lsn}","{lsn}"]', "schema": "public", "table": "orders", "txId": 745, "lsn": lsn,
        "xmin": None, **more,
    }  # fmt: skip


def envelope(op: str, before: Any, after: Any, lsn: int | None = 1, **more: Any) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "source": source(lsn),
        "op": op,
        "ts_ms": 1_700_000_000_001,
        "transaction": None,
        **more,
    }


ROW = {"id": 1, "name": "a", "text": "long"}
CHANGES = [
    envelope("r", None, ROW, 10),
    envelope("c", None, {**ROW, "id": 2}, 11),
    envelope("u", ROW, {**ROW, "name": "b", "text": UNAVAILABLE}, 12),
    envelope("u", {**ROW, "id": 2}, {**ROW, "id": 3}, 13),
    envelope("d", {**ROW, "id": 1}, None, 14),
]
OTHERS: list[Any] = [
    {"op": "t", "before": None, "after": None, "source": source(15), "ts_ms": 1},
    {"op": "m", "source": source(16), "ts_ms": 1, "message": {"prefix": "p", "content": "aGk="}},
    {"source": source(17), "ts_ms": 1, "databaseName": "shop", "ddl": "ALTER TABLE orders ADD x int", "tableChanges": []},
    {"status": "BEGIN", "id": "745:1", "event_count": None, "ts_ms": 1},
    {"ts_ms": 1},
]
DECLARED = {**PLAIN, "schema": {"id": "long", "name": "string", "text": "string"}}


@pytest.mark.parametrize("options", [PLAIN, DECLARED], ids=["found", "declared"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "in a payload"])
def test_changes(spark: SparkSession, options: dict[str, Any], wrapped: bool) -> None:
    messages = [*CHANGES, *OTHERS, {"foo": 1}]
    values = [json.dumps({"schema": None, "payload": message} if wrapped else message) for message in messages]
    found = decoded(spark, {**options, "unwrap": wrapped, "truncates": "ignore"}, [*values, None, "x"])
    assert found.columns == ["before", "after", "op", "source", "ts_ms"]
    assert found.codes == [None] * 10 + ["debezium-envelope", None, "json-malformed"]
    assert [row["op"] for row in found.rows[:5]] == ["r", "c", "u", "u", "d"]
    assert found.ops[:12] == ["insert"] * 5 + ["ignore"] * 7
    assert [row["__frazil_unchanged"] for row in found.all[:5]] == [None, None, ["text"], None, None]
    assert [row["__frazil_order"].lsn for row in found.all[:5]] == [10, 11, 12, 13, 14]
    assert {row["__frazil_table"] for row in found.all[:5]} == {"public.orders"}
    assert found.rows[0]["after"].asDict() == ROW
    assert found.rows[4]["before"].asDict() == ROW


@pytest.mark.slow
def test_the_engine_takes_over(spark: SparkSession) -> None:
    """The frame is what `change_format: debezium` asks for: a key that moved is deleted under its old value."""
    options = {**PLAIN, "truncates": "ignore"}
    frame = decoder_of(spark, options).decode(records(spark, [*map(json.dumps, [*CHANGES, *OTHERS]), None]))
    sink = SinkSpec.model_validate(
        {
            "catalog": CATALOG,
            "namespace": "n", "table": "t", "commit_mode": "upsert", "key_fields": ["id"], "change_format": "debezium",
            "order_by": ["source.lsn"],
        }
    )  # fmt: skip
    rows = [(row[OP], row["id"]) for row in with_operations(frame, sink).collect() if row[OP] != "ignore"]
    assert sorted(rows) == sorted([("update", 1), ("insert", 2), ("update", 1), ("delete", 2), ("update", 3), ("delete", 1)])


def test_a_batch_of_inserts_has_both_images(spark: SparkSession) -> None:
    found = decoded(spark, PLAIN, [json.dumps(CHANGES[1])])
    assert found.types()["before"] == found.types()["after"] == "struct<id:bigint,name:string,text:string>"


def test_truncates_are_errors(spark: SparkSession) -> None:
    found = decoded(spark, PLAIN, [json.dumps(CHANGES[0]), json.dumps(OTHERS[0])])
    assert found.codes == [None, "debezium-truncate"]


@pytest.mark.slow
def test_another_placeholder_and_bytes(spark: SparkSession) -> None:
    blob = base64.b64encode(b"gone").decode()
    message = envelope("u", None, {"id": 1, "a": "gone", "b": blob, "c": ["gone"], "d": "here"})
    (row,) = decoded(spark, {**PLAIN, "unavailable_value": "gone"}, [json.dumps(message)]).all
    assert sorted(row["__frazil_unchanged"]) == ["a", "b", "c"]


def test_without_an_lsn_the_offset_decides(spark: SparkSession) -> None:
    rows = decoded(spark, PLAIN, [json.dumps(envelope("c", None, ROW, None)) for _ in range(3)]).all
    assert [row["__frazil_order"].offset for row in rows] == [0, 1, 2]


def decimal_bytes(unscaled: int) -> bytes:
    return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)


def encoded(unscaled: int) -> str:
    return base64.b64encode(decimal_bytes(unscaled)).decode()


ANY_SCALE = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": [
    {"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}]}  # fmt: skip


def typed(name: str, kind: str, schema: str = "", **parameters: str) -> dict[str, Any]:
    options: dict[str, Any] = {"field": name, "type": kind, "optional": True}
    if schema:
        options |= {"name": schema, "version": 1}
    return options | ({"parameters": parameters} if parameters else {})


COLUMNS = [
    typed("id", "int64"),
    typed("price", "bytes", "org.apache.kafka.connect.data.Decimal", **{"scale": "2", "connect.decimal.precision": "10"}),
    {**ANY_SCALE, "field": "any", "optional": True},
    typed("day", "int32", "io.debezium.time.Date"),
    typed("milli", "int64", "io.debezium.time.Timestamp"),
    typed("micro", "int64", "io.debezium.time.MicroTimestamp"),
    typed("nano", "int64", "io.debezium.time.NanoTimestamp"),
    typed("zoned", "string", "io.debezium.time.ZonedTimestamp"),
    typed("clock", "int64", "io.debezium.time.MicroTime"),
    typed("millis", "int32", "io.debezium.time.Time"),
    typed("year", "int32", "io.debezium.time.Year"),
    typed("doc", "string", "io.debezium.data.Json"),
    typed("blob", "bytes"),
    {"field": "prices", "type": "array", "optional": True, "items": {
        "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "1"}}},
]  # fmt: skip
VALUES: dict[str, Any] = {
    "id": 2**60,
    "price": encoded(-1234),
    "any": {"scale": 3, "value": encoded(-5)},
    "day": 20455,
    "milli": 1_767_322_800_123,
    "micro": 1_767_322_800_123_456,
    "nano": 1_767_322_800_123_456_700,
    "zoned": "2026-01-02T03:00:00.123456+01:00",
    "clock": 86_399_999_999,
    "millis": 3_600_000,
    "year": 2026,
    "doc": '{"a": 1}',
    "blob": base64.b64encode(b"\0\xff").decode(),
    "prices": [encoded(15), None],
}
MEANT: dict[str, Any] = {
    "id": 2**60,
    "price": Decimal("-12.34"),
    "any": "-0.005",
    "day": date(2026, 1, 2),
    "milli": datetime(2026, 1, 2, 3, 0, 0, 123000),
    "micro": datetime(2026, 1, 2, 3, 0, 0, 123456),
    "nano": 1_767_322_800_123_456_700,
    "clock": "23:59:59.999999",
    "millis": "01:00:00",
    "year": 2026,
    "doc": '{"a": 1}',
    "blob": b"\0\xff",
    "prices": [Decimal("1.5"), None],
}


def with_schema(columns: list[dict[str, Any]], message: Any) -> str:
    image = {"type": "struct", "optional": True, "name": "shop.public.orders.Value", "fields": columns}
    where = [typed("lsn", "int64"), typed("schema", "string"), typed("table", "string")]
    fields = [
        {**image, "field": "before"},
        {**image, "field": "after"},
        {
            "type": "struct",
            "fields": where,
            "optional": False,
            "name": "io.debezium.connector.postgresql.Source",
            "field": "source",
        },
        typed("op", "string"),
        typed("ts_ms", "int64"),
    ]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.orders.Envelope", "version": 2}
    return json.dumps({"schema": schema, "payload": message})


@pytest.mark.slow
def test_the_embedded_schema_says_what_values_mean(spark: SparkSession) -> None:
    options = {**PLAIN, "infer": "embedded"}
    more = [*COLUMNS, typed("new", "string")]
    values = [
        with_schema(COLUMNS, envelope("c", None, VALUES, 7)),
        with_schema(COLUMNS, envelope("u", None, dict.fromkeys(VALUES), 8)),
        with_schema(more, envelope("u", None, {**VALUES, "new": UNAVAILABLE}, 9)),
        with_schema(COLUMNS, envelope("c", None, {**VALUES, "micro": 2**63 - 1}, 7)),
        with_schema(COLUMNS, envelope("c", None, {**VALUES, "price": encoded(10**40)}, 7)),
        with_schema(COLUMNS, None),
        None,
    ]
    found = decoded(spark, options, values)
    assert found.codes == [None, None, None, "json-type", "json-type", None, None]
    assert "'after.micro'" in (found.faults[3] or "")
    assert "'after.price'" in (found.faults[4] or "")
    after = found.rows[0]["after"].asDict()
    assert {name: after[name] for name in MEANT} == MEANT
    assert after["zoned"].astimezone(UTC) == datetime(2026, 1, 2, 2, 0, 0, 123456, tzinfo=UTC)
    assert not any(found.rows[1]["after"].asDict().values())
    assert found.all[2]["__frazil_unchanged"] == ["new"]
    assert found.ops[:3] == ["insert"] * 3
    assert found.ops[5:] == ["ignore", "ignore"]
    assert [row["__frazil_order"].lsn for row in found.all[:3]] == [7, 8, 9]
    cut = decoded(spark, {**options, "nanoseconds": "truncate"}, values[:1])
    assert cut.rows[0]["after"].nano == datetime(2026, 1, 2, 3, 0, 0, 123456)


def test_days_and_moments_outside_of_the_years_1_to_9999_make_bad_records(spark: SparkSession) -> None:
    columns = [typed("day", "int32", "io.debezium.time.Date"), typed("zoned", "string", "io.debezium.time.ZonedTimestamp")]
    after: list[dict[str, object]] = [
        {"day": 2932896},
        {"day": 2932897},
        {"day": -719163},
        {"zoned": "9999-12-31T23:59:59-14:00"},
        {"zoned": "0001-01-01T00:00:00+14:00"},
    ]
    found = decoded(spark, {**PLAIN, "infer": "embedded"}, [with_schema(columns, envelope("c", None, one)) for one in after])
    assert found.codes == [None, *["json-type"] * 4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scale", "unscaled", "text"),
    [
        (0, 15, "15"),
        (2, 15, "0.15"),
        (2, -12345, "-123.45"),
        (-2, 15, "1500"),
        (3, 0, "0.000"),
        (1, 10**37, "1" + "0" * 36 + ".0"),
    ],
)
def test_decimals_of_any_scale(spark: SparkSession, scale: int, unscaled: int, text: str) -> None:
    columns = [{**ANY_SCALE, "field": "any", "optional": True}]
    message = envelope("c", None, {"any": {"scale": scale, "value": encoded(unscaled)}})
    found = decoded(spark, {**PLAIN, "infer": "embedded"}, [with_schema(columns, message)])
    assert (found.codes, found.rows[0]["after"].any) == ([None], text)


def test_avro(spark: SparkSession, schema_registry: SchemaRegistry) -> None:
    def connect(kind: str, name: str, **more: Any) -> list[Any]:
        return ["null", {"type": kind, "connect.version": 1, "connect.name": name, **more}]

    any_scale = {"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
                 "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
                 "connect.name": "io.debezium.data.VariableScaleDecimal"}  # fmt: skip
    decimal = {"type": "bytes", "scale": 2, "precision": 10, "connect.name": "org.apache.kafka.connect.data.Decimal",
               "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"}, "logicalType": "decimal"}  # fmt: skip
    row = {"type": "record", "name": "Value", "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": ["null", decimal]},
        {"name": "any", "type": ["null", any_scale]},
        {"name": "day", "type": connect("int", "io.debezium.time.Date")},
        {"name": "micro", "type": connect("long", "io.debezium.time.MicroTimestamp")},
        {"name": "milli", "type": connect("long", "org.apache.kafka.connect.data.Timestamp", logicalType="timestamp-millis")},
        {"name": "zoned", "type": connect("string", "io.debezium.time.ZonedTimestamp")},
        {"name": "text", "type": ["null", "string"]},
        {"name": "blob", "type": ["null", "bytes"]},
    ], "connect.name": "shop.public.orders.Value"}  # fmt: skip
    where = {"type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql", "fields": [
        {"name": "lsn", "type": ["null", "long"]}, {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"}]}  # fmt: skip
    schema = {"type": "record", "name": "Envelope", "namespace": "shop.public.orders", "fields": [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": where},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ], "connect.name": "shop.public.orders.Envelope"}  # fmt: skip
    number = schema_registry.register("shop.public.orders-value", schema)
    image = {"id": 1, "price": Decimal("12.34"), "any": {"scale": 1, "value": decimal_bytes(15)}, "day": 20455,
             "micro": 1_767_322_800_123_456, "milli": 1_767_322_800_123, "zoned": "2026-01-02T03:00:00Z", "text": UNAVAILABLE,
             "blob": UNAVAILABLE.encode()}  # fmt: skip
    origin = {"source": {"lsn": 5, "schema": "public", "table": "orders"}, "ts_ms": 1}
    message = framed(number, schema, {"op": "u", "before": None, "after": image, **origin})
    gone = framed(number, schema, {"op": "d", "before": image, "after": None, **origin})
    strange = framed(number, schema, {"op": "u", "before": None, "after": {**image, "micro": 2**62}, **origin})
    written = {"type": "avro", "envelope": "debezium", "schema_registry": {"url": schema_registry.url}}
    found = decoded(spark, written, [message, gone, message[:-1], strange, None])
    assert found.codes == [None, None, "avro-malformed", "avro-value", None]
    after = found.rows[0]["after"].asDict()
    assert (after["price"], after["any"], after["day"]) == (Decimal("12.34"), "1.5", date(2026, 1, 2))
    assert after["micro"] == datetime(2026, 1, 2, 3, 0, 0, 123456)
    assert (after["milli"], found.types()["after"].count("timestamp_ntz")) == (datetime(2026, 1, 2, 3, 0, 0, 123000), 2)
    assert after["zoned"].astimezone(UTC) == datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert found.all[0]["__frazil_unchanged"] == ["text", "blob"]
    assert found.rows[1]["before"].day == date(2026, 1, 2)
    assert found.ops[:2] == ["insert", "insert"]
    assert found.ops[4] == "ignore"
    assert found.all[0]["__frazil_table"] == "public.orders"
