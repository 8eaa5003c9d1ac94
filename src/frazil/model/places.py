"""Where a table is: a file may have several catalogs, and the name of a table does not say which of them has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from frazil.errors import ConfigError, DataError
from frazil.model.sink import SinkSpec

T = TypeVar("T")

Place = tuple[str, str, str]
"""A catalog, a table of it, and a branch of that."""


def place_of(sink: SinkSpec) -> Place:
    """Where a sink writes to; sinks with the same place share a table and its branch."""
    return sink.catalog.model_dump_json(), sink.full_name, sink.written_branch


def only_place(places: Sequence[SinkSpec], look: Callable[[SinkSpec], T | None]) -> tuple[SinkSpec, T]:
    """The one place where a table is, and what ``look`` finds there. Each catalog is asked once, about the first of its sinks."""
    catalogs: dict[str, SinkSpec] = {}
    for sink in places:
        catalogs.setdefault(sink.catalog.model_dump_json(), sink)
    found = [(sink, seen) for sink in catalogs.values() if (seen := look(sink)) is not None]
    name = places[0].full_name
    if not found:
        where = ", ".join(dict.fromkeys(sink.catalog.address for sink in catalogs.values()))
        raise DataError("table-missing", f"There is no table {name} in {where}.", fix="A run makes it, or correct the name.")
    if len(found) > 1:
        where = ", ".join(sink.catalog.address for sink, _ in found)
        fix = "Name the pipeline instead, or use a file with one catalog."
        raise ConfigError("table-ambiguous", f"{name} is in several catalogs: {where}.", fix=fix)
    return found[0]
