"""What a command prints: data on stdout as JSON or for people, messages on stderr, and no secret in either."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

from frazil.errors import ConfigErrors, FrazilError, SourceLocation

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

# A pipe has no width. Wide enough that no line of a table is broken, which tools like grep would not understand.
PIPE_WIDTH = 240


@dataclass(frozen=True)
class Output:
    """Where a command's words go."""

    json: bool = False
    debug: bool = False

    def document(self, value: Any) -> None:
        """One JSON document on stdout."""
        print(json.dumps(scrubbed(value), indent=2, ensure_ascii=False))  # noqa: T201 - this is the data

    def show(self, *things: RenderableType) -> None:
        """Data for people on stdout."""
        console = console_for_data()
        for thing in things:
            console.print(text(thing) if isinstance(thing, str) else thing, soft_wrap=isinstance(thing, str))

    def say(self, message: str, style: str = "") -> None:
        """A message on stderr."""
        console_for_messages().print(text(message, style), soft_wrap=True)

    def problem(self, error: FrazilError) -> None:
        """An error: on stderr for people, or as one JSON document on stdout."""
        if self.json:
            self.document(error_document(error))
            return
        for one in all_errors(error):
            console_for_messages().print(error_text(one), soft_wrap=True)

    def trace(self, error: BaseException) -> None:
        """Where an error came from, with --debug."""
        if self.debug:
            sys.stderr.write(without_secrets("".join(traceback.format_exception(error))))


def console_for_data() -> Console:
    """Stdout."""
    from rich.console import Console

    return Console(highlight=False, width=_width(sys.stdout.isatty()))


def console_for_messages() -> Console:
    """Stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, width=_width(sys.stderr.isatty()))


def _width(terminal: bool) -> int | None:
    return None if terminal else PIPE_WIDTH


def text(value: object, style: str = "") -> Text:
    """Text that is neither markup nor secret."""
    from rich.text import Text

    return Text(without_secrets(str(value)), style=style)


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = (), is_data: bool = False
) -> Table:
    """A plain table; the columns named in ``right`` hold numbers. Rows of a user's own data are shown as they are."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(title=text(title, "bold") if title else None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*("" if cell is None else Text(str(cell)) if is_data else text(cell) for cell in row))
    return made


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one a line; those without a value are left out."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim")
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            made.add_row(name, text(value))
    return made


def all_errors(error: FrazilError) -> Sequence[FrazilError]:
    """The problems that an error stands for: a file may have several at once, and so may several pipelines."""
    own = error.errors if isinstance(error, ConfigErrors) else (error,)
    return [*own, *(one for other in error.beside for one in all_errors(other))]


def error_document(error: FrazilError) -> dict[str, Any]:
    """An error as a JSON document: the first problem, and all of them."""
    listed = [error_fields(one) for one in all_errors(error)]
    return {"error": listed[0], "errors": listed}


def error_fields(error: FrazilError) -> dict[str, Any]:
    """An error as JSON."""
    place = error.location
    location = None if place is None else {"file": place.file, "line": place.line, "column": place.column, "text": place.text}
    return {"code": error.code, "message": error.message, "fix": error.fix or None, "location": location}


def error_text(error: FrazilError) -> Text:
    """An error for people: where, what, the line with a caret, and the cure."""
    made = text("error", "bold red")
    made.append_text(text(f" [{error.code}] ", "dim"))
    made.append_text(text(f"{error.location}: " if error.location else "", "bold"))
    made.append_text(text(error.message))
    if error.location is not None and error.location.text:
        made.append_text(text("\n" + caret_lines(error.location), "dim"))
    if error.fix:
        made.append_text(text("\n  fix: ", "green"))
        made.append_text(text(error.fix))
    return made


def caret_lines(place: SourceLocation) -> str:
    """The line of the user's file with a caret under the place."""
    number = str(place.line)
    # A tab before the place stays a tab, so that the caret stands under it whatever a tab's width is.
    before = "".join("\t" if mark == "\t" else " " for mark in place.text[: max(place.column - 1, 0)])
    return f"  {number} | {place.text}\n  {' ' * len(number)} | {before}^"


def without_secrets(content: str) -> str:
    """The text as it may be printed."""
    from frazil.model.secrets import scrub

    return scrub(content)


class AsItIs:
    """A value of a user's own data within a document: what is in it is nobody's secret, even where it says the same as one."""

    def __init__(self, value: Any) -> None:
        self.value = value


def scrubbed(value: Any, clean: Callable[[str], str] = without_secrets) -> Any:
    """The value ready for JSON, every text in it without secrets."""
    if isinstance(value, AsItIs):
        value, clean = value.value, str
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return clean(value)
        case Mapping():
            return {clean(str(key)): scrubbed(item, clean) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [scrubbed(item, clean) for item in value]
        case _:
            return clean(str(value))
