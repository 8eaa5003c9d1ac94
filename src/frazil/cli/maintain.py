"""`frazil maintain`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.call import Call, nearest
from frazil.cli.check import exit_code
from frazil.cli.output import console_for_messages, error_document, error_fields, facts, text
from frazil.cli.places import targets
from frazil.errors import FrazilError, UsageError
from frazil.model.maintenance import USUAL_TASKS, MaintenanceTask
from frazil.model.words import size

if TYPE_CHECKING:
    from frazil.model.events import Event
    from frazil.model.maintenance import Outlook
    from frazil.model.sink import SinkSpec

_NAMES = ", ".join(task.value for task in MaintenanceTask)


def maintain(
    call: Call,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[PIPELINE|NAMESPACE.TABLE]", help="All tables of the file when left out.", show_default=False),
    ] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="TASKS", help=f"Some of: {_NAMES}; when left out, all but statistics and orphans."),
    ] = None,
    orphan_age_hours: Annotated[
        int, typer.Option(min=24, help="How old a file must be that no metadata names before it is deleted.")
    ] = 72,
) -> None:
    """Merge small files, expire snapshots and delete what nobody needs, also while a pipeline writes."""
    call, names = call.with_file_among([target] if target else [])
    project = call.project()
    tasks = _tasks(only)
    asked = targets(project, names[0] if names else None)
    from frazil.model.places import Place, place_of
    from frazil.runtime.maintain import maintain as look_after
    from frazil.runtime.places import opened, spark_for, tables_of

    call.output.say("starting Spark ...", "dim")
    spark_for([sink for one in asked for sink in one.places], project.settings)
    report = _Report(call, dry_run=dry_run)
    tables: dict[Place, SinkSpec] = {}
    for one in asked:
        with report.failures_of(one.name):
            home = opened(one.places, project.settings, read_only=dry_run)
            for sink in tables_of(home, one.sink_id):
                tables.setdefault(place_of(sink), sink)
    for sink in tables.values():
        with report.failures_of(sink.full_name):
            outlook = look_after(
                sink,
                project.settings,
                tasks,
                dry_run=dry_run,
                orphan_age_hours=orphan_age_hours,
                listen=lambda event: _say(call, event),
                during=lambda table, step: shown(call, table, step),
            )
            report.add(sink.full_name, outlook)
    report.end()


class _Report:
    """What was done for each table. One that fails does not keep the others from being maintained."""

    def __init__(self, call: Call, *, dry_run: bool) -> None:
        self._call = call
        self._dry_run = dry_run
        self._tables: list[dict[str, Any]] = []
        self._errors: list[FrazilError] = []

    def add(self, name: str, outlook: Outlook) -> None:
        """A table that was maintained."""
        self._tables.append({"table": name, "dry_run": self._dry_run, **asdict(outlook), "error": None})
        if not self._call.output.json:
            _show(self._call, name, outlook, dry_run=self._dry_run)

    @contextmanager
    def failures_of(self, name: str) -> Iterator[None]:
        """Keeps what goes wrong with a table for the end, and reports it to people at once."""
        output = self._call.output
        try:
            yield
        except FrazilError as error:
            self._errors.append(error)
            self._tables.append({"table": name, "dry_run": self._dry_run, "error": error_fields(error)})
            if not output.json:
                output.say(f"{name}: failed", "red")
                output.problem(error)
            output.trace(error)

    def end(self) -> None:
        """Prints the document that was asked for, and ends the command with the exit code of what went wrong."""
        if self._call.output.json:
            wrong = {}
            if self._errors:
                first, *others = self._errors
                first.beside = tuple(others)
                wrong = error_document(first)
            self._call.output.document(wrong | {"tables": self._tables})
        if code := exit_code(self._errors):
            raise typer.Exit(code)


@contextmanager
def shown(call: Call, table: str, step: str) -> Iterator[None]:
    """Shows that a step is being done, and how long it took: on a terminal as a line that moves."""
    console, began = console_for_messages(), time.monotonic()
    if console.is_interactive:
        from rich.live import Live
        from rich.spinner import Spinner

        spinner = Spinner("dots")

        def view() -> Spinner:
            spinner.update(text=text(f"{table}: {step}, {time.monotonic() - began:.0f} s"))
            return spinner

        # What is written to stdout is data, and never goes through a display on stderr.
        with Live(get_renderable=view, console=console, refresh_per_second=8, redirect_stdout=False, transient=True):
            yield
    else:
        call.output.say(f"{table}: {step} ...", "dim")
        yield
    call.output.say(f"{table}: {step} took {time.monotonic() - began:.1f} s", "dim")


def _tasks(only: str | None) -> tuple[MaintenanceTask, ...]:
    if only is None:
        return USUAL_TASKS
    known = [task.value for task in MaintenanceTask]
    given = [name.strip() for name in only.split(",")]
    for name in given:
        if name not in known:
            raise UsageError("usage", f"--only has an unknown task {name!r}.", fix=nearest(name, known))
    return tuple(MaintenanceTask(name) for name in given)


def _say(call: Call, event: Event) -> None:
    """What happens, as it happens."""
    from frazil.model.events import CommitFailed, Maintained, Settled
    from frazil.observe.progress import upkeep_text

    if isinstance(event, Maintained | Settled):
        call.output.say(f"{event.table}: {upkeep_text(event)}", "dim")
    elif isinstance(event, CommitFailed):
        call.output.say(f"{event.pipeline}: {event.message}", "dim")


def _merge(outlook: Outlook) -> str:
    return f"{outlook.merge_files:,} files into {outlook.merge_files_after:,}, {size(outlook.merge_bytes)} rewritten"


def _opened(outlook: Outlook) -> str:
    return f"{outlook.read_amplification:g} files for each that is needed, then {outlook.read_amplification_after:g}"


def _manifests(outlook: Outlook) -> str:
    opened = f"{outlook.manifests_opened:g} of them, then {outlook.manifests_opened_after:g}"
    return f"{outlook.rewrite_manifests:,} manifests; a scan of one partition opens {opened}"


def _show(call: Call, name: str, outlook: Outlook, *, dry_run: bool) -> None:
    if outlook.nothing:
        call.output.show(f"{name}: nothing to do")
        return
    would = "would be " if dry_run else ""
    pairs = [
        ("table", name),
        (f"{would}settled", f"{outlook.settle_deletes:,} equality deletes" if outlook.settle_deletes else None),
        (f"{would}merged", _merge(outlook) if outlook.merge_files else None),
        ("a full scan opens", _opened(outlook) if outlook.merge_files else None),
        (f"{would}rewritten by partition", _manifests(outlook) if outlook.rewrite_manifests else None),
        ("statistics", f"{would}written" if outlook.write_statistics else None),
        (f"{would}expired", f"{outlook.expire_snapshots:,} snapshots" if outlook.expire_snapshots else None),
        (f"{would}deleted", f"{outlook.delete_files:,} files of expired snapshots" if outlook.delete_files else None),
        (f"{would}deleted as orphans", f"{len(outlook.orphans):,} files" if outlook.orphans else None),
    ]
    call.output.show(facts(pairs))
    for path in outlook.orphans if dry_run else ():
        call.output.show(path)
