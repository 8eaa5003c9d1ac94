"""Types of SQL columns in frazil's own words: `numeric(10, 2)` is `decimal(38, 2)`, `text[]` is `list<string>`."""

from __future__ import annotations

import re

from frazil.doors.sql.cursor import Cursor, did_you_mean
from frazil.doors.sql.statements import Word
from frazil.doors.sql.tokens import Mark

_PLAIN = {
    "SMALLINT": "int", "INT2": "int", "INT": "int", "INTEGER": "int", "INT4": "int",
    "BIGINT": "long", "INT8": "long", "LONG": "long",
    "REAL": "float", "FLOAT4": "float", "FLOAT": "double", "FLOAT8": "double", "DOUBLE": "double",
    "TEXT": "string", "STRING": "string", "VARCHAR": "string", "CHAR": "string", "CHARACTER": "string", "BPCHAR": "string",
    "BYTEA": "binary", "BINARY": "binary",
    "BOOL": "boolean", "BOOLEAN": "boolean",
    "DATE": "date", "TIME": "string", "TIMETZ": "string", "TIMESTAMP": "timestamp", "TIMESTAMPTZ": "timestamptz",
    "UUID": "string", "JSON": "string", "JSONB": "string", "INTERVAL": "string",
}  # fmt: skip
_FIELD = re.compile(r"[^\W\d]\w*")
_NUMERIC = ("NUMERIC", "DECIMAL", "DEC")
_CONTAINERS = ("ARRAY", "LIST", "MAP", "STRUCT", "ROW", "RECORD")

# Materialize's numbers have up to 39 digits, of which Iceberg keeps 38; without a scale ten of them are behind the point.
_DIGITS, _SCALE = 38, 10

# Times, and how many digits of a second they have at most, in SQL as in Iceberg.
_TIMES = ("TIME", "TIMETZ", "TIMESTAMP", "TIMESTAMPTZ")
_SECOND_DIGITS = 6


def column_type(cursor: Cursor) -> Word:
    """The type that comes next."""
    at = cursor.at
    return Word(_type(cursor), at)


def _type(cursor: Cursor) -> str:
    made = _single(cursor)
    while True:
        if cursor.take("["):
            cursor.expect("]")
            made = f"list<{made}>"
        elif cursor.take("LIST"):
            made = f"list<{made}>"
        else:
            return made


def _single(cursor: Cursor) -> str:
    token = cursor.token
    if token.mark is not Mark.WORD:
        cursor.fail("the type of a column is expected here")
    name = token.text.upper()
    if name in _CONTAINERS:
        return _container(cursor, name)
    if name in _NUMERIC:
        cursor.next()
        return _numeric(cursor)
    if name not in _PLAIN:
        known = [*_PLAIN, *_NUMERIC, *_CONTAINERS]
        near = did_you_mean(name, known) or f"There are: {', '.join(one.lower() for one in known)}."
        cursor.fail(f"there is no type {token.text}", code="sql-type", fix=near)
    cursor.next()
    if name == "DOUBLE":
        cursor.take("PRECISION")
    if name == "CHARACTER":
        cursor.take("VARYING")
    if name in _TIMES:
        return _time(cursor, name)
    if _PLAIN[name] == "string" and cursor.take("("):
        cursor.number("the length")
        cursor.expect(")")
    return _PLAIN[name]


def _time(cursor: Cursor, name: str) -> str:
    """`timestamp(3) with time zone`. Whatever the precision, all digits of a value are kept."""
    if cursor.take("("):
        at = cursor.at
        precision = cursor.number(f"the precision of a {name.lower()}")
        cursor.expect(")")
        if precision > _SECOND_DIGITS:
            raise cursor.wrong("sql-type", at, f"a {name.lower()} has a precision of 0 to {_SECOND_DIGITS}")
    if name in ("TIMESTAMP", "TIME"):
        if cursor.take("WITH"):
            cursor.expect("TIME", "ZONE")
            name += "TZ"
        elif cursor.take("WITHOUT"):
            cursor.expect("TIME", "ZONE")
    return _PLAIN[name]


def _numeric(cursor: Cursor) -> str:
    """`NUMERIC(precision, scale)` as Iceberg's decimal, which always has the most digits that Iceberg can keep."""
    scale = _SCALE
    if cursor.take("("):
        at = cursor.at
        precision = cursor.number("the precision")
        scale = cursor.number("the scale") if cursor.take(",") else 0
        cursor.expect(")")
        if not (1 <= precision <= _DIGITS + 1 and scale <= min(precision, _DIGITS)):
            raise cursor.wrong("sql-type", at, f"a numeric has 1 to {_DIGITS} digits, and no more of them behind the point")
    return f"decimal({_DIGITS}, {scale})"


def _container(cursor: Cursor, name: str) -> str:
    cursor.next()
    if name in ("ARRAY", "LIST"):
        cursor.expect("<")
        inner = _type(cursor)
        cursor.expect(">")
        return f"list<{inner}>"
    if name == "MAP":
        return _map(cursor)
    closing = ">" if cursor.take("<") else ")"
    if closing == ")":
        cursor.expect("(")
    fields = [_field(cursor)]
    while cursor.take(","):
        fields.append(_field(cursor))
    cursor.expect(closing)
    return f"struct<{', '.join(fields)}>"


def _map(cursor: Cursor) -> str:
    """`map<text, bigint>`, or `map[text => bigint]`."""
    if cursor.take("["):
        key = _type(cursor)
        cursor.expect("=", ">")
        value = _type(cursor)
        cursor.expect("]")
    else:
        cursor.expect("<")
        key = _type(cursor)
        cursor.expect(",")
        value = _type(cursor)
        cursor.expect(">")
    return f"map<{key}, {value}>"


def _field(cursor: Cursor) -> str:
    name = cursor.column()
    if not _FIELD.fullmatch(name.text):
        raise cursor.wrong(
            "sql-type", name.at, "names of fields within a type have letters, digits and _, and begin with no digit"
        )
    cursor.take(":")
    return f"{name.text}: {_type(cursor)}"
