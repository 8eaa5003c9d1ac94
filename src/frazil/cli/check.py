"""`frazil check`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.call import Call, CustomSourceOption, nearest
from frazil.cli.output import error_fields, error_text, text
from frazil.errors import ConfigError, FrazilError, Retryable, UsageError

if TYPE_CHECKING:
    from frazil.model.pipeline import PipelineSpec, ProjectSpec
    from frazil.model.source import SourceSpec
    from frazil.observe.check import Check


def check(
    call: Call,
    file: Annotated[str | None, typer.Argument(help="The pipeline file.", show_default=False)] = None,
    source: Annotated[list[str] | None, typer.Option("--source", metavar="NAME", help="Only this source.")] = None,
    sink: Annotated[list[str] | None, typer.Option("--sink", metavar="NAME", help="Only this sink.")] = None,
    custom_source: CustomSourceOption = None,
) -> None:
    """Connect to every catalog, store and source. Writes nothing but a probe file, which it deletes."""
    call = call.with_file(file)
    project = call.project(custom_source)
    done = []
    for one in checks(project, source or [], sink or []):
        done.append(one)
        if not call.output.json:
            _show(call, one)
    if call.output.json:
        call.output.document({"ok": all(one.passed for one in done), "checks": [_fields(one) for one in done]})
    if code := exit_code([one.error for one in done if one.error is not None]):
        raise typer.Exit(code)


def checks(project: ProjectSpec, sources: list[str], sinks: list[str]) -> Iterator[Check]:
    """The checks of the named sources and sinks, or of all, each as soon as it is done."""
    from frazil.observe.check import check_sink

    for names, known, what in ((sources, project.sources, "source"), (sinks, project.sinks, "sink")):
        for name in names:
            if name not in known:
                raise UsageError(f"unknown-{what}", f"{project.file} has no {what} {name!r}.", fix=nearest(name, list(known)))
    everything = not sources and not sinks
    for name in project.sinks if everything else sinks:
        writers = [pipeline for pipeline in project.pipelines if pipeline.sink_name == name]
        for one in check_sink(name, project.sinks[name]):
            yield _with_pipelines(one, writers)
    for name in project.sources if everything else sources:
        readers = [pipeline for pipeline in project.pipelines if pipeline.source_name == name]
        yield _with_pipelines(check_source(name, project.sources[name], project), readers)


def _with_pipelines(one: Check, pipelines: Sequence[PipelineSpec]) -> Check:
    """The check as the file of its pipelines has it."""
    from frazil.model.pipeline import tell_in_file

    if one.error is not None and pipelines:
        tell_in_file(one.error, pipelines[0])
    return one


def check_source(name: str, source: SourceSpec, project: ProjectSpec) -> Check:
    """One source. Spark is started for tables, queries, and folders that are not on this machine."""
    from frazil.observe.check import Check

    subject = f"source {name}"
    try:
        return Check(subject, "source", _source_message(name, source, project))
    except FrazilError as error:
        return Check.failed(subject, "source", error)


def _source_message(name: str, source: SourceSpec, project: ProjectSpec) -> str:
    from frazil.model.source import FilesSource, GeneratorSource, KafkaSource, PagesSource, PostgresCdcSource
    from frazil.observe.check import check_folder
    from frazil.observe.lake import local_path
    from frazil.sources.registry import check_pages, check_tables, check_topics

    if isinstance(source, GeneratorSource):
        return "the generator needs nothing"
    if isinstance(source, FilesSource) and (path := local_path(source.path)) is not None:
        return check_folder(path)
    if isinstance(source, PagesSource):
        check_pages(source)
        return f"the stream {source.stream} of {source.name} can be read"
    if isinstance(source, PostgresCdcSource):
        check_tables(source, project.settings.spark.master or "local[*]")
    elif not (isinstance(source, KafkaSource) and check_topics(source)):
        _check_with_spark(name, source, project)
    return f"the {source.connector} source can be read"


def _check_with_spark(name: str, source: SourceSpec, project: ProjectSpec) -> None:
    """In the session of a pipeline that reads the source, so that the catalog of its sink is known by name."""
    from frazil.runtime.discover import looking_session
    from frazil.sources import open_source

    readers = [pipeline for pipeline in project.pipelines if pipeline.source_name == name]
    opened = open_source(source, lambda: looking_session(source, readers, project.settings))
    try:
        opened.check()
    finally:
        opened.close()


def exit_code(errors: Iterable[FrazilError]) -> int:
    """78 when the file must be changed, 75 when waiting may be enough for all of them, otherwise 1."""
    found = list(errors)
    if any(isinstance(error, ConfigError) for error in found):
        return ConfigError.exit_code
    if found and all(isinstance(error, Retryable) for error in found):
        return Retryable.exit_code
    return 1 if found else 0


def _show(call: Call, one: Check) -> None:
    made = text("ok    " if one.passed else "FAIL  ", "green" if one.passed else "bold red")
    made.append_text(text(f"{one.subject}, {one.step}: "))
    if one.error is None:
        made.append_text(text(one.message))
    else:
        made.append_text(error_text(one.error))
    call.output.show(made)


def _fields(one: Check) -> dict[str, object]:
    error = None if one.error is None else error_fields(one.error)
    return {"subject": one.subject, "step": one.step, "ok": one.passed, "message": one.message, "error": error}
