"""What Spark says when something fails, as one line for people."""

from __future__ import annotations

import re

from frazil.model.secrets import scrub

_CAUSE = re.compile(r"^\s*(?:: |Caused by: )(?P<type>[\w.$]+(?:Exception|Error)\w*): (?P<text>.+)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}")


def whole_text(error: BaseException) -> str:
    """Everything that an error and those behind it say, Java's stack traces included: to look for known signs in."""
    texts: list[str] = []
    seen: set[int] = set()
    behind: BaseException | None = error
    while behind is not None and id(behind) not in seen:
        seen.add(id(behind))
        texts.append(str(behind))
        behind = behind.__cause__ or behind.__context__
    return "\n".join(texts)


def one_line(error: BaseException) -> str:
    """Spark's message without its stack trace, condition and state codes, and plans. The deepest cause of a failed job."""
    text = str(error).strip()
    causes = list(_CAUSE.finditer(text))
    line = causes[-1]["text"] if causes else (text.splitlines() or [type(error).__name__])[0]
    line = _STATE.sub("", _CONDITION.sub("", line.strip()))
    return scrub(line.rstrip("; ").replace(".;", ";"))
