"""`frazil run`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.call import Call, CustomSourceOption, pipelines_named
from frazil.cli.output import error_document, table
from frazil.cli.signals import run_beside, stopping
from frazil.cli.ui import TokenOption, UiOption, access_of
from frazil.errors import FrazilError, UsageError

if TYPE_CHECKING:
    from frazil.model.events import Event, Listener
    from frazil.model.pipeline import PipelineSpec, ProjectSpec
    from frazil.model.settings import Settings


class Runner(StrEnum):
    """How Bizon runs a pipeline."""

    THREAD = "thread"
    PROCESS = "process"
    STREAM = "stream"


class LogLevel(StrEnum):
    """Levels of logs, with those that only Bizon has."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


LEVELS = {level: level.value for level in LogLevel} | {LogLevel.TRACE: "debug", LogLevel.CRITICAL: "error"}

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="PIPELINE", help="Only these; all that are enabled when left out.", show_default=False),
]


def run(
    call: Call,
    names: Names = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, commit it, and end.")] = False,
    runner: Annotated[
        Runner | None, typer.Option(help="As Bizon has it: thread and process end as --once does, stream goes on.")
    ] = None,
    log_level: Annotated[
        LogLevel | None, typer.Option(case_sensitive=False, help="Least level that is logged, instead of the file's.")
    ] = None,
    custom_source: CustomSourceOption = None,
    ui: UiOption = None,
    token: TokenOption = None,
) -> None:
    """Run the pipelines until stopped. Ctrl-C or SIGTERM ends them after the batch that is being written."""
    call, only = call.with_file_among(names or [])
    if call.holds_definitions:
        fix = f"Run them with: frazil sql --run --definitions {call.file}"
        raise UsageError("usage", f"{call.file} holds definitions of SQL.", fix=fix)
    project, once = as_asked(call.project(custom_source), once=once, runner=runner, log_level=log_level)
    running = pipelines_named(project, only)  # an unknown name is refused before Spark is loaded
    if token is not None and ui is None:
        raise UsageError("usage", "--token is the token of --ui, which is not given.", fix="Give --ui, or leave --token out.")
    totals = RunTotals()
    try:
        with pages(project, running, ui, token) as (watching, urls), display(project.settings) as shown:
            execute(call, project, only, once=once, listeners=[totals, shown, *watching], urls=urls)
    except FrazilError as error:
        if not call.output.json:
            raise
        call.output.document(error_document(error) | totals.to_json())
        call.output.trace(error)
        raise typer.Exit(error.exit_code) from error
    if call.output.json:
        call.output.document(totals.to_json())
    else:
        totals.show(call)


@contextmanager
def pages(
    project: ProjectSpec, pipelines: Sequence[PipelineSpec], address: str | None, token: str | None
) -> Iterator[tuple[list[Listener], dict[str, str]]]:
    """Pages about the pipelines that run, if an address is asked for: the listeners that they need, and where they are."""
    if address is None:
        yield [], {}
        return
    from frazil.ui.live import Live
    from frazil.ui.server import served_ui
    from frazil.ui.watched import watched

    live = Live(pipelines)
    with served_ui(access_of("--ui", address, token), watched([project], [one.name for one in pipelines]), live) as url:
        yield [live], {"ui": url}


def as_asked(project: ProjectSpec, *, once: bool, runner: Runner | None, log_level: LogLevel | None) -> tuple[ProjectSpec, bool]:
    """The project as the command line wants it run, and whether its pipelines end when all is read."""
    if once and runner is Runner.STREAM:
        raise UsageError("usage", "--once and --runner stream exclude each other.", fix="Give one.")
    if log_level is not None:
        settings = project.settings.model_copy(update={"log_level": LEVELS[log_level]})
        project = project.model_copy(update={"settings": settings})
    if runner is Runner.STREAM:
        pipelines = tuple(pipeline.model_copy(update={"once": False}) for pipeline in project.pipelines)
        project = project.model_copy(update={"pipelines": pipelines})
    return project, once or runner in (Runner.THREAD, Runner.PROCESS)


def execute(
    call: Call,
    project: ProjectSpec,
    only: Sequence[str] = (),
    *,
    once: bool,
    listeners: Sequence[Listener],
    stop: threading.Event | None = None,
    urls: Mapping[str, str] | None = None,
) -> None:
    """Runs the pipelines of a project with everything around them. ``urls`` is what else is served, by purpose."""
    from frazil.runtime.runner import run_project

    def work(everybody: Sequence[Listener], asked: threading.Event) -> None:
        run_project(project, once=once, listeners=everybody, stop=asked, only=only)

    pipelines = pipelines_named(project, only)
    surrounded(call, project.settings, pipelines, work, once=once, listeners=listeners, stop=stop, urls=urls)


Work = Callable[[Sequence["Listener"], threading.Event], None]


def surrounded(
    call: Call,
    settings: Settings,
    pipelines: Sequence[PipelineSpec],
    work: Work,
    *,
    once: bool,
    listeners: Sequence[Listener],
    stop: threading.Event | None = None,
    urls: Mapping[str, str] | None = None,
) -> None:
    """Does the work with everything around it: logs, metrics, health, signals. ``urls`` is what else is served, by purpose."""
    from frazil.observe.logs import configure
    from frazil.observe.surroundings import only_asked, served

    configure("debug" if call.output.debug else settings.log_level, settings.log_format)
    say = announcer(call, settings)
    with (
        stopping(lambda message: say("stopping", message), stop) as asked,
        # Runs that end by themselves are short, and several may run side by side.
        served(only_asked(settings) if once else settings, pipelines) as web,
    ):
        for purpose, url in {**web.urls, **(urls or {})}.items():
            if purpose in ("health", "metrics", "ui"):
                say("serving", f"{purpose}: {url}")
        say("starting", "starting Spark ...")
        run_beside(lambda: work([*web.listeners, *listeners], asked))


def announcer(call: Call, settings: Settings) -> Callable[[str, str], None]:
    """Says things on stderr: as a log entry where logs are JSON, so that whoever reads them meets nothing else."""
    if settings.log_format == "json":
        from frazil.observe.logs import logger

        return lambda event, message: logger().info(event, message=message)
    return lambda _, message: call.output.say(message, "dim")


@contextmanager
def display(settings: Settings) -> Iterator[Listener]:
    """Live progress on a terminal; elsewhere, and where JSON logs are asked for, one log line an event."""
    from frazil.observe.logs import LogEvents
    from frazil.observe.progress import Progress

    if sys.stderr.isatty() and settings.log_format == "text":
        with Progress() as progress:
            yield progress
    else:
        yield LogEvents()


@dataclass(frozen=True)
class Total:
    """What one pipeline did in this run."""

    pipeline: str
    table: str = ""
    rows: int = 0
    batches: int = 0
    batch: int | None = None
    snapshot: int | None = None
    ended: bool = False
    error: str | None = None


class RunTotals:
    """Listens to events and sums them up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, Total] = {}

    def __call__(self, event: Event) -> None:
        """Takes note of one event."""
        with self._lock:
            self._totals[event.pipeline] = after(self._totals.get(event.pipeline, Total(event.pipeline)), event)

    def to_json(self) -> dict[str, Any]:
        """The summary."""
        return {"pipelines": [asdict(total) for total in self._totals.values()]}

    def show(self, call: Call) -> None:
        """The summary for people."""
        columns = ("pipeline", "table", "rows", "batches", "last snapshot")
        rows = [(t.pipeline, t.table, f"{t.rows:,}", f"{t.batches:,}", t.snapshot) for t in self._totals.values()]
        call.output.show(table("", columns, rows, right=("rows", "batches")))


def after(total: Total, event: Event) -> Total:
    """The sum after an event."""
    from frazil.model.events import Committed, Started, Stopped

    match event:
        case Started():
            return replace(total, table=event.table)
        case Committed(skipped=False):
            rows, batches = total.rows + event.counts.written, total.batches + 1
            return replace(total, rows=rows, batches=batches, batch=event.batch, snapshot=event.snapshot)
        case Stopped():
            return replace(total, ended=True, error=event.error)
        case _:
            return total
