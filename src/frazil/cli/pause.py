"""`frazil pause` and `frazil resume`."""

from __future__ import annotations

import getpass
import socket
import time
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.call import Call, for_each, pipelines_named
from frazil.cli.output import table
from frazil.cli.run import Names

if TYPE_CHECKING:
    from frazil.model.pausing import Pause
    from frazil.runtime.pausing import Pausing


def pause(
    call: Call,
    names: Names = None,
    *,
    reason: Annotated[str, typer.Option(help="Why, for those who look at it.", show_default=False)] = "",
) -> None:
    """Let pipelines wait after their present batch, wherever they run. They stay paused until `frazil resume`."""
    from frazil.model.pausing import Pause

    now = Pause(by=f"{_user()}@{socket.gethostname()}", at_ms=time.time_ns() // 1_000_000, reason=reason)
    _show(call, _done(call, names, now), "paused")


def resume(call: Call, names: Names = None) -> None:
    """Let paused pipelines go on."""
    _show(call, _done(call, names, None), "not paused")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        return "unknown"


def _done(call: Call, names: Names, wanted: Pause | None) -> list[Pausing]:
    call, only = call.with_file_among(names or [])
    project = call.project()
    from frazil.runtime.pausing import set_pause

    return for_each(pipelines_named(project, only), lambda one: set_pause(one, project.settings, wanted))


def _show(call: Call, done: list[Pausing], unchanged: str) -> None:
    if call.output.json:
        call.output.document({"pipelines": done})
        return
    rows = [(one.pipeline, one.table, _words(one, unchanged)) for one in done]
    call.output.show(table("", ("pipeline", "table", "now"), rows))


def _words(one: Pausing, unchanged: str) -> str:
    if one.before == one.now:
        return unchanged if one.now is None else f"was paused already: {one.now.words}"
    return "goes on" if one.now is None else "paused"
