"""What code that is not frazil's raises, as errors for people: where in its file, and whether trying again may help."""

from __future__ import annotations

import linecache
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from frazil.errors import ConfigError, FrazilError, SourceAway, SourceLocation
from frazil.model.secrets import scrub

TOO_MANY = 429
DENIED = (401, 403)


@contextmanager
def asking(what: str, file: str | None = None) -> Iterator[None]:
    """Turns what is raised within into frazil's errors. ``what`` is asked, and ``file`` is the user's own, if any."""
    try:
        yield
    except FrazilError:
        raise
    except Exception as error:
        raise explained(error, what, file) from error


def explained(error: Exception, what: str, file: str | None = None) -> FrazilError:
    """An error of the source as frazil has it."""
    location = place_in(error, file) if file is not None else None
    message = f"{what}: {words_of(error)}"
    status = _status(error)
    if status in DENIED:
        return ConfigError("source-not-readable", message, fix="Check `authentication` of the source.", location=location)
    if _may_pass(error, status):
        return SourceAway(
            "source-unreachable", message, fix="Check its address, that the service runs, and the network.", location=location
        )
    fix = "Correct the source. With --debug the whole trace is shown." if location else "With --debug the whole trace is shown."
    return ConfigError("source-failed", message, fix=fix, location=location)


def words_of(error: BaseException) -> str:
    """What an error says, in one line."""
    if isinstance(error, ValidationError):
        found = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False, include_input=False)]
        return scrub(f"{error.title} does not take what it was given: " + "; ".join(f"{at}: {why}" for at, why in found))
    text = " ".join(str(error).split())
    return scrub(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def place_in(error: BaseException, file: str) -> SourceLocation | None:
    """The innermost line of a file that an error came through."""
    if isinstance(error, SyntaxError) and error.filename is not None and _same(error.filename, file):
        return SourceLocation(file, error.lineno or 1, error.offset or 1, (error.text or "").rstrip())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _same(frame.filename, file)]
    if not frames:
        return None
    line = frames[-1].lineno or 1
    text = linecache.getline(frames[-1].filename, line).rstrip()
    return SourceLocation(file, line, (frames[-1].colno or 0) + 1, text)


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _causes(error: BaseException) -> Iterator[BaseException]:
    behind: BaseException | None = error
    while behind is not None:
        yield behind
        behind = behind.__cause__


def _status(error: BaseException) -> int | None:
    """The status of the answer that an error is about."""
    for one in _causes(error):
        status = getattr(getattr(one, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
    return None


def _may_pass(error: BaseException, status: int | None) -> bool:
    if status is not None:
        return status == TOO_MANY or status >= 500
    import requests

    passing = (
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
        requests.exceptions.ContentDecodingError,
        requests.exceptions.RetryError,
        ConnectionError,
        TimeoutError,
    )
    return any(isinstance(one, passing) for one in _causes(error))
