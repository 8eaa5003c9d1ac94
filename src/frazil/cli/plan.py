"""`frazil plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.call import Call, for_each, pipelines_named
from frazil.cli.output import facts, table
from frazil.cli.run import Names

if TYPE_CHECKING:
    from frazil.model.plan import PipelinePlan, PlannedColumn


def plan(call: Call, names: Names = None) -> None:
    """Show what a run would create, change and read. Changes nothing."""
    call, chosen = call.with_file_among(names or [])
    project = call.project()
    pipelines = pipelines_named(project, chosen)
    from frazil.runtime.plan import plan_pipeline

    plans = for_each(pipelines, lambda pipeline: plan_pipeline(pipeline, project.settings))
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
        ("partitioned by", _partitioning(made)),
        ("identifier fields", ", ".join(made.identifier_fields) or None),
        ("format version", made.format_version),
        ("mode", made.mode),
        ("epoch", made.epoch),
        ("reads from", made.start or "the beginning"),
        ("first batch to", made.end),
        ("rows to read", made.rows_text),
    ]
    call.output.show(facts(pairs))
    columns = [(c.name, c.type, "required" if c.required else "", c.change, _before(c)) for c in made.columns]
    if columns:
        call.output.show(table("columns", ("column", "type", "", "change", ""), columns))
    if made.properties:
        call.output.show(table("properties to set", ("property", "value"), made.properties))
    for note in made.notes:
        call.output.show(f"note: {note}")
    call.output.show("")


def _partitioning(made: PipelinePlan) -> str:
    now = ", ".join(made.partition) or "nothing"
    if made.old_partition is None:
        return now
    return f"{now} (change; what is in the table stays by {', '.join(made.old_partition) or 'nothing'})"


def _before(column: PlannedColumn) -> str:
    """What a column that would change is now."""
    was = [text for text in (column.old_name, column.old_type) if text is not None]
    if "optional" in column.change.split(", "):
        was.append("required")
    return f"was {', '.join(was)}" if was else ""
