"""Options of objects: which there are, what they take, and how a list of them is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn

from frazil.doors.sql.cursor import Cursor, did_you_mean
from frazil.doors.sql.statements import Option, Options, Reference, Target, Word
from frazil.doors.sql.tokens import Mark
from frazil.model.secrets import is_secret_name, remember

UNKNOWN = "sql-unknown-option"


class Takes(StrEnum):
    """What an option takes."""

    TEXT = "a text"
    TEXTS = "one or several texts"
    NUMBER = "a number"
    SECRET = "a secret"
    CONNECTION = "the name of a connection"


@dataclass(frozen=True)
class Known:
    """An option that there is, under all its names, the canonical one first."""

    names: tuple[str, ...]
    takes: Takes = Takes.TEXT

    @property
    def name(self) -> str:
        """The canonical name."""
        return self.names[0]


class Table:
    """The options of one kind of object."""

    def __init__(self, what: str, *known: Known) -> None:
        self.what = what
        self.known = known
        self._by_name = {name: one for one in known for name in one.names}

    def __getitem__(self, name: str) -> Known:
        return self._by_name[name]

    @property
    def names(self) -> list[str]:
        """All names, canonical or not."""
        return list(self._by_name)

    def take(self, cursor: Cursor) -> Known | None:
        """The option whose name comes next, the longest that fits."""
        for name in sorted(self._by_name, key=lambda each: -len(each.split())):
            if cursor.take(*name.split()):
                return self._by_name[name]
        return None


def _texts(*names: str) -> Iterable[Known]:
    return (Known((name,)) for name in names)


def _secrets(*names: str) -> Iterable[Known]:
    return (Known((name,), Takes.SECRET) for name in names)


CONNECTIONS: dict[Target, Table] = {
    Target.ICEBERG: Table(
        "an Iceberg catalog connection",
        Known(("TYPE", "CATALOG TYPE")),
        Known(("URI", "URL")),
        *_texts("USER", "SCOPE", "WAREHOUSE", "NAME", "OAUTH2 SERVER URI"),
        *_secrets("PASSWORD", "CREDENTIAL", "TOKEN"),
        *(Known((f"{store} CONNECTION",), Takes.CONNECTION) for store in ("AWS", "GCS", "AZURE")),
    ),
    Target.AWS: Table(
        "an AWS connection",
        *_secrets("ACCESS KEY ID", "SECRET ACCESS KEY", "SESSION TOKEN"),
        *_texts("REGION", "ENDPOINT", "ASSUME ROLE ARN"),
    ),
    Target.GCS: Table(
        "a Google Cloud Storage connection",
        *_texts("PROJECT", "SERVICE ACCOUNT FILE", "ENDPOINT"),
        *_secrets("SERVICE ACCOUNT KEY"),
    ),
    Target.AZURE: Table("an Azure connection", *_texts("ACCOUNT"), *_secrets("ACCESS KEY", "SAS TOKEN")),
    Target.KAFKA: Table(
        "a Kafka connection",
        Known(("BROKERS", "BROKER"), Takes.TEXTS),
        *_texts("SECURITY PROTOCOL"),
        Known(("SASL MECHANISMS", "SASL MECHANISM")),
        Known(("SASL USERNAME",), Takes.SECRET),
        Known(("SASL PASSWORD",), Takes.SECRET),
        *_texts("SSL CERTIFICATE AUTHORITY", "SSL CERTIFICATE", "SSL KEY"),
    ),
    Target.POSTGRES: Table(
        "a PostgreSQL connection",
        *_texts("HOST", "DATABASE", "USER", "SSL MODE", "SSL CERTIFICATE AUTHORITY"),
        Known(("PORT",), Takes.NUMBER),
        *_secrets("PASSWORD"),
    ),
    Target.REGISTRY: Table(
        "a schema registry connection",
        Known(("URI", "URL")),
        Known(("USER", "USERNAME")),
        *_secrets("PASSWORD"),
        *_texts("SSL CERTIFICATE AUTHORITY", "SSL CERTIFICATE", "SSL KEY"),
    ),
}

ANY_CONNECTION = Table("a connection", *(known for table in CONNECTIONS.values() for known in table.known))

KAFKA_SOURCE = Table("a Kafka source", *_texts("TOPIC", "START OFFSET", "START TIMESTAMP", "GROUP ID"))
POSTGRES_SOURCE = Table("a PostgreSQL source", *_texts("PUBLICATION", "SLOT"))
FILES_SOURCE = Table("a source of files", *_texts("PATH", "FORMAT", "PATTERN", "RECURSIVE", "HEADER"))
GENERATORS: dict[str, Table] = {
    "COUNTER": Table("the load generator COUNTER", *_texts("TICK INTERVAL"), Known(("UP TO",), Takes.NUMBER)),
    "SHOP": Table(
        "the load generator SHOP",
        *(Known((name,), Takes.NUMBER) for name in ("ROWS", "ROWS PER SECOND", "SEED")),
    ),
}
# Two names of one option of a sink. Each is kept as it was written, because messages that users know name one or the other.
PERIOD = ("MAXIMUM PERIOD", "COMMIT INTERVAL")
SINK = Table(
    "a sink",
    *_texts("FORMAT", "COMPRESSION", "MINIMUM SIZE", *PERIOD, "TARGET FILE SIZE"),
    Known(("FORMAT VERSION",), Takes.NUMBER),
    Known(("LATEST BY",), Takes.TEXTS),
    *_texts("DIFF COLUMN", "TIMESTAMP COLUMN", "ON ERROR", "DEAD LETTER TABLE"),
    Known(("MAX DEAD LETTERS",), Takes.NUMBER),
    Known(("MAX DEAD LETTER RATE",), Takes.NUMBER),
)


def all_names(name: str) -> tuple[str, ...]:
    """The names under which an option may be kept that is given under this one."""
    return PERIOD if name in PERIOD else (name,)


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
        known = table.take(cursor)
        return Word(known.name, at) if known is not None else _refuse(cursor, table)

    return cursor.listed(one, last_comma=True)


def _option(cursor: Cursor, table: Table) -> Option:
    at = cursor.at
    known = table.take(cursor)
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
