"""The class that a Bizon file means by its source, and the settings as that class takes them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from frazil.doors.bizon.source import KAFKA, PagedEntry
from frazil.doors.bizon.without_effect import drop_unknown
from frazil.errors import ConfigError
from frazil.model.names import nearest
from frazil.reading.document import Document, Path
from frazil.reading.explain import checked, suggestion, unknown_key, written_path
from frazil.reading.scalars import plain_value
from frazil.sources.pages.classes import classes_in, classes_of, reads_increments, require_package, source_names
from frazil.sources.pages.failures import asking

BASE: Path = ("source",)

INCREMENTAL, FULL_REFRESH = "incremental", "full_refresh"


def streams_of(source: str) -> dict[str, str]:
    """The streams of a source, and the most that each can do."""
    if source == KAFKA:
        return {"topic": INCREMENTAL}
    found = classes_of(source)
    return {name: INCREMENTAL if reads_increments(made) else FULL_REFRESH for name, made in found.items()}


def known_sources() -> tuple[str, ...]:
    """The sources that a Bizon file can name here."""
    return (KAFKA, *source_names())


def is_paged(source: Any) -> bool:
    """Whether a source, as it is written, is one that is asked for pages. What looks like a slip for Kafka's is none."""
    if not isinstance(source, Mapping):
        return False
    name = source.get("name")
    if source.get("source_file_path") is not None:
        return True
    return isinstance(name, str) and name != KAFKA and (name in source_names() or nearest(name, known_sources()) != KAFKA)


def class_of(document: Document, source: PagedEntry, notices: list[tuple[Path, str]]) -> type[Any] | None:
    """The class that reads the stream; None when there is none, and the problem is in the document then.

    Bizon looks for a stream when it runs. One that is not there is reported, unless it looks misspelt, and stops a run.
    """
    require_package()
    if source.source_file_path is None and source.name not in source_names():
        place = document.value_place((*BASE, "name"))
        _tell_unknown(document, "source", source.name, known_sources(), place)
        return None
    try:
        found = classes_of(source.name) if source.source_file_path is None else classes_in(source.source_file_path)
    except ConfigError as error:
        error.location = error.location or document.value_place((*BASE, "source_file_path"))
        document.problems.append(error)
        return None
    if source.stream not in found and nearest(source.stream, found) is None and source.source_file_path is None:
        known = f"Known values: {', '.join(found)}."
        words = f"the source {source.name} has no stream `{source.stream}`: a run would stop. {known}"
        notices.append(((*BASE, "stream"), words))
        return None
    if source.stream not in found:
        _tell_unknown(document, "stream", source.stream, tuple(found), document.value_place((*BASE, "stream")))
        return None
    made = found[source.stream]
    if source.sync_mode == INCREMENTAL and not reads_increments(made):
        message = f"the stream {source.stream} of {source.name} cannot tell what is new: its class has no get_records_after"
        fix = "Leave sync_mode out: each run reads all of it, in place of what was there."
        place = document.value_place((*BASE, "sync_mode"))
        document.problems.append(ConfigError("invalid-value", message, fix=fix, location=place))
        return None
    return made


def _tell_unknown(document: Document, what: str, name: str, known: tuple[str, ...], place: Any) -> None:
    fix = suggestion(name, known, f"Known values: {', '.join(known)}.")
    if what == "source":
        fix += " A source of your own is named with source_file_path, or with --custom-source."
    document.problems.append(ConfigError("unknown-value", f"There is no {what} `{name}`", fix=fix, location=place))


def settings_of(
    document: Document, made: type[Any], file: str | None, notices: list[tuple[Path, str]]
) -> Mapping[str, Any] | None:
    """What stands in the source, after its class has found nothing wrong with it; None otherwise."""
    with asking("The settings that the source takes", file):
        model: type[BaseModel] = made.get_config_class()
    before = len(document.problems)
    _take_types(document, model)
    if model.model_config.get("extra") != "allow":
        known = {key for name, field in model.model_fields.items() for key in (name, field.alias, field.validation_alias)}
        names = [key for key in known if isinstance(key, str)]
        notices += drop_unknown(document, names)
        document.problems += [unknown_key(document, (*BASE, key), names) for key in document.at(BASE) if key not in known]
    if checked(model, document, BASE) is None or len(document.problems) > before:
        return None
    return copy.deepcopy(dict(document.at(BASE)))


def _take_types(document: Document, model: type[BaseModel]) -> None:
    """Plain scalars are what YAML sees in them, as for Bizon; but a password of digits stays a text where one is asked for."""
    texts = {path: text for path, text in document.plain.items() if path[:1] == BASE}
    for path, text in texts.items():
        document.put(path, plain_value(text))
    try:
        model.model_validate(document.at(BASE))
    except ValidationError as error:
        for found in error.errors(include_url=False):
            path = (*BASE, *written_path(found["loc"], document.at(BASE)))
            if found["type"] == "string_type" and path in texts:
                document.put(path, texts[path])
