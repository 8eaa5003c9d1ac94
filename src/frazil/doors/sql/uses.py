"""Which objects a statement uses, each at its place."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.doors.sql.statements import (
    Create,
    CreateConnection,
    CreateSink,
    CreateSource,
    CreateView,
    Format,
    FromKafka,
    FromPostgres,
    Options,
    Reference,
    Word,
)
from frazil.doors.sql.view import view_query


def names_in(statement: Create) -> Iterator[Word]:
    """The names of other objects in a statement."""
    match statement:
        case CreateConnection():
            yield from _references(statement.options)
        case CreateSource():
            reads = statement.reads
            if isinstance(reads, FromKafka | FromPostgres):
                yield reads.connection
            if isinstance(reads, FromKafka):
                yield from _formats(reads.format, reads.key_format)
            yield from _references(reads.options)
        case CreateView():
            yield view_query(statement).item[0]
        case CreateSink():
            yield statement.item[0]
            yield statement.connection
            if statement.aws is not None:
                yield statement.aws


def _references(options: Options) -> Iterator[Word]:
    for option in options:
        if isinstance(option.value, Reference):
            yield option.value.name


def _formats(*formats: Format | None) -> Iterator[Word]:
    for one in formats:
        if one is not None and isinstance(one.using, Reference):
            yield one.using.name
