"""Carries scripts out, statement by statement, against a catalog of definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import singledispatchmethod
from itertools import groupby

from frazil.doors.sql import answer
from frazil.doors.sql.answer import Answer
from frazil.doors.sql.define import DEFINING, defined
from frazil.doors.sql.definitions import Definitions
from frazil.doors.sql.given import World
from frazil.doors.sql.grammar import Kind
from frazil.doors.sql.parse import parse
from frazil.doors.sql.select import with_tables
from frazil.doors.sql.sinks import pipeline, project
from frazil.doors.sql.statements import (
    Alter,
    Create,
    CreateSink,
    Describe,
    Drop,
    ExplainSink,
    Query,
    Show,
    ShowCreate,
    Statement,
    Validate,
)
from frazil.doors.sql.validate import connection_of, require_followed, validate
from frazil.model.pipeline import ProjectSpec, located_in_file
from frazil.model.settings import Settings

MOST_ROWS = 1000
"""As many rows of an answer as are shown when nobody says how many."""


class Session:
    """Statements against one catalog of definitions."""

    def __init__(self, definitions: Definitions, settings: Settings | None = None, *, limit: int = MOST_ROWS) -> None:
        self.definitions = definitions
        self.settings = settings or Settings()
        self._limit = limit

    def run(self, text: str, name: str = "<sql>") -> Iterator[Answer]:
        """Carries out a script, and gives the answer of each statement as soon as it is there.

        The whole script is checked first, against the definitions as they will be: with a mistake in it nothing is done. What a
        statement finds outside, in a catalog or on Spark, is reported when its turn comes. Statements that define, one after the
        other, are kept all together or not at all.
        """
        statements = parse(text, name)
        self._require(statements)
        for define, group in groupby(statements, lambda one: isinstance(one, DEFINING)):
            if define:
                yield from self._define(group)
            else:
                yield from map(self._answer, group)

    @property
    def world(self) -> World:
        """Everything that is defined now."""
        return World.of(self.definitions)

    def project(self) -> ProjectSpec:
        """All sinks, ready to run."""
        world = self.world
        for broken in world.broken.values():
            raise broken.error
        return project(world, self.settings)

    def _require(self, statements: Iterable[Statement]) -> None:
        """Refuses the first statement that could not be carried out after those before it."""
        world = self.world
        for statement in statements:
            match statement:
                case Create() | Alter() | Drop():
                    world = world.after(defined(statement, world)[0])
                case ShowCreate(kind=kind, name=name):
                    world.find(statement, name, kind)
                case Describe(name=name):
                    world.find(statement, name, *Kind)
                case ExplainSink(name=name):
                    world.find(statement, name, Kind.SINK)
                case Validate():
                    connection_of(statement, world)
                case Query():
                    with_tables(world, statement)

    def _define(self, statements: Iterable[Statement]) -> list[Answer]:
        defining = list(statements)
        while True:
            version = self.definitions.version
            world, changes, answers = self.world, [], []
            for statement in defining:
                change, answer = defined(statement, world)
                world = world.after(change)
                if isinstance(change.added, CreateSink) and (note := require_followed(world, change.added)):
                    answer = replace(answer, notes=(*answer.notes, note))
                changes.append(change)
                answers.append(answer)
            # What another session has changed meanwhile may not fit together with this.
            if self.definitions.apply(changes, version):
                return answers

    @singledispatchmethod
    def _answer(self, statement: Statement) -> Answer:
        """What a statement answers that changes nothing."""
        raise TypeError(type(statement))

    @_answer.register
    def _show(self, statement: Show) -> Answer:
        return answer.show(statement, self.definitions.all(), self.world)

    @_answer.register
    def _show_create(self, statement: ShowCreate) -> Answer:
        return answer.show_create(statement.title, self.world.find(statement, statement.name, statement.kind))

    @_answer.register
    def _describe(self, statement: Describe) -> Answer:
        world = self.world
        found = world.find(statement, statement.name, *Kind)
        if isinstance(found, CreateSink):
            made = pipeline(world, found)
            with located_in_file(made):
                return answer.table_columns(statement.title, made.sink)
        return answer.describe(statement.title, world, found)

    @_answer.register
    def _explain(self, statement: ExplainSink) -> Answer:
        from frazil.runtime.plan import plan_pipeline

        world = self.world
        found = world.find(statement, statement.name, Kind.SINK)
        assert isinstance(found, CreateSink), "its kind says so"
        made = pipeline(world, found)
        with located_in_file(made):
            return answer.explain(statement.title, found, plan_pipeline(made, self.settings), made.sink)

    @_answer.register
    def _validate(self, statement: Validate) -> Answer:
        world = self.world
        return Answer(statement.title, validate(world, connection_of(statement, world), self.settings))

    @_answer.register
    def _query(self, statement: Query) -> Answer:
        from frazil.runtime.query import QueryRefused, ask
        from frazil.spark.catalogs import catalog_settings

        text = with_tables(self.world, statement)
        catalogs = [catalog_settings(there.sink) for there in text.lakes]
        try:
            found = ask(text.text, catalogs, self.settings, self._limit)
        except QueryRefused as error:
            at = statement.query.at + text.offset(error.offset or 0)
            # Spark repeats the query, and with it a secret whose statement was taken for a part of it.
            cause = None if statement.origin.script.may_hold_secrets else error
            raise statement.wrong(error.code, at, error.message) from cause
        notes = (f"only the first {self._limit} rows are shown",) if found.more else ()
        return Answer(statement.title, columns=found.columns, rows=found.rows, notes=notes, is_data=True)
