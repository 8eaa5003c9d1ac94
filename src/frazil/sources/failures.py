"""The boundary for what Spark raises when it reads a source: of folders, queries, tables and Kafka.

Spark passes on what file systems, drivers and clients say as text, and their classes cannot be asked from here: known signs are
looked for in it. What has none is taken for a source that is away, and is not `internal`: nobody has a list of what all stores
raise when they do not answer, and an outage of an unknown kind is not to stop a pipeline for good. It is tried again as often
as `retry` and `restart` say, then ends with Spark's words. An error of Python's is none of Spark's, and passes: it is
`internal`, unless it is of a kind that a source knows (`kafka.failures`, `pages.failures`, `postgres.connection`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from frazil.errors import ConfigError, FrazilError, SourceAway
from frazil.model.secrets import scrub

_CAUSE = re.compile(r"^\s*(?:: |Caused by: )(?P<type>[\w.$]+(?:Exception|Error)\w*): (?P<text>.+)$", re.MULTILINE)
# Errors of the bridge to Java itself; what Java raises has another type.
_JAVA_IS_GONE = ("Py4JNetworkError", "Py4JError")

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


@contextmanager
def asking_spark(what: str, explain: Callable[[Exception], FrazilError | None] = lambda _: None) -> Iterator[None]:
    """Turns what Spark raises within into frazil's errors: what ``explain`` makes of it, or that ``what`` could not be read."""
    try:
        yield
    except Exception as error:
        if isinstance(error, FrazilError) or not is_sparks(error):
            raise
        raise explain(error) or _unreachable(what, error) from error


def is_sparks(error: Exception) -> bool:
    """Known by the package, since the bridge to Java is not to be imported here. A Java that is gone says nothing of a source."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j") and type(error).__name__ not in _JAVA_IS_GONE


def _unreachable(what: str, error: Exception) -> FrazilError:
    text = whole_text(error)
    message = f"{what} could not be read: {one_line(error)}"
    if any(sign in text for sign in ("No FileSystem for scheme", "ClassNotFoundException", "Failed to find data source")):
        fix = "Give Spark the jars for it: spark.jars in settings.spark.conf, or frazil.session(components=...) in Python."
        return ConfigError("source-driver-missing", message, fix=fix)
    if any(sign in text for sign in ("AccessDenied", "Permission denied", "Forbidden", "Unauthorized", "status code: 403")):
        return ConfigError("source-not-readable", message, fix="Check the credentials and permissions.")
    return SourceAway("source-unreachable", message, fix="Check its address, that the service runs, and the credentials.")
