"""A place in a script that moves from token to token, and says what was expected where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, TypeVar

from frazil.doors.sql.statements import Word
from frazil.doors.sql.tokens import Mark, Script, Token
from frazil.errors import ConfigError
from frazil.model.names import nearest

T = TypeVar("T")

SYNTAX = "sql-syntax"


class Cursor:
    """Reads the tokens of a script one after the other."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.statement = ""
        self._tokens = list(script.tokens())
        self._place = 0

    @property
    def token(self) -> Token:
        """The token that comes next."""
        return self._tokens[self._place]

    @property
    def after(self) -> Token:
        """The token after that."""
        return self._tokens[min(self._place + 1, len(self._tokens) - 1)]

    @property
    def at(self) -> int:
        """Where the next token begins."""
        return self.token.start

    @property
    def behind(self) -> int:
        """Where the last token ended."""
        return self._tokens[self._place - 1].end if self._place else 0

    @property
    def is_done(self) -> bool:
        """Whether the statement is over."""
        return self.token.mark is Mark.END or self.token.says(";")

    def next(self) -> Token:
        """Takes the next token, whatever it is."""
        token = self.token
        if token.mark is Mark.BROKEN:
            self.fail("")
        if token.mark is not Mark.END:
            self._place += 1
        return token

    def sees(self, *words: str) -> bool:
        """Whether these words come next, in this order."""
        there = self._tokens[self._place : self._place + len(words)]
        return len(there) == len(words) and all(token.says(word) for token, word in zip(there, words, strict=True))

    def take(self, *words: str) -> bool:
        """Takes these words if they come next."""
        if not self.sees(*words):
            return False
        self._place += len(words)
        return True

    def expect(self, *words: str) -> Token:
        """Takes these words, which must come next; gives the first."""
        first = self.token
        for word in words:
            if not self.take(word):
                self.fail(f"{word} is expected here")
        return first

    def one_of(self, *choices: str, what: str) -> tuple[str, int]:
        """Takes one of these phrases, and tells where it stands; the longest that fits."""
        at = self.at
        for choice in sorted(choices, key=len, reverse=True):
            if self.take(*choice.split()):
                return choice, at
        raise self.refusal(f"{what} is expected here: {', '.join(choices)}", near=choices)

    def name(self, what: str) -> Word:
        """The name of an object."""
        name = self.name_part(what)
        if self.sees("."):
            self.fail("names of objects have one part here", fix="Leave out database and schema.")
        return name

    def name_part(self, what: str) -> Word:
        """One part of a name: without quotes upper and lower case do not count."""
        token = self.token
        if token.mark not in (Mark.WORD, Mark.NAME) or not token.text:
            self.fail(f"the name of {what} is expected here")
        self.next()
        return Word(token.text if token.mark is Mark.NAME else token.text.lower(), token.start)

    def column(self) -> Word:
        """The name of a column, or of something else outside, as it is written."""
        token = self.token
        if token.mark not in (Mark.WORD, Mark.NAME) or not token.text:
            self.fail("the name of a column is expected here")
        self.next()
        return Word(token.text, token.start)

    def text(self, what: str) -> Word:
        """A value: a text, a number, or a name, which is taken as it is written."""
        token = self.token
        if token.mark not in (Mark.TEXT, Mark.NUMBER, Mark.WORD, Mark.NAME):
            self.fail(f"{what} is expected here")
        self.next()
        if token.mark is Mark.NUMBER and self.token.mark is Mark.WORD and self.token.start == token.end:
            self.fail(f"a value with a unit is written as a text: '{token.text}{self.token.text}'", at=token.start)
        return Word(token.text, token.start)

    def literal(self, what: str) -> str:
        """A text in single quotes."""
        if self.token.mark is Mark.NAME:
            self.fail(f"{what} is a text in single quotes", fix="Double quotes are for names.")
        if self.token.mark is not Mark.TEXT:
            self.fail(f"{what} is expected here, in single quotes")
        return self.next().text

    def number(self, what: str) -> int:
        """A whole number."""
        token = self.token
        if token.mark is not Mark.NUMBER or not token.text.isdigit():
            self.fail(f"{what} is a whole number")
        self.next()
        return int(token.text)

    def listed(self, one: Callable[[], T], *, last_comma: bool = False) -> tuple[T, ...]:
        """`( ... , ... )`. With ``last_comma`` one may stand before the parenthesis, too."""
        self.expect("(")
        found: list[T] = []
        while not (self.sees(")") and (not found or last_comma)):
            found.append(one())
            if not self.take(","):
                break
        if not self.sees(")"):
            hint = "Choose one of the values." if self.token.says("|") else ""
            self.fail("a comma or ) is expected here", fix=hint)
        self.next()
        return tuple(found)

    def query(self) -> Word:
        """Everything up to the end of the statement, cut by the rules of Spark."""
        begin = self.at
        if self.is_done:
            self.fail("a query is expected here")
        end = begin
        for token in self.script.tokens(begin, spark=True):
            if token.mark is Mark.BROKEN:
                self._tokens, self._place = [token], 0
                self.next()
            if token.mark is Mark.END or token.says(";"):
                break
            end = token.end
        self._tokens = list(self.script.tokens(end))
        self._place = 0
        return Word(self.script.text[begin:end], begin)

    def end(self) -> None:
        """The statement must be over."""
        if not self.is_done:
            self.fail("this is not understood here")

    def fail(self, message: str, *, at: int | None = None, code: str = SYNTAX, fix: str = "") -> NoReturn:
        """Refuses the next token, or the one that stands at a place."""
        raise self.refusal(message, at=at, code=code, fix=fix)

    def refusal(
        self, message: str, *, at: int | None = None, code: str = SYNTAX, fix: str = "", near: Iterable[str] = ()
    ) -> ConfigError:
        """Why the next token is refused, or the one that stands at a place; ``near`` are words that could have been meant."""
        if self.token.mark is Mark.BROKEN and at is None:
            opened = self.token.text
            what = "comment" if opened == "/*" else "quoted name" if opened in '"`' else "text"
            closing = "*/" if opened == "/*" else opened
            return self.wrong("sql-unterminated", self.at, f"this {what} has no end", fix=f"Close it with {closing}")
        return self.wrong(code, self.at if at is None else at, message, fix=fix or did_you_mean(self.token.text, list(near)))

    def wrong(self, code: str, at: int, message: str, *, fix: str = "") -> ConfigError:
        """The error for a place."""
        token = next((one for one in self._tokens if one.start == at), None)
        said = "" if token is None else token.text if token.mark in (Mark.END, Mark.BROKEN) else self._raw(token)
        return self.script.wrong(code, at, message, token=said, statement=self.statement, fix=fix)

    def _raw(self, token: Token) -> str:
        return self.script.text[token.start : token.end]


def did_you_mean(given: str, known: Sequence[str]) -> str:
    """A hint at what was meant, if anything is near."""
    near = nearest(given, known)
    return f"Did you mean {near}?" if near else ""
