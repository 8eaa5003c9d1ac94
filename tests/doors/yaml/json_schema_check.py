"""Just enough of JSON Schema (draft 2020-12) to try the schema of the pipeline file on files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: (isinstance(v, int) and not isinstance(v, bool)) or (isinstance(v, float) and v.is_integer()),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}

_NOTES = {"$schema", "$defs", "title", "description", "default", "then", "patternProperties"}


def complaints(schema: dict[str, Any], value: Any, root: dict[str, Any] | None = None, at: str = "") -> Iterator[str]:
    """Where a value does not conform, as dotted paths."""
    root = schema if root is None else root
    for keyword in schema:
        if keyword not in _NOTES:
            yield from _CHECKS[keyword](schema, value, root, at)


def conforms(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    return next(complaints(schema, value, root), None) is None


def _ref(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    yield from complaints(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root, at)


def _type(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(_TYPES[kind](value) for kind in kinds):
        yield at


def _properties(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    for key, inner in schema["properties"].items():
        if isinstance(value, dict) and key in value:
            yield from complaints(inner, value[key], root, f"{at}.{key}")


def _additional(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    for key in value if isinstance(value, dict) else ():
        if key in schema.get("properties", {}) or any(re.search(p, key) for p in schema.get("patternProperties", {})):
            continue
        if schema["additionalProperties"] is False:
            yield f"{at}.{key}"
        elif schema["additionalProperties"] is not True:
            yield from complaints(schema["additionalProperties"], value[key], root, f"{at}.{key}")


def _each(keyword: str, holds: Callable[[Any, Any], bool], kinds: tuple[type, ...]) -> Callable[..., Iterator[str]]:
    def check(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
        if isinstance(value, kinds) and not isinstance(value, bool) and not holds(value, schema[keyword]):
            yield at

    return check


def _any_of(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    if not any(conforms(each, value, root) for each in schema["anyOf"]):
        yield at


def _one_of(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    if sum(conforms(each, value, root) for each in schema["oneOf"]) != 1:
        yield at


def _all_of(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    for each in schema["allOf"]:
        yield from complaints(each, value, root, at)


def _if(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    if conforms(schema["if"], value, root):
        yield from complaints(schema["then"], value, root, at)


def _items(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    for index, item in enumerate(value if isinstance(value, list) else ()):
        yield from complaints(schema["items"], item, root, f"{at}.{index}")


def _names(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    for key in value if isinstance(value, dict) else ():
        yield from complaints(schema["propertyNames"], key, root, f"{at}.{key}")


def _enum(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    if value not in schema["enum"]:
        yield at


def _const(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    if value != schema["const"]:
        yield at


_NUMBERS = (int, float)

_CHECKS: dict[str, Callable[..., Iterator[str]]] = {
    "$ref": _ref, "type": _type, "properties": _properties, "additionalProperties": _additional, "items": _items,
    "anyOf": _any_of, "oneOf": _one_of, "allOf": _all_of, "if": _if, "propertyNames": _names, "enum": _enum, "const": _const,
    "required": _each("required", lambda v, keys: all(key in v for key in keys), (dict,)),
    "minimum": _each("minimum", lambda v, n: v >= n, _NUMBERS),
    "maximum": _each("maximum", lambda v, n: v <= n, _NUMBERS),
    "exclusiveMinimum": _each("exclusiveMinimum", lambda v, n: v > n, _NUMBERS),
    "minLength": _each("minLength", lambda v, n: len(v) >= n, (str,)),
    "maxLength": _each("maxLength", lambda v, n: len(v) <= n, (str,)),
    "minItems": _each("minItems", lambda v, n: len(v) >= n, (list,)),
    "pattern": _each("pattern", lambda v, p: re.search(p, v) is not None, (str,)),
}  # fmt: skip
