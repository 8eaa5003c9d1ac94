"""Iceberg's types as a small tree, the text that users write for them, and the JSON of Iceberg's metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PRIMITIVES = (
    "boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz",
    "timestamp_ns", "timestamptz_ns", "string", "uuid", "binary", "variant",
)  # fmt: skip

# What users of Spark, SQL, Python and Bizon write for the same types.
_ALIASES = {
    "bool": "boolean", "integer": "int", "smallint": "int", "tinyint": "int", "byte": "int", "short": "int",
    "bigint": "long", "real": "float", "double precision": "double", "str": "string", "text": "string", "varchar": "string",
    "bytes": "binary", "bytea": "binary", "timestamp_ntz": "timestamp", "timestamp_ltz": "timestamptz",
    "datetime": "timestamptz",
}  # fmt: skip

# Types that Iceberg's writers in Spark do not have, with what can carry their values instead.
NOT_WRITABLE = {
    "time": "string, or as long with a number of microseconds",
    "timestamp_ns": "timestamp, which has microseconds, or as long with a number of nanoseconds",
    "timestamptz_ns": "timestamptz, which has microseconds, or as long with a number of nanoseconds",
}

# Types that came with version 3 of the table format.
NEW_IN_V3 = ("variant",)

# Types that an equality delete, and so a key, cannot have.
NOT_KEYS = ("float", "double", "map", "list", "struct", "variant")

# Types by which rows are found in another way. From equality deletes on such a column Iceberg's readers keep one value,
# the last: they read each into the memory of the one before.
NOT_IN_EQUALITY_DELETES = ("fixed",)


@dataclass(frozen=True)
class Primitive:
    """A type without parameters."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Decimal:
    """An exact number."""

    precision: int
    scale: int
    name = "decimal"

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


@dataclass(frozen=True)
class Fixed:
    """Bytes of one length."""

    length: int
    name = "fixed"

    def __str__(self) -> str:
        return f"fixed[{self.length}]"


@dataclass(frozen=True)
class ListType:
    """A list."""

    element: Type
    element_required: bool = False
    name = "list"

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True)
class MapType:
    """A map."""

    key: Type
    value: Type
    value_required: bool = False
    name = "map"

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


@dataclass(frozen=True)
class Column:
    """A column, or a field of a struct."""

    name: str
    type: Type
    required: bool = False
    doc: str | None = None


@dataclass(frozen=True)
class StructType:
    """Named fields in an order."""

    fields: tuple[Column, ...]
    name = "struct"

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{_quoted(field.name)}: {field.type}' for field in self.fields)}>"

    def column(self, path: str) -> Column | None:
        """The field at a dotted path."""
        head, _, rest = path.partition(".")
        for field in self.fields:
            if field.name == head:
                if not rest:
                    return field
                return field.type.column(rest) if isinstance(field.type, StructType) else None
        return None


Type = Primitive | Decimal | Fixed | ListType | MapType | StructType


def leaves(kind: Type, path: str = "") -> Iterator[tuple[str, Type]]:
    """The types in a type that have no parts, each with its dotted path."""
    match kind:
        case StructType() if kind.fields or not path:
            for field in kind.fields:
                yield from leaves(field.type, f"{path}.{field.name}".lstrip("."))
        case ListType():
            yield from leaves(kind.element, f"{path}.element")
        case MapType():
            yield from leaves(kind.key, f"{path}.key")
            yield from leaves(kind.value, f"{path}.value")
        case _:
            yield path, kind


@dataclass(frozen=True)
class Unwritable:
    """A column that cannot be written: its path, the code of the error, why, and what to do."""

    path: str
    code: str
    why: str
    fix: str


def unwritable(schema: StructType, format_version: int) -> Iterator[Unwritable]:
    """The columns that cannot be written to a table of this version."""
    for path, kind in leaves(schema):
        if kind.name in NOT_WRITABLE:
            why = f"column {path!r}: Spark cannot write Iceberg's type {kind}"
            yield Unwritable(path, "type-not-in-spark", why, f"Declare it as {NOT_WRITABLE[kind.name]}.")
        elif kind.name in NEW_IN_V3 and format_version < 3:
            why = f"column {path!r}: the type {kind} needs version 3 of the table format, not {format_version}"
            yield Unwritable(path, "type-needs-v3", why, "Set format_version: 3 for a new table, or declare it as string.")
        elif kind == StructType(()):
            why = f"column {path!r} is a struct without fields, which files cannot hold"
            yield Unwritable(path, "struct-empty", why, "Leave it out, or declare the column as string: it becomes JSON.")


def schema_json(schema: StructType, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    """Iceberg's JSON of a new table's schema. Ids are given level by level, as Iceberg does; keys become identifier fields."""
    ids = iter(range(1, 1_000_000))
    fields = _fields_json(schema.fields, keys, ids)
    by_name = {field["name"]: field["id"] for field in fields}
    return {
        "type": "struct",
        "schema-id": 0,
        "fields": fields,
        "identifier-field-ids": [by_name[key] for key in keys if key in by_name],
    }


def _fields_json(columns: tuple[Column, ...], keys: tuple[str, ...], ids: Iterator[int]) -> list[dict[str, Any]]:
    numbered = [(next(ids), column) for column in columns]
    return [
        {
            "id": number,
            "name": column.name,
            "required": column.required or column.name in keys,
            "type": type_json(column.type, ids),
        }
        | ({"doc": column.doc} if column.doc else {})
        for number, column in numbered
    ]


def type_json(kind: Type, ids: Iterator[int]) -> str | dict[str, Any]:
    """Iceberg's JSON of one type; nested fields take their ids from `ids`."""
    match kind:
        case StructType():
            return {"type": "struct", "fields": _fields_json(kind.fields, (), ids)}
        case ListType():
            number = next(ids)
            element = type_json(kind.element, ids)
            return {"type": "list", "element-id": number, "element-required": kind.element_required, "element": element}
        case MapType():
            key_id, value_id = next(ids), next(ids)
            key, value = type_json(kind.key, ids), type_json(kind.value, ids)
            return {"type": "map", "key-id": key_id, "key": key, "value-id": value_id,
                    "value-required": kind.value_required, "value": value}  # fmt: skip
        case _:
            return str(kind)


def type_from_json(data: str | dict[str, Any]) -> Type:
    """Reads Iceberg's JSON of a type; field ids are not kept."""
    if isinstance(data, str):
        return parse_type(data)
    match data["type"]:
        case "struct":
            return StructType(
                tuple(Column(f["name"], type_from_json(f["type"]), f["required"], f.get("doc")) for f in data["fields"])
            )
        case "list":
            return ListType(type_from_json(data["element"]), data["element-required"])
        case "map":
            return MapType(type_from_json(data["key"]), type_from_json(data["value"]), data["value-required"])
        case other:
            raise ValueError(f"unknown type {other!r}")


_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][\w ]*?)(?=\s*[<>(),:\[\]]|\s*$)|(?P<number>\d+)|(?P<mark>[<>(),:\[\]])|(?P<quoted>`[^`]+`))"
)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"`{name}`"


def parse_type(text: str) -> Type:
    """Reads a type as users write it: `long`, `decimal(10, 2)`, `list<string>`, `struct<a: int, b: map<string, date>>`."""
    tokens = _tokens(text)
    kind = _parse(tokens, text)
    if tokens:
        raise ValueError(f"cannot read the type {text!r}: {tokens[0]!r} was not expected")
    return kind


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None or match.end() == at:
            raise ValueError(f"cannot read the type {text!r} at {stripped[at:]!r}")
        found.append(match.group().strip())
        at = match.end()
    if not found:
        raise ValueError("the type is empty")
    return found


def _parse(tokens: list[str], text: str) -> Type:
    word = _take(tokens, text).lower()
    name = _ALIASES.get(word, word)
    if name in PRIMITIVES:
        if tokens[:1] == ["("] and name == "string":  # varchar(20): Iceberg has no length
            _numbers(tokens, text, "(", ")")
        return Primitive(name)
    match name:
        case "decimal" | "numeric":
            sizes = _numbers(tokens, text, "(", ")") if tokens[:1] == ["("] else [38, 9]
            precision, scale = [*sizes, 0][:2]
            if len(sizes) > 2 or not 1 <= precision <= 38 or scale > precision:
                raise ValueError(f"{text!r}: a decimal has a precision of 1 to 38 and a scale not above it")
            return Decimal(precision, scale)
        case "fixed":
            lengths = _numbers(tokens, text, *(("(", ")") if tokens[:1] == ["("] else ("[", "]")))
            if len(lengths) > 1 or lengths[0] < 1:
                raise ValueError(f"{text!r}: fixed has one length of at least 1")
            return Fixed(lengths[0])
        case "list" | "array":
            _expect(tokens, "<", text)
            element = _parse(tokens, text)
            _expect(tokens, ">", text)
            return ListType(element)
        case "map":
            _expect(tokens, "<", text)
            key = _parse(tokens, text)
            _expect(tokens, ",", text)
            value = _parse(tokens, text)
            _expect(tokens, ">", text)
            return MapType(key, value)
        case "struct":
            return _parse_struct(tokens, text)
        case _:
            known = ", ".join((*PRIMITIVES, "decimal(p, s)", "fixed[n]", "list<...>", "map<..., ...>", "struct<...>"))
            raise ValueError(f"unknown type {word!r}; known: {known}")


def _parse_struct(tokens: list[str], text: str) -> StructType:
    _expect(tokens, "<", text)
    fields: list[Column] = []
    while True:
        name = _take(tokens, text).strip("`")
        _expect(tokens, ":", text)
        fields.append(Column(name, _parse(tokens, text)))
        if (mark := _take(tokens, text)) == ">":
            return StructType(tuple(fields))
        if mark != ",":
            raise ValueError(f"cannot read the type {text!r}: {mark!r} was not expected")


def _numbers(tokens: list[str], text: str, opening: str, closing: str) -> list[int]:
    _expect(tokens, opening, text)
    numbers: list[int] = []
    while True:
        token = _take(tokens, text)
        if not token.isdecimal():
            raise ValueError(f"cannot read the type {text!r}: a number was expected, not {token!r}")
        numbers.append(int(token))
        if (mark := _take(tokens, text)) == closing:
            return numbers
        if mark != ",":
            raise ValueError(f"cannot read the type {text!r}: {mark!r} was not expected")


def _take(tokens: list[str], text: str) -> str:
    if not tokens:
        raise ValueError(f"the type {text!r} ends too early")
    return tokens.pop(0)


def _expect(tokens: list[str], mark: str, text: str) -> None:
    if (token := _take(tokens, text)) != mark:
        raise ValueError(f"cannot read the type {text!r}: {mark!r} was expected, not {token!r}")
