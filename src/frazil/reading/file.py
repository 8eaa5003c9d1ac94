"""A file of the user's on its way in and its problems on their way out, whatever the file says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from frazil.errors import ConfigError, ConfigErrors
from frazil.model.secrets import scrub
from frazil.reading.document import printable


def text_of(path: Path | str) -> str:
    """The text of a file; a ConfigError when it cannot be read at all."""
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        fix = "Name the file with --config, or write one with `frazil init`."
        raise ConfigError("config-not-found", f"The file {path} does not exist", fix=fix) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no file name"
        raise ConfigError("config-unreadable", f"The file {path} cannot be read: {reason}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        message = f"The file {path} is not UTF-8 text: line {line} holds other bytes"
        raise ConfigError("bad-yaml", message, fix="Save the file as UTF-8.") from None


def config_errors(problems: Iterable[ConfigError]) -> ConfigErrors:
    """The problems of a file in the order of its lines, without what is secret."""
    return ConfigErrors(_scrubbed(problem) for problem in sorted(problems, key=_position))


def _position(problem: ConfigError) -> tuple[int, int]:
    place = problem.location
    return (place.line, place.column) if place is not None else (0, 0)


def _scrubbed(problem: ConfigError) -> ConfigError:
    message, fix = printable(scrub(problem.message)), printable(scrub(problem.fix))
    place = problem.location
    location = replace(place, text=scrub(place.text)) if place is not None else None
    return ConfigError(problem.code, message, fix=fix, location=location)
