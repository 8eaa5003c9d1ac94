"""What may stand where: the keys, values and limits of a model, found by the way through the file that leads to them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from inspect import isclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from frazil.reading.document import Path

# Keys that name another key: sections of the file and what the model calls them.
OTHER_NAMES = {"jdbc": "sql"}


def alternatives(annotation: Any) -> Iterator[Any]:
    """The types that an annotation allows, without None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from alternatives(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for each in get_args(annotation):
            yield from alternatives(each)
    elif annotation is not type(None):
        yield annotation


def models_of(annotation: Any) -> list[type[BaseModel]]:
    """The models among the types that an annotation allows."""
    return [kind for kind in alternatives(annotation) if isclass(kind) and issubclass(kind, BaseModel)]


def known_values(annotation: Any) -> list[str]:
    """The values of an enumeration or a literal."""
    values: list[str] = []
    for kind in alternatives(annotation):
        if get_origin(kind) is Literal:
            values += [str(value) for value in get_args(kind)]
        elif isclass(kind) and issubclass(kind, Enum):
            values += [str(member.value) for member in kind]
    return values


def key_of(name: str, info: FieldInfo) -> str:
    """How the file spells a field."""
    return info.alias or name


def field_of(model: type[BaseModel], key: str) -> FieldInfo | None:
    """The field that a key of the file means."""
    for name, info in model.model_fields.items():
        if key_of(name, info) == OTHER_NAMES.get(key, key):
            return info
    return None


def keys_of(model: type[BaseModel]) -> list[str]:
    """The keys of a section. The connector stands beside `config`, not in it."""
    keys = [key_of(name, info) for name, info in model.model_fields.items()]
    return [key for key in keys if key != "connector" or "config" in keys]


def annotation_at(model: type[BaseModel], path: Path, value: Any) -> Any:
    """The annotation of what stands at a path below a section of this model, or None where nothing is known."""
    annotation: Any = model
    for step in path:
        annotation = _below(annotation, step, value)
        value = _item(value, step)
        if annotation is None:
            return None
    return annotation


def limits(model: type[BaseModel], path: Path, value: Any) -> tuple[float | None, float | None]:
    """The least and the greatest number that an option takes."""
    holder = annotation_at(model, path[:-1], value)
    for kind in models_of(holder):
        info = field_of(kind, str(path[-1])) if path else None
        if info is not None:
            metadata = [*info.metadata, *_nested_metadata(info.annotation)]
            least = next((item.ge for item in metadata if getattr(item, "ge", None) is not None), None)
            greatest = next((item.le for item in metadata if getattr(item, "le", None) is not None), None)
            return least, greatest
    return None, None


def _nested_metadata(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        for item in get_args(annotation)[1:]:
            yield from getattr(item, "metadata", [item])
    for each in get_args(annotation):
        if get_origin(annotation) in (Union, UnionType):
            yield from _nested_metadata(each)


def sections_at(model: type[BaseModel], path: Path, value: Any) -> list[type[BaseModel]]:
    """The models that the section at a path can have; its ``type`` chooses among several."""
    annotation = annotation_at(model, path, value)
    for step in path:
        value = _item(value, step)
    return _chosen(annotation, value)


def _chosen(annotation: Any, value: Any) -> list[type[BaseModel]]:
    models = models_of(annotation)
    if len(models) < 2 or not isinstance(value, dict):
        return models
    kinds = {model.model_fields["type"].default: model for model in models if "type" in model.model_fields}
    return [kinds[value["type"]]] if value.get("type") in kinds else models


def _below(annotation: Any, step: str | int, value: Any) -> Any:
    models = _chosen(annotation, value)
    for model in models:
        info = field_of(model, str(step))
        if info is not None:
            return info.annotation
    if step == "config" and len(models) == 1:  # the settings of a transform may stand there
        return models[0]
    for kind in alternatives(annotation):
        if get_origin(kind) is tuple:  # also a mapping by name, for declared columns
            return get_args(kind)[0]
        if get_origin(kind) is dict:
            return get_args(kind)[1]
    return None


def _item(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step]
    return None
