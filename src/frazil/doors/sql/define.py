"""CREATE, ALTER and DROP: what they change in the definitions, and what they answer. Nothing is kept here, or reached."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import singledispatch

from frazil.doors.sql.answer import Answer
from frazil.doors.sql.connections import check_connection
from frazil.doors.sql.cursor import did_you_mean
from frazil.doors.sql.definitions import DefinitionChange
from frazil.doors.sql.given import World, of_another_kind
from frazil.doors.sql.grammar import CONNECTIONS, all_names
from frazil.doors.sql.parse import parse
from frazil.doors.sql.render import render
from frazil.doors.sql.sinks import check_sink, pipeline
from frazil.doors.sql.sources import check_source, check_view
from frazil.doors.sql.statements import (
    Alter,
    Create,
    CreateConnection,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateView,
    Drop,
    Statement,
    Word,
)
from frazil.errors import ConfigError
from frazil.model.pipeline import PipelineSpec
from frazil.model.sink import MOST_ROWS_BY_SIZE
from frazil.model.source import KafkaSource, PostgresCdcSource

DEFINING = (Create, Alter, Drop)
"""The statements that change definitions."""

# What a row of a few numbers takes in a file: a size that a million of them reach needs no word.
SMALL_ROW_BYTES = 16

_TAIL = re.compile(r" \(at .* in [^()]*\)$", re.DOTALL)


@singledispatch
def defined(statement: Statement, world: World) -> tuple[DefinitionChange, Answer]:
    """What a statement changes in the world as it is, and its answer. What cannot be is refused."""
    raise TypeError(type(statement), world)


@defined.register
def _create(statement: Create, world: World) -> tuple[DefinitionChange, Answer]:
    owner = world.owner(statement.name.text)
    if owner is not None:
        known = world.objects[owner]
        words = f"the {known.kind.lower()} {statement.name.text!r} is there already"
        if owner != statement.name.text:
            words = f"{statement.name.text!r} is a table of the source {owner!r} already"
        if statement.if_not_exists and known.kind is statement.kind and owner == statement.name.text:
            return DefinitionChange(), Answer(statement.title, f"{words}: nothing was changed")
        raise statement.wrong("sql-exists", statement.name.at, words, fix=f"DROP {known.kind} it first, or choose another name.")
    change = DefinitionChange(added=statement)
    after = world.after(change)
    _check(after, statement)
    _require_readable(statement)
    words = f"created {statement.kind.lower()} {statement.name.text}"
    return change, Answer(statement.title, words, notes=_notes(after, statement))


@defined.register
def _alter(statement: Alter, world: World) -> tuple[DefinitionChange, Answer]:
    old = world.find(statement, statement.name, statement.kind)
    # The statement as it will be kept, so that places in it are its own.
    (new,) = parse(render(_changed(statement, old)), f"<{old.kind.lower()} {old.name.text}>")
    assert isinstance(new, Create), "it was one"
    change = DefinitionChange(altered=new)
    after = world.after(change)
    for one in (new, *(after.objects[name] for name in after.dependents(new.name.text))):
        try:
            _check(after, one)
        except ConfigError as error:
            raise _at_option(statement, error) from error
    notes = _notes(after, new) if statement.given else ()
    return change, Answer(statement.title, f"altered {old.kind.lower()} {old.name.text}", notes=notes)


@defined.register
def _drop(statement: Drop, world: World) -> tuple[DefinitionChange, Answer]:
    name = statement.name.text
    broken = world.broken.get(name)
    if statement.if_exists and name not in world.objects and broken is None:
        words = f"there is no {statement.kind.lower()} {name}: nothing was changed"
        return DefinitionChange(), Answer(statement.title, words)
    if broken is None:
        world.find(statement, statement.name, statement.kind)
    elif broken.kind is not statement.kind:
        raise of_another_kind(statement, statement.name, broken.kind, statement.kind.lower())
    users = world.dependents(name)
    if users and not statement.cascade:
        words = f"{name!r} is used by {', '.join(users)}"
        raise statement.wrong("sql-in-use", statement.name.at, words, fix="Drop these first, or add CASCADE.")
    names = (name, *users)
    sinks = [one for one in map(world.objects.get, names) if isinstance(one, CreateSink)]
    return DefinitionChange(removed=names), Answer(statement.title, f"dropped {', '.join(names)}", notes=_left(world, sinks))


def _left(world: World, sinks: list[CreateSink]) -> tuple[str, ...]:
    """What stays of sinks that are dropped."""
    if not sinks:
        return ()
    notes = [f"the tables of {', '.join(sink.name.text for sink in sinks)} stay as they are"]
    for sink in sinks:
        try:
            source = pipeline(world, sink).source
        except ConfigError as error:
            notes.append(f"what {sink.name.text} read is not known any more: {_TAIL.sub('', error.message)}")
            continue
        if isinstance(source, PostgresCdcSource):
            notes.append(
                f"the replication slot {source.slot} of {sink.name.text} stays, and the database {source.database} keeps its "
                f"log for it: unless the sink is created again, SELECT pg_drop_replication_slot('{source.slot}') there"
            )
    return tuple(notes)


def _changed(statement: Alter, old: Create) -> Create:
    if isinstance(old, CreateSecret) and statement.value is not None:
        return replace(old, value=statement.value)
    assert isinstance(old, CreateSink | CreateConnection), "others cannot be altered"
    words = (*(option.name for option in statement.given), *statement.reset)
    if isinstance(old, CreateConnection):
        table = CONNECTIONS[old.to]
        for word in words:
            if word.text not in table.names:
                near = did_you_mean(word.text, table.names)
                raise statement.wrong("sql-unknown-option", word.at, f"{table.what} has no option {word.text}", fix=near)
    there = {option.name.text for option in old.options}
    for word in statement.reset:
        if there.isdisjoint(all_names(word.text)):
            raise statement.wrong("sql-option", word.at, f"{word.text} is not set")
    taken = {name for word in words for name in all_names(word.text)}
    kept = tuple(option for option in old.options if option.name.text not in taken)
    return replace(old, options=(*kept, *statement.given))


def _check(world: World, statement: Create) -> None:
    """Refuses an object that could not be used."""
    match statement:
        case CreateConnection():
            check_connection(world, statement)
        case CreateSource():
            check_source(world, statement)
        case CreateView():
            check_view(world, statement)
        case CreateSink():
            check_sink(world, statement)
        case _:
            pass


def _require_readable(statement: Create) -> None:
    """What is kept is read again by every statement that follows."""
    try:
        (read,) = parse(render(statement))
    except ConfigError as error:
        words = f"this could not be read again once it is kept: {_TAIL.sub('', error.message)}"
        raise statement.wrong("sql-unkept", statement.name.at, words) from error
    if read != statement:
        raise statement.wrong("sql-unkept", statement.name.at, "this would be something else once it is kept")


def _notes(world: World, statement: Create) -> tuple[str, ...]:
    """What a user may not expect of a sink."""
    if not isinstance(statement, CreateSink):
        return ()
    notes: list[str] = []
    made = pipeline(world, statement)
    if statement.not_enforced:
        words = "NOT ENFORCED changes nothing: frazil looks at the keys of each batch, and of several rows with the same one"
        notes.append(f"{words} {_which_counts(made)}")
    least = made.sink.batch_bytes or 0
    if least > MOST_ROWS_BY_SIZE * SMALL_ROW_BYTES:
        size = f"{math.ceil(least / MOST_ROWS_BY_SIZE):,}"
        notes.append(
            f"a commit has {MOST_ROWS_BY_SIZE:,} rows at most: MINIMUM SIZE is reached where a row takes {size} bytes or more, "
            "and otherwise commits of so many rows are smaller"
        )
    return tuple(notes)


def _which_counts(made: PipelineSpec) -> str:
    """What becomes of several rows of a batch that have one key."""
    source, sink = made.source, made.sink
    if sink.combine:
        return "all are added up"
    if sink.order_by:
        late = ", in whatever batch it comes" if sink.ignores_late else ""
        return f"the last one counts, by LATEST BY ({', '.join(sink.order_by)}){late}"
    if isinstance(source, PostgresCdcSource) or (isinstance(source, KafkaSource) and source.enveloped):
        return "the last one counts, by the database's log"
    if isinstance(source, KafkaSource):
        return "the latest message counts"
    return "none counts: different ones stop the sink, unless LATEST BY tells which is the last"


def _at_option(statement: Alter, error: ConfigError) -> ConfigError:
    """An error of the altered object, located at the option of the ALTER that it is about."""
    words: list[Word] = [*(option.name for option in statement.given), *statement.reset]
    message = _TAIL.sub("", error.message)
    place = next((word.at for word in words if word.text in message), words[0].at if words else statement.name.at)
    return statement.wrong(error.code, place, message, fix=error.fix)
