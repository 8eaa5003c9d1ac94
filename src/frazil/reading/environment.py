"""Files of variables: a line each, `NAME=value`, as `.env` files have them."""

from __future__ import annotations

import re
from pathlib import Path

from frazil.errors import ConfigError, SourceLocation
from frazil.reading.file import text_of

_LINE = re.compile(r"""^\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.*?)\s*$""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def variables_of(file: Path | str) -> dict[str, str]:
    """The variables of a file. Values may stand in quotes; within double ones `\\n` is a new line. `#` begins a comment."""
    found: dict[str, str] = {}
    for number, line in enumerate(text_of(file).splitlines()):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line)
        value = _value(match["value"]) if match is not None else None
        if match is None or value is None:
            # The line itself is not shown: it may hold a secret.
            message = "This line does not set a variable" if match is None else f"The quotes of {match['name']} do not end"
            place = SourceLocation(str(file), number + 1, 1)
            raise ConfigError("bad-env-file", message, fix="Write NAME=value, a line each.", location=place)
        found[match["name"]] = value
    return found


def _value(text: str) -> str | None:
    if text[:1] not in ("'", '"'):
        return re.split(r"\s+#", text, maxsplit=1)[0] if not text.startswith("#") else ""
    quote = text[0]
    body = r"(?:[^'])*" if quote == "'" else r"""(?:[^"\\]|\\.)*"""
    match = re.fullmatch(rf"{quote}({body}){quote}(?:\s+#.*|\s*)", text)
    if match is None:
        return None
    inner = match[1]
    return inner if quote == "'" else re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), inner)
