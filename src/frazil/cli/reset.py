"""`frazil reset`."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.call import Call, for_each, pipelines_named
from frazil.cli.output import table
from frazil.cli.run import Names


def reset(
    call: Call,
    names: Names = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this it is only shown.")] = False,
) -> None:
    """Empty the tables of pipelines and let them read their sources from the beginning. Old snapshots keep the rows."""
    call, only = call.with_file_among(names or [])
    project = call.project()
    chosen = pipelines_named(project, only)
    from frazil.runtime.rewind import reset as begin_anew

    done = for_each(chosen, lambda pipeline: begin_anew(pipeline, project.settings, really=yes))
    if call.output.json:
        call.output.document({"pipelines": done})
        return
    rows = [(one.pipeline, one.table, one.before or "the beginning") for one in done]
    call.output.show(table("", ("pipeline", "emptied" if yes else "would be emptied", "was at"), rows))
    if not yes:
        call.output.say("Nothing was changed. Add --yes to do it.")
