"""Plain scalars of YAML, typed by the core schema of version 1.2."""

from __future__ import annotations

import re

NULL_WORDS = ("", "~", "null", "Null", "NULL")
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,300}|0o[0-7]{1,300}|0x[0-9a-fA-F]{1,300}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def plain_value(text: str) -> str | int | float | bool | None:
    """What a plain scalar is in the core schema of YAML 1.2."""
    if text in NULL_WORDS:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace(".", "", 1) if text.lower().endswith(("inf", "nan")) else text)
    return text
