"""JSON objects as structs, read by Spark's own parser, with a fault for everything that it silently accepts.

Spark reads the first value of a text and leaves the rest, takes Python's NaN and single quotes, replaces half characters, makes
the nearest double of a large integer and infinity of a larger one. A message is therefore wrapped in an object of frazil's own,
whose end must be found, and numbers are checked afterwards.

That is slow, and nearly all messages are plain: a fast parser reads those first, and the rest is read in the slow way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from frazil.model.hidden import HIDDEN
from frazil.sources.decode.infer import Path, parse_found
from frazil.sources.decode.parts import column, excerpt, fault, fault_of, field, first_fault, utf8
from frazil.spark.json_rows import json_rows

_PLAIN, _REST = (f"{HIDDEN}{name}" for name in ("plain", "rest"))
_TEXT, _READ, _DOCUMENT, _FOUND, _DEEP = (f"{HIDDEN}{name}" for name in ("text", "read", "document", "found", "deep"))
_VALUE, _END, _CORRUPT = "v", f"{HIDDEN}end", f"{HIDDEN}corrupt"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
MOST_LEVELS = 200
"""How many levels of objects and lists a message may have whose columns are to be found."""
_BOM = "\ufeff"
_INFERENCE = ("spark.sql.variant.allowDuplicateKeys", "spark.sql.caseSensitive")

# Integers up to here are one double each.
_EXACT_DOUBLE = float(2**53)
# Digits that a double always keeps.
_DOUBLE_DIGITS = 15
# In the place of a value: with more digits than a decimal has, with more than a double keeps, with a large exponent.
_LONG_NUMBER = r"[:,\[]\s*-?(?:[\d.]{39,}|(?:\d{16,}|[\d.]{17,})[eE]|[\d.]+[eE][+-]?0*[1-9]\d\d)"
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = r"\\u[dD][89a-fA-F]"


@dataclass(frozen=True)
class Reading:
    """How objects are read: ``carrier`` is what Spark's parser makes, ``wanted`` what it is for.

    ``root`` is the key of the object that counts, or empty for the message itself; ``refused`` are keys that cannot be columns.
    ``deep``: some messages may be nested so deeply that nothing was found out about them.
    """

    carrier: StructType
    wanted: StructType
    root: str = ""
    refused: tuple[Path, ...] = ()
    deep: bool = False


@dataclass(frozen=True)
class FoundColumns:
    """The fields that objects have, and whether some are nested too deeply to be looked into."""

    schema: StructType
    deep: bool = False


def message_text(source: Column) -> Column:
    """The message as text, without what may stand before an object."""
    return sf.ltrim(utf8(source), sf.lit(f"{_BOM} \t\r\n"))


def _wrapped(text: Column) -> Column:
    return sf.concat(sf.lit(f'{{"{_VALUE}":['), text, sf.lit(f'],"{_END}":true}}'))


def document(text: Column, root: str) -> Column:
    """The object as a variant; null when the message is none, or no JSON."""
    return sf.try_variant_get(sf.try_parse_json(_wrapped(text)), _path(root), "variant")


def _path(root: str) -> str:
    return f"$.{_VALUE}[0]" + (f"['{root}']" if root else "")


def found_in(frame: DataFrame, source: str, root: str, like: DataType | None, but: Sequence[Path] = ()) -> FoundColumns:
    """The fields that the objects of a frame have, merged, but for objects with one of some keys. Reads the whole frame."""
    with _as_written(frame):
        objects = _objects(frame, source, root)
        if root:
            objects = objects.withColumn("v", sf.when(_is("OBJECT<"), sf.col("v")))
        if but:
            objects = objects.where(~_has_any(_entries(sf.col("v")), but))
        row = objects.agg(sf.schema_of_variant_agg("v").alias("found"), sf.max("deep").alias("deep")).first()
        assert row is not None, "an aggregate has a row"
        kind = _resolved(objects, parse_found(row["found"]), like)
    return FoundColumns(kind if isinstance(kind, StructType) else StructType([]), bool(row["deep"]))


def _too_deep(text: Column) -> Column:
    """Whether a message has so many levels of objects and lists that Spark cannot write their type down."""
    many = sf.char_length(text) - sf.char_length(sf.translate(text, "{[", "")) > MOST_LEVELS
    bare = sf.replace(sf.replace(text, sf.lit("\\\\"), sf.lit("")), sf.lit('\\"'), sf.lit(""))
    brackets = sf.regexp_replace(sf.regexp_replace(bare, '"[^"]*"', ""), r"[^\[\]{}]", "")
    start = sf.struct(sf.lit(0).alias("now"), sf.lit(0).alias("most"))

    def step(levels: Column, bracket: Column) -> Column:
        now = levels["now"] + sf.when(bracket.isin("{", "["), 1).otherwise(-1)
        return sf.struct(now.alias("now"), sf.greatest(levels["most"], now).alias("most"))

    levels = sf.aggregate(sf.split(brackets, ""), start, step, lambda levels: levels["most"])
    return sf.coalesce(sf.when(many, levels > MOST_LEVELS), sf.lit(False))


def first_spelling(frame: DataFrame, source: str, root: str, names: Sequence[str]) -> str:
    """Which of several names came first. Reads the whole frame."""
    known = ("timestamp", "topic", "partition", "offset")
    place = [sf.col(name) for name in known if name in frame.columns] or [sf.lit(0).alias("nowhere")]
    with _as_written(frame):
        objects = _objects(frame, source, root, *place)
        keys = sf.map_keys(_entries(sf.col("v")))
        at = sf.struct(*place)
        each = [sf.min(sf.when(sf.array_contains(keys, name), at)).alias(f"n{n}") for n, name in enumerate(names)]
        row = objects.agg(*each).first()
    assert row is not None, "an aggregate has a row"
    return min(names, key=lambda name: (row[names.index(name)] is None, tuple(row[names.index(name)] or ()), name))


def _objects(frame: DataFrame, source: str, root: str, *beside: Column) -> DataFrame:
    text = message_text(column(source))
    readable = text.startswith("{") & ~_half_characters(text)
    whole = frame.where(column(source).isNotNull()).where(readable).withColumn(_DEEP, _too_deep(text))
    return whole.select(sf.when(~sf.col(_DEEP), document(text, root)).alias("v"), sf.col(_DEEP).alias("deep"), *beside)


def _entries(value: Column) -> Column:
    """An object's keys, each with its value. Unlike paths these take any name, also one with quotes of both kinds."""
    return sf.try_variant_get(value, "$", "map<string, variant>")


def _has_any(entries: Column, paths: Sequence[Path]) -> Column:
    """Whether an object has one of these keys."""
    names = [path[0] for path in paths if len(path) == 1]
    at_the_top = [sf.arrays_overlap(sf.map_keys(entries), sf.array(*map(sf.lit, names)))] if names else []
    each = [*at_the_top, *(_has(sf.try_element_at(entries, sf.lit(path[0])), path[1:]) for path in paths if len(path) > 1)]
    return reduce(Column.__or__, [sf.coalesce(one, sf.lit(False)) for one in each], sf.lit(False))


def _has(value: Column, path: Path) -> Column:
    """Whether there is something at the end of a path."""
    if not path:
        return value.isNotNull()
    if path[0] is None:
        items = sf.try_variant_get(value, "$", "array<variant>")
        return sf.exists(items, lambda item: sf.coalesce(_has(item, path[1:]), sf.lit(False)))
    return _has(sf.try_element_at(_entries(value), sf.lit(path[0])), path[1:])


def _is(kind: str) -> Column:
    return sf.schema_of_variant("v").startswith(kind)


def _examined(variants: DataFrame, known: DataType | None) -> DataType:
    """The type of variants. Where a known struct or list meets something else, those that are like it are looked at alone."""
    row = variants.agg(sf.schema_of_variant_agg("v").alias("found")).first()
    found = parse_found(row["found"]) if row is not None else StructType([])
    return _resolved(variants, found, known)


def _resolved(variants: DataFrame, found: DataType, known: DataType | None) -> DataType:
    match known, found:
        case StructType(), VariantType():
            return _examined(variants.where(_is("OBJECT<")), known)
        case ArrayType(), VariantType():
            return _examined(variants.where(_is("ARRAY<")), known)
        case StructType(), StructType():
            kinds = {one.name: one.dataType for one in known.fields if isinstance(one.dataType, StructType | ArrayType)}
            return StructType(
                [
                    StructField(one.name, _resolved(_below(variants, one.name), one.dataType, kinds[one.name]))
                    if one.name in kinds
                    else one
                    for one in found.fields
                ]
            )
        case ArrayType(), ArrayType():
            items = variants.select(sf.explode(sf.try_variant_get("v", "$", "array<variant>")).alias("v"))
            return ArrayType(_resolved(items, found.elementType, known.elementType))
        case _:
            return found


def _below(variants: DataFrame, name: str) -> DataFrame:
    return variants.select(sf.try_element_at(_entries(sf.col("v")), sf.lit(name)).alias("v"))


@contextmanager
def _as_written(frame: DataFrame) -> Iterator[None]:
    """Spark infers columns so that the last of repeated keys counts, and keys that differ in case are different."""
    conf = frame.sparkSession.conf
    before = {name: conf.get(name, None) for name in _INFERENCE}
    try:
        for name in _INFERENCE:
            conf.set(name, "true")
        yield
    finally:
        for name, value in before.items():
            if value is None:
                conf.unset(name)
            else:
                conf.set(name, value)


class ObjectReader:
    """Reads objects. The expressions for it are put together once: for many columns that takes longer than a small batch."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, str, Reading], list[tuple[str, Column]]] = {}

    def read(self, frame: DataFrame, source: str, into: str, reading: Reading) -> DataFrame:
        """The frame with a struct of the objects' fields, and the fault of each message that cannot be read."""
        key = (source, into, reading)
        if key not in self._steps:
            self._steps[key] = list(_steps(source, into, reading, plain_rows(frame.sparkSession, source, reading)))
        for name, value in self._steps[key]:
            frame = frame.withColumn(name, value)
        return frame.drop(_PLAIN, _REST, _TEXT, _READ, _DOCUMENT, _FOUND)


def plain_rows(spark: SparkSession, source: str, reading: Reading) -> Column | None:
    """What the quick reader makes of messages, null where it leaves them. None where it cannot be used."""
    # It looks neither for keys that are refused nor into what stays a variant.
    if reading.refused or reading.deep or has_variants(reading.wanted):
        return None
    return json_rows(spark, column(source), reading.carrier, reading.root)


def _steps(source: str, into: str, reading: Reading, plain: Column | None) -> Iterator[tuple[str, Column]]:
    if plain is None:
        yield from _careful(source, into, reading)
        return
    yield _PLAIN, plain
    # To the careful reader a plain message is none, which costs it nothing.
    yield _REST, sf.when(column(_PLAIN).isNull(), column(source))
    yield from _careful(_REST, into, reading)
    yield into, sf.coalesce(column(_PLAIN), column(into))


def _careful(source: str, into: str, reading: Reading) -> Iterator[tuple[str, Column]]:
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
    yield _TEXT, message_text(column(source))
    yield _READ, sf.from_json(_wrapped(column(_TEXT)), schema, _OPTIONS)
    first = sf.get(field(column(_READ), _VALUE), sf.lit(0))
    yield into, field(first, reading.root) if reading.root else first
    # Parsed once more only where something needs a second look, and once for all questions.
    yield _DOCUMENT, sf.when(_suspect(into, reading), sf.try_parse_json(_wrapped(column(_TEXT))))
    yield _FOUND, sf.try_variant_get(column(_DOCUMENT), _path(reading.root), "map<string, variant>")
    yield fault_of(into), first_fault(_faults(source, into, reading))
    value = as_text(column(into), reading.carrier, reading.wanted, _short_numbers(column(_TEXT)))
    yield into, sf.when(column(fault_of(into)).isNull(), value)


def _broken() -> Column:
    """Spark's parser found a fault, or not just one value up to the end."""
    read = column(_READ)
    whole = field(read, _END) & (sf.size(field(read, _VALUE)) == 1)
    return field(read, _CORRUPT).isNotNull() | ~sf.coalesce(whole, sf.lit(False))


def _suspect(into: str, reading: Reading) -> Column:
    if reading.refused:
        return sf.lit(True)
    suspect = _broken()
    if reading.root:
        suspect = suspect | column(into).isNull()
    return suspect | _large(into, reading)


def _large(into: str, reading: Reading) -> Column:
    """Whether a number is so large that a double cannot represent every integer."""
    each = [sf.abs(field(column(into), one.name)) >= _EXACT_DOUBLE for one in _floating(reading)]
    return sf.coalesce(reduce(Column.__or__, each, sf.lit(False)), sf.lit(False))


def _floating(reading: Reading) -> list[StructField]:
    return [one for one in reading.carrier.fields if isinstance(one.dataType, DoubleType | FloatType)]


def _faults(source: str, into: str, reading: Reading) -> Iterator[tuple[Column, Column]]:
    """What can be wrong with a message, the first that holds counts. As large for a thousand columns as for one."""
    text, value, whole, found = column(_TEXT), column(into), column(_DOCUMENT), column(_FOUND)
    shown = excerpt(text)
    yield column(source).isNull(), sf.lit(None)
    yield text.isNull(), fault("text-encoding", "the message is not valid UTF-8")
    yield text == "", fault("json-empty", "the message is empty")
    invalid = fault("json-malformed", sf.concat(sf.lit("not valid JSON: "), shown))
    yield _broken() & ~_well_formed(whole), invalid
    yield ~text.startswith("{"), fault("json-not-object", sf.concat(sf.lit("not a JSON object: "), shown))
    if reading.deep:
        yield _too_deep(text), fault("json-deep", f"objects and lists are nested more than {MOST_LEVELS} levels deep")
    yield _broken(), fault("json-type", _wrong_columns(into, reading))
    if reading.root:
        absent = sf.try_variant_get(whole, _path(reading.root), "variant").isNull()
        yield value.isNull() & absent, fault("json-envelope", f"the message has no {reading.root!r}")
    if reading.refused:
        yield _has_any(found, reading.refused), fault("json-key", _refused_keys(found, reading.refused))
    yield _half_characters(text), fault("json-unicode", "a text has half of a character (an unpaired surrogate)")
    if _floating(reading):
        inexact = _inexact(into, reading)
        yield _large(into, reading) & inexact.isNotNull(), fault("json-type", inexact)


def _refused_keys(found: Column, refused: Sequence[Path]) -> Column:
    """What is said of a message that has some of the keys which cannot be columns."""
    words = sf.lit("keys that are empty, too long, too many, reserved, or another in upper case cannot be columns: ")
    names = [path[0] for path in refused if len(path) == 1]
    own = sf.array_intersect(sf.map_keys(found), sf.array(*map(sf.lit, names))) if names else sf.array().cast("array<string>")
    inner = [
        sf.when(_has_any(found, [path]), ".".join("element" if part is None else part for part in path))
        for path in refused
        if len(path) > 1
    ]
    shown = sf.array_compact(sf.concat(own, sf.array(*inner).cast("array<string>")))
    return sf.concat(words, excerpt(sf.array_join(shown, ", ")))


def _well_formed(whole: Column) -> Column:
    ended = sf.try_variant_get(whole, f"$.{_END}", "boolean")
    first, second = (sf.try_variant_get(whole, f"$.{_VALUE}[{place}]", "variant") for place in (0, 1))
    return sf.coalesce(ended, sf.lit(False)) & first.isNotNull() & second.isNull()


def _half_characters(text: Column) -> Column:
    escapes = text.contains("\\u") & (text.contains("\\ud") | text.contains("\\uD"))
    without_backslashes = sf.replace(text, sf.lit("\\\\"), sf.lit(""))
    return escapes & sf.regexp_replace(without_backslashes, _PAIR, "").rlike(_HALF)


def _inexact(into: str, reading: Reading) -> Column:
    """The integers that no double is, and numbers that are too large for one; null when there are none."""
    pairs = [
        sf.struct(sf.lit(one.name).alias("name"), field(column(into), one.name).cast("double").alias("value"))
        for one in _floating(reading)
    ]
    large = sf.filter(sf.array(*pairs), lambda pair: sf.abs(pair["value"]) >= _EXACT_DOUBLE)

    def wrong(pair: Column) -> Column:
        text = sf.try_element_at(column(_FOUND), pair["name"]).try_cast("string")
        other = text.try_cast("decimal(38, 0)") != pair["value"].try_cast("decimal(38, 0)")
        return (sf.abs(pair["value"]) == float("inf")) | (text.rlike(r"^-?\d+$") & sf.coalesce(other, sf.lit(True)))

    return _message(sf.transform(sf.filter(large, wrong), lambda pair: pair["name"]), reading)


def _wrong_columns(into: str, reading: Reading) -> Column:
    """The columns that are null though the message has something for them, with what that is."""
    names = reading.carrier.names
    given = sf.map_filter(column(_FOUND), lambda _, value: ~sf.is_variant_null(value))
    here = sf.array_intersect(sf.map_keys(given), sf.array(*map(sf.lit, names))) if names else sf.array()
    nulls = [sf.when(field(column(into), name).isNull(), sf.lit(name)) for name in names]
    lost = sf.array_intersect(here, sf.array_compact(sf.array(*nulls))) if names else sf.array()
    nested = [one.name for one in reading.carrier.fields if isinstance(one.dataType, StructType | ArrayType | MapType)]
    within = sf.array_join(sf.array_intersect(here, sf.array(*map(sf.lit, nested))), ", ") if nested else sf.lit("")
    inside = sf.concat(sf.lit("a value inside does not fit its type: "), within)
    return sf.coalesce(_message(lost, reading), inside)


def _message(names: Column, reading: Reading) -> Column:
    """What is wrong with the columns of these names, or null when there are none."""
    types = [text for one in reading.wanted.fields for text in (sf.lit(one.name), sf.lit(one.dataType.simpleString()))]
    if not types:
        return sf.lit(None).cast("string")
    known = sf.create_map(*types)
    texts = sf.transform(
        names,
        lambda name: sf.concat(
            sf.lit("column '"),
            name,
            sf.lit("' cannot hold this value as "),
            sf.try_element_at(known, name),
            sf.lit(": "),
            sf.coalesce(excerpt(sf.to_json(sf.try_element_at(column(_FOUND), name))), sf.lit("?")),
        ),
    )
    return sf.nullif(sf.array_join(texts, "; "), sf.lit(""))


def _short_numbers(text: Column) -> Column:
    """Whether the original number can be recovered from every double in a variant.

    That is one with an exponent, or with more digits than a decimal has. A double keeps 15 digits, of numbers that are neither
    too large nor too small for it.
    """
    return ~text.rlike(_LONG_NUMBER)


def as_text(value: Column, carrier: DataType, wanted: DataType, short: Column) -> Column:  # noqa: PLR0911 - one for each case
    """A value with its variants, which kept what was written, as text. ``short``: see :func:`_short_numbers`."""
    match carrier, wanted:
        case VariantType(), VariantType():
            return value
        case VariantType(), DecimalType():
            text = value.cast("string")
            return sf.when(_is_lost(value, short), sf.concat(text, sf.lit(" or near it"))).otherwise(text)
        case VariantType(), _:
            return value.cast("string")
        case StructType(), StructType() if has_variants(carrier):
            kinds = {one.name: one.dataType for one in wanted.fields}
            each = {one.name: as_text(field(value, one.name), one.dataType, kinds[one.name], short) for one in carrier.fields}
            return sf.when(value.isNotNull(), sf.struct(*(text.alias(name) for name, text in each.items())))
        case ArrayType(), ArrayType() if has_variants(carrier):
            return sf.transform(value, lambda item: as_text(item, carrier.elementType, wanted.elementType, short))
        case MapType(), MapType() if has_variants(carrier):
            return sf.transform_values(value, lambda _, item: as_text(item, carrier.valueType, wanted.valueType, short))
        case _:
            return value


def _is_lost(variant: Column, short: Column) -> Column:
    """Whether a variant is a double that may have been another number when it was written."""
    digits = sf.char_length(
        sf.regexp_replace(sf.regexp_replace(variant.cast("string"), "[eE].*$", ""), r"^[-0.]+|[.]|[.]?0+$", "")
    )
    return (sf.schema_of_variant(variant) == "DOUBLE") & ((digits > _DOUBLE_DIGITS) | ~short)


def has_variants(kind: DataType) -> bool:
    """Whether something in it is a variant."""
    match kind:
        case StructType():
            return any(has_variants(one.dataType) for one in kind.fields)
        case ArrayType():
            return has_variants(kind.elementType)
        case MapType():
            return has_variants(kind.valueType)
        case _:
            return isinstance(kind, VariantType)
