"""Carries statements out, one after the other, against a catalog of definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import singledispatchmethod

from frazil.doors.sql import answer
from frazil.doors.sql.answer import Answer
from frazil.doors.sql.connections import check_connection, lake
from frazil.doors.sql.cursor import did_you_mean
from frazil.doors.sql.definitions import Definitions
from frazil.doors.sql.given import World
from frazil.doors.sql.options import CONNECTIONS
from frazil.doors.sql.parse import parse
from frazil.doors.sql.render import render
from frazil.doors.sql.select import with_tables
from frazil.doors.sql.sinks import check_sink, pipeline, project
from frazil.doors.sql.sources import check_source, stream
from frazil.doors.sql.statements import (
    Alter,
    Create,
    CreateConnection,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateView,
    Describe,
    Drop,
    ExplainSink,
    Kind,
    Query,
    Show,
    ShowCreate,
    Statement,
    Target,
    Validate,
    Word,
)
from frazil.doors.sql.validate import validate
from frazil.errors import ConfigError
from frazil.model.pipeline import ProjectSpec
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec

MOST_ROWS = 1000
"""As many rows of an answer as are shown when nobody says how many."""

_TAIL = re.compile(r" \(at .* in [^()]*\)$", re.DOTALL)


class Session:
    """Statements against one catalog of definitions. Each is done, and kept, or refused as a whole."""

    def __init__(self, definitions: Definitions, settings: Settings | None = None, *, limit: int = MOST_ROWS) -> None:
        self.definitions = definitions
        self.settings = settings or Settings()
        self._limit = limit

    def run(self, text: str, name: str = "<sql>") -> Iterator[Answer]:
        """Reads a script as a whole, and then carries its statements out, giving the answer of each as soon as it is there."""
        for statement in parse(text, name):
            yield self.execute(statement)

    @property
    def world(self) -> World:
        """Everything that is defined now."""
        return World.of(self.definitions.all(), self.definitions.secrets())

    def project(self) -> ProjectSpec:
        """All sinks, ready to run."""
        return project(self.world, self.settings, str(self.definitions.path))

    @singledispatchmethod
    def execute(self, statement: Statement) -> Answer:
        """Carries out one statement."""
        raise TypeError(type(statement))

    @execute.register
    def _create(self, statement: Create) -> Answer:
        world = self.world
        owner = world.owner(statement.name.text)
        if owner is not None:
            known = world.objects[owner]
            words = f"the {known.kind.lower()} {statement.name.text!r} is there already"
            if owner != statement.name.text:
                words = f"{statement.name.text!r} is a table of the source {owner!r} already"
            if statement.if_not_exists and known.kind is statement.kind and owner == statement.name.text:
                return Answer(statement.title, f"{words}: nothing was changed")
            raise statement.wrong(
                "sql-exists", statement.name.at, words, fix=f"DROP {known.kind} it first, or choose another name."
            )
        _check(world.with_object(statement), statement)
        self.definitions.add(statement)
        return Answer(statement.title, f"created {statement.kind.lower()} {statement.name.text}", notes=_notes(statement))

    @execute.register
    def _alter(self, statement: Alter) -> Answer:
        world = self.world
        old = world.find(statement, statement.name, statement.kind)
        changed = self._changed(statement, old)
        # The statement as it will be kept, so that places in it are its own.
        (new,) = parse(render(changed), f"<{old.kind.lower()} {old.name.text}>")
        assert isinstance(new, Create), "it was one"
        secrets = world.secrets
        if isinstance(new, CreateSecret):
            secrets = {**secrets, new.name.text: new.value}
        after = replace(world.with_object(new), secrets=secrets)
        for one in (new, *(after.objects[name] for name in after.dependents(new.name.text))):
            try:
                _check(after, one)
            except ConfigError as error:
                raise _at_option(statement, error) from error
        self.definitions.change(new)
        return Answer(statement.title, f"altered {old.kind.lower()} {old.name.text}")

    def _changed(self, statement: Alter, old: Create) -> Create:
        if isinstance(old, CreateSecret) and statement.value is not None:
            return replace(old, value=statement.value)
        assert isinstance(old, CreateSink | CreateConnection), "others cannot be altered"
        if isinstance(old, CreateConnection):
            table = CONNECTIONS[old.to]
            for word in (*(option.name for option in statement.given), *statement.reset):
                if word.text not in table.names:
                    near = did_you_mean(word.text, table.names)
                    raise statement.wrong("sql-unknown-option", word.at, f"{table.what} has no option {word.text}", fix=near)
        for word in statement.reset:
            if word not in [option.name for option in old.options]:
                raise statement.wrong("sql-option", word.at, f"{word.text} is not set")
        taken = {*(option.name.text for option in statement.given), *(word.text for word in statement.reset)}
        kept = tuple(option for option in old.options if option.name.text not in taken)
        return replace(old, options=(*kept, *statement.given))

    @execute.register
    def _drop(self, statement: Drop) -> Answer:
        world = self.world
        if statement.if_exists and statement.name.text not in world.objects:
            return Answer(statement.title, f"there is no {statement.kind.lower()} {statement.name.text}: nothing was changed")
        found = world.find(statement, statement.name, statement.kind)
        users = world.dependents(found.name.text)
        if users and not statement.cascade:
            words = f"{found.name.text!r} is used by {', '.join(users)}"
            raise statement.wrong("sql-in-use", statement.name.at, words, fix="Drop these first, or add CASCADE.")
        self.definitions.remove([*reversed(users), found.name.text])
        sinks = [name for name in (found.name.text, *users) if world.objects[name].kind is Kind.SINK]
        notes = (f"the tables of {', '.join(sinks)} stay as they are",) if sinks else ()
        return Answer(statement.title, f"dropped {', '.join([found.name.text, *users])}", notes=notes)

    @execute.register
    def _show(self, statement: Show) -> Answer:
        return answer.show(statement, self.definitions.all(), self.world)

    @execute.register
    def _show_create(self, statement: ShowCreate) -> Answer:
        return answer.show_create(statement.title, self.world.find(statement, statement.name, statement.kind))

    @execute.register
    def _describe(self, statement: Describe) -> Answer:
        world = self.world
        found = world.find(statement, statement.name, *Kind)
        if isinstance(found, CreateSink):
            return answer.table_columns(statement.title, pipeline(world, found).sink)
        return answer.describe(statement.title, world, found)

    @execute.register
    def _explain(self, statement: ExplainSink) -> Answer:
        from frazil.engine.plan import plan_pipeline

        world = self.world
        found = world.find(statement, statement.name, Kind.SINK)
        assert isinstance(found, CreateSink), "its kind says so"
        made = pipeline(world, found)
        return answer.explain(statement.title, found, plan_pipeline(made, self.settings), made.sink)

    @execute.register
    def _validate(self, statement: Validate) -> Answer:
        world = self.world
        found = world.find(statement, statement.name, Kind.CONNECTION)
        assert isinstance(found, CreateConnection), "its kind says so"
        return Answer(statement.title, validate(statement, world, found, self.settings))

    @execute.register
    def _query(self, statement: Query) -> Answer:
        from frazil.engine.catalogs import catalog_settings
        from frazil.engine.query import QueryRefused, ask

        world = self.world
        text = with_tables(world, statement)
        connections = [one for one in world.objects.values() if isinstance(one, CreateConnection) and one.to is Target.ICEBERG]
        lakes = [there for there in (lake(world, one) for one in connections) if text.names(there.catalog.name)]
        catalogs = [catalog_settings(SinkSpec(catalog=there.catalog, s3=there.s3)) for there in lakes]
        try:
            found = ask(text.text, catalogs, self.settings.spark, self._limit)
        except QueryRefused as error:
            at = statement.query.at + text.offset(error.offset or 0)
            raise statement.wrong(error.code, at, error.message) from error
        notes = (f"only the first {self._limit} rows are shown",) if found.more else ()
        return Answer(statement.title, columns=found.columns, rows=found.rows, notes=notes)


def _check(world: World, statement: Create) -> None:
    """Refuses an object that could not be used. Connects to nothing."""
    match statement:
        case CreateConnection():
            check_connection(world, statement)
        case CreateSource():
            check_source(world, statement)
        case CreateView():
            stream(world, statement, (statement.name,), "check")
        case CreateSink():
            check_sink(world, statement)
        case _:
            pass


def _notes(statement: Create) -> tuple[str, ...]:
    if isinstance(statement, CreateSink) and statement.not_enforced:
        return (
            "NOT ENFORCED changes nothing: frazil looks at the keys of each batch, and stops where two rows have the same one",
        )
    return ()


def _at_option(statement: Alter, error: ConfigError) -> ConfigError:
    """An error of the altered object, told at the option of the ALTER that it is about."""
    words: list[Word] = [*(option.name for option in statement.given), *statement.reset]
    told = _TAIL.sub("", error.message)
    place = next((word.at for word in words if word.text in told), words[0].at if words else statement.name.at)
    return statement.wrong(error.code, place, told, fix=error.fix)
