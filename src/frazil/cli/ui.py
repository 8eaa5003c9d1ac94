"""`frazil ui`, and `--ui` of `frazil run`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from typing import Annotated

import typer

from frazil.cli.call import Call
from frazil.cli.signals import stopping
from frazil.ui.address import DEFAULT, TOKEN_VARIABLE, Access, access

TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help=f"What visitors of the pages must have, instead of {TOKEN_VARIABLE}; required where other machines can reach them.",
        show_default=False,
    ),
]
UiOption = Annotated[
    str | None,
    typer.Option(
        "--ui",
        metavar="[HOST:PORT]",
        help=f"Show the pipelines in a browser meanwhile; at {DEFAULT} when no address follows.",
        show_default=False,
    ),
]


def ui(
    call: Call,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Pipeline files; that of -c when left out.", show_default=False)
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to answer; port 0 takes a free one.")
    ] = DEFAULT,
    token: TokenOption = None,
) -> None:
    """Show pipelines and their tables in a browser, until stopped. It only reads, and needs no Spark and no running pipeline."""
    projects = [one.project() for one in ([call.with_file(file) for file in files] if files else [call])]
    from frazil.ui.server import served_ui
    from frazil.ui.watched import watched

    pipelines = watched(projects)
    done = threading.Event()
    with stopping(lambda _: call.output.say("stopping"), done), served_ui(access_of("--listen", listen, token), pipelines) as url:
        if call.output.json:
            call.output.document({"url": url, "pipelines": list(pipelines)})
            sys.stdout.flush()
        else:
            call.output.say(f"ui: {url}")
        done.wait()


def with_addresses(arguments: Sequence[str]) -> list[str]:
    """The command line with an address after each `--ui` of `run` that has none: Typer knows no option whose value may be left
    out. What follows it is its address if it has a colon or is a number: anything else is a file, a pipeline or an option.
    """
    found: list[str] = []
    for place, argument in enumerate(arguments):
        after = arguments[place + 1] if place + 1 < len(arguments) else ""
        has_address = after.isdecimal() or (":" in after and not after.startswith("-"))
        found.append(f"--ui={DEFAULT}" if argument == "--ui" and not has_address else argument)
    return found


def access_of(option: str, address: str, token: str | None) -> Access:
    """Who may look at an address: the token may be in the environment, as the file for variables has filled it."""
    return access(option, address, token if token is not None else os.environ.get(TOKEN_VARIABLE))
