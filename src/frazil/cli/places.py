"""Which tables a command is about: those that pipelines write to, or one by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.cli.call import nearest
from frazil.errors import UsageError

if TYPE_CHECKING:
    from frazil.model.pipeline import ProjectSpec
    from frazil.model.sink import SinkSpec


@dataclass(frozen=True)
class Target:
    """A table that is asked for, and the places where it may be.

    ``sink_id``: the sink that is asked for, whose other tables belong to it; None if it is about this table alone.
    """

    places: tuple[SinkSpec, ...]
    sink_id: str | None = None

    @property
    def name(self) -> str:
        """The table's name; of a sink with many tables that of its home."""
        return self.places[0].full_name


def targets(project: ProjectSpec, name: str | None) -> list[Target]:
    """What the name of a pipeline or a table stands for; without one, all sinks of the file."""
    from frazil.model.places import place_of

    of_pipelines = {pipeline.name: Target((pipeline.sink,), pipeline.sink_id) for pipeline in project.pipelines}
    used = {place_of(sink) for target in of_pipelines.values() for sink in target.places}
    unused = [Target((sink,), sink.id) for sink in project.sinks.values() if place_of(sink) not in used]
    known = [*of_pipelines.values(), *unused]
    if name is None:
        return known
    if name in of_pipelines:
        return [of_pipelines[name]]
    sinks = [sink for target in known for sink in target.places]
    if here := [sink if sink.route is None else sink.home for sink in sinks if sink.full_name == name]:
        return [Target(tuple(here))]
    namespace, _, table = name.rpartition(".")
    if not namespace:
        names = [*of_pipelines, *(sink.full_name for sink in sinks)]
        raise UsageError("unknown-table", f"{project.file} has no pipeline or table {name!r}.", fix=nearest(name, names))
    # A table that no pipeline of the file names may still be in one of its catalogs.
    return [Target(tuple(_beside(sink, namespace, table) for sink in sinks))]


def _beside(sink: SinkSpec, namespace: str, table: str) -> SinkSpec:
    """The sink of another table in the same catalog: rows may be routed to it."""
    if sink.route is not None and sink.namespace == namespace:
        return sink.routed(table).model_copy(update={"dead_letter_table": ".".join(sink.letters_name)})
    return sink.model_copy(update={"namespace": namespace, "table": table, "branch": None, "route": None})
