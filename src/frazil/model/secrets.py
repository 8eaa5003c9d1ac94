"""Keeps secrets out of everything that people or machines read: errors, logs, JSON, reports.

Two lines of defence. Fields that are secret by nature are ``SecretStr`` and print as stars. Free-form properties are judged
by their name. And every secret value that a configuration brings is remembered, so that :func:`scrub` can remove it from
text that frazil did not write itself, such as the message of a JDBC driver.
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
    r"private[-_.]?key|keystore[-_.]?key|account[-_.]?key|jaas|api[-_.]?key|"
    r"(?:cryption|\bsse)[-_.]?key(?![-_.]?id)"
)

_URI_PASSWORD = re.compile(r"(?P<head>://[^/\s:@]*:)(?P<password>[^@\s]+(?:@[^@/\s]+)*)(?=@)")
_QUERY_PASSWORD = re.compile(r"(?i)(?P<head>[?&;](?:password|pwd|token|secret|sig)=)(?P<password>[^&;\s]+)")

# Values that stand everywhere and are nobody's secret, though an option of a secret's name may have them.
_COMMON = ("true", "false", "none", "null")

_remembered: set[str] = set()


def is_secret_name(name: str) -> bool:
    """Whether a property of this name holds a secret."""
    return SECRET_NAME.search(name) is not None


def mask_uri(text: str) -> str:
    """The text with the passwords of URIs in it masked."""
    text = _URI_PASSWORD.sub(rf"\g<head>{MASK}", text)
    return _QUERY_PASSWORD.sub(rf"\g<head>{MASK}", text)


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
            yield from _uri_passwords(value)


def _uri_passwords(text: str) -> Iterator[str]:
    for pattern in (_URI_PASSWORD, _QUERY_PASSWORD):
        for match in pattern.finditer(text):
            yield match["password"]
            if (plain := unquote(match["password"])) != match["password"]:
                yield plain
    if "@" in text and "://" in text:
        try:
            password = urlsplit(text.removeprefix("jdbc:")).password
        except ValueError:
            return
        if password:
            yield password
