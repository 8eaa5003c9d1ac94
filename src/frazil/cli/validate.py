"""`frazil validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.call import Call, CustomSourceOption
from frazil.cli.output import table

if TYPE_CHECKING:
    from frazil.model.pipeline import PipelineSpec


def validate(
    call: Call,
    file: Annotated[str | None, typer.Argument(help="The pipeline file.", show_default=False)] = None,
    custom_source: CustomSourceOption = None,
) -> None:
    """Read the pipeline file and name every problem in it. Connects to nothing."""
    call = call.with_file(file)
    project = call.project(custom_source)
    if call.output.json:
        pipelines = [summary_of(pipeline) for pipeline in project.pipelines]
        call.output.document({"valid": True, "file": project.file, "pipelines": pipelines})
        return
    call.output.show(f"{project.file}: OK")
    if project.pipelines:
        rows = [tuple(summary_of(pipeline).values()) for pipeline in project.pipelines]
        call.output.show(table("", tuple(summary_of(project.pipelines[0])), rows))
    unused = {f"source {name}" for name in project.sources} | {f"sink {name}" for name in project.sinks}
    unused -= {f"source {pipeline.source_name}" for pipeline in project.pipelines}
    unused -= {f"sink {pipeline.sink_name}" for pipeline in project.pipelines}
    if unused:
        call.output.say(f"In no pipeline: {', '.join(sorted(unused))}.", "dim")


def summary_of(pipeline: PipelineSpec) -> dict[str, Any]:
    """One pipeline in a line."""
    return {
        "pipeline": pipeline.name,
        "source": f"{pipeline.source_name} ({pipeline.source.connector})",
        "sink": pipeline.sink_name,
        "catalog": f"{pipeline.sink.catalog.type.value} {pipeline.sink.catalog.address}",
        "table": pipeline.sink.full_name,
        "mode": pipeline.sink.commit_mode.value,
        "enabled": pipeline.enabled,
    }
