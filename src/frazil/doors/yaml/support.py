"""What a file may say though this version cannot do it yet."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.errors import ConfigError
from frazil.model.pipeline import PipelineSpec, ProjectSpec


def not_yet(project: ProjectSpec) -> list[ConfigError]:
    """One error for each enabled pipeline that cannot run with this version: every reason, at the place of the first."""
    return [error for pipeline in project.pipelines if pipeline.enabled for error in _refusals(project, pipeline)]


def _refusals(project: ProjectSpec, pipeline: PipelineSpec) -> list[ConfigError]:
    reasons = list(_reasons(pipeline))
    if not reasons:
        return []
    message = f"The pipeline `{pipeline.name}` cannot run with this version yet: {', '.join(words for words, _ in reasons)}"
    places = (project.places.get(key) for _, keys in reasons for key in keys)
    place = next((found for found in places if found is not None), None)
    fix = "Change the option, or switch the pipeline off with `enabled: false`."
    return [ConfigError("not-yet-supported", message, fix=fix, location=place)]


def _reasons(pipeline: PipelineSpec) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each reason with the keys that say so, the likeliest first."""
    source, sink = f"sources.{pipeline.source_name}", f"sinks.{pipeline.sink_name}"
    if pipeline.dead_letter_topic is not None:
        yield "dead_letter_topic", (f"{sink}.dead_letter_topic", f"{source}.dead_letter_topic")
