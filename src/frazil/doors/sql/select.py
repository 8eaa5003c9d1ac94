"""Queries: names of sinks stand for their tables; everything else is Spark's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from frazil.doors.sql.connections import CatalogAndStores, lake
from frazil.doors.sql.given import World
from frazil.doors.sql.grammar import Kind, Target
from frazil.doors.sql.sinks import lake_of
from frazil.doors.sql.statements import CreateConnection, CreateSink, Query
from frazil.doors.sql.tokens import Mark, Script

_TIMES = ("VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME")


@dataclass(frozen=True)
class Rewritten:
    """A query with other names in it, and the catalogs that it reads from.

    ``edits``: where in the old text, how much went, how much came.
    """

    text: str
    lakes: tuple[CatalogAndStores, ...] = ()
    edits: tuple[tuple[int, int, int], ...] = ()

    def offset(self, place: int) -> int:
        """Where a place of the new text was in the old one."""
        shift = 0
        for at, gone, came in self.edits:
            if at + shift + came <= place:
                shift += came - gone
            elif at + shift <= place:
                return at
        return place - shift


@dataclass(frozen=True)
class _Table:
    """A table that a query names, part by part, and where its first part stands, which may be the ``name`` of an object."""

    name: str
    parts: tuple[str, ...]
    start: int
    end: int
    has_alias: bool = False


def with_tables(world: World, statement: Query) -> Rewritten:
    """The query with the tables of sinks in the place of their names. Sources and views hold no rows to read."""
    text = statement.query.text
    lakes = _Lakes(world, statement)
    edits: list[tuple[int, int, int]] = []
    made, behind = "", 0
    for table in _tables(text):
        name = table.name
        found = world.objects.get(world.owner(name) or "")
        if found is None or found.kind in (Kind.CONNECTION, Kind.SECRET):
            lakes.read(table)
            continue
        if not isinstance(found, CreateSink):
            sinks = _sinks_of(world, found.name.text)
            fix = f"Read one of its sinks: {', '.join(sinks)}." if sinks else "Make a sink of it, and read that."
            words = f"{name!r} is a {found.kind.lower()}, which keeps no rows"
            raise statement.wrong("sql-wrong-kind", statement.query.at + table.start, words, fix=fix)
        there = lakes.written_by(found, table)
        full = ".".join(_quoted(part) for part in (there.catalog.name, *_path(found)))
        called = _alias(table, found)
        for begin, end, new in _edits(text, table, full, called):
            made += text[behind:begin] + new
            edits.append((begin, end - begin, len(new)))
            behind = end
    made += text[behind:]
    return Rewritten(made, lakes.named_in(made), tuple(edits))


def _alias(table: _Table, sink: CreateSink) -> str:
    """What columns of the table are qualified by: the sink's name, unless the query has its own, or Spark would take the same."""
    if table.has_alias or len(table.parts) > 1 or sink.table.text.lower() == table.name.lower():
        return ""
    return f" AS {_quoted(table.name)}"


def _edits(text: str, table: _Table, full: str, alias: str) -> Iterator[tuple[int, int, str]]:
    """Where the text of the query is replaced by another. An alias stands after VERSION AS OF and TIMESTAMP AS OF."""
    tokens = list(Script(text).tokens(table.end, spark=True))
    words = [token.text.upper() for token in tokens[:4]]
    if words[:1] == ["FOR"]:
        tokens, words = tokens[1:], [token.text.upper() for token in tokens[1:5]]
    if words[:1] and words[0] in _TIMES and words[1:3] == ["AS", "OF"]:
        value, after = tokens[3], tokens[4] if len(tokens) > 4 else tokens[3]
        is_whole = value.mark in (Mark.NUMBER, Mark.TEXT) and (after.mark is not Mark.SIGN or after.says(",", ")", ";"))
        yield table.start, table.end, full
        if alias and is_whole:
            yield value.end, value.end, alias
    elif words[:1] == ["TABLESAMPLE"]:
        yield table.start, table.end, full
    else:
        yield table.start, table.end, full + alias


class _Lakes:
    """How the catalogs of a query are reached: as by the sinks that write the tables which it reads."""

    def __init__(self, world: World, statement: Query) -> None:
        self._world = world
        self._statement = statement
        self._found: dict[str, CatalogAndStores] = {}
        self._first: dict[str, str] = {}

    def written_by(self, sink: CreateSink, table: _Table) -> CatalogAndStores:
        """The catalog of a sink, with the sink's own way to the files."""
        return self._add(lake_of(self._world, sink), table)

    def read(self, table: _Table) -> None:
        """A table by its path. One that no sink writes is reached as its connection says, if that says anything of files."""
        for sink in (one for one in self._world.objects.values() if isinstance(one, CreateSink)):
            path = _path(sink)
            if table.parts[1 : len(path) + 1] == path and _same(lake_of(self._world, sink), table.parts[0]):
                self._add(lake_of(self._world, sink), table)
                return
        for there in self._connected():
            if _same(there, table.parts[0]) and there.stores:
                self._add(there, table)

    def named_in(self, text: str) -> tuple[CatalogAndStores, ...]:
        """The catalogs found, and the others whose names stand in the query: jars of the rest are not needed for it."""
        words = {token.text.lower() for token in Script(text).tokens(spark=True)}
        for there in self._connected():
            if there.catalog.name.lower() in words:
                self._found.setdefault(there.catalog.name, there)
        return tuple(self._found.values())

    def _add(self, there: CatalogAndStores, table: _Table) -> CatalogAndStores:
        catalog, name = there.catalog.name, ".".join(table.parts)
        if self._found.setdefault(catalog, there) != there:
            words = f"{name} and {self._first[catalog]} are reached in different ways, and a query reaches a catalog in one"
            fix = "Read them in two queries, or let their sinks use the same AWS CONNECTION."
            raise self._statement.wrong("sql-query", self._statement.query.at + table.start, words, fix=fix)
        self._first.setdefault(catalog, name)
        return there

    def _connected(self) -> Iterator[CatalogAndStores]:
        for one in self._world.objects.values():
            if isinstance(one, CreateConnection) and one.to is Target.ICEBERG:
                yield lake(self._world, one)


def _tables(text: str) -> list[_Table]:
    """The tables of a query in the order of its text. What cannot be read is left to Spark, which says what is wrong with it."""
    try:
        tree = parse_one(text, dialect="spark")
    except SqlglotError:
        return []
    found = []
    for table in tree.find_all(exp.Table):
        parts = table.parts
        if not all(isinstance(part, exp.Identifier) for part in parts) or (len(parts) == 1 and _is_own_part(table)):
            continue
        first = parts[0]
        name = first.name if first.args.get("quoted") else first.name.lower()
        found.append(_Table(name, tuple(part.name for part in parts), first.meta["start"], first.meta["end"] + 1,
                            bool(table.alias)))  # fmt: skip
    return sorted(found, key=lambda table: table.start)


def _is_own_part(table: exp.Table) -> bool:
    """Whether a name is that of a part of the query, from a WITH that is seen there: of its parts each sees those before it."""
    way: list[exp.Expr] = [table]
    while way[-1].parent is not None:
        way.append(way[-1].parent)
    seen: list[str] = []
    for inside, node in pairwise(way):
        given = node.args.get("with_")
        if isinstance(node, exp.With) and not node.recursive:
            seen += [one.alias for one in node.expressions[: inside.index]]
        elif isinstance(node, exp.With):
            seen += [one.alias for one in node.expressions]
        elif isinstance(given, exp.With) and given is not inside:
            seen += [one.alias for one in given.expressions]
    return table.name.lower() in {name.lower() for name in seen}


def _path(sink: CreateSink) -> tuple[str, ...]:
    return (*sink.namespace.text.split("."), sink.table.text)


def _same(there: CatalogAndStores, catalog: str) -> bool:
    return there.catalog.name.lower() == catalog.lower()


def _sinks_of(world: World, name: str) -> list[str]:
    return [other for other in world.dependents(name) if world.objects[other].kind is Kind.SINK]


def _quoted(part: str) -> str:
    return "`{}`".format(part.replace("`", "``"))
