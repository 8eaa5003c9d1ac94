"""`frazil sql`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.answers import document, show
from frazil.cli.call import Call
from frazil.cli.output import error_document
from frazil.errors import ConfigError, FrazilError, UsageError

if TYPE_CHECKING:
    from frazil.doors.sql import Answer, Session
    from frazil.model.settings import Settings


def sql(
    call: Call,
    *,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Statements to run; - for stdin.", show_default=False)
    ] = None,
    command: Annotated[list[str] | None, typer.Option("--command", "-c", metavar="SQL", help="Statements to run.")] = None,
    run: Annotated[bool, typer.Option("--run", help="Then run the sinks that were created, now or before.")] = False,
    once: Annotated[bool, typer.Option("--once", help="With --run: read what is there now, commit it, and end.")] = False,
    only: Annotated[list[str] | None, typer.Option("--sink", metavar="NAME", help="With --run: only this sink.")] = None,
    definitions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where definitions are kept; frazil-sql.db when left out.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A pipeline file whose `settings` (Spark, ports, logs) are used.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most rows that the answer to a query shows.")] = 1000,
) -> None:
    """Create sources, views and sinks with SQL, look at them, and run them. Without FILE and -c: a prompt."""
    if call.config is not None:
        raise UsageError("usage", "frazil sql reads no pipeline file.", fix="Name it with --settings for its settings alone.")
    if (once or only) and not run:
        raise UsageError("usage", "--once and --sink have no meaning without --run.", fix="Add --run.")
    session = _session(definitions, _settings(settings), limit)
    scripts = [(text, "<command>") for text in command or []]
    if file is not None:
        scripts.insert(0, (_read(file), "<stdin>" if file == "-" else file))
    if not scripts and not run:
        if call.output.json:
            raise UsageError("usage", "A prompt has no JSON.", fix="Give the statements as FILE or with -c.")
        _prompt(call, session)
        return
    answers = [one for text, name in scripts for one in _answers(call, session, text, name)]
    if run:
        _run(call, session, answers, once=once, only=only or [])
    elif call.output.json:
        call.output.document({"statements": [document(one) for one in answers]})


def _session(definitions: Path | None, settings: Settings | None, limit: int) -> Session:
    from frazil.doors.sql import DEFAULT_FILE, Definitions, Session

    return Session(Definitions(definitions or DEFAULT_FILE), settings, limit=limit)


def _settings(file: Path | None) -> Settings | None:
    if file is None:
        return None
    from frazil.doors.yaml import load

    return load(file).settings


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError("file-missing", f"The file {file} does not exist.", fix="Name a file with SQL statements.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("file-unreadable", f"The file {file} cannot be read: {error}.") from None


def _answers(call: Call, session: Session, text: str, name: str) -> list[Answer]:
    """Each answer is shown as soon as it is there."""
    found: list[Answer] = []
    try:
        for one in session.run(text, name):
            found.append(one)
            if not call.output.json:
                show(call, one)
    except FrazilError as error:
        if not call.output.json:
            raise
        call.output.document(error_document(error) | {"statements": [document(one) for one in found]})
        call.output.trace(error)
        raise typer.Exit(error.exit_code) from error
    return found


def _run(call: Call, session: Session, answers: list[Answer], *, once: bool, only: list[str]) -> None:
    from frazil.cli.run import RunTotals, announcer, display, surrounded
    from frazil.doors.sql import run, sinks_to_run

    project = session.project()
    chosen = sinks_to_run(project, only)
    totals = RunTotals()
    before = {"statements": [document(one) for one in answers]} if answers else {}
    say = announcer(call, project.settings)
    try:
        with display(project.settings) as shown:
            surrounded(
                call,
                project.settings,
                chosen,
                lambda everybody, stop: run(
                    session, once=once, only=only, listeners=everybody, stop=stop, say=lambda words: say("definitions", words)
                ),
                once=once,
                listeners=[totals, shown],
            )
    except FrazilError as error:
        if not call.output.json:
            raise
        call.output.document(error_document(error) | before | totals.to_json())
        call.output.trace(error)
        raise typer.Exit(error.exit_code) from error
    if call.output.json:
        call.output.document(before | totals.to_json())
    else:
        totals.show(call)


def _prompt(call: Call, session: Session) -> None:
    if not sys.stdin.isatty():
        _answers(call, session, sys.stdin.read(), "<stdin>")
        return
    from frazil.cli.prompt import prompt
    from frazil.cli.signals import cancelling

    with cancelling():
        prompt(call, session)
