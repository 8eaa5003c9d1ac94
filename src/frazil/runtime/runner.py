"""Runs the pipelines of a project on one Spark, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from pyspark.sql import SparkSession

from frazil.commit.retry import growing_wait
from frazil.errors import ConfigError, FrazilError, Retryable, SourceLocation, SparkDied, together
from frazil.model.events import Committed, Event, Listener, Restarting, Started, Stopped, notify_all
from frazil.model.pipeline import PipelineSpec, ProjectSpec, located_in_file
from frazil.model.settings import Settings
from frazil.model.source import SourceSpec
from frazil.runtime.pump import Pump, Totals
from frazil.sources import letter_topic, open_source
from frazil.sources.base import OnceARun, Source
from frazil.spark.cache import state_dir
from frazil.spark.catalogs import catalog_settings
from frazil.spark.components import components_of
from frazil.spark.running_java import java_died, java_watched, require_java
from frazil.spark.session import export_environment, session_for, spark_session, with_scratch, with_settings
from frazil.write.many_tables import RoutedWriter
from frazil.write.setup import WriterSetup
from frazil.write.writer import SinkWriter

OpenSource = Callable[[SparkSession], Source]

# By how much the bound of the waits before restarts grows.
_GROWTH = 2.0


def run_project(
    project: ProjectSpec,
    *,
    once: bool = False,
    listeners: Sequence[Listener] = (),
    stop: threading.Event | None = None,
    only: Sequence[str] = (),
    sources: Mapping[str, OpenSource] | None = None,
    session: SparkSession | None = None,
) -> None:
    """Runs the enabled pipelines (or those named) until each is done or ``stop`` is set.

    A pipeline that fails does not stop the others, unless the settings say so. When all have ended, the first error is raised;
    it mentions the others. A pipeline that ``sources`` names reads that source instead of its own. ``session`` is used instead of
    that of the process.
    """
    replaced = sources or {}
    pipelines = selected(project, only)
    stop = stop or threading.Event()
    listen = notify_all(listeners)
    if stop.is_set():
        return
    spark = SharedSpark(pipelines, project.settings, session)
    if stop.is_set():  # Spark takes a while to start
        return
    # Each that has something to write takes a turn.
    turns = threading.BoundedSemaphore(project.settings.parallel or len(pipelines))
    if len(pipelines) == 1:
        only_one = pipelines[0]
        run_pipeline(only_one, project.settings, spark, listen, stop, once=once, source=replaced.get(only_one.name))
        return
    errors: list[BaseException] = []

    def work(pipeline: PipelineSpec) -> None:
        try:
            source = replaced.get(pipeline.name)
            run_pipeline(pipeline, project.settings, spark, listen, stop, once=once, turns=turns, source=source)
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
            errors.append(error)
            if project.settings.on_failure == "stop":
                stop.set()

    threads = [threading.Thread(target=work, args=(pipeline,), name=pipeline.name) for pipeline in pipelines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise together(errors)


def selected(project: ProjectSpec, only: Sequence[str] = ()) -> tuple[PipelineSpec, ...]:
    """The pipelines to run: those named, or all that are enabled."""
    known = {pipeline.name: pipeline for pipeline in project.pipelines}
    for name in only:
        if name not in known:
            raise ConfigError(
                "unknown-pipeline",
                f"There is no pipeline {name!r} in {project.file}.",
                fix=f"Known: {', '.join(known) or 'none'}.",
            )
    chosen = tuple(known[name] for name in dict.fromkeys(only)) or tuple(p for p in project.pipelines if p.enabled)
    if not chosen:
        raise ConfigError(
            "nothing-to-run", f"{project.file} has no enabled pipeline.", fix="Join a source and a sink, or enable a pipeline."
        )
    return chosen


def start_spark(pipelines: Sequence[PipelineSpec], settings: Settings, sources: Sequence[SourceSpec] = ()) -> SparkSession:
    """The Spark with all jars that these pipelines need, and these sources that no pipeline reads."""
    export_environment([catalog_settings(pipeline.sink) for pipeline in pipelines])
    wanted = with_scratch(settings)
    spark = spark_session(wanted, sorted(components_of(pipelines, sources)))
    # The same file may start its own Spark here, and run on that of a notebook or a cluster there.
    return with_settings(spark, wanted, insist=False)


class SharedSpark:
    """The Spark of pipelines that run side by side. When its Java has died, the first pipeline that continues starts another."""

    def __init__(self, pipelines: Sequence[PipelineSpec], settings: Settings, session: SparkSession | None = None) -> None:
        self._pipelines = pipelines
        self._settings = settings
        self._lock = threading.Lock()
        self._spark = (
            start_spark(pipelines, settings) if session is None else with_settings(session, with_scratch(settings), insist=False)
        )

    def session(self) -> SparkSession:
        """A session of the Spark that runs now."""
        with self._lock:
            if java_died(self._spark):
                self._spark = start_spark(self._pipelines, self._settings)
            return self._spark


def run_pipeline(
    pipeline: PipelineSpec,
    settings: Settings,
    spark: SharedSpark,
    listen: Listener,
    stop: threading.Event,
    *,
    once: bool,
    turns: AbstractContextManager[object] | None = None,
    source: OpenSource | None = None,
) -> Totals:
    """Runs one pipeline in the calling thread, again when it failed for a reason that may pass, unless it never began.

    Whatever ends it, the last thing that is said of it is that it stopped. ``source`` opens another source than its own.
    """
    watch = _Watch(listen)
    once = once or pipeline.once
    while True:
        try:
            session = spark.session()
            with _located_at(pipeline.place), located_in_file(pipeline), java_watched(session):
                totals = _run(pipeline, settings, session, watch, stop, once=once, turns=turns, began=watch.began, source=source)
        except Retryable as error:
            if isinstance(error, SparkDied):
                watch.last_error = str(error)
            watch.restarts += 1
            if once or watch.began is None or stop.is_set() or watch.restarts > settings.restart.max_restarts:
                watch.end()
                raise
            seconds = growing_wait(
                settings.restart.initial_backoff_secs, settings.restart.max_backoff_secs, _GROWTH, watch.restarts
            )
            listen(Restarting(pipeline.name, error.message, watch.restarts, seconds))
            if stop.wait(seconds):
                watch.end()
                raise
        except BaseException:
            watch.end()
            raise
        else:
            watch.end()
            return totals


@contextmanager
def _located_at(place: SourceLocation | None) -> Iterator[None]:
    """An error without a position in the user's file is reported at this one."""
    try:
        yield
    except FrazilError as error:
        error.location = error.location or place
        raise


class _Watch:
    """Passes on what is said of a pipeline, but for its end, which may be none."""

    def __init__(self, listen: Listener) -> None:
        self._listen = listen
        self._ends: list[Stopped] = []
        self.restarts = 0
        self.began: Started | None = None
        self.last_error: str | None = None
        """What the pipeline ended by, where that was found out only after it said why it stopped."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Stopped):
            self._ends.append(event)
            self.last_error = event.error
            return
        if isinstance(event, Started):
            self.began = self.began or event
        if isinstance(event, Committed):
            self.restarts = 0
        self._listen(event)

    def end(self) -> None:
        """Tells of the end, with what all runs together have done."""
        if self._ends:
            last = self._ends[-1]
            batches, rows = sum(one.batches for one in self._ends), sum(one.rows for one in self._ends)
            self._listen(Stopped(last.pipeline, batches, rows, self.last_error))


def _run(
    pipeline: PipelineSpec,
    settings: Settings,
    spark: SparkSession,
    listen: Listener,
    stop: threading.Event,
    *,
    once: bool,
    turns: AbstractContextManager[object] | None,
    began: Started | None,
    source: OpenSource | None,
) -> Totals:
    """One try of a run. ``began``: how the first one started, so that what is read once a run is not read once a try."""
    try:
        writer, opened = open_pipeline(pipeline, settings, spark, listen, stop, source=source)
        if began is not None and isinstance(opened, OnceARun):
            opened.run_began(began.start)
    except BaseException as problem:
        listen(Stopped(pipeline.name, 0, 0, str(problem)))
        raise
    pump = Pump(
        writer,
        opened,
        listen,
        rate_limit=pipeline.rate_limit,
        retry=pipeline.retry or settings.retry,
        turns=turns,
        require_spark=partial(require_java, spark),
    )
    return pump.run(stop, once=once)


def open_pipeline(
    pipeline: PipelineSpec,
    settings: Settings,
    spark: SparkSession,
    listen: Listener,
    stop: threading.Event,
    *,
    source: OpenSource | None = None,
) -> tuple[SinkWriter | RoutedWriter, Source]:
    """The two ends of a pipeline. Nothing is read or claimed yet. ``source`` opens another source than its own."""
    session = session_for(spark, catalog_settings(pipeline.sink))
    make = SinkWriter if pipeline.sink.route is None else RoutedWriter
    setup = WriterSetup(
        session,
        pipeline.sink_id,
        pipeline.name,
        pipeline.retry or settings.retry,
        listen,
        sleep=stop.wait,  # asked to stop while a catalog is away: the remaining tries are made at once
        transforms=pipeline.transforms,
        post=None if pipeline.dead_letter_topic is None else letter_topic(pipeline.dead_letter_topic),
        state_dir=state_dir(settings.state_dir),
    )
    writer = make(setup, pipeline.sink)
    if source is not None:
        return writer, source(session)
    return writer, open_source(
        pipeline.source, lambda: session, images=pipeline.sink.needs_images, versions=pipeline.sink.keeps_versions
    )
