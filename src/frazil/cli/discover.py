"""`frazil discover`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.call import Call, CustomSourceOption, nearest
from frazil.cli.output import facts, table
from frazil.errors import UsageError

if TYPE_CHECKING:
    from frazil.model.discovery import Discovery
    from frazil.model.pipeline import ProjectSpec


def discover(
    call: Call,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A source of the pipeline file.", show_default=False)],
    custom_source: CustomSourceOption = None,
) -> None:
    """Show what a source has to offer: topics, tables, columns. Changes nothing."""
    project = call.project(custom_source)
    if source not in project.sources:
        fix = nearest(source, list(project.sources))
        raise UsageError("unknown-source", f"{project.file} has no source {source!r}.", fix=fix)
    found = discovered(source, project)
    if call.output.json:
        call.output.document(found)
    else:
        show(call, found)


def discovered(name: str, project: ProjectSpec) -> Discovery:
    """What the source of this name has to offer. A database is asked without Spark."""
    from frazil.model.source import PostgresCdcSource

    spec = project.sources[name]
    if isinstance(spec, PostgresCdcSource):
        from frazil.sources.registry import database_tables

        return database_tables(name, spec)
    from frazil.runtime.discover import discover as look

    return look(name, spec, [pipeline for pipeline in project.pipelines if pipeline.source_name == name], project.settings)


def show(call: Call, found: Discovery) -> None:
    """What a source has to offer, for people."""
    call.output.show(facts([("source", found.source), ("connector", found.connector)]))
    if found.topics:
        rows = [(one.name, one.partitions, f"{one.messages:,}", _taken(taken=one.taken)) for one in found.topics]
        columns = ("topic", "partitions", "messages", "read by the source")
        call.output.show(table("topics", columns, rows, right=("partitions", "messages")))
    if found.tables:
        cells = [
            (one.name, column.name, column.type, "key" if column.name in one.primary_key else "", _taken(taken=one.taken))
            for one in found.tables
            for column in one.columns
        ]
        call.output.show(table("tables", ("table", "column", "type", "", "read by the source"), cells))
    if found.columns:
        shown = [(column.name, column.type) for column in found.columns]
        call.output.show(table("columns", ("column", "type"), shown))
    for note in found.notes:
        call.output.show(f"note: {note}")


def _taken(*, taken: bool) -> str:
    return "yes" if taken else "no"
