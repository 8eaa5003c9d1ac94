"""Which parts of a script may be secret, whether or not it can be understood: what was written wrongly is shown in messages, too.

The rule errs on the side of stars. A statement that makes or alters a secret, a connection, or something that is not known shows
its own words, names and the values of options that hold no secret. Any other statement with a word like *password* in it shows no
texts. Quotes are not relied on: one that is missing, or is of the other kind, changes where every text after it seems to begin.
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
_MAKES = ("create", "alter")
_KINDS = (*_SECRET_WORDS, "connection")
_OPEN_KINDS = ("SOURCE", "SINK", "VIEW", "MATERIALIZED", "TABLE")
_OTHER_BEGINNINGS = ("SELECT", "WITH", "DROP", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "VALIDATE")

# A semicolon ends a statement when nothing or another statement comes after it: within a text there would be more of the text.
_END = re.compile(rf";(?=[ \t\r]*(?:\n|\Z|--|/\*|;|(?:CREATE|ALTER|{'|'.join(_OTHER_BEGINNINGS)})\b))", re.IGNORECASE)
_BETWEEN = re.compile(r"(?:\s|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
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
    words = list(_WORD.finditer(text, begin, end))
    start = _guarded_from([word[0] for word in words])
    guarded = end if start is None else words[start].start()
    if any(_is_like_a_secret(word[0]) for word in words):
        for piece in _PIECE.finditer(text, begin, guarded):
            if piece["quoted"]:
                yield _within(piece)
        for given in _GIVEN.finditer(text, begin, guarded):
            before = _WORD.findall(text, begin, given.start())
            if before and _is_like_a_secret(before[-1]):
                yield given.span("value")
    if start is not None:
        yield from _of_guarded(text, guarded, end)


def _guarded_from(words: list[str]) -> int | None:
    """From which of a statement's words on only what is known to be harmless is shown: CREATE or ALTER of something secret.

    It may stand anywhere, since a semicolon before it may be missing.
    """
    for number, word in enumerate(words):
        if not (_is_like(word, _MAKES) if number == 0 else word.lower() in _MAKES):
            continue
        kind = next((other for other in words[number + 1 :] if other.upper() not in ("OR", "REPLACE")), "")
        if _is_like(kind, _KINDS) or (number == 0 and kind.upper() not in _OPEN_KINDS):
            return number
    known = bool(words) and (words[0].upper() in _OTHER_BEGINNINGS or _is_like(words[0], _MAKES))
    return None if known or not any(map(_is_like_a_secret, words)) else 0


def _of_guarded(text: str, begin: int, end: int) -> Iterator[Span]:
    known = {*VOCABULARY, "OR", "REPLACE"}
    before: list[str] = []  # the words of the option that is read, or of the statement's beginning
    depth, has_name, has_value, is_secret, is_given = 0, False, False, False, False
    for piece in _PIECE.finditer(text, begin, end):
        if sign := piece["sign"]:
            depth += (sign == "(") - (sign == ")")
            has_value = has_value or sign == "="
            if sign != "=" and depth <= 1:
                before, has_value = [], False
            continue
        if piece["comment"]:
            if any(map(_is_like_a_secret, _WORD.findall(piece[0]))):
                yield piece.span()
            continue
        word = (piece["bare"] or "").upper()
        names = _names_next(before, has_name) and piece[0][0] not in "'$"
        if is_given:
            shown = False  # all that comes after the AS of a secret is its value
        elif word and (word in known or not any(map(str.isalnum, word))):
            shown, is_given = True, is_secret and word == "AS"
        else:
            # What a connection is to is no secret, whether it is known or not.
            target = bool(word) and depth == 0 and before[-1:] == ["TO"] and not is_secret
            shown = names or target or _is_harmless(before, piece[0]) or piece.start() == begin
        if word and not shown and depth == 1 and not has_value and not is_given:
            # The name of an option that there is not.
            after = text[piece.end() : end].lstrip()[:1]
            shown = after == "=" or (not before and after not in (",", ")", ""))
        is_secret = is_secret or (depth == 0 and not has_name and _is_like(word, _SECRET_WORDS))
        has_name = has_name or (names and len(before) > 1 and word not in known)
        is_value = not word or not shown or _is_harmless(before, word)
        if is_value and depth <= 1:
            before.append("")  # an option has one value; what comes after it belongs to something else
        elif not is_value and any(map(str.isalpha, word)):
            before.append(word)
        if not shown:
            yield piece.span() if word else _within(piece)


def _names_next(before: list[str], has_name: bool) -> bool:
    """Whether the name of an object comes after these words."""
    refers = bool(before) and before[-1] in ("SECRET", "CONNECTION")
    made = [word for word in before if word not in ("OR", "REPLACE", "IF", "NOT", "EXISTS")]
    return refers or (not has_name and 1 <= len(made) <= 2)


def _is_harmless(before: list[str], value: str) -> bool:
    """Whether a value is that of an option that holds no secret; one with such words in it may have swallowed another option."""
    return " ".join(before) in _harmless_options() and not any(map(_is_like_a_secret, _WORD.findall(value)))


@cache
def _harmless_options() -> frozenset[str]:
    return frozenset(name for one in ANY_CONNECTION.known if one.takes is not Takes.SECRET for name in one.names)


def _is_like_a_secret(word: str) -> bool:
    return is_secret_name(word) or _is_like(word, _SECRET_WORDS)


@cache
def _is_like(word: str, known: tuple[str, ...]) -> bool:
    return bool(difflib.get_close_matches(word.lower(), known, n=1, cutoff=_CLOSE))


def _within(piece: re.Match[str]) -> Span:
    """What stands between the quotes."""
    quote = f"${piece['tag']}$" if piece["tag"] is not None else piece[0][0]
    closed = len(piece[0]) >= 2 * len(quote) and piece[0].endswith(quote)
    return piece.start() + len(quote), piece.end() - (len(quote) if closed else 0)
