"""The reference of every option, made from the models: ``python -m frazil.doors.yaml.reference > docs/reference.md``."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from inspect import cleandoc
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from frazil.doors.yaml.file import SOURCES, BrokerEntry, PipelineEntry, PipelineFile, SinkEntry, SourceEntry
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec
from frazil.model.transform import TRANSFORMS
from frazil.reading.anatomy import alternatives, key_of, keys_of, known_values, limits, models_of

_HEAD = """\
# Options of a pipeline file

<!-- Made from the models by `python -m frazil.doors.yaml.reference`; a test compares. Edit the models, not this page. -->

Every key that a pipeline file may have. How the file works, with examples, is in [pipelines.md](pipelines.md).
*required* marks keys that must be there. Every value may hold variables, such as `${VAR}` or `${VAR:-default}`.
"""

_TRANSFORMS = """\
## Transforms

A list of changes, made in order. The settings of a change stand beside `type`, or under `config`.
"""

Section = tuple[str, type[BaseModel]]


def reference() -> str:
    """The page."""
    parts = [_HEAD]
    seen: set[type[BaseModel]] = {model for _, model in _transforms()}
    parts += [_section(title, model, depth=2) for title, model in _file_sections()]
    parts += [_section(f"`{connector}`", model, depth=3) for connector, model in SOURCES.items()]
    parts += _sections(seen, *SOURCES.values())
    parts += [_section("Sinks", SinkEntry, depth=2), *_sections(seen, SinkEntry), _section("`iceberg`", SinkSpec, depth=3)]
    parts += _sections(seen, SinkSpec)
    parts += [_section("Pipelines", PipelineEntry, depth=2), *_sections(seen, PipelineEntry), _TRANSFORMS]
    parts += [_section(f"`{kind}`", model, depth=3) for kind, model in _transforms()]
    parts += [_section("Settings", Settings, depth=2), *_sections(seen, Settings)]
    return "\n".join(parts)


def _sections(seen: set[type[BaseModel]], *models: type[BaseModel]) -> list[str]:
    return [_section(title, model, depth=3) for title, model in _below("", seen, *models)]


def _file_sections() -> list[Section]:
    return [("The file", PipelineFile), ("Broker", BrokerEntry), ("Sources", SourceEntry)]


def _transforms() -> list[Section]:
    return [(str(model.model_fields["type"].default), model) for model in TRANSFORMS]


def _below(prefix: str, seen: set[type[BaseModel]], *models: type[BaseModel]) -> Iterator[Section]:
    """The sections within sections, each once."""
    for model in models:
        for name, info in model.model_fields.items():
            title = f"{prefix}{key_of(name, info)}"
            for inner in _inner_models(info.annotation):
                if inner not in seen:
                    seen.add(inner)
                    yield _heading(title, inner), inner
                    yield from _below(f"{title}.", seen, inner)


def _heading(title: str, model: type[BaseModel]) -> str:
    """The key, and its type where the type decides which keys the section has."""
    kind = model.model_fields.get("type")
    return f"`{title}`" if kind is None or not isinstance(kind.default, str) else f"`{title}` of type `{kind.default}`"


def _inner_models(annotation: Any) -> list[type[BaseModel]]:
    found = models_of(annotation)
    for kind in alternatives(annotation):
        if get_origin(kind) is tuple:
            found += models_of(get_args(kind)[0])
    return found


def _section(title: str, model: type[BaseModel], depth: int) -> str:
    words = cleandoc(model.__doc__ or "")
    keys = keys_of(model)
    items = [_item(model, name, info) for name, info in model.model_fields.items() if key_of(name, info) in keys]
    return f"{'#' * depth} {title}\n\n{words}\n\n" + "\n".join(items) + "\n"


def _item(model: type[BaseModel], name: str, info: FieldInfo) -> str:
    """An option as an item of a list: a table with so much in a row would be wider than a page."""
    key = key_of(name, info)
    facts = [_kind(info.annotation) + _range(model, key)]
    if info.is_required():
        facts.append("*required*")
    elif default := _default(info.get_default(call_default_factory=True)):
        facts.append(f"default {default}")
    return wrapped(f"- **`{key}`** ({'; '.join(facts)}): {info.description or ''}")


def wrapped(item: str, width: int = 130) -> str:
    """An item of a list in lines that end between words, but not within `code`."""
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), item)
    return textwrap.fill(whole, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def _range(model: type[BaseModel], key: str) -> str:
    least, greatest = limits(model, (key,), None)
    if least is not None and greatest is not None:
        return f", {least:,} to {greatest:,}"
    if least is not None:
        return f", at least {least:,}"
    return f", at most {greatest:,}" if greatest is not None else ""


_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", SecretStr: "text, secret"}


def _kind(annotation: Any) -> str:
    values = known_values(annotation)
    words = [" ".join(f"`{value}`" for value in values)] if values else []
    for kind in alternatives(annotation):
        origin = get_origin(kind)
        if kind in _WORDS:
            words.append(_WORDS[kind])
        elif origin is tuple:
            words.append(f"list of {_plural(get_args(kind)[0])}")
        elif origin is dict:
            words.append(_by_name(get_args(kind)[1]))
        elif models_of(kind):
            words.append("section")
    return " or ".join(dict.fromkeys(words))


def _by_name(annotation: Any) -> str:
    if get_origin(annotation) is tuple:
        return "texts by name, or lists of them"
    return "texts by name" if annotation is str else "section"


def _plural(annotation: Any) -> str:
    return "sections" if models_of(annotation) else f"{_kind(annotation)}s"


def _default(value: Any) -> str:
    if value is None or value in ((), {}) or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value.value if isinstance(value, Enum) else value}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
