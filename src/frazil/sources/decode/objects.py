"""JSON objects as structs, in Spark's own parser, with everything that it passes over in silence made a fault.

Spark reads the first value of a text and leaves the rest, takes Python's NaN and single quotes, replaces half characters, makes
the nearest double of a large integer and infinity of a larger one. A message is therefore read inside an object of frazil's own,
whose end must be seen, and numbers are looked at once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from frazil.engine.schema import HIDDEN
from frazil.sources.decode.infer import parse_found
from frazil.sources.decode.parts import column, excerpt, fault, fault_of, field, first_fault, utf8

_TEXT, _READ = f"{HIDDEN}text", f"{HIDDEN}read"
_VALUE, _END, _CORRUPT = "v", f"{HIDDEN}end", f"{HIDDEN}corrupt"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_BOM = "\ufeff"
_DUPLICATES = "spark.sql.variant.allowDuplicateKeys"

# Integers up to here are one double each.
_EXACT_DOUBLE = float(2**53)
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = r"\\u[dD][89a-fA-F]"


@dataclass(frozen=True)
class Reading:
    """How objects are read: ``carrier`` is what Spark's parser makes, ``settled`` the same with variants turned into text.

    ``root`` is the key of the object that counts, or empty for the message itself; ``refused`` are keys that cannot be columns.
    """

    carrier: StructType
    settled: StructType
    root: str = ""
    refused: Sequence[str] = ()


def message_text(source: Column) -> Column:
    """The message as text, without what may stand before an object."""
    return sf.ltrim(utf8(source), sf.lit(f"{_BOM} \t\r\n"))


def _wrapped(text: Column) -> Column:
    return sf.concat(sf.lit(f'{{"{_VALUE}":['), text, sf.lit(f'],"{_END}":true}}'))


def document(text: Column, root: str) -> Column:
    """The object as a variant; null when the message is none, or no JSON."""
    whole = sf.try_parse_json(_wrapped(text))
    return sf.try_variant_get(whole, f"$.{_VALUE}[0]" + (path_of(root)[1:] if root else ""), "variant")


def path_of(name: str) -> str:
    """The JSON path of a key. Spark has no way to write one with both kinds of quotes."""
    return f"$['{name}']" if "'" not in name else f'$["{name}"]'


def found_in(frame: DataFrame, source: str, root: str) -> StructType:
    """The fields that the objects of a frame have, merged. Reads the whole frame."""
    text = message_text(column(source))
    found = document(text, root)
    objects = frame.where(column(source).isNotNull()).where(text.startswith("{"))
    if root:
        objects = objects.where(sf.schema_of_variant(found).startswith("OBJECT<"))
    with _last_key_counts(frame):
        row = objects.agg(sf.schema_of_variant_agg(found).alias("found")).first()
    kind = parse_found(row["found"]) if row is not None else StructType([])
    return kind if isinstance(kind, StructType) else StructType([])


@contextmanager
def _last_key_counts(frame: DataFrame) -> Iterator[None]:
    """Of a key that stands twice the last value is read everywhere; a variant would refuse the message."""
    conf = frame.sparkSession.conf
    before = conf.get(_DUPLICATES, None)
    conf.set(_DUPLICATES, "true")
    try:
        yield
    finally:
        if before is None:
            conf.unset(_DUPLICATES)
        else:
            conf.set(_DUPLICATES, before)


def read_objects(frame: DataFrame, source: str, into: str, reading: Reading) -> DataFrame:
    """The frame with a struct of the objects' fields, and the fault of each message that cannot be read."""
    carrier: DataType = reading.carrier
    if reading.root:
        carrier = StructType([StructField(reading.root, carrier)])
    schema = StructType(
        [
            StructField(_VALUE, ArrayType(carrier)),
            StructField(_END, BooleanType()),
            StructField(_CORRUPT, StringType()),
        ]
    )
    frame = frame.withColumn(_TEXT, message_text(column(source)))
    frame = frame.withColumn(_READ, sf.from_json(_wrapped(column(_TEXT)), schema, _OPTIONS))
    first = sf.get(field(column(_READ), _VALUE), sf.lit(0))
    value = field(first, reading.root) if reading.root else first
    if reading.settled != reading.carrier:
        value = value.cast(reading.settled)
    frame = frame.withColumn(into, value)
    frame = frame.withColumn(fault_of(into), first_fault(_faults(source, into, reading)))
    return frame.withColumn(into, sf.when(column(fault_of(into)).isNull(), column(into))).drop(_TEXT, _READ)


def _faults(source: str, into: str, reading: Reading) -> Iterator[tuple[Column, Column]]:
    """What can be wrong with a message, the first that holds counts."""
    text, read, value = column(_TEXT), column(_READ), column(into)
    whole = field(read, _END) & (sf.size(field(read, _VALUE)) == 1)
    found = document(text, "")
    shown = excerpt(text)
    yield column(source).isNull(), sf.lit(None)
    yield text.isNull(), fault("text-encoding", "the message is not valid UTF-8")
    yield text == "", fault("json-empty", "the message is empty")
    invalid = fault("json-malformed", sf.concat(sf.lit("not valid JSON: "), shown))
    yield ~sf.coalesce(whole, sf.lit(False)) & found.isNull(), invalid
    yield ~text.startswith("{"), fault("json-not-object", sf.concat(sf.lit("not a JSON object: "), shown))
    wrong = sf.coalesce(_wrong_columns(into, reading), sf.lit("a value does not fit its column"))
    yield field(read, _CORRUPT).isNotNull(), fault("json-type", wrong)
    if reading.root:
        absent = document(text, reading.root).isNull()
        yield value.isNull() & absent, fault("json-envelope", f"the message has no {reading.root!r}")
    for name in reading.refused:
        present = sf.try_variant_get(document(text, reading.root), path_of(name), "variant").isNotNull()
        yield present, fault("json-key", f"the key {name!r} cannot be a column: it is empty, reserved, or another in upper case")
    yield _half_characters(text), fault("json-unicode", "a text has half of a character (an unpaired surrogate)")
    for one in reading.settled.fields:
        if isinstance(one.dataType, DoubleType | FloatType):
            yield from _number_faults(field(value, one.name), one, document(text, reading.root))


def _half_characters(text: Column) -> Column:
    escapes = text.contains("\\ud") | text.contains("\\uD")
    without_backslashes = sf.replace(text, sf.lit("\\\\"), sf.lit(""))
    return escapes & sf.regexp_replace(without_backslashes, _PAIR, "").rlike(_HALF)


def _number_faults(value: Column, one: StructField, found: Column) -> Iterator[tuple[Column, Column]]:
    name = f"column {one.name!r} cannot hold this value as {one.dataType.simpleString()}: "
    given = sf.try_variant_get(found, path_of(one.name), "string")
    told = fault("json-type", sf.concat(sf.lit(name), sf.coalesce(excerpt(given), sf.lit("too large"))))
    yield sf.abs(value) == float("inf"), told
    exact = given.try_cast("decimal(38, 0)") == value.try_cast("decimal(38, 0)")
    yield (sf.abs(value) >= _EXACT_DOUBLE) & given.rlike(r"^-?\d+$") & ~sf.coalesce(exact, sf.lit(False)), told


def _wrong_columns(into: str, reading: Reading) -> Column:
    """The columns that are null though the message has something for them, with what that is."""
    found = document(column(_TEXT), reading.root)
    told = [
        text
        for one in reading.settled.fields
        for text in _lost(field(column(into), one.name), found, one, one.name, path_of(one.name))
    ]
    return sf.nullif(sf.concat_ws("; ", *told), sf.lit("")) if told else sf.lit(None).cast("string")


def _lost(value: Column, found: Column, one: StructField, name: str, path: str) -> Iterator[Column]:
    given = sf.try_variant_get(found, path, "variant")
    words = sf.lit(f"column {name!r} cannot hold this value as {one.dataType.simpleString()}: ")
    there = given.isNotNull() & ~sf.is_variant_null(given)
    yield sf.when(there & value.isNull(), sf.concat(words, excerpt(sf.to_json(given))))
    if isinstance(one.dataType, StructType):
        for inner in one.dataType.fields:
            yield from _lost(field(value, inner.name), found, inner, f"{name}.{inner.name}", path + path_of(inner.name)[1:])


def with_texts(carrier: DataType) -> DataType:
    """The type with variants as text."""
    match carrier:
        case VariantType():
            return StringType()
        case StructType():
            return StructType([StructField(one.name, with_texts(one.dataType)) for one in carrier.fields])
        case ArrayType():
            return ArrayType(with_texts(carrier.elementType))
        case _:
            return carrier
