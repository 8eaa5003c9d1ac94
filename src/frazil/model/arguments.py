"""What is wrong with the arguments of a call: each with its path, the nearest name, and the file and line of the call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from types import UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from frazil.errors import ConfigError, ConfigErrors, SourceLocation
from frazil.model.base import InconsistencyError
from frazil.model.names import nearest

P = ParamSpec("P")
T = TypeVar("T")

# Through these Java calls Python: such a call has no line in the user's program.
_CALLS_OF_JAVA = ("py4j", "pyspark")
# Whoever calls frazil through these is the user: dlt makes a destination of its name.
_PASSED_THROUGH = (__name__.partition(".")[0], "dlt")


def located_at_caller(function: Callable[P, T]) -> Callable[P, T]:
    """Gives what is wrong with the arguments of a public function the file and line of the user's call."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except ConfigError as error:
            place = caller()
            for one in (error, *(error.errors if isinstance(error, ConfigErrors) else ())):
                one.location = one.location or place
            raise

    return call


def caller() -> SourceLocation | None:
    """The line of the user's program that called frazil; None when it is Java that called."""
    frame = sys._getframe()
    while (package := str(frame.f_globals.get("__name__", "")).partition(".")[0]) in _PASSED_THROUGH:
        if frame.f_back is None:
            return None
        frame = frame.f_back
    if package in _CALLS_OF_JAVA:
        return None
    line, _, column, _ = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    return SourceLocation(frame.f_code.co_filename, line or frame.f_lineno, (column or 0) + 1)


def argument_errors(
    error: ValidationError,
    model: type[BaseModel],
    *,
    code: str,
    of: str = "",
    named: Callable[[tuple[str, ...]], str] = ".".join,
) -> ConfigErrors:
    """Everything that pydantic found in values for ``model``. ``of`` is the argument that contains the values, if any.

    ``named``: what the user calls the option at a path through the model.
    """
    call = _Call(model, (of,) if of else (), code, named)
    found = [problem for details in error.errors(include_url=False) for problem in _errors_of(details, call)]
    return ConfigErrors(list({str(one): one for one in found}.values()))


def functions(argument: str, given: Any, *, code: str) -> tuple[Callable[..., Any], ...]:
    """An argument that is a list of functions."""
    if callable(given) or not isinstance(given, Iterable):
        raise ConfigError(code, f"{argument}: it must be a list of functions, not {given!r}.", fix=f"Write {argument}=[...].")
    listed = tuple(given)
    for one in listed:
        if not callable(one):
            raise ConfigError(code, f"{argument}: {one!r} is not a function.", fix="Give functions that take an event.")
    return listed


def unknown(name: str, known: Iterable[str], *, code: str, path: str = "") -> ConfigError:
    """An argument or option that does not exist, with the nearest that does. ``path``: where it stands within another."""
    names = sorted(known)
    near = nearest(name, names)
    fix = f"Did you mean {near!r}?" if near else f"Known: {', '.join(names)}."
    return ConfigError(code, f"{path or name}: there is no option of this name.", fix=fix)


@dataclass(frozen=True)
class _Call:
    """What values were given for, the argument that contains them, the code of its errors, and how its options are called."""

    model: type[BaseModel]
    prefix: tuple[str, ...]
    code: str
    named: Callable[[tuple[str, ...]], str]


def _errors_of(details: Mapping[str, Any], call: _Call) -> Iterator[ConfigError]:
    place = tuple(str(step) for step in details["loc"])
    code, whole = call.code, (*call.prefix, *place)
    path = call.named(whole)
    cause = details.get("ctx", {}).get("error")
    match details["type"]:
        case "extra_forbidden":
            yield unknown(place[-1], _names(_model_at(call.model, place[:-1])), code=code, path=path)
        case "missing" | "missing_argument":
            yield ConfigError(code, f"{path}: it is required.")
        case _ if isinstance(cause, InconsistencyError):
            for problem in cause.problems:
                yield ConfigError(code, f"{call.named((*whole, *problem.at)) or 'options'}: {problem}")
        case _:
            words = details["msg"].removeprefix("Value error, ")
            yield ConfigError(code, f"{path}: {words[:1].lower()}{words[1:]}" if path else words)


def _names(model: type[BaseModel] | None) -> list[str]:
    return [] if model is None else [field.alias or name for name, field in model.model_fields.items()]


def _model_at(model: type[BaseModel], place: Iterable[str]) -> type[BaseModel] | None:
    """The model whose keys stand at a place; None where several, or none, could."""
    at: type[BaseModel] | None = model
    for step in place:
        if at is None:
            return None
        fields = {field.alias or name: field.annotation for name, field in at.model_fields.items()} | {
            name: field.annotation for name, field in at.model_fields.items()
        }
        if step in fields:
            at = _only_model(fields[step])
    return at


def _only_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, UnionType):
        found = [one for one in map(_only_model, get_args(annotation)) if one is not None]
        return found[0] if len(found) == 1 else None
    return None
