"""What a statement gives: its options by name, with their places, and secrets behind references."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from frazil.doors.sql.cursor import did_you_mean
from frazil.doors.sql.definitions import DefinitionChange, Definitions, Trace
from frazil.doors.sql.grammar import Kind, Target
from frazil.doors.sql.render import name as quoted
from frazil.doors.sql.statements import (
    Create,
    CreateConnection,
    CreateSecret,
    CreateSource,
    FromPostgres,
    Option,
    Options,
    Reference,
    Statement,
    Word,
)
from frazil.doors.sql.uses import names_in
from frazil.errors import ConfigError
from frazil.model.base import InconsistencyError, Model
from frazil.reading.anatomy import annotation_at, known_values, limits
from frazil.reading.words import EXPECTED, OUT_OF_RANGE, bounds, form

M = TypeVar("M", bound=Model)

UNKNOWN_OBJECT = "sql-unknown-object"


@dataclass(frozen=True)
class Broken:
    """A definition that cannot be read: what it was, and why it cannot be."""

    kind: Kind
    error: ConfigError


@dataclass(frozen=True)
class World:
    """All objects that there are, the values of secrets, and what sinks have written.

    ``broken``: definitions that cannot be read. They can be dropped. ``file`` is where all of them are kept.
    """

    objects: Mapping[str, Create]
    secrets: Mapping[str, str]
    traces: tuple[Trace, ...] = ()
    broken: Mapping[str, Broken] = field(default_factory=dict)
    file: str = ""

    @classmethod
    def of(cls, kept: Definitions) -> World:
        """The world that a catalog of definitions describes."""
        objects, broken, secrets = {}, {}, kept.secrets()
        for name, definition in kept.all().items():
            try:
                objects[name] = definition.statement
            except ConfigError as error:
                error.fix = f"DROP {definition.kind} {quoted(name)}, and create it anew."
                broken[name] = Broken(definition.kind, error)
        return cls(objects, secrets, kept.traces(), broken, str(kept.path))

    def after(self, change: DefinitionChange) -> World:
        """The world when something has changed."""
        objects = {name: one for name, one in self.objects.items() if name not in change.removed}
        secrets = {name: value for name, value in self.secrets.items() if name not in change.removed}
        for statement in filter(None, (change.added, change.altered)):
            objects[statement.name.text] = statement
            if isinstance(statement, CreateSecret):
                secrets[statement.name.text] = statement.value
        broken = {name: one for name, one in self.broken.items() if name not in change.removed}
        return replace(self, objects=objects, secrets=secrets, broken=broken)

    def find(self, by: Statement, name: Word, *kinds: Kind) -> Create:
        """The object of a name, which must be of one of these kinds."""
        found = self.objects.get(name.text)
        what = " or ".join(kind.lower() for kind in kinds)
        if found is None:
            same = [other for other, one in self.objects.items() if one.kind in kinds]
            listed = f"There are: {', '.join(same)}." if same else f"There is no {what} yet."
            fix = did_you_mean(name.text, same) or listed
            raise by.wrong(UNKNOWN_OBJECT, name.at, f"there is no {what} {name.text!r}", fix=fix)
        if found.kind not in kinds:
            raise of_another_kind(by, name, found.kind, what)
        return found

    def connection(self, by: Statement, name: Word, to: Target) -> CreateConnection:
        """The connection of a name, which must lead there."""
        found = self.find(by, name, Kind.CONNECTION)
        assert isinstance(found, CreateConnection), "its kind says so"
        if found.to is not to:
            words = f"the connection {name.text!r} leads to {found.to}, and one to {to} is needed here"
            raise by.wrong("sql-wrong-kind", name.at, words)
        return found

    def owner(self, name: str) -> str | None:
        """The object of a name: also the source that has a table under it."""
        if name in self.objects:
            return name
        for other, one in self.objects.items():
            tables = one.reads.tables if isinstance(one, CreateSource) and isinstance(one.reads, FromPostgres) else None
            if any(table.name.text == name for table in tables or ()):
                return other
        return None

    def dependents(self, name: str) -> list[str]:
        """The objects that use this one, by themselves or through others, in the order of creation."""
        uses = {other: {self.owner(word.text) or word.text for word in _names_in(one)} for other, one in self.objects.items()}
        used = {name}
        # An object can use one that was created after it, since it was altered.
        while more := {other for other in uses if other not in used and uses[other] & used}:
            used |= more
        return [other for other in self.objects if other in used and other != name]


def of_another_kind(by: Statement, name: Word, kind: Kind, wanted: str) -> ConfigError:
    """The name of an object stands where one of another kind is needed."""
    return by.wrong("sql-wrong-kind", name.at, f"{name.text!r} is a {kind.lower()}, and a {wanted} is needed here")


def _names_in(statement: Create) -> list[Word]:
    try:
        return list(names_in(statement))
    except ConfigError:
        return []  # a view that cannot be taken apart is reported where it is used, and can be dropped


class Given:
    """The options of a statement, each with the place where it stands."""

    def __init__(self, world: World, statement: Create, options: Options, *, at: int | None = None) -> None:
        self.world = world
        self.statement = statement
        self._by_name = {option.name.text: option for option in options}
        self._at = statement.name.at if at is None else at

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Option:
        return self._by_name[name]

    @property
    def names(self) -> list[str]:
        """The names of the options, as given."""
        return list(self._by_name)

    def place(self, name: str) -> int:
        """Where an option stands; the statement's own name when it was not given."""
        return self._by_name[name].name.at if name in self._by_name else self._at

    def text(self, name: str) -> str | None:
        """The text of an option, that of a secret where it refers to one."""
        option = self._by_name.get(name)
        match option.value if option is not None else None:
            case Reference(secret=True) as reference:
                found = self.world.find(self.statement, reference.name, Kind.SECRET)
                return self.world.secrets[found.name.text]
            case Reference(name=word) | (Word() as word):
                return word.text
            case (first, *_):
                return first.text
            case _:
                return None

    def texts(self, name: str) -> tuple[str, ...]:
        """All texts of an option."""
        option = self._by_name.get(name)
        match option.value if option is not None else None:
            case tuple() as words:
                return tuple(word.text for word in words)
            case Word() as word:
                return (word.text,)
            case _:
                return ()

    def required(self, name: str) -> str:
        """The text of an option that must be there."""
        text = self.text(name)
        if not text:
            what = "is empty" if name in self else "is missing"
            raise self.wrong(name, f"{name} {what}", code="sql-missing-option", fix=f"Add {name} = '...'.")
        return text

    def choice(self, name: str, *choices: str) -> str | None:
        """One of several words."""
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in choices:
            near = did_you_mean(text, choices) or f"There are: {', '.join(choices)}."
            raise self.wrong(name, f"{name} cannot be {text!r}", fix=near)
        return text.lower()

    def flag(self, name: str) -> bool:
        """True or false."""
        return self.choice(name, "true", "false") == "true"

    def refuse(self, reason: str, *names: str) -> None:
        """Refuses options that have no meaning here."""
        for name in names:
            if name in self:
                raise self.wrong(name, f"{name} has no meaning {reason}")

    def wrong(self, name: str, message: str, *, code: str = "sql-option", fix: str = "") -> ConfigError:
        """An error at an option."""
        return self.statement.wrong(code, self.place(name), message, fix=fix)

    def built(self, model: type[M], values: Mapping[str, Any], places: Mapping[str, int] | None = None) -> M:
        """A value of the model; what is wrong with it is reported at the option that it comes from, by the option's name."""
        options = {option.name.at: option.name.text for option in self._by_name.values()}
        return built(self.statement, model, values, places or {}, at=self._at, options=options)


def built(
    statement: Statement,
    model: type[M],
    values: Mapping[str, Any],
    places: Mapping[str, int],
    *,
    at: int,
    options: Mapping[int, str] | None = None,
) -> M:
    """A value of the model; what is wrong is reported at the place of its field, or at ``at``. Values of None are left out.

    ``options`` are the names of options by their places: a field is called as its option is.
    """
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        cause = first.get("ctx", {}).get("error")
        problems = cause.problems if isinstance(cause, InconsistencyError) else ()
        way = tuple(str(part) for part in first["loc"])
        names = [part for each in (*(problem.at for problem in problems), way) for part in each]
        place = next((places[name] for name in names if name in places), at)
        called = (options or {}).get(place) or f"the {' '.join(way[:1]).replace('_', ' ')}"
        message = str(problems[0]) if problems else _said(model, first, given, called)
        raise statement.wrong("sql-value", place, message) from None


def _said(model: type[Model], found: ErrorDetails, given: Mapping[str, Any], called: str) -> str:
    """One complaint of pydantic's in words; ``called`` is what the user knows the value as."""
    context, way = found.get("ctx", {}), found["loc"]
    value = given.get(str(way[0])) if way else None
    match found["type"]:
        case kind if kind in EXPECTED:
            rule = f"must be {EXPECTED[kind]}, not {value!r}"
        case kind if kind in OUT_OF_RANGE:
            rule = f"must be {bounds(context, *limits(model, way, given))}, not {value}"
        case "enum" | "literal_error":
            rule = f"cannot be {value!r}; there are: {', '.join(known_values(annotation_at(model, way, given)))}"
        case "string_pattern_mismatch":
            rule = form(str(context["pattern"]))
        case "string_too_long":
            rule = f"must not be longer than {context['max_length']} characters"
        case "string_too_short" | "too_short":
            rule = "must not be empty"
        case _:
            return found["msg"].removeprefix("Value error, ")
    return f"{called} {rule}"


_PERIOD = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_SECONDS = {
    "ms": 0.001, "millisecond": 0.001, "milliseconds": 0.001, "msec": 0.001,
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hr": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_BYTES = {"": 1, "b": 1, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE)


def seconds(given: Given, name: str) -> float | None:
    """A period: `10s`, `1 minute 30 seconds`, `500ms`."""
    text = given.text(name)
    if text is None:
        return None
    parts = _PERIOD.findall(text)
    if not parts or _PERIOD.sub("", text).strip() or any(unit.lower() not in _SECONDS for _, unit in parts):
        raise given.wrong(name, f"{name}: {text!r} is no period", fix="Write '10s', '500ms' or '1 minute 30 seconds'.")
    return float(sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts))


def size(given: Given, name: str) -> int | None:
    """A number of bytes: `1MiB`, `512 kB`; as in PostgreSQL a thousand is 1024."""
    text = given.text(name)
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise given.wrong(name, f"{name}: {text!r} is no size", fix="Write '1MiB', '512kB' or '2GB'.")
    unit = match[2].lower()
    return int(float(match[1]) * (1 << _BYTES[unit] if unit else 1))
