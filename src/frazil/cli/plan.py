"""`frazil plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.call import Call, pipelines_named
from frazil.cli.output import facts, table
from frazil.cli.run import Names, refuse_what_cannot_run

if TYPE_CHECKING:
    from frazil.model.plan import PipelinePlan


def plan(call: Call, names: Names = None) -> None:
    """Show what a run would create, change and read. Changes nothing."""
    call, chosen = call.with_file_among(names or [])
    project = call.project()
    pipelines = pipelines_named(project, chosen)
    refuse_what_cannot_run(project, pipelines)
    from frazil.engine.plan import plan_pipeline

    plans = [plan_pipeline(pipeline, project.settings) for pipeline in pipelines]
    if call.output.json:
        call.output.document({"pipelines": plans})
        return
    for made in plans:
        show_plan(call, made)


def show_plan(call: Call, made: PipelinePlan) -> None:
    """One plan for people."""
    action = "create" if made.create_table else "change" if made.changes_anything else "keep"
    pairs = [
        ("pipeline", made.pipeline),
        ("catalog", made.catalog),
        ("table", f"{action} {made.table}"),
        ("namespaces", f"create {', '.join(made.create_namespaces)}" if made.create_namespaces else None),
        ("partitioned by", ", ".join(made.partition) or "nothing"),
        ("identifier fields", ", ".join(made.identifier_fields) or None),
        ("format version", made.format_version),
        ("mode", made.mode),
        ("epoch", made.epoch),
        ("reads from", made.start or "the beginning"),
        ("first batch to", made.end),
        ("rows to read", "unknown" if made.rows is None else f"{made.rows:,}"),
    ]
    call.output.show(facts(pairs))
    columns = [(c.name, c.type, "required" if c.required else "", c.change) for c in made.columns]
    if columns:
        call.output.show(table("columns", ("column", "type", "", "change"), columns))
    if made.properties:
        call.output.show(table("properties to set", ("property", "value"), made.properties))
    for note in made.notes:
        call.output.show(f"note: {note}")
    call.output.show("")
