"""What pydantic complains of, in the words of a person. What the thing is called that is wrong, each door knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What pydantic calls a wrong type, and how a person says what was expected.
EXPECTED: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_type": "a number", "float_parsing": "a number", "finite_number": "a finite number",
    "bool_type": "true or false", "bool_parsing": "true or false",
    "dict_type": "a section with keys", "model_type": "a section with keys", "model_attributes_type": "a section with keys",
    "list_type": "a list", "tuple_type": "a list",
}  # fmt: skip

# Patterns of the model.
FORMS: Mapping[str, str] = {
    r"^[A-Za-z_][A-Za-z0-9_]*$": "must be made of letters, digits and underscores, and not begin with a digit",
    r"^[A-Za-z_][A-Za-z0-9_-]*$": "must be made of letters, digits, underscores and hyphens, and not begin with a digit",
    r"^[a-z0-9_]{1,63}$": "must be made of small letters, digits and underscores, 63 at most",
    r"^https?://": "must begin with http:// or https://",
    "^/": "must begin with /",
}

_BOUNDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
OUT_OF_RANGE = ("greater_than_equal", "less_than_equal", "greater_than", "less_than")


def bounds(context: Mapping[str, Any], least: float | None, greatest: float | None) -> str:
    """Between what a number must be; of one that is bounded on one side that bound alone."""
    if least is not None and greatest is not None:
        return f"between {least:,} and {greatest:,}"
    return next(f"{word} {context[key]:,g}" for key, word in _BOUNDS.items() if key in context)


def form(pattern: str, forms: Mapping[str, str] = FORMS) -> str:
    """What a text must be like."""
    return forms.get(pattern, f"must have the form {pattern}")
