"""One value as a value of another type, in Spark's expressions: what it becomes, and what is wrong with it.

Whatever the session's time zone and dialect are, texts and numbers mean the same moments: without a zone they are in UTC. Spark's
own casts round, cut off, wrap or fill in what is missing, the day of today for instance; here a value that would not be the same
afterwards becomes null, and an error says so.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, functions
from pyspark.sql.types import DataType

from frazil.columns.types import spark_type
from frazil.model.coercion import MICROS, CoercionOptions, EpochUnit, Way, way
from frazil.model.types import Decimal, Fixed, ListType, MapType, StructType, Type

CAST_MARK = "[frazil-cast] "
NULL_MARK = "[frazil-null] "
SUM_MARK = "[frazil-sum] "

# As much of a value as a person wants to see.
_SHOWN = 200

_UUID = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_NO_SECONDS = r"([T ]\d{1,2}:\d{1,2})(?=\s*[A-Za-z+-])"
_SHORTEST_TOO_FINE = len("2026-01-02T3:4:5.123456")
_BELOW_MICROS = r"\.\d{6}\d*[1-9]"
# Of more digits than these an exponent makes a number that fits no decimal, or needs more digits than one.
_EXPONENT = r"^\s*[+-]?(\d*)\.?(\d*)[eE]([+-]?\d{1,3})\s*$"
_NOT_FINITE = r"(?i)^\s*([+-]?inf(inity)?|nan)\s*$"

JSON_OPTIONS = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

_FIRST_MICRO, _LAST_MICRO = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999. A number outside of them counts something else than it was said to."""

# Integers up to here are one double each; beyond, several become the same.
_EXACT_DOUBLE = 2**53
_LAST_LONG = 2**63 - 1
# As many digits as any float and double has room for.
_SHORT_NUMBER = 38
# Digits that a number in binary always keeps.
_DIGITS = {"double": 15, "float": 6}


@dataclass(frozen=True)
class Casting:
    """How values are converted. ``collects``: what is wrong is handed back as a text; otherwise it stops the batch."""

    options: CoercionOptions
    collects: bool = False


@dataclass(frozen=True)
class Converted:
    """What a value becomes: null where it has no such form. ``error`` says then what is wrong; None when nothing can be."""

    value: Column
    error: Column | None = None


def converted(value: Column, data: Type, table: Type, path: str, casting: Casting) -> Converted:
    """A value without parts, or one that becomes a text, as the table's type."""
    form = _form(value, data, table, casting.options)
    if way(data, table) is Way.EXACT:
        return Converted(form)
    message = functions.concat(functions.lit(f"column {path!r} cannot hold this value as {table}: "), _shown(value, data))
    if casting.collects:
        return Converted(form, functions.when(value.isNotNull() & form.isNull(), message))
    return Converted(functions.when(value.isNotNull(), functions.coalesce(form, complaint(CAST_MARK, message))))


def present(value: Column, given: Column, path: str, casting: Casting) -> Converted:
    """A value that must not be null; a wrong value, which became null, has already been reported."""
    message = functions.lit(f"column {path!r} is required, and a row has no value for it")
    if casting.collects:
        return Converted(value, functions.when(given.isNull(), message))
    return Converted(functions.coalesce(value, complaint(NULL_MARK, message)))


def complaint(mark: str, message: Column) -> Column:
    """Stops the batch. By the mark it is known why."""
    return functions.raise_error(functions.concat(functions.lit(mark), message))


def _shown(value: Column, data: Type) -> Column:
    text = functions.hex(value) if data.name == "binary" else value.cast("string")
    cut = functions.concat(functions.substring(text, 1, _SHOWN), functions.lit("..."))
    return functions.when(functions.length(text) > _SHOWN, cut).otherwise(text)


def _form(value: Column, data: Type, table: Type, options: CoercionOptions) -> Column:
    if isinstance(table, StructType | ListType | MapType) or way(data, table) is Way.NONE:
        # A column that is null in all rows looks like texts to a reader of JSON; a text itself has no parts.
        return functions.lit(None).cast(spark_type(table))
    if table.name in ("date", "timestamp", "timestamptz"):
        return _as_moment(value, data, table, options)
    if table.name == "string":
        return _as_text(value, data)
    made = _FORMS.get(table.name)
    return value.try_cast(spark_type(table)) if made is None else made(value, data, table)


def _only(condition: Column, value: Column) -> Column:
    return functions.when(condition, value)


# Texts and bytes.


def json_text(value: Column, data: Type) -> Column:
    """A nested value as JSON: times in UTC with all their digits, bytes in base64, fields that are null left out."""
    return functions.to_json(_text_keys(value, data), JSON_OPTIONS)


def _text_keys(value: Column, data: Type) -> Column:
    """Spark writes the keys of a map as it holds them, which of a date is a number of days: here they become texts before."""
    if not _has_other_keys(data):
        return value
    match data:
        case StructType():
            fields = [_text_keys(value.getField(f.name), f.type).alias(f.name) for f in data.fields]
            return _only(value.isNotNull(), functions.struct(*fields))
        case ListType():
            return functions.transform(value, lambda item: _text_keys(item, data.element))
        case MapType():
            return functions.map_from_arrays(
                functions.transform(functions.map_keys(value), lambda key: _as_text(key, data.key)),
                functions.transform(functions.map_values(value), lambda item: _text_keys(item, data.value)),
            )
        case _:
            return value


def _has_other_keys(data: Type) -> bool:
    match data:
        case StructType():
            return any(_has_other_keys(field.type) for field in data.fields)
        case ListType():
            return _has_other_keys(data.element)
        case MapType():
            return data.key.name != "string" or _has_other_keys(data.value)
        case _:
            return False


def _as_text(value: Column, data: Type) -> Column:
    match data.name:
        case "struct" | "list" | "map" | "variant":
            return json_text(value, data)
        case "binary":
            return functions.try_validate_utf8(value.cast("string"))
        case "timestamp":
            return functions.replace(value.cast("string"), functions.lit(" "), functions.lit("T"))
        case "timestamptz":
            wall = functions.replace(_wall(value).cast("string"), functions.lit(" "), functions.lit("T"))
            return functions.concat(wall, functions.lit("Z"))
        case _:
            return value.cast("string")


def _as_uuid(value: Column, data: Type, _table: Type) -> Column:
    """In lower case: two spellings of one value would be two keys."""
    if data.name == "string":
        return _only(value.rlike(_UUID), functions.lower(value))
    digits = functions.lower(functions.hex(value))
    dashed = functions.regexp_replace(digits, "(.{8})(.{4})(.{4})(.{4})(.{12})", "$1-$2-$3-$4-$5")
    return _only(functions.octet_length(value) == 16, dashed)


def _as_variant(value: Column, data: Type, table: Type) -> Column:
    nested = isinstance(data, StructType | ListType | MapType)
    return functions.to_variant_object(value) if nested else value.cast(spark_type(table))


def _as_bytes(value: Column, _data: Type, table: Type) -> Column:
    content = value.cast("binary")
    return _only(functions.octet_length(content) == table.length, content) if isinstance(table, Fixed) else content


# Dates and times.


def _start() -> Column:
    return functions.expr("timestamp_ntz'1970-01-01 00:00:00'")


def _wall(instant: Column) -> Column:
    """What a clock in UTC shows at an instant."""
    return functions.timestamp_add("MICROSECOND", functions.unix_micros(instant), _start())


def _instant(wall: Column) -> Column:
    """When a clock in UTC shows this."""
    return functions.timestamp_micros(functions.timestamp_diff("MICROSECOND", _start(), wall))


def _as_moment(value: Column, data: Type, table: Type, options: CoercionOptions) -> Column:
    if data.name == "string":
        return _read_moment(value, table)
    if data.name in ("date", "timestamp", "timestamptz"):
        wall = _wall(value) if data.name == "timestamptz" else value.cast("timestamp_ntz")
        return _of_wall(wall, table)
    micros = _epoch_micros(value, data, options.epoch_unit or EpochUnit.MICROS, exactly=options.strict_casting)
    within = _only(micros.between(_FIRST_MICRO, _LAST_MICRO), micros)
    return _of_wall(functions.timestamp_add("MICROSECOND", within, _start()), table)


def _of_wall(wall: Column, table: Type) -> Column:
    match table.name:
        case "timestamptz":
            return _instant(wall)
        case "date":
            day = wall.cast("date")
            return _only(day.cast("timestamp_ntz") == wall, day)
        case _:
            return wall


def _read_moment(given: Column, table: Type) -> Column:
    """ISO 8601: a day, and a time of it. Of less Spark would make the first day of a month, or today."""
    text = functions.trim(given)
    has_day = (functions.substring(text, 5, 1) == "-") & (functions.substring(text, 8, 1) == "-")
    # A year has four digits, and is not 0.
    has_day = has_day & (text >= "0001")
    if table.name == "date":
        return _only(has_day & (functions.length(text) == 10), text.try_cast("date"))
    # A zone is an offset, or ends in a letter.
    rest = functions.substring(text, 12, 64)
    has_zone = (functions.substring(text, -1, 1) > "9") | rest.contains("+") | rest.contains("-")
    # Spark reads a zone behind seconds only.
    whole = functions.regexp_replace(text, _NO_SECONDS, "$1:00")
    instant = functions.coalesce(text.try_cast("timestamp"), whole.try_cast("timestamp"))
    wall = text.try_cast("timestamp_ntz")
    if table.name == "timestamptz":
        read = functions.when(has_zone, instant).otherwise(_instant(wall))
    else:
        read = functions.when(has_zone, _wall(instant)).otherwise(wall)
    too_fine = (functions.length(text) > _SHORTEST_TOO_FINE) & text.rlike(_BELOW_MICROS)
    # By its zone a time of the first and of the last day can be one of another year.
    at_the_edge = has_zone & (text.startswith("0001-01-01") | text.startswith("9999-12-31"))
    return _only(has_day & ~too_fine & (~at_the_edge | within_years(read, table)), read)


def within_years(value: Column, kind: Type) -> Column:
    """Whether a date or time is in the years 1 to 9999. Python, and others, know no other years."""
    match kind.name:
        case "date":
            return value.between(functions.expr("date'0001-01-01'"), functions.expr("date'9999-12-31'"))
        case "timestamptz":
            return functions.unix_micros(value).between(_FIRST_MICRO, _LAST_MICRO)
        case _:
            last = functions.expr("timestamp_ntz'9999-12-31 23:59:59.999999'")
            return value.between(functions.expr("timestamp_ntz'0001-01-01 00:00:00'"), last)


def _epoch_micros(value: Column, data: Type, unit: EpochUnit, *, exactly: bool) -> Column:
    """Microseconds. Nanoseconds are truncated, since no column can store them, unless that is not allowed."""
    if unit is EpochUnit.NANOS:
        nanos = value.try_cast("decimal(38, 0)")
        micros = functions.floor(nanos / functions.lit(decimal.Decimal(1000))).try_cast("long")
        return _only((micros * 1000).cast("decimal(38, 0)") == value.try_cast("decimal(38, 0)"), micros) if exactly else micros
    factor = MICROS[unit]
    if data.name in ("int", "long"):
        return functions.try_multiply(value.cast("long"), functions.lit(factor).cast("long"))
    if isinstance(data, Decimal):
        micros = functions.try_multiply(value, functions.lit(decimal.Decimal(factor)))
        whole = micros.try_cast("long")
        return _only(whole.cast("decimal(38, 6)") == micros.try_cast("decimal(38, 6)"), whole)
    # What a double has beyond the microsecond is noise.
    return functions.round(value.cast("double") * factor).try_cast("long")


# Numbers.


def _as_number(value: Column, data: Type, table: Type) -> Column:
    target = spark_type(table)
    if data.name == "string":
        return _read_number(value, table, target)
    if way(data, table) is Way.EXACT:
        return value.cast(target)
    floating = ("float", "double")
    if data.name in floating and table.name in floating:
        near = value.cast(target)
        return _only(_same_double(near, value), near)
    if data.name in floating:
        return _from_floating(value, data, table, target)
    if table.name in floating and not isinstance(data, Decimal):
        near = value.cast(target)
        return _only((near.try_cast("long") == value.cast("long")) & (value != _LAST_LONG), near)
    near = value.try_cast(target)
    return _only(near.try_cast(spark_type(data)) == value, near)


def _same_double(near: Column, value: Column) -> Column:
    """Whether a float is the double, or is written alike: 0.1 is another number in each, and still what was meant."""
    return near.cast("double").eqNullSafe(value) | near.cast("string").cast("double").eqNullSafe(value)


def _from_floating(value: Column, data: Type, table: Type, target: DataType) -> Column:
    if not isinstance(table, Decimal):
        near = value.cast("double").try_cast(target)
        return _only((functions.abs(value) <= _EXACT_DOUBLE) & (near.cast("double") == value.cast("double")), near)
    # By its text, which is the shortest that means this number. More digits than a double keeps may have been others before.
    near = value.cast("string").try_cast(target)
    few = functions.abs(value.cast("double")) * 10.0**table.scale < 10.0 ** _DIGITS[data.name]
    return _only(few & (near.cast(spark_type(data)) == value), near)


def _read_number(text: Column, table: Type, target: DataType) -> Column:
    if isinstance(table, Decimal):
        plain = text.rlike(rf"^\s*[+-]?\d*(\.\d{{0,{table.scale}}}0*)?\s*$")
        # Only what is exact is cast: Spark would round the rest, and of a large exponent make a number with as many digits.
        return _only(plain | (text.rlike(_EXPONENT) & _fits_scale(text, table.scale)), text).try_cast(target)
    near = text.try_cast(target)
    if table.name in ("int", "long"):
        return near
    digits_only = ~text.rlike("[A-Za-z]") & (functions.length(text) <= _SHORT_NUMBER)
    # Java's numbers may end in d or f, and be in base 16; one that is too large becomes infinite.
    javas = text.rlike("[dDfFxX]")
    return (
        functions.when(digits_only, near)
        .when(text.rlike(_NOT_FINITE), near)
        .when(~javas, _only(functions.abs(near) != float("inf"), near))
    )


def _fits_scale(text: Column, scale: int) -> Column:
    """Whether a number with an exponent has no digit but zeros behind so many places."""
    whole, fraction, exponent = (functions.regexp_extract(text, _EXPONENT, group) for group in (1, 2, 3))
    digits = functions.concat(whole, fraction)
    zeros = functions.length(digits) - functions.length(functions.rtrim(digits, functions.lit("0")))
    places = functions.length(fraction) - zeros - exponent.try_cast("int")
    return (places <= scale) | (zeros == functions.length(digits))


_FORMS: dict[str, Callable[[Column, Type, Type], Column]] = {
    "variant": _as_variant,
    "uuid": _as_uuid,
    "binary": _as_bytes,
    "fixed": _as_bytes,
    **dict.fromkeys(("int", "long", "float", "double", "decimal"), _as_number),
}
