"""Avro messages, in Spark's own decoder.

The decoder gives a row of nulls for a message that it cannot read, and does not look at bytes behind the last field. Bytes that
frazil puts behind each message are therefore read as one more field: only when they come out as they went in was the message
read whole and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StructType

from frazil.errors import ConfigError
from frazil.model.format import AvroFormat
from frazil.model.hidden import HIDDEN
from frazil.model.types import StructType as TableStruct
from frazil.sources.decode.branches import Branch, merged_branches
from frazil.sources.decode.connect import (
    ConnectRecord,
    Entries,
    Items,
    Leaf,
    Node,
    clock,
    is_plain,
    meaning_of,
    meant,
    wall,
    without_meaning,
)
from frazil.sources.decode.debezium import changes
from frazil.sources.decode.parts import column, expected_schema, fault, fault_of, field, first_fault, name_trouble
from frazil.sources.decode.registry import Registry, SchemaBroken
from frazil.sources.failures import is_sparks, one_line
from frazil.spark.avro import from_avro

_ID = f"{HIDDEN}schema_id"
_END = bytes.fromhex("f7a21c5e90d34b68817fe20ac65b39d4")
_PERMISSIVE = {"mode": "PERMISSIVE"}
_MOST_DIGITS = 38
_ANYTHING = StructType([])
# Meanings that Avro's own logical types have already in Spark.
_LOGICAL = "logicalType"


@dataclass(frozen=True)
class _Schema:
    """A writer's schema: its text for Spark, and what its values mean. ``trouble`` says why Spark cannot read by it."""

    text: str = ""
    kind: DataType | None = None
    node: Node | None = None
    trouble: str = ""


class Avro:
    """Messages of one schema that is given, or of many that a registry knows."""

    def __init__(self, spec: AvroFormat, spark: SparkSession) -> None:
        self._spec = spec
        self._spark = spark
        self._truncate = spec.nanoseconds == "truncate"
        self._registry = Registry(spec.schema_registry) if spec.schema_registry is not None else None
        self._long_ids = spec.schema_registry is not None and spec.schema_registry.api == "apicurio"
        self._schemas: dict[int, _Schema] = {}
        self._expected: StructType | None = None
        self._reader = self._own(spec.reader_schema, "reader_schema") if spec.reader_schema is not None else None
        given = _given_schema(spec)
        self._given = self._own(given, "schema") if given is not None else None

    def check(self) -> None:
        """The registry must answer."""
        if self._registry is not None:
            self._registry.check()

    def expect(self, columns: TableStruct, *, exactly: bool) -> None:  # noqa: ARG002 - schemas tell the types
        """Fields of messages with several schemas have the names of these."""
        self._expected = expected_schema(columns)

    def parse(self, frame: DataFrame, source: str, into: str) -> DataFrame:
        """Records become structs; anything else is a column `value`."""
        frame = self._by_id(frame, source, into) if self._registry is not None else self._by_one(frame, source, into)
        return changes(frame, into, self._spec) if self._spec.envelope else frame

    def _by_one(self, frame: DataFrame, source: str, into: str) -> DataFrame:
        schema = self._given
        assert schema is not None
        frame, branch = self._branch(frame, into, schema, column(source), sf.lit(True))
        return frame.withColumn(fault_of(into), branch.fault)

    def _by_id(self, frame: DataFrame, source: str, into: str) -> DataFrame:
        """The ids in the batch are collected first, then each message is read by its own schema in one pass."""
        given = column(source)
        framed = (sf.octet_length(given) >= 5) & (sf.hex(sf.substring(given, 1, 1)) == "00")
        number, body = _number(given, 4), _after(given, 4)
        if self._long_ids:
            # No registry gives out the id 0: four such bytes are the first half of a long one.
            long = (number == 0) & (sf.octet_length(given) >= 9)
            number, body = sf.when(long, _number(given, 8)).otherwise(number), sf.when(long, _after(given, 8)).otherwise(body)
        frame = frame.withColumn(_ID, sf.when(framed, number))
        ids = sorted(row[0] for row in frame.select(_ID).where(f"{_ID} IS NOT NULL").distinct().collect())
        known = {one: schema for one in ids if (schema := self._writer(one)) is not None}
        branches = []
        for one, schema in known.items():
            if not schema.trouble:
                frame, branch = self._branch(frame, f"{into}_{one}", schema, body, column(_ID) == one)
                branches.append(branch)
        merged, branches = merged_branches(frame, branches, into, self._expected)
        faults = [
            (given.isNull(), sf.lit(None)),
            (sf.octet_length(given) == 0, fault("avro-empty", "the message is empty")),
            (sf.hex(sf.substring(given, 1, 1)) != "00", fault("avro-magic", _starts_with(given))),
            (column(_ID).isNull(), fault("avro-truncated", "the message is shorter than the five bytes before an Avro record")),
            *((branch.when, branch.fault) for branch in branches),
            *(
                (column(_ID) == one, fault("avro-schema", f"Spark cannot read the schema {one}: {schema.trouble}"))
                for one, schema in known.items()
                if schema.trouble
            ),
            (
                sf.lit(True),
                fault("avro-unknown-schema", sf.concat(sf.lit("the registry knows no schema with the id "), column(_ID))),
            ),
        ]
        spare = [branch.name for branch in branches]
        return merged.withColumn(fault_of(into), first_fault(faults)).drop(_ID, *spare)

    def _writer(self, number: int) -> _Schema | None:
        """The schema with an id, or None when the registry does not know it; that is asked again in the next batch."""
        if number not in self._schemas:
            assert self._registry is not None
            try:
                text = self._registry.avro_schema(number)
            except SchemaBroken as error:
                return _Schema(trouble=str(error))
            if text is None:
                return None
            self._schemas[number] = self._prepared(json.loads(text))
        return self._schemas[number]

    def _own(self, text: str, option: str) -> _Schema:
        """A schema of the user's own, which must be right."""
        schema = self._prepared(_as_json(text, option))
        if schema.trouble:
            raise ConfigError("avro-schema", f"{option}: {schema.trouble}", fix="Correct the Avro schema.")
        return schema

    def _prepared(self, schema: Any) -> _Schema:
        try:
            text = json.dumps(with_end(narrowed(schema)))
            node = avro_node(schema, {}, truncate=self._truncate)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return _Schema(trouble=f"it is no Avro schema: {error!r}")
        try:
            probe = self._spark.range(0).select(from_avro(sf.lit(b""), text, _PERMISSIVE).alias("one"))
            outer = probe.schema["one"].dataType
        except Exception as error:
            if not is_sparks(error):
                raise
            return _Schema(trouble=one_line(error))
        kind = outer["v"].dataType if isinstance(outer, StructType) else None
        return _Schema(text, kind, node, trouble=name_trouble(kind))

    def _branch(self, frame: DataFrame, name: str, schema: _Schema, body: Column, when: Column) -> tuple[DataFrame, Branch]:
        reader = self._reader
        options = _PERMISSIVE | ({"avroSchema": reader.text} if reader is not None else {})
        read = f"{name}_read"
        whole = sf.concat(body, sf.lit(_END))
        frame = frame.withColumn(read, sf.when(when, from_avro(whole, schema.text, options)))
        fine = field(column(read), "end") == sf.lit(_END)
        used = reader or schema
        value = field(column(read), "v")
        wrong: list[tuple[str, Column]] = []
        if used.node is not None and not is_plain(used.node):
            value, wrong = meant(value, used.node)
        if not isinstance(used.kind, StructType):
            value = sf.struct(value.alias("value"))
        lost = sf.concat(sf.lit("a value has no meaning in its type: "), without_meaning(wrong))
        error = first_fault(
            [
                (body.isNull(), sf.lit(None)),
                (~sf.coalesce(fine, sf.lit(False)), fault("avro-malformed", "the message is not a record of its schema")),
                (lost.isNotNull(), fault("avro-value", lost)),
            ]
        )
        wrong_name = fault_of(name)
        frame = frame.withColumn(wrong_name, sf.when(when, error))
        frame = frame.withColumn(name, sf.when(when & body.isNotNull() & column(wrong_name).isNull(), value)).drop(read)
        return frame, Branch(when, name, column(wrong_name))


def check_avro(spec: AvroFormat) -> None:
    """The registry must answer, and a schema that is given must be there, and be JSON."""
    for text, option in ((_given_schema(spec), "schema"), (spec.reader_schema, "reader_schema")):
        if text is not None:
            _as_json(text, option)
    if spec.schema_registry is not None:
        Registry(spec.schema_registry).check()


def avro_columns(spec: AvroFormat, subject: str) -> frozenset[str] | None:
    """The columns of messages, by the given schema or the newest one of a subject in the registry; None when there is neither."""
    text = spec.reader_schema or _given_schema(spec)
    if text is None and spec.schema_registry is not None:
        text = Registry(spec.schema_registry).newest(subject)
    if text is None:
        return None
    schema = _as_json(text, "schema")
    is_record = isinstance(schema, Mapping) and schema.get("type") == "record"
    return frozenset(one["name"] for one in schema["fields"]) if is_record else frozenset(["value"])


def _as_json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError("avro-schema", f"{option} is not valid JSON: {error}") from error


def _given_schema(spec: AvroFormat) -> str | None:
    if spec.schema_file is None:
        return spec.avro_schema
    try:
        return Path(spec.schema_file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "avro-schema-file", f"The Avro schema {spec.schema_file} cannot be read: {error}", fix="Check schema_file."
        ) from error


def _number(given: Column, size: int) -> Column:
    """The id of so many bytes, behind the zero byte."""
    return sf.conv(sf.hex(sf.substring(given, 2, size)), 16, 10).cast("long")


def _after(given: Column, size: int) -> Column:
    """What follows the zero byte and an id of so many bytes; a message may be empty."""
    return given.substr(sf.lit(size + 2), sf.octet_length(given))


def _starts_with(given: Column) -> Column:
    first = sf.hex(sf.substring(given, 1, 1))
    return sf.concat(sf.lit("the message begins with the byte "), first, sf.lit(", not with 00 and a schema's id"))


def with_end(schema: Any) -> dict[str, Any]:
    """A record of the message and the bytes behind it. Records write nothing of their own, so that no byte changes."""
    end = {"type": "fixed", "name": "frazil_end", "size": len(_END)}
    fields = [{"name": "v", "type": schema}, {"name": "end", "type": end}]
    return {"type": "record", "name": "frazil_message", "fields": fields}


def narrowed(schema: Any) -> Any:
    """Decimals with more digits than Spark has, as Connect declares them, are read with as many as it has."""
    match schema:
        case list():
            return [narrowed(one) for one in schema]
        case dict():
            made = {
                key: narrowed(value) if key in ("type", "items", "values", "fields") else value for key, value in schema.items()
            }
            if schema.get(_LOGICAL) == "decimal" and int(schema.get("precision", 0)) > _MOST_DIGITS:
                made["precision"] = _MOST_DIGITS
            return made
        case _:
            return schema


def avro_node(schema: Any, names: dict[str, Node], *, truncate: bool) -> Node:  # noqa: PLR0911 - one for each case
    """What the values of a schema mean, by the names that Connect's converter leaves in it."""
    match schema:
        case str():
            return names.get(schema) or names.get(schema.rpartition(".")[2]) or Leaf(_ANYTHING)
        case list():
            some = [one for one in schema if one != "null"]
            return avro_node(some[0], names, truncate=truncate) if len(some) == 1 else Leaf(_ANYTHING)
        case {"type": "record"}:
            return _record_node(schema, names, truncate=truncate)
        case {"type": "array"}:
            return Items(avro_node(schema["items"], names, truncate=truncate))
        case {"type": "map"}:
            return Entries(avro_node(schema["values"], names, truncate=truncate))
        case {"type": dict() | list() as inner}:
            return avro_node(inner, names, truncate=truncate)
        case dict():
            if _LOGICAL in schema:
                return Leaf(_ANYTHING, _logical_meaning(schema))
            return Leaf(_ANYTHING, _named_meaning(schema, truncate=truncate))
        case _:
            return Leaf(_ANYTHING)


def _record_node(schema: Mapping[str, Any], names: dict[str, Node], *, truncate: bool) -> Node:
    name = str(schema.get("name", ""))
    if (meaning := _named_meaning(schema, truncate=truncate)) is not None:
        node: Node = Leaf(_ANYTHING, meaning)
    else:
        fields = [(str(one["name"]), avro_node(one["type"], names, truncate=truncate)) for one in schema.get("fields", [])]
        node = ConnectRecord(tuple(fields))
    names[name] = names[name.rpartition(".")[2]] = node
    if namespace := schema.get("namespace"):
        names[f"{namespace}.{name}"] = node
    return node


def _named_meaning(schema: Mapping[str, Any], *, truncate: bool) -> Any:
    return meaning_of(str(schema.get("connect.name", "")), schema.get("connect.parameters") or {}, truncate=truncate)


def _logical_meaning(schema: Mapping[str, Any]) -> Any:
    """Times of a day become text, as no table of Spark can hold them; all others Spark reads itself.

    Connect writes a time without a zone as if it were in UTC; only its name for the type distinguishes the two.
    """
    match schema[_LOGICAL]:
        case "timestamp-millis" if schema.get("connect.name") == "org.apache.kafka.connect.data.Timestamp":
            return lambda value: wall(sf.unix_micros(value))
        case "time-millis":
            return lambda value: clock(value.cast("long") * 1000)
        case "time-micros":
            return clock
        case _:
            return None
