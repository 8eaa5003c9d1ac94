"""What pages need of tables, read by PyIceberg and kept for a few seconds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from frazil.model.dead_letters import OnError
from frazil.model.pipeline import PipelineSpec
from frazil.model.places import place_of
from frazil.observe.faults import translated
from frazil.observe.lake import TableFacts, opened, table_facts
from frazil.observe.letters import Letters, letters_of
from frazil.observe.table_health import TableHealth, health_of
from frazil.ui.readings import Reading, Readings

# A commit is seen so soon. Letters and the health of a table take more to read, and change more slowly.
FACTS_SECONDS, LETTERS_SECONDS, HEALTH_SECONDS = 3, 10, 30
MOST_LETTERS = 100


class Tables:
    """The tables of pipelines as they were read last."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def facts(self, pipelines: Collection[PipelineSpec]) -> list[Reading[TableFacts | None]]:
        """The facts of the tables of these pipelines, in their order; without a value there is no such table."""
        keys = [self._ask("facts", spec, FACTS_SECONDS, partial(table_facts, spec.sink)) for spec in pipelines]
        return [self._readings.last(key) for key in keys]

    def health(self, spec: PipelineSpec) -> Reading[TableHealth | None]:
        """How healthy the table of a pipeline is."""
        return self._readings.last(self._ask("health", spec, HEALTH_SECONDS, partial(_health, spec)))

    def letters(self, spec: PipelineSpec, since_batch: int) -> Reading[Letters | None]:
        """The newest dead letters of a pipeline, since a batch. Without a value there is no table of them."""
        if spec.sink.error_handling is not OnError.DEAD_LETTER:
            return Reading(None, 0.0)
        read = partial(letters_of, spec.sink, spec.sink_id, since_batch, MOST_LETTERS)
        return self._readings.last(self._ask("letters", spec, LETTERS_SECONDS, read))

    def _ask(self, what: str, spec: PipelineSpec, fresh_secs: float, read: Callable[[], Any]) -> tuple[str, ...]:
        """Asks for something of a pipeline's table. What is slow to read has threads of its own in each catalog."""
        key = (what, spec.sink_id, *place_of(spec.sink))
        self._readings.ask(key, (what, spec.sink.catalog.address), fresh_secs, read)
        return key


def _health(spec: PipelineSpec) -> TableHealth | None:
    with opened(spec.sink) as table:
        if table is None:
            return None
        with translated(spec.sink.catalog):
            return health_of(table, spec.sink.maintenance, spec.sink.written_branch)
