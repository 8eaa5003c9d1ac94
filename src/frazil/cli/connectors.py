"""`frazil connectors`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.cli.call import Call
from frazil.cli.output import table

if TYPE_CHECKING:
    from frazil.model.base import Model


@dataclass(frozen=True)
class Connector:
    """A kind of source or sink."""

    kind: str
    name: str
    description: str
    model: type[Model]


def connectors(call: Call) -> None:
    """List the sources and sinks that a pipeline file can name."""
    known = all_connectors()
    if call.output.json:
        call.output.document([{"kind": c.kind, "name": c.name, "description": c.description} for c in known])
        return
    rows = [(c.kind, c.name, c.description) for c in known]
    call.output.show(table("", ("kind", "connector", "what it is"), rows))
    call.output.say("The settings of one: frazil schema CONNECTOR", "dim")


def all_connectors() -> list[Connector]:
    """Every connector of the model."""
    from frazil.model.sink import SinkSpec
    from frazil.model.source import CONNECTORS

    sources = [Connector("source", model.model_fields["connector"].default, _first_line(model), model) for model in CONNECTORS]
    return [*sources, Connector("sink", "iceberg", _first_line(SinkSpec), SinkSpec)]


def _first_line(model: type[Model]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]
