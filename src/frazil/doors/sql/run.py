"""Runs what was created, and follows the catalog of definitions while it does: sinks come, go and change under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frazil.doors.sql.cursor import did_you_mean
from frazil.doors.sql.session import Session
from frazil.doors.sql.sinks import require_own_sums, trace_of
from frazil.errors import ConfigError, FrazilError, Retryable, together
from frazil.model.events import Committed, Event, Listener, notify_all
from frazil.model.pipeline import PipelineSpec, ProjectSpec

WATCH_SECONDS = 1.0
"""How often the catalog of definitions is looked at."""
ONCE_SECONDS = 0.05
"""How often a run that ends by itself is looked at."""


@dataclass
class _Running:
    """A sink at work in a thread of its own."""

    pipeline: PipelineSpec
    thread: threading.Thread
    stop: threading.Event
    error: BaseException | None = None
    is_noted: bool = False


def run(
    session: Session,
    *,
    once: bool = False,
    only: Sequence[str] = (),
    listeners: Sequence[Listener] = (),
    stop: threading.Event | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Runs the sinks (or those named) until each is done or ``stop`` is set; the first error is raised when all have ended.

    When several have failed, ``say`` reports each of them before.

    A sink that is created, altered or dropped meanwhile is started, started anew or stopped between two batches. With ``once``
    what is there is read and committed, and the catalog is not watched. When the last sink was dropped, the next one is
    waited for.
    """
    _Supervisor(session, once=once, only=only, listeners=listeners, stop=stop or threading.Event(), say=say).run()


def sinks_to_run(project: ProjectSpec, only: Sequence[str] = ()) -> tuple[PipelineSpec, ...]:
    """The pipelines of the sinks that are named, or of all."""
    known = {pipeline.name: pipeline for pipeline in project.pipelines}
    for name in only:
        if name not in known:
            fix = did_you_mean(name, list(known)) or f"There are: {', '.join(known) or 'none'}."
            raise ConfigError("unknown-sink", f"There is no sink {name!r} in {project.file}.", fix=fix)
    if not known:
        raise ConfigError("nothing-to-run", f"There is no sink in {project.file}.", fix="Make one with CREATE SINK.")
    return tuple(known[name] for name in only or known)


class _Supervisor:
    def __init__(
        self,
        session: Session,
        *,
        once: bool,
        only: Sequence[str],
        listeners: Sequence[Listener],
        stop: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        self._session = session
        self._once = once
        self._only = only
        self._tell = notify_all([*listeners, self._note])
        self._stop = stop
        self._say = say
        self._running: dict[str, _Running] = {}
        self._ended: dict[str, PipelineSpec] = {}
        self._awaits_sinks = False
        self._errors: dict[str, BaseException] = {}

    def run(self) -> None:
        from frazil.runtime.runner import SharedSpark
        from frazil.spark.components import components_of

        self._version = self._session.definitions.version
        project = self._session.project()
        chosen = sinks_to_run(project, self._only)
        require_own_sums(chosen)
        # Each that has something to write takes a turn.
        many = project.settings.parallel
        self._turns = threading.BoundedSemaphore(many) if many is not None else None
        self._spark = SharedSpark(chosen, project.settings)
        if self._stop.is_set():  # Spark takes a while to start
            return
        self._components = components_of(chosen)
        try:
            self._follow(project, chosen)
            while (self._running or self._awaits_sinks) and not self._stop.wait(ONCE_SECONDS if self._once else WATCH_SECONDS):
                self._reap()
                if not self._once:
                    self._look_again()
        finally:
            for one in self._running.values():
                one.stop.set()
            for one in self._running.values():
                one.thread.join()
            self._reap()
        if self._errors:
            raise together(list(self._errors.values()))

    def _look_again(self) -> None:
        """Takes the catalog as it is now, if it has changed; one that cannot be used is reported, and what runs goes on."""
        version = self._version
        try:
            version = self._session.definitions.version
            if version == self._version:
                return
            project = self._session.project()
        except FrazilError as error:
            self._say(f"the definitions cannot be used as they are now: {error}")
            if not isinstance(error, Retryable):
                self._version = version  # only another change can mend them
            return
        self._version = version
        named = [pipeline for pipeline in project.pipelines if not self._only or pipeline.name in self._only]
        self._follow(project, named)

    def _follow(self, project: ProjectSpec, pipelines: Sequence[PipelineSpec]) -> None:
        from frazil.spark.components import components_of

        wanted = {pipeline.name: pipeline for pipeline in pipelines}
        self._awaits_sinks = not wanted
        for name, one in list(self._running.items()):
            if wanted.get(name) != one.pipeline:
                one.stop.set()
                one.thread.join()
                self._reap()
                self._ended.pop(name, None)
        for name in [name for name in self._ended if name not in wanted]:
            # One that is created under this name later is a new one, and its error is its own.
            del self._ended[name]
            self._errors.pop(name, None)
        for name, pipeline in wanted.items():
            if name in self._running or self._ended.get(name) == pipeline:
                continue  # one that has ended as it is now is not started again
            if lacking := components_of([pipeline]) - self._components:
                self._say(f"{name} needs what Spark was started without ({', '.join(sorted(lacking))}): run again to start it")
                continue
            self._start(project, pipeline)

    def _start(self, project: ProjectSpec, pipeline: PipelineSpec) -> None:
        from frazil.runtime.runner import run_pipeline

        stop = threading.Event()

        def work() -> None:
            try:
                run_pipeline(pipeline, project.settings, self._spark, self._tell, stop, once=self._once, turns=self._turns)
            except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
                self._running[pipeline.name].error = error

        one = _Running(pipeline, threading.Thread(target=work, name=pipeline.name), stop)
        self._running[pipeline.name] = one
        self._errors.pop(pipeline.name, None)
        one.thread.start()

    def _note(self, event: Event) -> None:
        """Keeps in mind what a sink has written, for one that is created under its name or into its table later."""
        one = self._running.get(event.pipeline) if isinstance(event, Committed) else None
        if one is None or one.is_noted:
            return
        try:
            self._session.definitions.note(trace_of(one.pipeline))
            one.is_noted = True
        except FrazilError as error:
            self._say(f"what {one.pipeline.name} has written could not be noted: {error}")

    def _reap(self) -> None:
        """Takes note of the sinks that have ended."""
        for name, one in list(self._running.items()):
            if one.thread.is_alive():
                continue
            del self._running[name]
            self._ended[name] = one.pipeline
            if one.error is None:
                continue
            if isinstance(one.error, FrazilError):
                one.error.message = f"sink {name}: {one.error.message}"
            self._errors[name] = one.error
            if self._session.settings.on_failure == "stop":
                self._stop.set()
