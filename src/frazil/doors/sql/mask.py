"""Which parts of a script may be secret, whether or not it can be understood: what was written wrongly is shown in messages, too.

The rule: a statement that is not certainly harmless shows the words of the language, the names of objects and options, and the
values of options that hold no secret; everything else in it is stars.

- Certainly harmless is a statement that begins with a word that statements begin with, and creates or alters nothing but sources,
  views, sinks and tables. With a word such as *password* in it, its texts and what is given after `=` are stars, too.
- Quotes are not relied on: one that is missing, or is of the other kind, changes where every text after it seems to begin.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache

from frazil.doors.sql.grammar import ANY_CONNECTION, VOCABULARY, Takes
from frazil.model.secrets import MASK, is_secret_name

_CLOSE = 0.75
_SECRET_WORDS = ("secret", "password", "passwd", "token", "credential", "passphrase")
_BEGINNINGS = "CREATE|ALTER|SELECT|WITH|DROP|SHOW|DESCRIBE|DESC|EXPLAIN|VALIDATE"

# A semicolon ends a statement when nothing or another statement comes after it: within a text there would be more of the text.
_END = re.compile(rf";(?=[ \t\r]*(?:\n|\Z|--|/\*|;|(?:{_BEGINNINGS})\b))", re.IGNORECASE)
_BETWEEN = re.compile(r"(?:\s|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
_KNOWN_BEGINNING = re.compile(rf"(?:{_BEGINNINGS})\b", re.IGNORECASE)
# It may stand anywhere in a statement, since a semicolon before it may be missing.
_NOT_HARMLESS = re.compile(
    r"\b(?:CREATE|ALTER)\b(?!\s+(?:OR\s+REPLACE\s+)?(?:SOURCE|SINK|VIEW|MATERIALIZED|TABLE)\b)", re.IGNORECASE
)
_WORDS = frozenset((*VOCABULARY, "OR", "REPLACE"))
_NAME_AFTER = ("CREATE", "ALTER", "REPLACE", "SECRET", "CONNECTION", "EXISTS")
_WORD = re.compile(r"[^\W\d]\w*")
_PIECE = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<quoted>\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)
                  |'(?:[^']|'')*(?:'|\Z) | "(?:[^"]|"")*(?:"|\Z) | `(?:[^`]|``)*(?:`|\Z))
      | (?P<sign>[(),;=])
      | (?P<bare>(?:(?!\$\w*\$)[^\s'"`(),;=])+)""",
    re.VERBOSE | re.DOTALL,
)
_GIVEN = re.compile(r"=\s*(?P<value>[^\s'\"`(),;=]+)")

Span = tuple[int, int]


def spans(text: str) -> list[Span]:
    """Where what may be secret stands in a script, from a place to before another. Quotes around it are left to be seen."""
    found: list[Span] = []
    begin = 0
    for end in (*(match.end() for match in _END.finditer(text)), len(text)):
        before = _BETWEEN.match(text, begin, end)
        found += _of_statement(text, before.end() if before else begin, end)
        begin = end
    return sorted(found)


def masked(text: str, hidden: list[Span], begin: int, end: int) -> str:
    """A part of a script with stars for what may be secret."""
    made = ""
    for first, behind in hidden:
        if behind <= begin or first >= end:
            continue
        made += text[begin : max(first, begin)] + MASK
        begin = min(behind, end)
    return made + text[begin:end]


def said_without(message: str, text: str, hidden: list[Span]) -> str:
    """A message about a script, without what may be secret in that. Very short values would mangle every message."""
    values = {text[first:behind] for first, behind in hidden}
    values |= {value.replace(mark * 2, mark) for value in values for mark in "'\"`"}
    for value in sorted((one for one in values if len(one.strip()) >= 4), key=len, reverse=True):
        message = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", MASK, message)
    return message


def _of_statement(text: str, begin: int, end: int) -> Iterator[Span]:
    known = _KNOWN_BEGINNING.match(text, begin, end)
    risky = _NOT_HARMLESS.search(text, begin, end) if known else None
    guarded = risky.start() if risky else end if known else begin
    if _has_secret_word(text[begin:end]):
        for piece in _PIECE.finditer(text, begin, guarded):
            if piece["quoted"]:
                yield _within(piece)
        yield from (given.span("value") for given in _GIVEN.finditer(text, begin, guarded))
    yield from _of_guarded(text, guarded, end)


def _of_guarded(text: str, begin: int, end: int) -> Iterator[Span]:
    depth, after_as = 0, False
    words: list[str] = []  # of the option that is read, or of the statement's beginning; empty ones stand for values
    for piece in _PIECE.finditer(text, begin, end):
        bare = (piece["bare"] or "").upper()
        if sign := piece["sign"]:
            depth += (sign == "(") - (sign == ")")
            if sign == "=":
                words.append(sign)
            elif depth <= 1:
                words = []
        elif after_as or piece["comment"]:
            yield _within(piece) if piece["quoted"] else piece.span()
        elif (bare in _WORDS and (words[-1:] != ["="] or bare == "SECRET")) or (bare and not any(map(str.isalnum, bare))):
            words.append(bare)
            # All that comes after the AS of a secret is its value.
            after_as = bare == "AS"
        elif _is_name_next(words) and piece[0][0] not in "'$":
            words.append(bare)
        elif bare and not words and (piece.start() == begin or text[piece.end() : end].lstrip()[:1] not in (",", ")", ";", "")):
            words.append(bare)  # a statement or an option that is not known
        else:
            if " ".join(words).removesuffix(" =") not in _harmless_options() or _has_secret_word(piece[0]):
                yield piece.span() if bare else _within(piece)
            if depth <= 1:
                words.append("")  # an option has one value; what comes after it belongs to something else


def _is_name_next(words: list[str]) -> bool:
    """Whether the name of an object comes after these words, or that of what a connection is to."""
    return bool(words) and (words[-1] in _NAME_AFTER or (words[-1] == "TO" and words[:2] == ["CREATE", "CONNECTION"]))


@cache
def _harmless_options() -> frozenset[str]:
    return frozenset(name for one in ANY_CONNECTION.known if one.takes is not Takes.SECRET for name in one.names)


def _has_secret_word(text: str) -> bool:
    """Whether there is a word such as *password*, or one that is nearly that; a text with one may have swallowed an option."""
    return any(is_secret_name(word) or _is_nearly_secret(word.lower()) for word in _WORD.findall(text))


@cache
def _is_nearly_secret(word: str) -> bool:
    return bool(difflib.get_close_matches(word, _SECRET_WORDS, n=1, cutoff=_CLOSE))


def _within(piece: re.Match[str]) -> Span:
    """What stands between the quotes."""
    quote = f"${piece['tag']}$" if piece["tag"] is not None else piece[0][0]
    closed = len(piece[0]) >= 2 * len(quote) and piece[0].endswith(quote)
    return piece.start() + len(quote), piece.end() - (len(quote) if closed else 0)
