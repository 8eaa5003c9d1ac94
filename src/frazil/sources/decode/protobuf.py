"""Protocol Buffers, decoded by Google's own library in Python workers: Spark's connector is not available for every version.

A field without a value is its type's default, as the format specifies, and null only if the format distinguishes that
(`optional`, messages, `oneof`). Unsigned 64-bit integers are decimals, enums are their names, and well-known types are the
values that they represent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from frazil.errors import ConfigError, EnvironmentFault
from frazil.model.format import ProtobufFormat
from frazil.sources.decode.parts import STAGE, column, fault_of, field, first_fault

Reader = Callable[[Any], Any]

_START = datetime(1970, 1, 1, tzinfo=UTC)
# Numbers of protobuf's field types.
_PLAIN: dict[int, DataType] = {
    1: DoubleType(),
    2: FloatType(),
    3: LongType(),
    4: DecimalType(20, 0),
    5: IntegerType(),
    6: DecimalType(20, 0),
    7: LongType(),
    8: BooleanType(),
    9: StringType(),
    12: BinaryType(),
    13: LongType(),
    14: StringType(),
    15: IntegerType(),
    16: LongType(),
    17: IntegerType(),
    18: LongType(),
}
_MESSAGE, _GROUP, _ENUM, _UNSIGNED = 11, 10, 14, (4, 6)
_WRAPPERS = tuple(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_AS_JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue", "google.protobuf.Any")


class Protobuf:
    """Messages of one type."""

    def __init__(self, spec: ProtobufFormat) -> None:
        self._spec = spec
        self._set = _read(spec.descriptor_file)
        self._kind = struct_of(self._message())

    @property
    def columns(self) -> list[str]:
        """The names of the message's fields."""
        return self._kind.fieldNames()

    def _message(self) -> Any:
        return message_descriptor(self._set, self._spec.message)

    def check(self) -> None:
        """The descriptors were read when the format was made."""

    def parse(self, frame: DataFrame, source: str, into: str) -> DataFrame:
        """Messages become structs, in Python workers and as columns of Arrow."""
        result = StructType(
            [StructField("row", self._kind), StructField("code", StringType()), StructField("text", StringType())]
        )
        decode = _decoding(self._set, self._spec.message, self._spec.framing == "confluent", self._kind)
        # PySpark's type stubs only accept functions with type hints, not one whose return type is an argument.
        read = arrow_udf(decode, result)  # type: ignore[call-overload]
        frame = frame.withColumn(into, read(column(source)))
        code = field(column(into), "code")
        error = sf.struct(sf.lit(STAGE).alias("stage"), code.alias("code"), field(column(into), "text").alias("text"))
        frame = frame.withColumn(fault_of(into), first_fault([(code.isNotNull(), error)]))
        return frame.withColumn(into, field(column(into), "row"))


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(
            "protobuf-descriptor", f"The descriptors {file} cannot be read: {error}", fix="Check descriptor_file."
        ) from error


def message_descriptor(descriptors: bytes, name: str) -> Any:
    """The descriptor of a message, from a file of descriptors."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool  # type: ignore[import-untyped]
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError as error:
        raise EnvironmentFault(
            "protobuf-missing", "The format protobuf needs the package protobuf.", fix="pip install 'frazil[protobuf]'"
        ) from error
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        for one in files.file:
            pool.Add(one)
        return pool.FindMessageTypeByName(name)
    except (DecodeError, TypeError) as error:
        raise ConfigError(
            "protobuf-descriptor",
            f"The file of descriptors cannot be used: {error}",
            fix="Make it with protoc --include_imports --descriptor_set_out=FILE.",
        ) from error
    except KeyError as error:
        known = ", ".join(f"{one.package}.{two.name}".lstrip(".") for one in files.file for two in one.message_type)
        raise ConfigError(
            "protobuf-message", f"There is no message {name!r} in the descriptors.", fix=f"Known are: {known}."
        ) from error


def struct_of(message: Any, above: tuple[str, ...] = ()) -> StructType:
    """The columns of a message."""
    return StructType([StructField(one.name, _field_type(one, (*above, message.full_name))) for one in message.fields])


def _field_type(one: Any, above: tuple[str, ...]) -> DataType:
    if _is_map(one):
        key, value = (one.message_type.fields_by_name[name] for name in ("key", "value"))
        return MapType(_single_type(key, above), _single_type(value, above))
    kind = _single_type(one, above)
    return ArrayType(kind) if one.is_repeated else kind


def _single_type(one: Any, above: tuple[str, ...]) -> DataType:
    if one.type not in (_MESSAGE, _GROUP):
        return _PLAIN[one.type]
    name = one.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return TimestampType()
    if name in _WRAPPERS:
        return _PLAIN[one.message_type.fields_by_name["value"].type]
    if name in _AS_JSON or name in above or name == "google.protobuf.Duration" or not one.message_type.fields:
        # A message inside itself has no end; as JSON it has.
        return StringType()
    return struct_of(one.message_type, above)


def _is_map(one: Any) -> bool:
    return bool(one.type == _MESSAGE and one.message_type.GetOptions().map_entry)


def _reader(one: Any, above: tuple[str, ...]) -> Reader:  # noqa: PLR0911 - one for each case
    """Turns one value of a field into what Arrow takes."""
    from decimal import Decimal

    from google.protobuf import json_format

    if one.type == _ENUM:
        names = one.enum_type.values_by_number
        return lambda number: names[number].name if number in names else str(number)
    if one.type in _UNSIGNED:
        return Decimal
    if one.type not in (_MESSAGE, _GROUP):
        return lambda value: value
    name = one.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return lambda value: _START + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if name in _WRAPPERS:
        inner = _reader(one.message_type.fields_by_name["value"], above)
        return lambda value: inner(value.value)
    if isinstance(_single_type(one, above), StringType):
        return lambda value: json.dumps(json_format.MessageToDict(value, preserving_proto_field_name=True))
    return row_reader(one.message_type, above)


def row_reader(message: Any, above: tuple[str, ...] = ()) -> Reader:
    """Turns a message into a dictionary of its fields."""
    above = (*above, message.full_name)
    readers: list[tuple[str, Reader]] = [(one.name, _field_reader(one, above)) for one in message.fields]
    return lambda value: {name: read(value) for name, read in readers}


def _field_reader(one: Any, above: tuple[str, ...]) -> Reader:
    name = one.name
    if _is_map(one):
        key, value = (_reader(one.message_type.fields_by_name[part], above) for part in ("key", "value"))
        is_message = one.message_type.fields_by_name["value"].type == _MESSAGE
        return lambda message: [
            (key(k), value(getattr(message, name)[k] if is_message else v)) for k, v in getattr(message, name).items()
        ]
    read = _reader(one, above)
    if one.is_repeated:
        return lambda message: [read(item) for item in getattr(message, name)]
    if one.has_presence:
        return lambda message: read(getattr(message, name)) if message.HasField(name) else None
    return lambda message: read(getattr(message, name))


def unframed(value: bytes) -> tuple[list[int], bytes]:
    """The place of the message in its schema, and its bytes. A ValueError when the frame is broken."""
    if len(value) < 6 or value[0] != 0:
        raise ValueError("the message does not begin with 00, a schema's id and the message's place in it")
    count, at = _varint(value, 5)
    if count == 0:
        return [0], value[at:]
    if not 0 < count <= 100:
        raise ValueError("the message's place in its schema is broken")
    places = []
    for _ in range(count):
        place, at = _varint(value, at)
        places.append(place)
    return places, value[at:]


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(value) or shift > 63:
            raise ValueError("the message ends too early")
        byte = value[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _places(message: Any) -> list[int]:
    """The indexes of a message in its file, as Confluent's serializer writes them."""
    if message.containing_type is not None:
        siblings: Sequence[Any] = message.containing_type.nested_types
        return [*_places(message.containing_type), [one.full_name for one in siblings].index(message.full_name)]
    names = [one.full_name for one in message.file.message_types_by_name.values()]
    return [names.index(message.full_name)]


def _decoding(descriptors: bytes, name: str, framed: bool, kind: StructType) -> Callable[[Any], Any]:
    """The function that workers run on a column of messages. It carries the descriptors, which cannot be carried themselves."""

    def decode(values: Any) -> Any:
        import pyarrow as pa
        from google.protobuf import message_factory
        from google.protobuf.message import DecodeError
        from pyspark.sql.pandas.types import to_arrow_type

        descriptor = message_descriptor(descriptors, name)
        message = message_factory.GetMessageClass(descriptor)
        read, here = row_reader(descriptor), _places(descriptor)
        rows: list[Any] = []
        codes: list[str | None] = []
        texts: list[str | None] = []
        for value in values.to_pylist():
            row = code = text = None
            try:
                if value is not None:
                    places, body = unframed(value) if framed else (here, value)
                    if places == here:
                        row = read(message.FromString(body))
                    else:
                        code, text = "protobuf-message", f"the message is another one of its schema, at {places}, not at {here}"
            except (DecodeError, OverflowError, UnicodeDecodeError) as error:
                code, text = "protobuf-malformed", f"not a message {name}: {error}"
            except ValueError as error:
                code, text = "protobuf-frame", str(error)
            rows.append(row)
            codes.append(code)
            texts.append(text)
        row_type = to_arrow_type(kind, timestamp_utc=True)
        return pa.StructArray.from_arrays(
            [pa.array(rows, row_type), pa.array(codes, pa.string()), pa.array(texts, pa.string())], names=["row", "code", "text"]
        )

    decode.__annotations__ = {"values": _arrow_array(), "return": _arrow_array()}
    return decode


def _arrow_array() -> Any:
    import pyarrow as pa

    return pa.Array
