"""Writes docs/errors.md from the code: error codes, what they say, and what to do: ``python scripts/error_codes.py``.

Codes are found where they are written beside their message. What puts the two together elsewhere is listed in ``_ELSEWHERE``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
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
    "Refusal": (1, 2), "Unwritable": (1, 2), "Unresolved": (0, 1), "_error": (0, 1), "Restage": (0, 1), "away": (0, 1),
}  # fmt: skip
_RECORD = "bad record"
_KINDS = {
    **dict.fromkeys(("wrong", "problem", "refusal", "Unresolved", "_error"), "ConfigError"),
    **dict.fromkeys(("fault", "error_of", "Refusal"), _RECORD), "Unwritable": "DataError",
    **dict.fromkeys(("Restage", "away"), "Retryable"),
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
    Entry("several-problems", "ConfigErrors", "{n} problems in the configuration, each listed with its place and code.", ""),
)
"""Errors whose code and message are put together at run time."""


def entries() -> list[Entry]:
    """All places, in the order of their codes."""
    found = [entry for path in sorted(SRC.rglob("*.py")) for entry in _of_module(ast.parse(path.read_text()))]
    return sorted({*found, *_ELSEWHERE}, key=lambda entry: (entry.code, entry.kind, entry.message, entry.fix))


def _of_module(tree: ast.Module) -> Iterator[Entry]:
    constants = _assigned(tree.body)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        names = constants | _assigned(list(ast.walk(function)))
        for node in _own_nodes(function):
            if isinstance(node, ast.Call) and (entry := _entry(node, names)) is not None:
                yield entry


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


def _entry(call: ast.Call, names: dict[str, ast.expr]) -> Entry | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    given = {keyword.arg: _text(keyword.value, names) for keyword in call.keywords}
    named = given.get("code", "").startswith("sql-")
    if name not in _MAKES and not named:
        return None
    code_at, message_at = (None, _message_at(call, names)) if named else _MAKES[name]
    code = given.get("code", "") if code_at is None else _argument(call, code_at, names)
    if not _CODE.fullmatch(code):
        return None
    message, fix = _argument(call, message_at, names), given.get("fix", "")
    return Entry(code, _KINDS.get(name, name if name in _CLASSES else "ConfigError"), _line(message), _line(fix))


def _message_at(call: ast.Call, names: dict[str, ast.expr]) -> int:
    """Which argument of a helper that is given the code by name is the message: the longest text."""
    return max(range(len(call.args)), key=lambda at: len(_argument(call, at, names)), default=0)


def _argument(call: ast.Call, place: int, names: dict[str, ast.expr]) -> str:
    return _text(call.args[place], names) if len(call.args) > place else ""


def _text(node: ast.expr, names: dict[str, ast.expr], depth: int = 4) -> str:  # noqa: PLR0911 - one for each case
    """The text of an expression; what is only known when the program runs stands in braces."""
    match node:
        case ast.Constant(value=str() as value):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_text(value, names, depth) for value in values)
        case ast.FormattedValue(value=value):
            return f"{{{_said(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, names, depth) + _text(right, names, depth)
        case ast.Name(id=name) if name in names and depth:
            return _text(names[name], names, depth - 1)
        case ast.Call(func=ast.Attribute(attr="lit" | "concat"), args=args):
            return "".join(_text(one, names, depth) for one in args)
        case ast.IfExp(body=body):
            return _text(body, names, depth)
        case _:
            return f"{{{_said(node)}}}"


def _said(node: ast.expr) -> str:
    """A short word for an expression: its outermost name."""
    words = [
        one.attr if isinstance(one, ast.Attribute) else one.id
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute | ast.Name)
    ]
    return words[0].strip("_") if words else "..."


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
        parts += [f"\n## {code}\n\n{kinds}\n", *(["\n"] if lines else []), *lines]
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
