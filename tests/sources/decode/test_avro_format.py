"""Avro messages: schemas of a registry or of the user's own, several in a batch, and messages that are none."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from frazil.errors import ConfigError
from services.registry import SchemaRegistry
from sources.decode.answering import answering
from sources.decode.records import Decoded, decoded, decoder_of, records


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields.items()]}


ORDER = record(
    "Order", id="long", name=["null", "string"], price={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
)
WIDER = record("Order", id="long", name=["null", "string"], tags={"type": "array", "items": "string"}, ratio="double")
OPTIONAL = record("Nothing", a=["null", "long"], b=["null", "string"])


def body(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def framed(number: int, schema: Any, value: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body(schema, value)


def of_registry(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "avro", "schema_registry": {"url": url}, **more}


def test_several_writers_in_a_batch_and_bad_messages(spark: SparkSession, schema_registry: SchemaRegistry) -> None:
    one, two = schema_registry.register("orders-one", ORDER), schema_registry.register("orders-two", WIDER)
    none = schema_registry.register("nothing", OPTIONAL)
    first = framed(one, ORDER, {"id": 1, "name": "a", "price": Decimal("12.34")})
    second = framed(two, WIDER, {"id": 2**60, "name": None, "tags": ["x", "y"], "ratio": 0.5})
    cases: dict[str, tuple[bytes | None, str | None]] = {
        "one writer": (first, None),
        "another": (second, None),
        "all fields null": (framed(none, OPTIONAL, {"a": None, "b": None}), None),
        "empty": (b"", "avro-empty"),
        "null": (None, None),
        "another magic byte": (b"\x01" + first[1:], "avro-magic"),
        "JSON": (b'{"id": 1}', "avro-magic"),
        "only the magic byte": (b"\0", "avro-truncated"),
        "half an id": (b"\0\0\0", "avro-truncated"),
        "nothing behind the id": (first[:5], "avro-malformed"),
        "cut off": (first[:-1], "avro-malformed"),
        "cut off in a text": (first[:8], "avro-malformed"),
        "more behind it": (first + b"\0", "avro-malformed"),
        "an unknown id": (b"\0" + (999_999).to_bytes(4, "big") + b"\0", "avro-unknown-schema"),
        "a branch that is not there": (b"\0" + one.to_bytes(4, "big") + b"\x02\x0e\x00", "avro-malformed"),
    }
    found = decoded(spark, of_registry(schema_registry.url), [value for value, _ in cases.values()])
    assert dict(zip(cases, found.codes, strict=True)) == {name: code for name, (_, code) in cases.items()}
    rows = dict(zip(cases, found.rows, strict=True))
    assert rows["one writer"] == {
        "id": 1,
        "name": "a",
        "price": Decimal("12.34"),
        "tags": None,
        "ratio": None,
        "a": None,
        "b": None,
    }
    assert rows["another"] | {"a": None} == {
        "id": 2**60, "name": None, "price": None, "tags": ["x", "y"], "ratio": 0.5, "a": None, "b": None,
    }  # fmt: skip
    assert dict(zip(cases, found.ops, strict=True))["null"] == "ignore"
    assert "999999" in (found.faults[list(cases).index("an unknown id")] or "")


@pytest.mark.parametrize("version", ["", "/registry/v2", "/registry/v3"])
def test_global_ids_of_apicurio_of_four_and_of_eight_bytes(
    spark: SparkSession, schema_registry: SchemaRegistry, version: str
) -> None:
    names = [f"{name}{version.replace('/', '-')}" for name in ("one", "same", "text", "outer")]
    inner = {"type": "record", "name": "Inner", "namespace": "shop", "fields": [{"name": "n", "type": "int"}]}
    outer = {"type": "record", "name": "Outer", "namespace": "shop", "fields": [{"name": "of", "type": "shop.Inner"}]}
    # The same content has one id as content, and one for each artifact that has it: ids of the two kinds are not the same.
    schema_registry.create(names[0], inner)
    number = schema_registry.create(names[1], inner)
    text = schema_registry.create(names[2], 'syntax = "proto3"; message A { int32 a = 1; }', "PROTOBUF")
    reference = {"groupId": "default", "artifactId": names[0], "version": "1", "name": "shop.Inner"}
    whole = schema_registry.create(names[3], outer, references=[reference])
    outer_whole = {**outer, "fields": [{"name": "of", "type": inner}]}
    long = b"\0" + number.to_bytes(8, "big") + body(inner, {"n": 7})
    values = [
        long, framed(number, inner, {"n": 8}), b"\0" + whole.to_bytes(8, "big") + body(outer_whole, {"of": {"n": 9}}),
        b"\0" + text.to_bytes(8, "big") + b"\2", b"\0" + (10**12).to_bytes(8, "big") + b"\2", long[:9], long[:7],
    ]  # fmt: skip
    address = schema_registry.address + version if version else schema_registry.address.removesuffix("/apis")
    found = decoded(spark, {"type": "avro", "schema_registry": {"url": address, "api": "apicurio"}}, values)
    assert [row["n"] for row in found.rows[:2]] == [7, 8]
    assert found.rows[2]["of"]["n"] == 9
    assert found.codes == [
        None, None, None, "avro-schema", "avro-unknown-schema", "avro-malformed", "avro-unknown-schema",
    ]  # fmt: skip


def test_a_long_that_other_messages_have_as_a_double_is_not_rounded(spark: SparkSession, schema_registry: SchemaRegistry) -> None:
    def many(kind: str) -> dict[str, Any]:
        inner = record("Inner", n=kind)
        return record("Many", v=kind, inner=inner, items={"type": "array", "items": kind}, named={"type": "map", "values": kind})

    whole, broken = many("long"), many("double")
    one, two = schema_registry.register("whole", whole), schema_registry.register("broken", broken)
    fine: dict[str, Any] = {"v": 2**53, "inner": {"n": -7}, "items": [1, 2], "named": {"a": 3}}
    beyond = 2**53 + 1
    cases = [fine, fine | {"v": beyond}, fine | {"inner": {"n": -beyond}}, fine | {"items": [1, beyond]}]
    values = [framed(one, whole, case) for case in [*cases, fine | {"named": {"a": 1, "b": beyond}}]]
    found = decoded(spark, of_registry(schema_registry.url), [*values, framed(two, broken, fine | {"v": 0.5})])
    assert found.codes == [None, *["number-rounded"] * 4, None]
    assert [row["v"] for row in found.rows] == [2.0**53, None, None, None, None, 0.5]
    # By themselves they are what they are.
    assert decoded(spark, of_registry(schema_registry.url), values).codes == [None] * 5


@pytest.mark.slow
def test_a_message_of_10_megabytes(spark: SparkSession, schema_registry: SchemaRegistry, tmp_path: Path) -> None:
    number = schema_registry.register("big", ORDER)
    big = framed(number, ORDER, {"id": 3, "name": "x" * 10_500_000, "price": Decimal(0)})
    records(spark, [big]).write.parquet(str(tmp_path / "records"))
    frame = decoder_of(spark, of_registry(schema_registry.url)).decode(spark.read.parquet(str(tmp_path / "records")))
    assert [tuple(row) for row in frame.selectExpr("id", "length(name)", "__frazil_error").collect()] == [(3, 10_500_000, None)]


def test_a_reader_schema_decides_the_columns(spark: SparkSession, schema_registry: SchemaRegistry) -> None:
    one, two = schema_registry.register("read-one", ORDER), schema_registry.register("read-two", WIDER)
    reader = {"type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "double"}, {"name": "name", "type": ["null", "string"]},
        {"name": "new", "type": "string", "default": "d"}]}  # fmt: skip
    values = [
        framed(one, ORDER, {"id": 1, "name": "a", "price": Decimal("1.00")}),
        framed(two, WIDER, {"id": 2, "name": None, "tags": [], "ratio": 0.5}),
        framed(one, ORDER, {"id": 1, "name": "a", "price": Decimal("1.00")})[:-1],
    ]
    found = decoded(spark, of_registry(schema_registry.url, reader_schema=reader), values)
    assert found.rows[:2] == [{"id": 1.0, "name": "a", "new": "d"}, {"id": 2.0, "name": None, "new": "d"}]
    assert found.codes == [None, None, "avro-malformed"]


def test_schemas_that_refer_to_others(spark: SparkSession, schema_registry: SchemaRegistry) -> None:
    inner = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
    outer = {"type": "record", "name": "Person", "namespace": "shop", "fields": [
        {"name": "home", "type": "shop.Address"}, {"name": "work", "type": ["null", "Address"]}]}  # fmt: skip
    schema_registry.register("address", inner)
    number = schema_registry.register("person", outer, [{"name": "shop.Address", "subject": "address", "version": 1}])
    whole = {**outer, "fields": [{"name": "home", "type": inner}, {"name": "work", "type": ["null", "Address"]}]}
    message = framed(number, whole, {"home": {"city": "Bern"}, "work": {"city": "Thun"}})
    (row,) = decoded(spark, of_registry(schema_registry.url), [message]).rows
    assert (row["home"].city, row["work"].city) == ("Bern", "Thun")


def test_types(spark: SparkSession, tmp_path: Path) -> None:
    schema = record(
        "Types",
        i="int",
        f="float",
        flag="boolean",
        blob="bytes",
        day={"type": "int", "logicalType": "date"},
        at={"type": "long", "logicalType": "timestamp-micros"},
        wall={"type": "long", "logicalType": "local-timestamp-micros"},
        clock={"type": "long", "logicalType": "time-micros"},
        kind={"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
        attrs={"type": "map", "values": "long"},
        huge={"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2},
        inner=record("Inner", x=["null", "long"]),
    )
    file = tmp_path / "types.avsc"
    file.write_text(json.dumps(schema))
    value = {
        "i": 1, "f": 0.5, "flag": True, "blob": b"\0\xff", "day": date(2026, 1, 2), "at": datetime(2026, 1, 2, 3, tzinfo=UTC),
        "wall": datetime(2026, 1, 2, 3), "clock": 3_723_500_000, "kind": "B", "attrs": {"k": 2}, "huge": Decimal("1.50"),
        "inner": {"x": None},
    }  # fmt: skip
    plain = json.loads(json.dumps(schema))
    plain["fields"][7]["type"] = "long"
    found = decoded(spark, {"type": "avro", "schema_file": str(file)}, [body(plain, value), b"\x02", None])
    assert found.codes == [None, "avro-malformed", None]
    row = found.rows[0]
    assert (row["i"], row["f"], row["flag"], row["blob"], row["kind"]) == (1, 0.5, True, b"\0\xff", "B")
    assert (row["day"], row["wall"], row["clock"]) == (date(2026, 1, 2), datetime(2026, 1, 2, 3), "01:02:03.5")
    assert row["at"].astimezone(UTC) == datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert (row["attrs"], row["huge"], row["inner"].x) == ({"k": 2}, Decimal("1.50"), None)


def test_a_schema_that_is_no_record_is_one_column(spark: SparkSession) -> None:
    found = decoded(spark, {"type": "avro", "schema": '"long"'}, [body("long", 7), b"", body("long", 7) + b"\0"])
    assert (found.rows[0], found.codes) == ({"value": 7}, [None, "avro-malformed", "avro-malformed"])


@pytest.mark.parametrize("schema", ["{", '{"type": "odd"}', record("R", next=["null", "R"])])
def test_a_schema_that_cannot_be_used(spark: SparkSession, schema: Any) -> None:
    with pytest.raises(ConfigError, match="schema") as caught:
        decoder_of(spark, {"type": "avro", "schema": schema})
    assert "\n" not in caught.value.message


def test_a_schema_is_asked_for_once(spark: SparkSession) -> None:
    with answering(lambda path: (200, {"schema": '"long"'}) if path.endswith("/1") else (404, {})) as server:
        avro = decoder_of(spark, of_registry(server.url))
        values = [b"\0\0\0\0\x01" + body("long", 1), b"\0\0\0\0\x02\x02"]
        for _ in range(2):
            assert Decoded(avro.decode(records(spark, values))).codes == [None, "avro-unknown-schema"]
        assert server.asked.count("/schemas/ids/1") == 1
        assert server.asked.count("/schemas/ids/2") == 2, "what is unknown may be known later"


def test_a_schema_that_spark_cannot_read_spoils_its_own_messages_only(spark: SparkSession) -> None:
    schemas = {"1": '"long"', "2": json.dumps(record("R", next=["null", "R"])), "3": "syntax proto3"}

    def answer(path: str) -> tuple[int, Any]:
        number = path.rpartition("/")[2]
        return 200, {"schema": schemas[number], **({"schemaType": "PROTOBUF"} if number == "3" else {})}

    with answering(answer) as server:
        values = [b"\0\0\0\0" + bytes([number]) + b"\x02" for number in (1, 2, 3)]
        found = decoded(spark, of_registry(server.url), values)
    assert found.codes == [None, "avro-schema", "avro-schema"]
    assert found.rows[0] == {"value": 1}


def test_fields_that_are_named_as_frazils_own_are_refused(spark: SparkSession) -> None:
    schema = record("R", id="long", __frazil_op="string")
    with pytest.raises(ConfigError, match="names that begin with __frazil_ are frazil's own: __frazil_op"):
        decoded(spark, {"type": "avro", "schema": json.dumps(schema)}, [body(schema, {"id": 1, "__frazil_op": "delete"})])
