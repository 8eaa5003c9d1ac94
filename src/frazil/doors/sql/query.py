"""The query of a view, cut into the clauses of its SELECTs. What a view cannot have is refused at its token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from frazil.doors.sql.statements import CreateView, Word
from frazil.doors.sql.tokens import Mark, Script, Token

UNSUPPORTED = "sql-view"

# What ends a clause, and why a view cannot have it.
_REFUSED = {
    "JOIN": "a view reads one source: streams are not joined",
    "HAVING": "a group that does not pass now may pass later: keep all groups, and filter when you read the table",
    "ORDER": "rows of a table have no order: sort when you read the table",
    "SORT": "rows of a table have no order: sort when you read the table",
    "CLUSTER": "rows of a table have no order: use PARTITION BY of the sink",
    "DISTRIBUTE": "rows of a table have no order: use PARTITION BY of the sink",
    "LIMIT": "a stream has no first rows: use a WHERE, or UP TO and ROWS of a load generator",
    "OFFSET": "a stream has no first rows: use a WHERE",
    "UNION": "a view reads one source: make a sink for each, into the same table",
    "EXCEPT": "a view reads one source",
    "INTERSECT": "a view reads one source",
    "MINUS": "a view reads one source",
    "WINDOW": "a view is computed for each row by itself, or by GROUP BY",
    "QUALIFY": "a view is computed for each row by itself, or by GROUP BY",
    "LATERAL": "a view makes one row of each row, or groups them",
    "PIVOT": "a view makes one row of each row, or groups them",
    "UNPIVOT": "a view makes one row of each row, or groups them",
    "TABLESAMPLE": "a view has every row that meets its WHERE",
    "VERSION": "a view reads a stream, which has no versions",
    "TIMESTAMP": "a view reads a stream, which has no versions",
}
_WHEN_READ = "Make a table of each source with a sink, and combine them when you read: SELECT ... FROM sink_a JOIN sink_b ..."
# What to do instead, where the reason does not say so.
_INSTEAD = {
    **dict.fromkeys(("JOIN", "EXCEPT", "INTERSECT", "MINUS"), _WHEN_READ),
    **dict.fromkeys(("WINDOW", "QUALIFY"), "Compare rows with one another when you read the table."),
    **dict.fromkeys(("PIVOT", "UNPIVOT"), "Write CASE expressions, or pivot when you read the table."),
    "HAVING": "Leave HAVING out.",
    **dict.fromkeys(("ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"), "Leave it out of the view."),
    "UNION": "CREATE SINK for each of them, with the same NAMESPACE and TABLE.",
    "LATERAL": "Keep the list in the table, and make rows of it when you read.",
    "TABLESAMPLE": "Write WHERE rand() < 0.1, or sample when you read the table.",
    **dict.fromkeys(
        ("VERSION", "TIMESTAMP"), "Leave it out. Tables of sinks have versions: SELECT ... FROM sink VERSION AS OF n."
    ),
}
_SHAPE = "A view is SELECT ... FROM source [WHERE ...] [GROUP BY ...]."
_JOINS = ("CROSS", "INNER", "LEFT", "RIGHT", "FULL", "NATURAL", "SEMI", "ANTI", "OUTER")
_CLAUSES = ("WHERE", "GROUP", *_REFUSED, *_JOINS)
_SETS = ("UNION", "EXCEPT", "INTERSECT", "MINUS")
_QUERY = ("SELECT", "WITH", "VALUES", "TABLE")
# All of these words may be names of columns and functions, too: what comes after them tells.
_AFTER = {
    **dict.fromkeys(("GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"), ("BY",)),
    **dict.fromkeys(_JOINS, ("JOIN", *_JOINS)),
    **dict.fromkeys(_SETS, ("ALL", "DISTINCT", *_QUERY)),
    **dict.fromkeys(("PIVOT", "UNPIVOT"), ("(", "INCLUDE", "EXCLUDE")),
    "TABLESAMPLE": ("(",),
    "LATERAL": ("VIEW", "(", "JOIN"),
}


@dataclass(frozen=True)
class SelectPiece:
    """A part of the query's text, by its tokens."""

    tokens: tuple[Token, ...]

    @property
    def at(self) -> int:
        """Where it begins, within the query."""
        return self.tokens[0].start


@dataclass(frozen=True)
class Select:
    """One SELECT. ``inner`` is the query within the parentheses that it reads from, if that is what it does."""

    items: tuple[SelectPiece, ...]
    item: tuple[Word, ...]
    names: tuple[str, ...]
    where: SelectPiece | None = None
    group: tuple[SelectPiece, ...] | None = None
    group_at: int = 0
    inner: Select | None = None


@dataclass(frozen=True)
class Expression:
    """A text for Spark, and where in the query it begins."""

    text: str
    at: int


class QueryReader:
    """Cuts a query into its clauses."""

    def __init__(self, statement: CreateView) -> None:
        self.statement = statement
        self._text = statement.query.text
        self._tokens = [token for token in Script(self._text).tokens(spark=True) if token.mark is not Mark.END]
        self._place = 0

    def read(self) -> Select:
        """The whole query."""
        within: dict[str, Select] = {}
        if self._take("WITH"):
            while True:
                name = self._next("the name of a part")
                self._need("AS")
                self._need("(")
                within[name.text.lower()] = self._select(within)
                self._need(")")
                if not self._take(","):
                    break
        select = self._select(within)
        if self._place < len(self._tokens):
            self.refuse(self._tokens[self._place].start, "this is not understood here", _SHAPE)
        return select

    def expression(self, piece: SelectPiece, names: Sequence[str]) -> Expression:
        """The text of a piece, without the name of what is read before its columns."""
        text, tokens = "", piece.tokens
        behind = tokens[0].start
        for number, token in enumerate(tokens):
            qualifies = (
                token.mark in (Mark.WORD, Mark.NAME)
                and token.text.lower() in names
                and number + 1 < len(tokens)
                and tokens[number + 1].says(".")
                and not (number and tokens[number - 1].says("."))
            )
            if qualifies:
                text += self._text[behind : token.start]
                behind = tokens[number + 1].end
        return Expression((text + self._text[behind : tokens[-1].end]).strip(), tokens[0].start)

    def refuse(self, at: int, message: str, fix: str = "") -> NoReturn:
        """Refuses what stands at a place of the query."""
        raise self.statement.wrong(UNSUPPORTED, self.statement.query.at + at, message, fix=fix)

    def _select(self, within: Mapping[str, Select]) -> Select:
        self._need("SELECT")
        if self._sees("DISTINCT"):
            self.refuse(
                self._here, "DISTINCT compares rows with one another", fix="Group by the columns, with count(*) AS n beside them."
            )
        self._take("ALL")
        items = self._pieces(("FROM", *_CLAUSES))
        if not self._take("FROM"):
            self.refuse(self._here, "a view reads from a source: FROM is missing", _SHAPE)
        item, names, inner = self._source(within)
        where, group, group_at = None, None, 0
        if self._take("WHERE"):
            (where,) = self._pieces(_CLAUSES, at_commas=False)
        if self._sees("GROUP"):
            group_at = self._here
            self._need("GROUP")
            self._need("BY")
            group = self._pieces(_CLAUSES)
        self._refuse_rest()
        return Select(items, item, names, where, group, group_at, inner)

    def _source(self, within: Mapping[str, Select]) -> tuple[tuple[Word, ...], tuple[str, ...], Select | None]:
        inner = None
        if self._take("("):
            inner = self._select(within)
            self._need(")")
            item, names = inner.item, []
        else:
            parts = [self._next("the name of a source or view")]
            while self._take("."):
                parts.append(self._next("the name of a table"))
            item = tuple(Word(_folded(token), self.statement.query.at + token.start) for token in parts)
            names = [item[-1].text.lower()]
            # Spark finds the parts of a query whatever their case, in quotes, too.
            if len(item) == 1 and item[0].text.lower() in within:
                inner = within[item[0].text.lower()]
                item = inner.item
        token = self._ahead(0)
        if self._take("AS") or (token.mark in (Mark.WORD, Mark.NAME) and not self._begins_clause()):
            names = [self._next("a name").text.lower()]
        if self._sees(","):
            self.refuse(self._here, _REFUSED["JOIN"], _INSTEAD["JOIN"])
        return item, tuple(names), inner

    def _refuse_rest(self) -> None:
        if self._place == len(self._tokens) or self._sees(")"):
            return
        word = self._tokens[self._place].text.upper()
        if word in _JOINS:
            word = "JOIN"
        words = f"{word}: {_REFUSED[word]}" if word in _REFUSED else "this is not understood here"
        self.refuse(self._here, words, _INSTEAD.get(word, _SHAPE))

    def _pieces(self, ends: Sequence[str], *, at_commas: bool = True) -> tuple[SelectPiece, ...]:
        """What stands between commas, up to one of these words outside of parentheses."""
        pieces: list[SelectPiece] = []
        depth = 0
        tokens: list[Token] = []
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            if depth == 0 and (token.says(")") or (token.says(*ends) and self._begins_clause())):
                break
            if self._begins_query():
                words = "a subquery looks at other rows: a view is computed for each row by itself, or by GROUP BY"
                self.refuse(token.start, words, fix="Compare with other rows when you read the table.")
            depth += token.says("(", "[", "{") - token.says(")", "]", "}")
            self._place += 1
            if at_commas and depth == 0 and token.says(","):
                pieces.append(self._piece(tokens, token.start))
                tokens = []
            else:
                tokens.append(token)
        pieces.append(self._piece(tokens, self._here))
        return tuple(pieces)

    def _begins_query(self) -> bool:
        """Whether a query begins here, within the parentheses of an expression: `(select + 1)` is about a column."""
        before, token, after = self._ahead(-1), self._ahead(0), self._ahead(1)
        if not before.says("("):
            return False
        selects = token.says("SELECT") and (after.mark is not Mark.SIGN or after.says("*", "("))
        return selects or (token.says("WITH") and self._ahead(2).says("AS") and self._ahead(3).says("("))

    def _begins_clause(self) -> bool:
        """Whether a clause begins here, by the word and what is around it: `version` is a column, and VERSION AS OF 3 is none."""
        before, token, after = self._ahead(-1), self._ahead(0), self._ahead(1)
        if before.says(".") or not token.says("FROM", *_CLAUSES):
            return False
        match word := token.text.upper():
            case "FROM":
                begins = not (before.says("DISTINCT") and self._ahead(-2).says("IS", "NOT"))
            case "VERSION" | "TIMESTAMP":
                value = self._ahead(3)
                given = value.mark is not Mark.END and not value.says(",", ")", "FROM")
                begins = after.says("AS") and self._ahead(2).says("OF") and given
            case "LIMIT" | "OFFSET":
                begins = after.mark is Mark.NUMBER or after.says("ALL")
            case "WINDOW":
                begins = after.mark in (Mark.WORD, Mark.NAME) and self._ahead(2).says("AS")
            case "JOIN" | "HAVING" | "QUALIFY":
                begins = after.mark in (Mark.WORD, Mark.NAME, Mark.TEXT, Mark.NUMBER) and not after.says("AS", "FROM")
            case _ if word in _AFTER:
                is_query = word in _SETS and after.says("(") and self._ahead(2).says("(", *_QUERY)
                begins = is_query or after.says(*_AFTER[word])
            case _:
                begins = True
        return begins

    def _ahead(self, distance: int) -> Token:
        place = self._place + distance
        return self._tokens[place] if 0 <= place < len(self._tokens) else Token(Mark.END, "", len(self._text), len(self._text))

    def _piece(self, tokens: Sequence[Token], at: int) -> SelectPiece:
        if not tokens:
            self.refuse(at, "an expression is expected here", "Is there a comma too many?")
        return SelectPiece(tuple(tokens))

    @property
    def _here(self) -> int:
        return self._tokens[self._place].start if self._place < len(self._tokens) else len(self._text)

    def _sees(self, word: str) -> bool:
        return self._place < len(self._tokens) and self._tokens[self._place].says(word)

    def _take(self, word: str) -> bool:
        seen = self._sees(word)
        self._place += seen
        return seen

    def _need(self, word: str) -> None:
        if not self._take(word):
            self.refuse(self._here, f"{word} is expected here", _SHAPE)

    def _next(self, what: str) -> Token:
        if self._place == len(self._tokens) or self._tokens[self._place].mark not in (Mark.WORD, Mark.NAME):
            self.refuse(self._here, f"{what} is expected here", _SHAPE)
        self._place += 1
        return self._tokens[self._place - 1]


def _folded(token: Token) -> str:
    return token.text if token.mark is Mark.NAME else token.text.lower()
