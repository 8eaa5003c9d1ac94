"""The prompt of `frazil sql`: statements over several lines, history without secrets, completion, answers as tables."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.cli.answers import show
from frazil.cli.output import Output
from frazil.errors import EnvironmentFault, FrazilError

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
except ModuleNotFoundError as error:
    raise EnvironmentFault.package("The prompt", error.name, "sql") from error

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output as Screen

    from frazil.cli.call import Call
    from frazil.doors.sql import Session

_ENDS = ("exit", "quit", "\\q")
_HELP = (
    "Statements end with a semicolon: CREATE SECRET | CONNECTION | SOURCE | VIEW | SINK, ALTER, DROP, SHOW, SHOW CREATE, "
    "DESCRIBE, EXPLAIN SINK, VALIDATE CONNECTION, SELECT. `exit` or Ctrl-D ends."
)


def prompt(call: Call, session: Session, *, source: Input | None = None, screen: Screen | None = None) -> None:
    """Reads statements and answers them until the user has enough. Errors are shown, and the prompt goes on."""
    lines: PromptSession[str] = PromptSession(
        message="frazil> ",
        multiline=True,
        prompt_continuation="   ...> ",
        history=QuietHistory(history_file()),
        completer=Words(session),
        complete_while_typing=False,
        key_bindings=_keys(),
        input=source,
        output=screen,
    )
    call.output.say("Statements end with a semicolon; `help` for more, `exit` to end.", "dim")
    while True:
        try:
            text = lines.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        word = text.strip().rstrip(";").lower()
        if word in _ENDS:
            return
        if word == "help":
            call.output.say(_HELP)
            continue
        try:
            for one in session.run(text, "<prompt>"):
                show(call, one)
        except KeyboardInterrupt:
            call.output.say("cancelled", "yellow")
        except FrazilError as error:
            Output(debug=call.output.debug).problem(error)
            call.output.trace(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the prompt goes on
            first = str(error).strip().partition("\n")[0]
            Output(debug=call.output.debug).problem(FrazilError("internal", f"{type(error).__name__}: {first}"))
            call.output.trace(error)


def history_file() -> Path:
    """Where the history is kept, for this user alone."""
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "frazil" / "sql-history"


class QuietHistory(FileHistory):
    """A history in a file that only its owner can read. What may hold a secret is not written."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        super().__init__(str(file))

    def store_string(self, string: str) -> None:
        """Writes one entry."""
        from frazil.doors.sql.tokens import Script

        if not Script(string).may_hold_secrets:
            super().store_string(string)


class Words(Completer):
    """Words of the language, and the names of what there is."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """What the word before the cursor can become."""
        begun = document.get_word_before_cursor(WORD=False)
        if not begun:
            return
        for word in self._words():
            if word.lower().startswith(begun.lower()) and word != begun:
                yield Completion(word, start_position=-len(begun))

    def _words(self) -> list[str]:
        from frazil.doors.sql.grammar import VOCABULARY

        try:
            names = list(self._session.definitions.all())
        except FrazilError:
            names = []  # what is wrong with the catalog is reported by the next statement
        return [*names, *VOCABULARY]


def _keys() -> KeyBindings:
    """Enter ends a statement that has its semicolon, and begins a new line otherwise."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        text = event.current_buffer.text.strip()
        if not text or text.endswith(";") or text.lower() in (*_ENDS, "help"):
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    return keys
