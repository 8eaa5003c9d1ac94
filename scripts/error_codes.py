"""Writes docs/errors.md from the code: error codes, what they say, and what to do: ``python scripts/error_codes.py``.

Codes are found where they are written beside their message. What puts the two together elsewhere is listed in ``_ELSEWHERE``:
:func:`made_elsewhere` says where that is done, and a test compares the two.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from frazil import errors

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "frazil"
PAGE = ROOT / "docs" / "errors.md"

_CLASSES = {name: made for name, made in vars(errors).items() if isinstance(made, type) and issubclass(made, errors.FrazilError)}
# What makes an error, and which of its arguments are the code (None: the one by this name) and the message.
_MAKES = dict.fromkeys(_CLASSES, (0, 1)) | {
    "wrong": (0, 2), "problem": (0, 1), "refusal": (None, 2), "fault": (0, 1), "error_of": (1, 2),
    "Refusal": (1, 2), "Unwritable": (1, 2), "Unresolved": (0, 1), "Unreadable": (0, 1), "_error": (0, 1), "Restage": (0, 1),
    "away": (0, 1),
}  # fmt: skip
_RECORD = "bad record"
_KINDS = {
    **dict.fromkeys(("wrong", "problem", "refusal", "Unresolved", "Unreadable", "_error"), "ConfigError"),
    **dict.fromkeys(("fault", "error_of", "Refusal"), _RECORD), "Unwritable": "DataError",
    **dict.fromkeys(("Restage", "away"), "Retryable"),
}  # fmt: skip
# Attributes that are best called by what they belong to.
_OF_ITS_OWNER = frozenset({"name", "text", "value", "message"})
_NO_OWNERS = frozenset({"self", "cls", "spec", "one", "e", "found"})
# What names of the code are for readers.
_WORDS = {
    "full_name": "table", "one_line": "what Spark says", "first_line": "what it says", "lsn_text": "position",
    "iso": "time", "did_you_mean": "the nearest name", "nearest": "the nearest name", "suggestion": "the nearest name",
    "near": "the nearest name", "now_ms": "time", "changed_ms": "time", "store_ms": "time", "strerror": "why",
    "why_not": "why", "words": "why", "said": "why", "text": "what it says", "uri": "address", "url": "address",
    "seq": "number", "n": "number", "fix": "what to do", "cure": "what to do", "misfit": "what is wrong", "at": "place",
    "given": "what was given", "wanted": "what is wanted", "lacking": "what is missing", "shown": "values",
    "listed": "names", "where": "place", "failed": "what failed", "spec": "source", "of": "column", "sink_id": "id",
    "verify_message": "why", "off": "or switch it off", "here": "place", "there": "place", "to": "place",
    "decides": "deciding value", "rejected": "dead letters", "other": "other one", "partitionfield": "field",
    "asked_by": "what asks for it", "host_by": "set the host to", "port_by": "set the port to", "otherwise": ", or switch it off",
    "custom_source": "file", "plugin": "output plugin", "getSimpleName": "its class", "filename": "file",
}  # fmt: skip
_CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_HEAD = """# Error codes

Every error has a code that does not change. It stands in brackets before the message (`error [table-missing] ...`), in the output
of `--json`, and in the column `code` of dead letters. Words in braces stand for what the error is about.
[Operations](operations.md) says what to do by exit code, and [dead letters](dead-letters.md) which of them one record can cause.
`make docs` makes this page from the code.

| type | meaning | exit code |
|---|---|---|
| `ConfigError` and its kinds | the file, statement or call is wrong; nothing was done | 78 |
| `UsageError` | the command line is wrong | 2 |
| `EnvironmentFault` | this machine lacks something | 1 |
| `DataError` and its kinds | the data does not fit, and the settings say stop | 1 |
| `Retryable` and its kinds | a service did not answer; the same may succeed later | 75 |
| `Halted` and its kinds | going on could lose or double rows; a person must decide | 1 |
| bad record | `on_error` decides: the pipeline stops (1), or the record becomes a [dead letter](dead-letters.md) | |
"""


@dataclass(frozen=True)
class Entry:
    """One place in the code that makes an error."""

    code: str
    kind: str
    message: str
    fix: str


_CORRECT = "Correct the data."
_REFUSED_KEYS = "keys that are empty, too long, too many, reserved, or another in upper case cannot be columns: {keys}."
_NOT_CONVERTIBLE = "column {name} is {type}, and the value {value} cannot be converted."
_ELSEWHERE = (
    Entry("csv-type", _RECORD, "a value of the line is not of the column's declared type.", ""),
    Entry("protobuf-frame", _RECORD, "the bytes before a message, which name its schema, are cut off.", ""),
    Entry("protobuf-malformed", _RECORD, "not a message {name}: {error}.", ""),
    Entry("protobuf-message", _RECORD, "the message is another one of its schema, at {places}, not at {here}.", ""),
    Entry("value-not-representable", _RECORD, "PostgreSQL has a value that the column's type has not, such as infinity.", ""),
    Entry("required-null", "RequiredNull", "column {name} is required, and a row has no value for it.", _CORRECT),
    Entry("row-outside", "DataError", "A row does not match overwrite_where: each run would add it again.", _CORRECT),
    Entry("sum-too-large", "DataError", "The sum of a column does not fit its type.", "Declare a wider type for the column."),
    Entry("query-refused", "ConfigError", "Spark does not understand the query: {message}.", "Correct the query."),
    Entry("sql-syntax", "ConfigError", "{what} is expected here.", ""),
    Entry("epoch-unreadable", "DataError", "{value} is not a time in this unit.", ""),
    Entry("expression-failed", _RECORD, "{expression} cannot be computed with the values of this record.", ""),
    Entry("json-key", _RECORD, _REFUSED_KEYS, ""),
    Entry("refused-by-iceberg", "DataError", "Iceberg does not accept the change: {what it says}.", ""),
    Entry("rewrite-overtaken", "Retryable", "Somebody else changed files that were rewritten; it is done again.", ""),
    Entry("sql-value", "ConfigError", "{option} cannot have the value {value}.", ""),
    Entry("value-not-convertible", _RECORD, "column {name} is {type}, and the value {value} cannot be converted.", _CORRECT),
    Entry(
        "value-not-convertible", "CastRefused", "column {name} is {type}, and the value {value} cannot be converted.", _CORRECT
    ),
    Entry("value-not-json", "DataError", "The value cannot be written as JSON.", ""),
    Entry("several-problems", "ConfigErrors", "{n} problems in the configuration, each listed with its place and code.", ""),
)
"""Errors whose code and message are put together at run time."""


def entries() -> list[Entry]:
    """All places, in the order of their codes."""
    found = [entry for call in _calls() if (entry := _entry(call)) is not None]
    return sorted({*found, *_ELSEWHERE}, key=lambda entry: (entry.code, entry.kind, entry.message, entry.fix))


def made_elsewhere() -> set[str]:
    """The functions that make errors whose code is found out when the program runs, and is not merely passed on to them."""
    return {call.place for call in _calls() if not _CODE.fullmatch(_code(call)) and _is_found_out(call)}


@dataclass(frozen=True)
class _Call:
    """A call that makes an error, within the function that it stands in. ``names``: what the names there stand for."""

    name: str
    node: ast.Call
    place: str
    within: ast.FunctionDef
    names: dict[str, ast.expr]

    @property
    def given(self) -> dict[str | None, str]:
        """The arguments that have a name."""
        return {keyword.arg: _text(keyword.value, self.names) for keyword in self.node.keywords}


def _calls() -> Iterator[_Call]:
    trees = {path: ast.parse(path.read_text()) for path in sorted(SRC.rglob("*.py"))}
    shared = _constants(trees.values())
    own = {path: _assigned(tree.body) for path, tree in trees.items()}
    for path, tree in trees.items():
        constants = shared | dict(_imported(tree, own)) | own[path] | _short_functions(tree)
        for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            names = constants | _assigned(list(ast.walk(function)))
            for node in _own_nodes(function):
                if isinstance(node, ast.Call):
                    place = f"{path.relative_to(SRC).with_suffix('')}.{function.name}"
                    call = _Call(_last_name(node.func), node, place, function, names)
                    if call.name in _MAKES or call.given.get("code", "").startswith("sql-"):
                        yield call


def _constants(trees: Iterable[ast.Module]) -> dict[str, ast.expr]:
    """Constants that other modules may use: names in capitals that stand for one thing, wherever they are defined."""
    found: dict[str, list[ast.expr]] = {}
    for tree in trees:
        for name, value in _assigned(tree.body).items():
            if name.isupper():
                found.setdefault(name, []).append(value)
    return {name: values[0] for name, values in found.items() if len({ast.dump(value) for value in values}) == 1}


def _imported(tree: ast.Module, own: dict[Path, dict[str, ast.expr]]) -> Iterator[tuple[str, ast.expr]]:
    """What names stand for that a module has from another one."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            known = own.get(SRC.parent.joinpath(*(node.module or "").split(".")).with_suffix(".py"), {})
            yield from ((one.name, known[one.name]) for one in node.names if one.name in known)


def _short_functions(tree: ast.Module) -> dict[str, ast.expr]:
    """What a function of the module returns that does nothing else."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    ends = {one.name: one.body[-1] for one in functions if len(one.body) <= 2}
    return {f"{name}()": end.value for name, end in ends.items() if isinstance(end, ast.Return) and end.value is not None}


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside of it."""
    inner = {node for child in ast.walk(function) if isinstance(child, ast.FunctionDef) and child is not function
             for node in ast.walk(child)}  # fmt: skip
    return (node for node in ast.walk(function) if node not in inner)


def _assigned(nodes: list[ast.AST] | list[ast.stmt]) -> dict[str, ast.expr]:
    """What names stand for that are given one value."""
    found: dict[str, ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, node.value)
    return found


def _code(call: _Call) -> str:
    code_at = _MAKES.get(call.name, (None, 0))[0]
    return call.given.get("code", "") if code_at is None or "code" in call.given else _argument(call, code_at)


def _is_found_out(call: _Call) -> bool:
    """Whether the code is none that the function was given, nor that of another error."""
    code_at = _MAKES.get(call.name, (None, 0))[0]
    node = next((one.value for one in call.node.keywords if one.arg == "code"), None)
    if node is None and code_at is not None and len(call.node.args) > code_at:
        node = call.node.args[code_at]
    arguments = call.within.args
    if isinstance(node, ast.Name) and node.id in {one.arg for one in (*arguments.args, *arguments.kwonlyargs)}:
        return False
    # As an attribute it is the code of another error.
    is_one = call.name in _CLASSES.keys() - {"ConfigErrors"}
    return is_one and isinstance(node, ast.Name | ast.JoinedStr | ast.Subscript | ast.IfExp | ast.Call)


def _entry(call: _Call) -> Entry | None:
    code, given = _code(call), call.given
    if not _CODE.fullmatch(code):
        return None
    message = _argument(call, _message_at(call) if given.get("code", "").startswith("sql-") else _MAKES[call.name][1])
    kind = _KINDS.get(call.name, call.name if call.name in _CLASSES else "ConfigError")
    return Entry(code, kind, _line(message), _line(given.get("fix", "")))


def _message_at(call: _Call) -> int:
    """Which argument of a helper that is given the code by name is the message: the longest text."""
    return max(range(len(call.node.args)), key=lambda at: len(_argument(call, at)), default=0)


def _argument(call: _Call, place: int) -> str:
    return _text(call.node.args[place], call.names) if len(call.node.args) > place else ""


def _text(node: ast.expr, names: dict[str, ast.expr], depth: int = 4) -> str:  # noqa: PLR0911 - one for each case
    """The text of an expression; what is only known when the program runs stands in braces."""
    match node:
        case ast.Constant(value=str() | int() as value):
            return str(value)
        case ast.JoinedStr(values=values):
            return "".join(_text(value, names, depth) for value in values)
        case ast.FormattedValue(value=value):
            name = _last_name(value)
            return _text(names[name], names, depth - 1) if name.isupper() and name in names and depth else f"{{{_said(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, names, depth) + _text(right, names, depth)
        case ast.Attribute(attr=name) if name.isupper() and name in names and depth:
            return _text(names[name], names, depth - 1)
        case ast.Name(id=name) if name in names and depth:
            return _text(names[name], names, depth - 1)
        case ast.Call(func=ast.Name(id=name)) if f"{name}()" in names and depth:
            return _text(names[f"{name}()"], names, depth - 1)
        case ast.Call(func=ast.Attribute(attr="lit" | "concat"), args=args):
            return "".join(_text(one, names, depth) for one in args)
        case ast.IfExp(body=body):
            return _text(body, names, depth)
        case _:
            return f"{{{_said(node)}}}"


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _said(node: ast.expr) -> str:  # noqa: PLR0911, PLR0912 - one for each case
    """What an expression is, in words: by the names in it."""
    match node:
        case ast.Name(id=name):
            return _words(name)
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if name in _OF_ITS_OWNER and owner not in _NO_OWNERS:
            return _words(owner)
        case ast.Attribute(attr=name):
            return "what it says" if name == "line" else _words(name)
        case ast.Call(func=ast.Name(id="len" | "sum"), args=[one, *_]):
            return f"number of {_said(one)}"
        case ast.Call(func=ast.Attribute(attr="join"), args=[one]) | ast.Call(func=ast.Name(id="map"), args=[_, one]):
            return _said(one)
        case ast.Call(func=ast.Name(id=name), args=[one, *_]) if name not in _WORDS:
            return _said(one)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="functions" | "sf")), args=[one, *_]):
            return _said(one)
        case ast.Call(func=ast.Attribute(value=one, attr=name)) if hasattr(str, name) or name == "isoformat":
            return _said(one)
        case ast.Call(func=function):
            return _said(function)
        case ast.GeneratorExp(generators=[first, *_]) | ast.ListComp(generators=[first, *_]):
            return _said(first.iter)
        case ast.Starred(value=one) | ast.Subscript(value=one) | ast.IfExp(body=one) | ast.BinOp(left=one):
            return _said(one)
        case ast.Tuple(elts=[one, *_]) | ast.List(elts=[one, *_]) | ast.BoolOp(values=[one, *_]):
            return _said(one)
        case ast.JoinedStr(values=values):
            return next((_said(one.value) for one in values if isinstance(one, ast.FormattedValue)), "value")
        case _:
            return "value"


def _words(name: str) -> str:
    name = name.strip("_")
    return _WORDS.get(name, name.lower().replace("_", " "))


def _line(text: str) -> str:
    return " ".join(text.split())


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    by_code: dict[str, list[Entry]] = {}
    for entry in entries():
        by_code.setdefault(entry.code, []).append(entry)
    for code, same in by_code.items():
        kinds = "; ".join(
            kind if kind == _RECORD else f"`{kind}`, exit code {_CLASSES[kind].exit_code}"
            for kind in dict.fromkeys(one.kind for one in same)
        )
        lines = []
        for entry in same:
            words = ". ".join(part.rstrip(".") for part in (entry.message, entry.fix) if " " in part)
            if words:
                lines.append(f"- {_wrapped(words + '.')}\n")
        parts += [f"\n## {code}\n\n{kinds}\n\n", *dict.fromkeys(lines)]
    return "".join(parts)


def _wrapped(text: str, width: int = 130) -> str:
    """Long lines are cut between words; braces and signs that Markdown knows are shown as they are."""
    lines: list[str] = []
    for word in text.replace("<", "\\<").replace("|", "\\|").replace("*", "\\*").split():
        if lines and len(lines[-1]) + len(word) < width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n  ".join(lines)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text() != page())
    PAGE.write_text(page())
