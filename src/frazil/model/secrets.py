"""Keeps secrets out of everything that people or machines read: errors, logs, JSON, reports.

Fields that are secret by nature are ``SecretStr`` and print as stars. Free-form properties are judged by their name, and by
what their value looks like: user info in an address, the signature of a SAS, a token. And every secret value that a
configuration brings is remembered, so that :func:`scrub` can remove it from text that frazil did not write itself, such as the
message of a JDBC driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, SecretStr

MASK = "**********"

# Names of properties whose values are secret. Spark's own redaction is given the same pattern.
SECRET_NAME = re.compile(
    r"(?i)secret|password|passwd|token|credential|authorization|access[-_.]?key|connection[-_.]?string|"
    r"private[-_.]?key|keystore[-_.]?key|account[-_.]?key|jaas|api[-_.]?key|cookie|(?:^|[-_.])sas(?:[-_.]|$)|"
    r"(?:cryption|\bsse)[-_.]?key(?![-_.]?id)"
)

# What secrets look like within text. What stands before one is shown.
_SECRET_PARTS = (
    # Of an address: `user:password@`, and for the web also `token@`.
    re.compile(r"(?P<head>://[^/\s:@]*:)(?P<secret>[^@\s]+(?:@[^@/\s]+)*)(?=@)"),
    re.compile(r"(?i)(?P<head>https?://)(?P<secret>[^/\s?#@:]+)(?=@)"),
    # In a query, or in a SAS on its own.
    re.compile(r"(?i)(?P<head>(?:^|[?&;])(?:password|pwd|token|secret|sig)=)(?P<secret>[^&;\s]+)"),
    # Of an option of Java.
    re.compile(r"(?i)(?P<head>-D[\w.-]*(?:password|secret|token)[\w.-]*=)(?P<secret>[^\s'\"]+)"),
    # In a header; and a JSON web token anywhere.
    re.compile(r"(?i)(?P<head>\b(?:bearer|basic)\s+)(?P<secret>[\w.~+/=-]{16,})"),
    re.compile(r"(?P<head>)(?P<secret>\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?)"),
)

SECRET_VALUE = "|".join(re.sub(r"\(\?P<\w+>", "(?:", part.pattern) for part in _SECRET_PARTS)
"""What looks like a secret value, as a pattern for Java, which Spark redacts by."""

# Values that stand everywhere and are nobody's secret, though an option of a secret's name may have them.
_COMMON = ("true", "false", "none", "null")

_remembered: set[str] = set()


def is_secret_name(name: str) -> bool:
    """Whether a property of this name holds a secret."""
    return SECRET_NAME.search(name) is not None


def is_secret(name: str, value: str) -> bool:
    """Whether a property holds a secret, by its name or by what its value looks like."""
    return is_secret_name(name) or any(part.search(value) for part in _SECRET_PARTS)


def mask_uri(text: str) -> str:
    """The text with what looks like a secret masked: passwords in addresses, signatures, tokens."""
    for part in _SECRET_PARTS:
        text = part.sub(rf"\g<head>{MASK}", text)
    return text


def masked(value: Any, name: str = "") -> Any:
    """The value as people may see it: what is secret by its name is masked at every depth, and so are passwords inside URIs."""
    if value is not None and is_secret_name(name):
        return MASK
    match value:
        case Mapping():
            return {key: masked(item, str(key)) for key, item in value.items()}
        case list() | tuple():
            items = [masked(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        case str() if (shown := mask_uri(value)) != value:
            return shown
        case _:
            return value  # values of the model mask themselves


def remember(values: Iterable[str]) -> None:
    """From now on :func:`scrub` removes these values. Very short and common ones are left out: they would mangle every text."""
    _remembered.update(value for value in values if len(value) >= 4 and value.lower() not in _COMMON)


def scrub(text: str) -> str:
    """The text without any remembered secret and without passwords in URIs."""
    for value in sorted(_remembered, key=len, reverse=True):
        if value in text:
            text = text.replace(value, MASK)
    return mask_uri(text)


def secret_values(value: Any, name: str = "") -> Iterator[str]:
    """Every secret inside a value of the model: secret fields, secret properties, passwords in URIs."""
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case BaseModel():
            for field in type(value).model_fields:
                yield from secret_values(getattr(value, field), field)
        case Mapping():
            for key, item in value.items():
                yield from secret_values(item, str(key))
        case list() | tuple():
            for item in value:
                yield from secret_values(item, name)
        case str():
            if name and is_secret_name(name):
                yield value
            yield from _secrets_in(value)


def _secrets_in(text: str) -> Iterator[str]:
    for part in _SECRET_PARTS:
        for match in part.finditer(text):
            yield match["secret"]
            if (plain := unquote(match["secret"])) != match["secret"]:
                yield plain
    if "@" in text and "://" in text:
        try:
            password = urlsplit(text.removeprefix("jdbc:")).password
        except ValueError:
            return
        if password:
            yield password
