"""Kafka Connect's types, and those that Debezium writes over them: what a value is read as, and what it means.

A number of days, a decimal in bytes or a time in microseconds says what it is only by the name of its schema. Values become
dates, decimals and timestamps here; times of a day, which Spark cannot write, and decimals whose scale varies become texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from frazil.sources.decode.parts import field
from frazil.spark.avro import from_avro

Made = Callable[[Column], Column]

_DAY = 86_400_000_000
_FIRST_MICRO, _LAST_MICRO = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = _FIRST_MICRO // _DAY, _LAST_MICRO // _DAY
_MOST_DIGITS = 38
_BELOW_MICROS = r"\.\d{6}\d*[1-9]"


@dataclass(frozen=True)
class Leaf:
    """A value without parts that matter. ``made`` gives its meaning, null when it has none; None: it means itself."""

    carrier: DataType
    made: Made | None = None


@dataclass(frozen=True)
class ConnectRecord:
    """Named fields."""

    fields: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Items:
    """A list."""

    element: Node


@dataclass(frozen=True)
class Entries:
    """A map with texts as keys."""

    value: Node


Node = Leaf | ConnectRecord | Items | Entries

_PLAIN: dict[str, DataType] = {
    "int8": IntegerType(),
    "int16": IntegerType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float": FloatType(),
    "float32": FloatType(),
    "double": DoubleType(),
    "float64": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "bytes": BinaryType(),
}


def connect_node(schema: Mapping[str, Any], *, truncate: bool = False) -> Node:
    """From the schema that Connect's JSON converter embeds. A ValueError when it is none."""
    kind = schema.get("type")
    plain = _PLAIN.get(str(kind))
    parameters = schema.get("parameters") or {}
    meaning = meaning_of(str(schema.get("name") or ""), parameters, truncate=truncate)
    match kind:
        case "struct":
            fields = [(str(one["field"]), connect_node(one, truncate=truncate)) for one in schema.get("fields") or ()]
            if meaning is not None:
                return Leaf(StructType([StructField(name, carrier_of(node)) for name, node in fields]), meaning)
            return ConnectRecord(tuple(fields))
        case "array":
            return Items(connect_node(schema["items"], truncate=truncate))
        case "map" if schema["keys"].get("type") == "string":
            return Entries(connect_node(schema["values"], truncate=truncate))
        case _ if plain is not None:
            return Leaf(plain, meaning)
        case _:
            raise ValueError(f"the type {kind!r} is not one of Kafka Connect's")


def meaning_of(name: str, parameters: Mapping[str, Any], *, truncate: bool) -> Made | None:  # noqa: PLR0911 - one for each case
    """What a value with this schema name means; None when it means itself."""
    match name.rpartition(".")[0], name.rpartition(".")[2]:
        case (("org.apache.kafka.connect.data" | "io.debezium.time"), "Date"):
            return lambda days: sf.date_from_unix_date(sf.when(days.between(_FIRST_DAY, _LAST_DAY), days).cast("int"))
        case (("org.apache.kafka.connect.data" | "io.debezium.time"), "Timestamp"):
            return lambda millis: wall(sf.try_multiply(millis.cast("long"), sf.lit(1000).cast("long")))
        case "io.debezium.time", "MicroTimestamp":
            return wall
        case "io.debezium.time", "NanoTimestamp":
            return (lambda nanos: wall(_micros(nanos))) if truncate else None
        case (("org.apache.kafka.connect.data" | "io.debezium.time"), "Time"):
            return lambda millis: clock(millis.cast("long") * 1000)
        case "io.debezium.time", "MicroTime":
            return clock
        case "io.debezium.time", "NanoTime":
            return (lambda nanos: clock(_micros(nanos))) if truncate else None
        case "io.debezium.time", "ZonedTimestamp":
            return lambda text: _zoned(text, truncate=truncate)
        case "org.apache.kafka.connect.data", "Decimal":
            precision = min(int(parameters.get("connect.decimal.precision") or _MOST_DIGITS), _MOST_DIGITS)
            scale = int(parameters.get("scale") or 0)
            return lambda unscaled: decimal_of(unscaled, max(precision, scale), scale)
        case "io.debezium.data", "VariableScaleDecimal":
            return _any_scale
        case _:
            return None


def _start() -> Column:
    return sf.expr("timestamp_ntz'1970-01-01 00:00:00'")


def wall(micros: Column) -> Column:
    """What a clock shows so many microseconds after the start of 1970; null outside the years 1 to 9999."""
    within = sf.when(micros.between(_FIRST_MICRO, _LAST_MICRO), micros)
    return sf.timestamp_add("MICROSECOND", within, _start())


def _micros(nanos: Column) -> Column:
    """Whole microseconds, rounded to the past."""
    return sf.floor((nanos.cast("long") - sf.pmod(nanos.cast("long"), sf.lit(1000).cast("long"))) / 1000).cast("long")


def clock(micros: Column) -> Column:
    """A time of day as text. The end of a day is not its beginning."""
    within = sf.when((micros >= 0) & (micros < _DAY), micros)
    shown = sf.substring(sf.timestamp_add("MICROSECOND", within, _start()).cast("string"), 12, 15)
    return sf.when(micros == _DAY, "24:00:00").otherwise(shown)


def _zoned(text: Column, *, truncate: bool) -> Column:
    read = text.try_cast("timestamp")
    within = sf.unix_micros(read).between(_FIRST_MICRO, _LAST_MICRO)
    return sf.when(within if truncate else within & ~text.rlike(_BELOW_MICROS), read)


def decimal_of(unscaled: Column, precision: int, scale: int) -> Column:
    """A decimal from the bytes of its unscaled value, big end first. Avro writes the same with a length before it."""
    schema = json.dumps({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
    # A length is written doubled, in one byte up to 63; 38 digits take 16 bytes.
    length = sf.unhex(sf.lpad(sf.hex(sf.octet_length(unscaled) * 2), 2, "0"))
    fits = sf.octet_length(unscaled).between(1, 17)
    return sf.when(fits, from_avro(sf.concat(length, unscaled), schema, {"mode": "PERMISSIVE"}))


def _any_scale(value: Column) -> Column:
    """The decimal as text, with its own scale."""
    whole = decimal_of(field(value, "value"), _MOST_DIGITS, 0)
    return _once(sf.struct(whole.alias("whole"), field(value, "scale").alias("scale")), _with_point)


def _once(value: Column, made: Made) -> Column:
    """An expression over a value that is computed only once, however often it is used: Spark would compute it each time."""
    return sf.element_at(sf.transform(sf.array(value), made), 1)


def _with_point(decimal: Column) -> Column:
    whole, scale = field(decimal, "whole"), field(decimal, "scale")
    digits = sf.abs(whole).cast("string")
    padded = sf.lpad(digits, sf.greatest(sf.char_length(digits), scale + 1), sf.lit("0"))
    shown = sf.concat(sf.left(padded, sf.char_length(padded) - scale), sf.lit("."), sf.right(padded, scale))
    zeros = sf.concat(digits, sf.repeat(sf.lit("0"), -scale))
    text = sf.when(scale > 0, shown).when((scale == 0) | (whole == 0), digits).otherwise(zeros)
    return sf.concat(sf.when(whole < 0, "-").otherwise(""), text)


def carrier_of(node: Node) -> DataType:
    """As what Spark reads a value."""
    match node:
        case Leaf():
            return node.carrier
        case ConnectRecord():
            return StructType([StructField(name, carrier_of(inner)) for name, inner in node.fields])
        case Items():
            return ArrayType(carrier_of(node.element))
        case Entries():
            return MapType(StringType(), carrier_of(node.value))


def is_plain(node: Node) -> bool:
    """Whether every value in it means itself."""
    match node:
        case Leaf():
            return node.made is None
        case ConnectRecord():
            return all(is_plain(inner) for _, inner in node.fields)
        case Items():
            return is_plain(node.element)
        case Entries():
            return is_plain(node.value)


def meant(value: Column, node: Node, path: str = "") -> tuple[Column, list[tuple[str, Column]]]:
    """What a value means, and for each part that may have no meaning its path and whether it has none."""
    if is_plain(node):
        return value, []
    match node:
        case Leaf(made=made) if made is not None:
            known = made(value)
            return known, [(path, value.isNotNull() & known.isNull())]
        case ConnectRecord():
            parts, wrong = [], []
            for name, inner in node.fields:
                known, lost = meant(field(value, name), inner, f"{path}.{name}".lstrip("."))
                parts.append(known.alias(name))
                wrong += lost
            return sf.when(value.isNotNull(), sf.struct(*parts)), wrong
        case Items():
            return (
                sf.transform(value, lambda item: meant(item, node.element)[0]),
                [(path, sf.exists(value, lambda item: any_of(meant(item, node.element)[1])))],
            )
        case Entries():
            return (
                sf.transform_values(value, lambda _, item: meant(item, node.value)[0]),
                [(path, sf.exists(sf.map_values(value), lambda item: any_of(meant(item, node.value)[1])))],
            )
        case _:
            return value, []


def any_of(wrong: Sequence[tuple[str, Column]]) -> Column:
    """Whether one of them holds."""
    holds = sf.lit(False)
    for _, condition in wrong:
        holds = holds | sf.coalesce(condition, sf.lit(False))
    return holds


def without_meaning(wrong: Sequence[tuple[str, Column]]) -> Column:
    """The paths of what has no meaning, as one text; null when everything has."""
    paths = [sf.when(condition, sf.lit(repr(path))) for path, condition in wrong]
    if not paths:
        return sf.lit(None).cast("string")
    return sf.nullif(sf.concat_ws(", ", *paths), sf.lit(""))
