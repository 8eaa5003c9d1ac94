"""A script as tokens, each with its place. sqlglot's tokenizer cuts the text; words keep no meaning of their own here.

Two ways of quoting meet in one script. frazil's own statements follow the SQL standard: `'text'` with `''` for a quote, and
`"name"`. Queries are Spark's: `'text'` and `"text"` with backslashes, and `` `name` ``. Each part is cut by its own rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import ClassVar

from frazil.doors.sql.mask import Span, masked, said_without, spans
from frazil.errors import ConfigError, EnvironmentFault, SourceLocation
from frazil.model.secrets import is_secret_name, mask_uri, scrub

try:
    from sqlglot.errors import TokenError
    from sqlglot.tokenizer_core import TokenType
    from sqlglot.tokens import Tokenizer
except ModuleNotFoundError as error:
    raise EnvironmentFault.package("SQL", error.name, "sql") from error


class Mark(StrEnum):
    """Kinds of tokens."""

    WORD = "word"
    NAME = "quoted name"
    TEXT = "text"
    NUMBER = "number"
    SIGN = "sign"
    BROKEN = "broken"
    END = "end"


@dataclass(frozen=True)
class Token:
    """A piece of a script: what it says, and where it stands, from ``start`` to before ``end``."""

    mark: Mark
    text: str
    start: int
    end: int

    def says(self, *words: str) -> bool:
        """Whether it is one of these words, in upper or lower case, or one of these signs."""
        return self.mark in (Mark.WORD, Mark.SIGN) and self.text.upper() in words


class _Standard(Tokenizer):
    KEYWORDS: ClassVar[dict[str, TokenType]] = {}
    COMMANDS: ClassVar[set[TokenType]] = set()
    COMMENTS: ClassVar[list[str | tuple[str, str]]] = ["--", ("/*", "*/")]
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
    QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'"]


class _OfSpark(_Standard):
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`"]
    QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'", '"']
    STRING_ESCAPES: ClassVar[list[str]] = ["\\"]


_MARKS = {
    TokenType.VAR: Mark.WORD,
    TokenType.IDENTIFIER: Mark.NAME,
    TokenType.STRING: Mark.TEXT,
    TokenType.NUMBER: Mark.NUMBER,
}
_MISSING = re.compile(r"Missing .+ from \d+:(\d+)$", re.DOTALL)


@dataclass(frozen=True)
class Script:
    """The text of one or several statements, and what it is called in messages."""

    text: str
    name: str = "<sql>"

    def tokens(self, start: int = 0, *, spark: bool = False) -> Iterator[Token]:
        """The tokens from a place on; the last is the end, or what cannot be cut: a quote or comment without its end."""
        text = self.text[start:]
        tokenizer = _OfSpark() if spark else _Standard()
        broken: int | None = None
        while True:
            try:
                found = tokenizer.tokenize(text[:broken])
                break
            except TokenError as error:
                # What is before it may be broken, too: quotes of a query that is cut by the other rules come in odd numbers.
                left = len(text) if broken is None else broken
                broken = min(_broken_at(text[:left], error), left - 1)
        for one in found:
            raw = text[one.start : one.end + 1]
            yield Token(_MARKS.get(one.token_type, Mark.SIGN), _said(raw, one.token_type, spark), start + one.start,
                        start + one.end + 1)  # fmt: skip
        if broken is not None:
            opened = "/*" if text.startswith("/*", broken) else text[broken]
            yield Token(Mark.BROKEN, opened, start + broken, len(self.text))
        yield Token(Mark.END, "the end", len(self.text), len(self.text))

    @cached_property
    def _lines(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def location(self, at: int) -> SourceLocation:
        """A place as line and column, with the line's text as it may be shown."""
        line = next((number for number, begin in enumerate(self._lines) if begin > at), len(self._lines)) - 1
        begin = self._lines[line]
        end = begin + len(self.text[begin:].partition("\n")[0].rstrip("\r"))
        return SourceLocation(self.name, line + 1, at - begin + 1, scrub(masked(self.text, self._secret, begin, end)))

    def wrong(self, code: str, at: int, message: str, *, token: str = "", statement: str = "", fix: str = "") -> ConfigError:
        """An error at a place: what is wrong, at which token, in which statement. What may be secret in the script is stars."""
        said = token or next((self.text[one.start : one.end] for one in self.tokens(at) if one.mark is not Mark.END), "the end")
        if self.text.startswith(said, at):
            said = masked(self.text, self._secret, at, at + len(said))
        near = f'"{said}"' if said != "the end" else said
        about = said_without(message, self.text, self._secret)
        whole = f"{about} (at {near} in {statement})" if statement else f"{about} (at {near})"
        cure = said_without(fix, self.text, self._secret)
        place = self.location(min(at, len(self.text)))
        return ConfigError(code, scrub(whole), fix=scrub(cure), location=place)

    @property
    def may_hold_secrets(self) -> bool:
        """Whether anything in it may be secret."""
        return bool(self._secret) or is_secret_name(self.text) or mask_uri(self.text) != self.text

    @cached_property
    def _secret(self) -> list[Span]:
        return spans(self.text)


def _broken_at(text: str, error: TokenError) -> int:
    """Where the quote or comment begins that has no end."""
    missing = _MISSING.search(str(error.__cause__))
    if missing:
        return int(missing[1])
    # Of a quote that is the last character the tokenizer only says that nothing comes after it.
    return len(text) - 1 if text[-1:] in ("'", '"', "`") else max(text.rfind("/*"), 0)


def _said(raw: str, kind: TokenType, spark: bool) -> str:
    """The text of a token without its quotes. Texts of queries are Spark's to read."""
    if kind is TokenType.IDENTIFIER or (kind is TokenType.STRING and not spark):
        return raw[1:-1].replace(raw[-1] * 2, raw[-1])
    return raw


def closing(tokens: Sequence[Token], opening: int = 0) -> int:
    """The place of the parenthesis that closes the first one from a place on."""
    depth = 0
    for number in range(opening, len(tokens)):
        depth += tokens[number].says("(") - tokens[number].says(")")
        if depth == 0 and tokens[number].says(")"):
            return number
    return len(tokens) - 1


def between_commas(tokens: Iterable[Token]) -> Iterator[tuple[Token, ...]]:
    """The parts between commas outside of parentheses; a part may be empty."""
    depth, part = 0, list[Token]()
    for token in tokens:
        depth += token.says("(", "[", "{") - token.says(")", "]", "}")
        if depth == 0 and token.says(","):
            yield tuple(part)
            part = []
        else:
            part.append(token)
    yield tuple(part)
