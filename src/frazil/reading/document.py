"""A YAML text as plain values, with the place of every key and value.

The text is composed into nodes, and the values are built from these: variables are expanded, keys are texts, merge keys
(``<<``) are followed. A scalar stays the text that was written, except null and where any type may stand: the option decides
what the text is, so that a password of digits stays a password. Nothing of the file is ever constructed as an object.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from frazil.errors import ConfigError, SourceLocation
from frazil.model.secrets import MASK, is_secret_name, mask_uri
from frazil.reading.expand import ONLY_NAMES, Expansion, in_braces
from frazil.reading.scalars import plain_value

Path = tuple[str | int, ...]

MAX_DEPTH = 60
MAX_VALUES = 100_000
MAX_LINE = 500

_SECRET_OPTIONS = ("access_key", "access_key_id", "connection_string", "credential", "password", "sas_token",
                   "secret_access_key", "service_account_key", "session_token", "token")  # fmt: skip
_SHORT_SECRETS = ("pass", "pwd", "pw", "key", "salt")

_YAML_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = (f"{_YAML_TAG}str", "!")
_TYPED_TAGS = tuple(_YAML_TAG + name for name in ("int", "float", "bool", "null"))


@lru_cache(maxsize=1000)
def keeps_secret(key: str) -> bool:
    """Whether the value of such a key is not to be shown: names of secrets, and what looks like a misspelt one."""
    name = key.lower()
    return (
        is_secret_name(name) or name in _SHORT_SECRETS or bool(difflib.get_close_matches(name, _SECRET_OPTIONS, n=1, cutoff=0.85))
    )


def printable(text: str) -> str:
    """The text without characters that would steer a terminal."""
    return "".join(char if char.isprintable() or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def _nowhere(_document: Document, _path: Path) -> str | None:
    return None


def _usual(_base: Path, _inner: Path) -> str | None:
    return None


@dataclass(frozen=True)
class Dialect:
    """The differences between forms of files.

    ``any_type`` are options that take a value of any type: there a plain scalar is typed as YAML types it. ``is_data`` tells of
    a value whether it is one of a row, not of an option. ``variables`` replaces those of a value, None when it has none.
    ``repeated_keys``: of a key that is written twice the last one counts; otherwise it is an error. ``forms`` are patterns of
    models in words, ``home_of`` the section that a misplaced key belongs to, and ``empty`` the words for a value that is empty.
    """

    file: str
    any_type: tuple[str, ...] = ()
    is_data: Callable[[Path], bool] = lambda _: False
    variables: Callable[[str, Mapping[str, str]], Expansion | None] = in_braces
    repeated_keys: bool = False
    forms: Mapping[str, str] = field(default_factory=dict)
    home_of: Callable[[Document, Path], str | None] = _nowhere
    empty: Callable[[Path, Path], str | None] = _usual


@dataclass(frozen=True)
class Span:
    """Where something stands: line and column from 0."""

    line: int
    column: int


@dataclass
class Document:
    """The values of a file and where they stand. ``plain`` are the scalars without quotes, which may also be meant typed.

    ``repeated`` are keys that took the place of an earlier one of the same name, where the dialect allows that.
    """

    name: str
    text: str
    dialect: Dialect
    value: Any = None
    keys: dict[Path, Span] = field(default_factory=dict)
    values: dict[Path, Span] = field(default_factory=dict)
    plain: dict[Path, str] = field(default_factory=dict)
    unresolved: set[Path] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    problems: list[ConfigError] = field(default_factory=list)
    repeated: list[tuple[str, Span]] = field(default_factory=list)
    hidden: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lines = re.split(r"\r\n|\n|\r", self.text)

    def report_once(self, problem: ConfigError) -> None:
        """Adds a problem, unless this very one was found before: several pipelines may use one section."""
        if str(problem) not in map(str, self.problems):
            self.problems.append(problem)

    def key_place(self, path: Path) -> SourceLocation:
        """Where a key stands, or what holds it."""
        return self.place(self._nearest(self.keys, path))

    def value_place(self, path: Path) -> SourceLocation:
        """Where a value stands, or what holds it."""
        return self.place(self._nearest(self.values, path))

    @staticmethod
    def _nearest(spans: Mapping[Path, Span], path: Path) -> Span:
        while path and path not in spans:
            path = path[:-1]
        return spans.get(path, Span(0, 0))

    def place(self, span: Span) -> SourceLocation:
        """The place as users count it, with its line; secrets in the line are masked."""
        return SourceLocation(self.name, span.line + 1, span.column + 1, self._shown(span.line))

    def _shown(self, number: int) -> str:
        if number >= len(self._lines):
            return ""
        line = self._lines[number]
        for start, end in sorted(self.hidden.get(number, ()), reverse=True):
            line = line[:start] + MASK + line[end:]
        return printable(mask_uri(line).rstrip()[:MAX_LINE])

    def hide(self, start: Span, end: Span) -> None:
        """From now on this part of the text is shown as stars."""
        for number in range(start.line, end.line + 1):
            line = self._lines[number] if number < len(self._lines) else ""
            indent = len(line) - len(line.lstrip())
            first = start.column if number == start.line else indent
            last = end.column if number == end.line else len(line)
            if last > first:
                self.hidden.setdefault(number, []).append((first, last))

    def drop(self, path: Path) -> None:
        """Takes a key away, as if it had not been written."""
        holder = self.at(path[:-1])
        del holder[path[-1]]

    def put(self, path: Path, value: Any) -> None:
        """Replaces a value."""
        self.at(path[:-1])[path[-1]] = value

    def places_below(self, path: Path) -> dict[Path, SourceLocation]:
        """Where everything in a value stands, by the way from it; the value itself is at the empty way."""
        return {way: self.value_place((*path, *way)) for way in _ways(self.at(path))}

    def at(self, path: Path) -> Any:
        """The value at a path that is known to exist."""
        node = self.value
        for step in path:
            node = node[step]
        return node


def _ways(value: Any) -> Iterator[Path]:
    yield ()
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for step, item in items:
        yield from ((step, *way) for way in _ways(item))


def read(text: str, name: str, env: Mapping[str, str], dialect: Dialect) -> Document:
    """Reads a YAML text of one document. Problems that leave the rest readable are collected in the document."""
    document = Document(name, text, dialect)
    for root in _composed(document, lambda loader: [loader.compose(text)]):
        if root is not None:
            _Builder(document, env).build(root)
    return document


def read_all(text: str, name: str, env: Mapping[str, str], dialect: Dialect) -> list[Document]:
    """Reads a YAML text of any number of documents, which `---` stands between."""
    found = []
    for root in _composed(Document(name, text, dialect), lambda loader: list(loader.compose_all(text))):
        document = Document(name, text, dialect)
        _Builder(document, env).build(root)
        found.append(document)
    return found


def _composed(document: Document, compose: Callable[[Any], list[Any]]) -> list[Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    loader = YAML(typ="safe", pure=True)
    loader.max_depth = MAX_DEPTH
    loader.composer.warn_double_anchors = False
    try:
        return compose(loader)
    except MarkedYAMLError as error:
        raise _broken(document, error) from None
    except RecursionError:
        raise ConfigError("bad-yaml", f"{document.name} is nested too deeply") from None
    except (YAMLError, ValueError, AssertionError, IndexError, AttributeError, KeyError, TypeError) as error:
        # Besides its own errors the parser lets out plain ones on some texts that no person writes.
        position = getattr(error, "position", 0)
        before = document.text[: position if isinstance(position, int) else 0]
        span = Span(before.count("\n"), len(before) - before.rfind("\n") - 1)
        raise ConfigError(
            "bad-yaml",
            "This is not YAML: a character or a form stands here that YAML does not allow",
            location=document.place(span),
        ) from None


_HINTS = {
    "mapping values are not allowed": "A value with `: ` in it needs quotes. Or the line is not indented like its neighbours.",
    "'\\t'": "Indent with spaces, not with tabs.",
    "another document": "Remove the `---` line, or split the file.",
    "undefined alias": "Name the value with `&name` before `*name` is used. A text that begins with * needs quotes.",
    "while scanning a quoted scalar": "Close the quotes.",
    "while scanning a simple key": "Write `key: value`, with a blank after the colon.",
    "while parsing a flow": "Close the bracket, and put a comma between items.",
    "while parsing a block mapping": "Keys of one section begin in the same column.",
}


def _broken(document: Document, error: Any) -> ConfigError:
    """The parser's complaint with its place, and a hint where the usual cause is known."""
    mark = error.problem_mark or error.context_mark
    span = Span(mark.line, mark.column) if mark is not None else Span(0, 0)
    words = " ".join(part for part in (error.problem, error.context) if part)
    if "maximum depth" in words:
        message = f"The file is nested too deeply: {MAX_DEPTH} levels are the limit"
    elif "another document" in words:
        message = f"{document.dialect.file} holds one YAML document, and another begins here"
    else:
        message = f"The YAML cannot be read: {error.problem or error.context}"
        if error.context and error.problem and error.context_mark is not None:
            message += f" ({error.context} that begins on line {error.context_mark.line + 1})"
    fix = next((hint for words_of, hint in _HINTS.items() if words_of in words), "")
    _hide_secret_lines(document)
    place = document.place(span)
    if "while parsing a flow" in words and "${" in place.text:
        fix = 'Within brackets a variable needs quotes: {key: "${VAR}"}.'
    return ConfigError("bad-yaml", message, fix=fix, location=place)


def _hide_secret_lines(document: Document) -> None:
    """Without nodes only the look of a line tells that it holds a secret."""
    for number, line in enumerate(re.split(r"\r\n|\n|\r", document.text)):
        for match in re.finditer(r"""([\w.-]+)["']?\s*:\s*(?=(\S[^,}]*))""", line):
            if keeps_secret(match[1]) and not ONLY_NAMES.fullmatch(match[2].strip().strip("\"'")):
                document.hide(Span(number, match.start(2)), Span(number, match.end(2)))


class _Builder:
    """Builds plain values from nodes."""

    def __init__(self, document: Document, env: Mapping[str, str]) -> None:
        self.document = document
        self.dialect = document.dialect
        self.env = env
        self.count = 0
        self.open: list[int] = []

    def build(self, root: Any) -> None:
        self._hide_secrets(root, False, set())
        self.document.value = self._value(root, (), secret=False)

    def _hide_secrets(self, node: Any, secret: bool, seen: set[tuple[int, bool]]) -> None:
        """Marks the secrets of the text before anything of it is shown."""
        if (id(node), secret) in seen:
            return
        seen.add((id(node), secret))
        if node.id == "scalar":
            if secret and not ONLY_NAMES.fullmatch(node.value):
                self.document.hide(_span(node.start_mark), _span(node.end_mark))
        elif node.id == "sequence":
            for item in node.value:
                self._hide_secrets(item, secret, seen)
        else:
            for key, item in node.value:
                self._hide_secrets(item, secret or (key.id == "scalar" and keeps_secret(key.value)), seen)

    def _value(self, node: Any, path: Path, *, secret: bool) -> Any:
        self._count(node)
        if len(path) > MAX_DEPTH:
            raise self._error("bad-yaml", f"The file is nested too deeply: {MAX_DEPTH} levels are the limit", node)
        self.document.values[path] = _span(node.start_mark)
        if node.id == "scalar":
            return self._scalar(node, path, secret)
        if _explicit_tag(node) not in (None, f"{_YAML_TAG}map", f"{_YAML_TAG}seq"):
            raise self._tag_error(node)
        self._enter(node)
        if node.id == "mapping":
            value: Any = self._mapping(node, path, secret)
        else:
            value = [self._value(item, (*path, index), secret=secret) for index, item in enumerate(node.value)]
        self.open.pop()
        return value

    def _count(self, node: Any) -> None:
        self.count += 1
        if self.count > MAX_VALUES:
            raise self._error("bad-yaml", f"The file holds more than {MAX_VALUES:,} values, aliases counted", node)

    def _enter(self, node: Any) -> None:
        if id(node) in self.open:
            raise self._error("bad-yaml", "An alias stands within the value that it names", node)
        self.open.append(id(node))

    def _mapping(self, node: Any, path: Path, secret: bool) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, key_node, item in self._entries(node):
            below = (*path, key)
            self.document.keys[below] = _span(key_node.start_mark)
            result[key] = self._value(item, below, secret=secret or (keeps_secret(key) and not self.dialect.is_data(below)))
        return result

    def _entries(self, node: Any) -> Iterator[tuple[str, Any, Any]]:
        """The entries of a mapping; what merge keys bring follows, unless the mapping has the key itself."""
        own: dict[str, Any] = {}
        merged: list[Any] = []
        for key_node, item in node.value:
            self._count(key_node)
            key = self._key(key_node)
            if key == "<<" and key_node.style is None:
                merged.extend(item.value if item.id == "sequence" else [item])
            elif key in own and not self.dialect.repeated_keys:
                self._report_twice(key, own[key], key_node)
            else:
                if key in own:
                    self.document.repeated.append((key, _span(key_node.start_mark)))
                own[key] = key_node
                yield key, key_node, item
        for other in merged:
            if other.id != "mapping":
                raise self._error("bad-yaml", "`<<` takes a section that has a name: `<<: *name`", other)
            self._enter(other)
            for key, key_node, item in self._entries(other):
                if key not in own:
                    own[key] = key_node
                    yield key, key_node, item
            self.open.pop()

    def _key(self, node: Any) -> str:
        if node.id != "scalar":
            raise self._error("bad-yaml", "A key must be a text, not a list or a section", node)
        return str(node.value)

    def _report_twice(self, key: str, first: Any, second: Any) -> None:
        line = _span(first.start_mark).line + 1
        message = f"The key `{key}` is written twice; first on line {line}"
        self.document.problems.append(self._error("duplicate-key", message, second, fix="Keep one of the two."))

    def _scalar(self, node: Any, path: Path, secret: bool) -> Any:
        text = str(node.value)
        expansion = self.dialect.variables(text, self.env)
        if expansion is not None and expansion.problems:
            self.document.unresolved.add(path)
            for problem in expansion.problems:
                self.document.problems.append(self._error(problem.code, problem.message, node, fix=problem.fix))
            return text
        if expansion is not None:
            text = expansion.text
            named = (value for name, value in expansion.used.items() if is_secret_name(name))
            self.document.secrets.update(named)
        if secret:
            self.document.secrets.add(text)
        return self._meant(node, path, text, from_variable=expansion is not None)

    def _meant(self, node: Any, path: Path, text: str, *, from_variable: bool) -> Any:
        tag = _explicit_tag(node)
        if tag is not None and tag not in (*_TEXT_TAGS, *_TYPED_TAGS):
            raise self._tag_error(node)
        if tag in _TEXT_TAGS or (tag is None and node.style is not None):
            return text
        value = plain_value(text)
        if (path[-1:] and path[-1] in self.dialect.any_type) or self.dialect.is_data(path):
            return value
        if value is None and (not text or not from_variable):
            return None
        self.document.plain[path] = text
        return text

    def _tag_error(self, node: Any) -> ConfigError:
        return self._error("bad-yaml", f"The tag {node.tag} is not known here", node, fix="Remove the tag.")

    def _error(self, code: str, message: str, node: Any, fix: str = "") -> ConfigError:
        return ConfigError(code, message, fix=fix, location=self.document.place(_span(node.start_mark)))


def _span(mark: Any) -> Span:
    return Span(mark.line, mark.column)


def _explicit_tag(node: Any) -> str | None:
    """The tag that the user wrote, or None: resolved tags have no handle."""
    tag = node.ctag
    return str(tag) if tag is not None and tag.handle is not None else None
