"""Puts the commands together, and turns whatever a command raises into a message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from frazil.cli import (
    bizon,
    check,
    connectors,
    demo,
    discover,
    doctor,
    forget,
    init,
    inspect,
    jars,
    maintain,
    pause,
    plan,
    publish,
    replay,
    reset,
    rewind,
    run,
    schema,
    setup,
    sql,
    status,
    test,
    ui,
    validate,
    verify,
    version,
)
from frazil.cli.call import Call, ConfigOption, DebugOption, JsonOption, with_common_options
from frazil.cli.output import Output
from frazil.errors import FrazilError, UsageError
from frazil.spark.java_process import started_java_died
from frazil.version import __version__

# Typer carries its own copy of click, whose base of all wrong command lines has no public name.
WRONG_COMMAND_LINE: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")

app = typer.Typer(
    name="frazil",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "init": init.init,
    "validate": validate.validate,
    "test": test.run_tests,
    "check": check.check,
    "discover": discover.discover,
    "plan": plan.plan,
    "run": run.run,
    "pause": pause.pause,
    "resume": pause.resume,
    "rewind": rewind.rewind,
    "reset": reset.reset,
    "replay": replay.replay,
    "verify": verify.verify,
    "maintain": maintain.maintain,
    "publish": publish.publish,
    "forget": forget.forget,
    "status": status.status,
    "inspect": inspect.inspect,
    "ui": ui.ui,
    "sql": sql.sql,
    "schema": schema.schema,
    "connectors": connectors.connectors,
    "doctor": doctor.doctor,
    "setup": setup.setup,
    "jars": jars.jars,
    "version": version.version,
}

# Those that read no pipeline file have no use for variables of one.
WITHOUT_FILE = (demo.demo, init.init, schema.schema, connectors.connectors, setup.setup, jars.jars, version.version)

for name, function in COMMANDS.items():
    without = ("env_file",) if function in WITHOUT_FILE else ()
    # `-c` of sql is a statement, as that of other prompts is.
    app.command(name)(with_common_options(function, without=("config", "env_file") if function is sql.sql else without))


def _help_alone(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


# As Bizon has them: a word, and `list`.
LISTS: dict[str, Callable[..., None]] = {"source": bizon.list_sources, "stream": bizon.list_streams}

for name, function in LISTS.items():
    group = typer.Typer(help=function.__doc__)
    group.callback(invoke_without_command=True)(_help_alone)
    group.command("list")(with_common_options(function, without=("env_file",)))
    app.add_typer(group, name=name)


VersionOption = Annotated[bool, typer.Option("--version", help="Print the version, and end. `frazil version` says more.")]


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    config: ConfigOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,
    show_version: VersionOption = False,
) -> None:
    """Freezes streams into Apache Iceberg tables, exactly once. Begin with `frazil demo` or `frazil init`."""
    output = Output(json=json, debug=debug)
    ctx.obj = Call(config, output)
    if show_version:
        if json:
            output.document({"frazil": __version__})
        else:
            typer.echo(f"frazil {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def run_command_line(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 ok, 1 failed, 2 usage, 75 try again later, 78 bad configuration."""
    arguments = ui.with_addresses(sys.argv[1:] if argv is None else argv)
    # The options are not parsed yet when parsing them fails.
    output = Output(json="--json" in arguments, debug="--debug" in arguments)
    try:
        code = app(arguments, prog_name="frazil", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has enough. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except FrazilError as error:
        return _failed(error, output)
    except WRONG_COMMAND_LINE as error:
        return _failed(_usage_error(error), output)
    except Exception as error:  # noqa: BLE001 - the last line of defence: a user never sees a trace unasked
        return _failed(_without_java(error) or _internal_error(error, output), output)
    return code if isinstance(code, int) else 0


def _failed(error: FrazilError, output: Output) -> int:
    output.problem(error)
    output.trace(error)
    return error.exit_code


def _usage_error(error: BaseException) -> UsageError:
    message = getattr(error, "format_message", error.__str__)()
    path = getattr(getattr(error, "ctx", None), "command_path", "frazil")
    made = UsageError("usage", message, fix=f"See: {path} --help")
    made.__cause__ = error
    return made


def _without_java(error: Exception) -> FrazilError | None:
    """That Java has died, if it has: then the error is only what came of it."""
    made = started_java_died()
    if made is not None:
        made.__cause__ = error
    return made


def _internal_error(error: Exception, output: Output) -> FrazilError:
    lines = str(error).strip().splitlines() or [""]
    hint = "" if output.debug else "Run the same command with --debug to see where it came from."
    made = FrazilError("internal", f"{type(error).__name__}: {lines[0]}", fix=hint)
    made.__cause__ = error
    return made
