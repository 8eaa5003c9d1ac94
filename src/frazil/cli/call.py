"""What every command shares: the options that it accepts before and after its name, and the pipeline file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from frazil.cli.output import Output
from frazil.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from frazil.model.pipeline import PipelineSpec, ProjectSpec

DEFAULT_FILE = Path("frazil.yaml")
# How every SQLite file begins.
_DATABASE = b"SQLite format 3\0"

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help=f"The pipeline file; {DEFAULT_FILE} when left out.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traces of errors.")]

EnvFileOption = Annotated[
    Path | None, typer.Option("--env-file", metavar="FILE", help="Variables, a line each: NAME=value.", show_default=False)
]

CustomSourceOption = Annotated[
    Path | None,
    typer.Option(
        "--custom-source", metavar="FILE", help="Python file with the source of a Bizon file; it is run.", show_default=False
    ),
]

COMMON: dict[str, tuple[Any, Any]] = {
    "config": (ConfigOption, None),
    "env_file": (EnvFileOption, None),
    "json": (JsonOption, False),
    "debug": (DebugOption, False),
}

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One call of a command."""

    config: Path | None
    output: Output
    env_file: Path | None = None

    @property
    def file(self) -> Path:
        """The pipeline file."""
        return self.config or DEFAULT_FILE

    def with_file_among(self, names: Sequence[str]) -> tuple[Call, tuple[str, ...]]:
        """The call with the pipeline file that stands among the names, and the names that are left."""
        files = [name for name in names if name.endswith((".yaml", ".yml"))]
        others = tuple(name for name in names if name not in files)
        if not files:
            return self, others
        if len(files) > 1:
            raise several_files(*files)
        return self.with_file(files[0]), others

    def with_file(self, file: str | None) -> Call:
        """The call with a pipeline file that was given as an argument."""
        if file is None:
            return self
        if self.config is not None:
            raise several_files(str(self.config), file)
        return replace(self, config=Path(file))

    @property
    def holds_definitions(self) -> bool:
        """Whether the file is one that `frazil sql` keeps definitions in, which is a database."""
        try:
            with self.file.open("rb") as opened:
                return opened.read(len(_DATABASE)) == _DATABASE
        except OSError:
            return False

    def project(self, custom_source: Path | None = None) -> ProjectSpec:
        """The pipelines of the file, of one of Bizon's with a source in Python that the command line names.

        Of a file of definitions these are its sinks, as `frazil sql` runs them.
        """
        from frazil.files import load
        from frazil.model.secrets import remember, secret_values

        load_environment(self.env_file)
        if self.config is None and not DEFAULT_FILE.is_file():
            raise ConfigError(
                "file-missing",
                f"There is no {DEFAULT_FILE} in this folder.",
                fix="Name the pipeline file with -c FILE, or write a first one with: frazil init",
            )
        if custom_source is not None and not custom_source.is_file():
            raise UsageError("file-missing", f"There is no file {custom_source}.", fix="--custom-source names a Python file.")
        if self.holds_definitions:
            from frazil.doors.sql import Definitions, Session

            project = Session(Definitions(self.file)).project()
        else:
            project = load(self.file, custom_source=custom_source)
        remember(secret_values(project))
        for notice in project.notices:
            self.output.say(notice, "dim")
        return project


def load_environment(file: Path | None) -> None:
    """Takes the variables of a file into the environment; those that it has already stay as they are."""
    if file is None:
        return
    import os

    from frazil.reading.environment import variables_of

    for name, value in variables_of(file).items():
        os.environ.setdefault(name, value)


def several_files(*files: str) -> UsageError:
    """More than one pipeline file on one command line."""
    return UsageError("usage", f"Several pipeline files are given: {', '.join(files)}.", fix="Give one.")


def pipelines_named(project: ProjectSpec, names: Sequence[str]) -> tuple[PipelineSpec, ...]:
    """The pipelines of these names, or all that are enabled when none is named."""
    known = {pipeline.name: pipeline for pipeline in project.pipelines}
    for name in names:
        if name not in known:
            raise UsageError("unknown-pipeline", f"{project.file} has no pipeline {name!r}.", fix=nearest(name, known))
    if names:
        return tuple(known[name] for name in dict.fromkeys(names))
    return tuple(pipeline for pipeline in project.pipelines if pipeline.enabled)


def for_each(pipelines: Sequence[PipelineSpec], work: Callable[[PipelineSpec], T]) -> list[T]:
    """What the work makes of each pipeline. Errors name the place in the pipeline's file."""
    from frazil.model.pipeline import located_in_file

    done = []
    for pipeline in pipelines:
        with located_in_file(pipeline):
            done.append(work(pipeline))
    return done


def nearest(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    """A hint at the name that was meant."""
    from frazil.model.names import nearest as nearest_name

    if near := nearest_name(name, known):
        return f"Did you mean {near}?"
    return f"There are: {', '.join(known)}." if known else "There are none."


def with_common_options(function: Callable[Concatenate[Call, P], None], *, without: Sequence[str] = ()) -> Callable[..., None]:
    """The command as typer calls it: with the options that all commands share, put together with those before its name.

    ``without`` are those of the shared ones that it has no use for.
    """
    _, *own = inspect.signature(function, eval_str=True).parameters.values()

    def command(
        ctx: typer.Context,
        json: bool,
        debug: bool,
        config: Path | None = None,
        env_file: Path | None = None,
        **arguments: Any,
    ) -> None:
        before: Call = ctx.obj
        output = Output(json=json or before.output.json, debug=debug or before.output.debug)
        call = Call(before.config, output, env_file).with_file(str(config) if config is not None else None)
        function(call, **arguments)  # type: ignore[call-arg]

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in COMMON.items()
        if name not in without
    ]
    parameters = [context, *(own_one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for own_one in own), *shared]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = function.__doc__
    return command
