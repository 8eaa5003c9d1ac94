"""Protocol Buffers: messages by their descriptors, with and without Confluent's framing."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory, struct_pb2, timestamp_pb2, wrappers_pb2
from pyspark.sql import SparkSession

from frazil.errors import ConfigError
from frazil.sources.decode.protobuf import message_descriptor
from sources.decode.records import decoded, decoder_of

Field = descriptor_pb2.FieldDescriptorProto


def add(
    message: Any, number: int, name: str, kind: int, type_name: str = "", *, repeated: bool = False, optional: bool = False
) -> None:
    one = message.field.add(name=name, number=number, type=kind, label=Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL)
    if type_name:
        one.type_name = type_name
    if optional:
        one.proto3_optional = True
        one.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2, struct_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="shop.proto", package="shop.v1", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("timestamp", "wrappers", "struct"))
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    add(line, 1, "sku", Field.TYPE_STRING)
    add(line, 2, "count", Field.TYPE_INT32)
    entry = order.nested_type.add(name="AttrsEntry")
    entry.options.map_entry = True
    add(entry, 1, "key", Field.TYPE_STRING)
    add(entry, 2, "value", Field.TYPE_INT64)
    state = order.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    add(order, 1, "id", Field.TYPE_INT64)
    add(order, 2, "total", Field.TYPE_UINT64)
    add(order, 3, "note", Field.TYPE_STRING, optional=True)
    add(order, 4, "lines", Field.TYPE_MESSAGE, ".shop.v1.Order.Line", repeated=True)
    add(order, 5, "attrs", Field.TYPE_MESSAGE, ".shop.v1.Order.AttrsEntry", repeated=True)
    add(order, 6, "state", Field.TYPE_ENUM, ".shop.v1.Order.State")
    add(order, 7, "at", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add(order, 8, "maybe", Field.TYPE_MESSAGE, ".google.protobuf.Int64Value")
    add(order, 9, "free", Field.TYPE_MESSAGE, ".google.protobuf.Struct")
    add(order, 10, "parent", Field.TYPE_MESSAGE, ".shop.v1.Order")
    add(order, 11, "blob", Field.TYPE_BYTES)
    path = tmp_path_factory.mktemp("protobuf") / "shop.desc"
    path.write_bytes(files.SerializeToString())
    return path


@pytest.fixture(scope="module")
def whole(descriptors: Path) -> bytes:
    order = message_factory.GetMessageClass(message_descriptor(descriptors.read_bytes(), "shop.v1.Order"))
    made = order(id=2**62, total=2**64 - 1, note="", state=1, blob=b"\0\xff")
    made.lines.add(sku="a", count=2)
    made.attrs["k"] = 5
    made.at.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, 678901))
    made.maybe.value = 0
    made.free.update({"x": [1, "y"]})
    made.parent.id = 7
    return bytes(made.SerializeToString())


def test_a_message(spark: SparkSession, descriptors: Path, whole: bytes) -> None:
    found = decoded(
        spark,
        {"type": "protobuf", "descriptor_file": str(descriptors), "message": "shop.v1.Order"},
        [whole, b"", None, whole[:-1], b"\xff\xff", b'{"id": 1}', b"0\x05"],
    )
    assert found.codes == [None, None, None, *["protobuf-malformed"] * 3, None]
    row = found.rows[0]
    assert (row["id"], row["total"], row["note"], row["state"]) == (2**62, Decimal(2**64 - 1), "", "PAID")
    assert ([line.asDict() for line in row["lines"]], row["attrs"], row["blob"]) == (
        [{"sku": "a", "count": 2}],
        {"k": 5},
        b"\0\xff",
    )
    assert row["at"].astimezone(UTC) == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert (row["maybe"], row["free"]) == (0, '{"x": [1.0, "y"]}')
    assert row["parent"] == '{"id": "7"}', "a message inside itself is JSON"
    empty = found.rows[1]
    assert (empty["id"], empty["note"], empty["maybe"], empty["state"], empty["lines"]) == (0, None, None, "NEW", [])
    assert found.rows[6]["state"] == "5", "a number that has no name"
    assert found.ops[2] == "ignore"


def test_framing(spark: SparkSession, descriptors: Path, whole: bytes) -> None:
    options = {"type": "protobuf", "descriptor_file": str(descriptors), "framing": "confluent"}
    head = b"\0\0\0\0\x01"
    second, first = b"\x02\x02", b"\0"
    values = [head + second + whole, head + first + whole, whole, head, head + b"\xff" * 12, b""]
    found = decoded(spark, {**options, "message": "shop.v1.Order"}, values)
    assert found.codes == [None, "protobuf-message", *["protobuf-frame"] * 4]
    assert found.rows[0]["id"] == 2**62
    nested = decoded(
        spark, {**options, "message": "shop.v1.Order.Line"}, [head + b"\x04\x02\x00" + b"\x0a\x01a", head + second + whole]
    )
    assert (nested.rows[0], nested.codes) == ({"sku": "a", "count": 0}, [None, "protobuf-message"])


def test_what_is_wrong_with_descriptors(spark: SparkSession, descriptors: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        decoder_of(spark, {"type": "protobuf", "descriptor_file": str(tmp_path / "none"), "message": "m"})
    with pytest.raises(ConfigError, match=r"no message 'shop\.v1\.Oder'") as caught:
        decoder_of(spark, {"type": "protobuf", "descriptor_file": str(descriptors), "message": "shop.v1.Oder"})
    assert "shop.v1.Order" in caught.value.fix
    broken = tmp_path / "broken"
    broken.write_bytes(b"\xff\xff")
    with pytest.raises(ConfigError, match="cannot be used"):
        decoder_of(spark, {"type": "protobuf", "descriptor_file": str(broken), "message": "m"})
