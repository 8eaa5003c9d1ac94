"""The pipelines that are shown, and the names of their pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from frazil.model.pipeline import PipelineSpec, ProjectSpec
from frazil.model.settings import Settings


@dataclass(frozen=True)
class Watched:
    """A pipeline of one of the files. ``key``: its name, with that of the file where several files have one of that name."""

    key: str
    file: str
    spec: PipelineSpec
    settings: Settings


def watched(projects: Iterable[ProjectSpec], only: Iterable[str] = ()) -> Mapping[str, Watched]:
    """All pipelines of the files by their keys, or those of these names."""
    names = set(only)
    found = [(project, spec) for project in projects for spec in project.pipelines if not names or spec.name in names]
    count = Counter(spec.name for _, spec in found)
    made = (
        Watched(spec.name if count[spec.name] == 1 else f"{project.file}:{spec.name}", project.file, spec, project.settings)
        for project, spec in found
    )
    return {one.key: one for one in made}
