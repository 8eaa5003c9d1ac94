"""`frazil verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.call import Call, for_each, pipelines_named
from frazil.cli.output import facts, table
from frazil.cli.run import Names


def verify(
    call: Call,
    names: Names = None,
    values: Annotated[
        bool, typer.Option("--values", help="Compare every value with the source's, and name the keys of rows that differ.")
    ] = False,
) -> None:
    """Compare the source, the ledger, the history and the table, and name every gap. Changes nothing."""
    call, chosen = call.with_file_among(names or [])
    project = call.project()
    pipelines = pipelines_named(project, chosen)
    from frazil.runtime.verify import verify as compare

    done = for_each(pipelines, lambda pipeline: compare(pipeline, project.settings, values=values))
    if call.output.json:
        call.output.document({"pipelines": done})
    else:
        for one in done:
            pairs = [
                ("pipeline", one.pipeline),
                ("table", one.table),
                ("batches", str(one.batches)),
                ("rows read", str(one.rows)),
            ]
            if values:
                pairs.append(("values compared", ", ".join(one.compared) or "none"))
            call.output.show(
                facts([*pairs, ("result", f"{len(one.findings)} problems" if one.findings else "nothing is missing")])
            )
            if one.findings:
                call.output.show(table("", ("where", "what"), [(finding.at, finding.problem) for finding in one.findings]))
            for note in one.notes:
                call.output.say(note, "dim")
    if any(one.findings for one in done):
        raise typer.Exit(1)
