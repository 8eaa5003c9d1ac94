"""Values in whose place others stand that show less: a hash, a token, a part, or nothing."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from frazil.columns.coerce import Casting, converted
from frazil.columns.schema import is_key
from frazil.columns.types import iceberg_type
from frazil.model.coercion import CoercionOptions
from frazil.model.hidden import KEY_MARK
from frazil.model.transform import HashFields, MaskFields, RedactFields, TokenizeFields, TruncateFields, Way
from frazil.model.types import Primitive
from frazil.write.shape.paths import Spot, placed, refusal, spot
from frazil.write.shape.secret import secret_text

PARTS = (StructType, ArrayType, MapType, VariantType)
"""What consists of several values."""
_TIMES = (TimestampType, TimestampNTZType)
_HOURS_AND_LESS = ("hour", "minute", "second")


def masked(transform: MaskFields, frame: DataFrame) -> DataFrame:
    """The frame with a value's mask in the place of each value of the columns that a transform names."""
    secret = secret_text(frame.sparkSession, text.get_secret_value()) if (text := transform.secret) is not None else None
    for path, way in transform.named:
        found = spot(frame, path, transform, way)
        if isinstance(found.kind, PARTS):
            words = f"{path!r} is {found.kind.simpleString()}, and only single values are {transform.done}"
            raise refusal(transform, way, words, fix="Name its fields, or flatten it first.")
        key = transform.distinguishes and len(found.names) == 1 and is_key(frame, found.names[0])
        frame = placed(frame, found, _mask(transform, found, way, secret))
        if key:
            frame = frame.withMetadata(found.names[0], {KEY_MARK: True})
    return frame


def _mask(transform: MaskFields, found: Spot, way: Way, secret: Column | None) -> Column:
    match transform:
        case HashFields():
            return _hashed(transform, found, secret)
        case TokenizeFields():
            return _token(found, secret)
        case RedactFields():
            return _redacted(transform, found, way)
        case TruncateFields():
            return _truncated(transform, found, way)


def _text(found: Spot) -> Column:
    """A value as text, in the same form as in a column of type string."""
    kind = iceberg_type(found.kind, found.path)
    return converted(found.value, kind, Primitive("string"), found.path, Casting(CoercionOptions())).value


def _hashed(transform: HashFields, found: Spot, salt: Column | None) -> Column:
    assert salt is not None, "the model asks for one"
    if found.kind.typeName() == "binary":
        salted = functions.concat(salt.cast("binary"), found.value)
    else:
        salted = functions.concat(salt, _text(found))
    if transform.algorithm == "xxhash64":
        return functions.when(salted.isNotNull(), functions.xxhash64(salted))
    return functions.sha2(salted, int(transform.algorithm.removeprefix("sha")))


def _token(found: Spot, key: Column | None) -> Column:
    """The value encrypted so that equal values have equal tokens: what CBC begins with is made from key and value."""
    assert key is not None, "the model asks for one"
    value = found.value if found.kind.typeName() == "binary" else _text(found).cast("binary")
    begin = functions.unhex(functions.sha2(functions.concat(functions.lit("iv").cast("binary"), key.cast("binary"), value), 256))
    whole = functions.aes_encrypt(
        value,
        functions.unhex(functions.sha2(key.cast("binary"), 256)),
        functions.lit("CBC"),
        functions.lit("PKCS"),
        functions.substring(begin, 1, 16),
    )
    return functions.when(found.value.isNotNull(), functions.base64(whole))


def _redacted(transform: RedactFields, found: Spot, way: Way) -> Column:
    if not transform.keeps and transform.with_ is None:
        return functions.lit(None).cast(found.kind)
    if not isinstance(found.kind, StringType):
        words = f"{found.path!r} is {found.kind.simpleString()}, and only texts are redacted in part, or to a text"
        raise refusal(
            transform, way, words, fix="Redact it without further options, which makes it null; or make it a text first."
        )
    if not transform.keeps:
        return functions.when(found.value.isNotNull(), functions.lit(transform.with_))
    length, kept = functions.char_length(found.value), transform.keep_first + transform.keep_last
    stars = functions.repeat(functions.lit("*"), length - kept)
    first = functions.substring(found.value, 1, transform.keep_first)
    last = functions.right(found.value, functions.lit(transform.keep_last))
    # What is not longer than what may be seen would be seen as a whole.
    return functions.when(length > kept, functions.concat(first, stars, last)).otherwise(
        functions.repeat(functions.lit("*"), length)
    )


def _truncated(transform: TruncateFields, found: Spot, way: Way) -> Column:
    value, kind = found.value, found.kind
    match kind:
        case StringType() if transform.length is not None:
            return functions.substring(value, 1, transform.length)
        case NumericType() if transform.width is not None:
            return _rounded_down(value, kind, transform.width)
        case DateType() if transform.unit is not None and transform.unit not in _HOURS_AND_LESS:
            return functions.trunc(value, transform.unit)
        case TimestampType() | TimestampNTZType() if transform.unit is not None:
            return functions.date_trunc(transform.unit, value).cast(kind)
        case _:
            words = f"{found.path!r} is {kind.simpleString()}, which {transform.means} does not truncate"
            raise refusal(transform, way, words, fix="Texts take length, numbers width, dates and timestamps unit.")


def _rounded_down(value: Column, kind: NumericType, width: int) -> Column:
    if isinstance(kind, IntegralType):
        return (value - functions.pmod(value, functions.lit(width).cast(kind))).cast(kind)
    step = functions.lit(width).cast(kind) if isinstance(kind, DecimalType) else functions.lit(float(width))
    return (functions.floor(value / step) * step).cast(kind)
