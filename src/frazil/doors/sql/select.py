"""Queries: names of sinks stand for their tables; everything else is Spark's."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.doors.sql.given import World
from frazil.doors.sql.sinks import pipeline
from frazil.doors.sql.statements import CreateSink, Kind, Query
from frazil.doors.sql.tokens import Mark, Script

_BEFORE_TABLES = ("FROM", "JOIN")


@dataclass(frozen=True)
class Rewritten:
    """A query with other names in it. ``edits``: where in the old text, how much went, how much came."""

    text: str
    edits: tuple[tuple[int, int, int], ...] = ()

    def names(self, catalog: str) -> bool:
        """Whether the query may read from a catalog: jars of others are not needed for it."""
        return any(token.text.lower() == catalog.lower() for token in Script(self.text).tokens(spark=True))

    def offset(self, place: int) -> int:
        """Where a place of the new text was in the old one."""
        shift = 0
        for at, gone, came in self.edits:
            if at + shift + came <= place:
                shift += came - gone
            elif at + shift <= place:
                return at
        return place - shift


def with_tables(world: World, statement: Query) -> Rewritten:
    """The query with the tables of sinks in the place of their names. Sources and views hold no rows to read."""
    text = statement.query.text
    tokens = [token for token in Script(text).tokens(spark=True) if token.mark is not Mark.END]
    own = {tokens[n].text.lower() for n in range(len(tokens) - 2) if tokens[n + 1].says("AS") and tokens[n + 2].says("(")}
    edits: list[tuple[int, int, int]] = []
    made, behind = "", 0
    for number, token in enumerate(tokens):
        named = token.mark in (Mark.WORD, Mark.NAME) and number > 0 and tokens[number - 1].says(*_BEFORE_TABLES)
        function = number + 1 < len(tokens) and tokens[number + 1].says("(")
        name = token.text if token.mark is Mark.NAME else token.text.lower()
        found = world.objects.get(world.owner(name) or "")
        if not named or function or name in own or found is None or found.kind in (Kind.CONNECTION, Kind.SECRET):
            continue
        if not isinstance(found, CreateSink):
            sinks = _sinks_of(world, found.name.text)
            fix = f"Read one of its sinks: {', '.join(sinks)}." if sinks else "Make a sink of it, and read that."
            words = f"{name!r} is a {found.kind.lower()}, which keeps no rows"
            raise statement.wrong("sql-wrong-kind", statement.query.at + token.start, words, fix=fix)
        sink = pipeline(world, found).sink
        full = ".".join(_quoted(part) for part in (sink.catalog.name, *sink.namespace_levels, sink.table or ""))
        made += text[behind : token.start] + full
        edits.append((token.start, token.end - token.start, len(full)))
        behind = token.end
    return Rewritten(made + text[behind:], tuple(edits))


def _sinks_of(world: World, name: str) -> list[str]:
    return [other for other in world.dependents(name) if world.objects[other].kind is Kind.SINK]


def _quoted(part: str) -> str:
    return "`{}`".format(part.replace("`", "``"))
