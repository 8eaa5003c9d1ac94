"""Reads the options of objects."""

from __future__ import annotations

from typing import NoReturn

from frazil.doors.sql.cursor import Cursor, did_you_mean
from frazil.doors.sql.grammar import Known, Table, Takes
from frazil.doors.sql.statements import Option, Options, Reference, Word
from frazil.doors.sql.tokens import Mark
from frazil.model.secrets import is_secret_name, remember

UNKNOWN = "sql-unknown-option"


def option_list(cursor: Cursor, table: Table) -> Options:
    """`(NAME = value, NAME value, ...)`; a comma may stand after the last."""
    found: list[Option] = []

    def one() -> None:
        option = _option(cursor, table)
        if any(option.name == other.name for other in found):
            raise cursor.wrong("sql-twice", option.name.at, f"{option.name.text} is given twice")
        found.append(option)

    cursor.listed(one, last_comma=True)
    return tuple(found)


def name_list(cursor: Cursor, table: Table) -> tuple[Word, ...]:
    """`(NAME, NAME)`: options without values."""

    def one() -> Word:
        at = cursor.at
        known = _taken(cursor, table)
        return Word(known.name, at) if known is not None else _refuse(cursor, table)

    return cursor.listed(one, last_comma=True)


def _option(cursor: Cursor, table: Table) -> Option:
    at = cursor.at
    known = _taken(cursor, table)
    if known is None:
        _refuse(cursor, table)
    return Option(Word(known.name, at), _value(cursor, known))


def _value(cursor: Cursor, known: Known) -> Word | tuple[Word, ...] | Reference:
    # `PASSWORD SECRET = s`, `PASSWORD = SECRET s` and `PASSWORD SECRET s` say the same.
    early = known.takes is Takes.SECRET and cursor.sees("SECRET") and not cursor.after.says(",", ")")
    if early:
        cursor.next()
    cursor.take("=")
    what = f"{known.name} takes {known.takes.value}, which"
    match known.takes:
        case Takes.CONNECTION:
            return Reference(cursor.name("a connection"))
        case Takes.SECRET if early or cursor.take("SECRET"):
            return Reference(cursor.name("a secret"), secret=True)
        case Takes.TEXTS if cursor.sees("("):
            return cursor.listed(lambda: cursor.text(what), last_comma=True)
        case Takes.TEXTS:
            return (cursor.text(what),)
        case Takes.NUMBER:
            minus = cursor.take("-")
            if cursor.token.mark not in (Mark.NUMBER, Mark.TEXT):
                cursor.fail(f"{known.name} takes a number")
            value = cursor.text(what)
            return Word(f"-{value.text}", value.at) if minus else value
        case _:
            value = cursor.text(what)
            if known.takes is Takes.SECRET and is_secret_name(known.name.replace(" ", "-")):
                remember([value.text])
            return value


def _refuse(cursor: Cursor, table: Table) -> NoReturn:
    """What stands here is no option of the table."""
    at = cursor.at
    words: list[str] = []
    while cursor.token.mark in (Mark.WORD, Mark.NAME) and len(words) < 6:
        words.append(cursor.next().text)
    given = " ".join(words)
    if not given:
        cursor.fail(f"an option of {table.what} is expected here: {', '.join(one.name for one in table.known)}")
    near = did_you_mean(given, table.names) or f"There are: {', '.join(one.name for one in table.known)}."
    raise cursor.wrong(UNKNOWN, at, f"{table.what} has no option {given}", fix=near)


def _taken(cursor: Cursor, table: Table) -> Known | None:
    """The option whose name comes next, the longest that fits."""
    for name in sorted(table.names, key=lambda each: -len(each.split())):
        if cursor.take(*name.split()):
            return table[name]
    return None
