"""Facts of pipelines as a test needs them, without a table: what it does not care about is filled in."""

from __future__ import annotations

from typing import Any

from frazil.errors import FrazilError
from frazil.model.commit import RowCounts, SinkState, position, summary_of
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec
from frazil.observe.lake import SnapshotFacts, TableFacts
from frazil.ui.known import Known
from frazil.ui.live import LiveFacts
from frazil.ui.readings import Reading
from frazil.ui.watched import Watched

NOW_MS = 1_790_000_000_000
SINK_ID = "orders/lake"


def at(ago_seconds: float) -> int:
    """A moment so long before now."""
    return NOW_MS - int(ago_seconds * 1000)


def watched(name: str = "orders", *, enabled: bool = True, **options: Any) -> Watched:
    """A pipeline from the generator into a SQL catalog."""
    catalog = {"type": "sql", "name": "lake", "sql": {"uri": "sqlite:////lake/catalog.db", "warehouse": "/lake/warehouse"}}
    named = {} if "route" in options else {"table": name}
    sink = SinkSpec.model_validate({"catalog": catalog, "namespace": "shop", "id": SINK_ID, **named, **options})
    source = {"connector": "generator"}
    given = {"name": name, "source_name": "numbers", "source": source, "sink_name": "lake", "sink": sink, "enabled": enabled}
    return Watched(name, "frazil.yaml", PipelineSpec.model_validate(given), Settings())


def ledger(batch: int, ago: float, *, epoch: int = 1, instance: str = "one", snapshot: int = 0, **more: Any) -> SinkState:
    """The ledger's entry after a batch."""
    end = position({"row": batch * 10})
    return SinkState(epoch, instance, batch, "generator:0", None, end, snapshot or batch, batch, at(ago), **more)


def snapshot(
    number: int,
    ago: float,
    *,
    kind: str = "data",
    rows: int = 100,
    letters: int = 0,
    epoch: int = 1,
    instance: str = "one",
    sink_id: str = SINK_ID,
    size: int = 4096,
    extra: dict[str, str] | None = None,
) -> SnapshotFacts:
    """A snapshot as a sink makes it."""
    counts = RowCounts(rows + letters, rows, letters) if kind == "data" else None
    state = ledger(number, ago, epoch=epoch, instance=instance)
    own = summary_of(sink_id, state, counts, "0.1.0") | {"frazil.kind": kind} | (extra or {})
    added = (rows, 0, number * rows, 1, number, size, number * size) if kind == "data" else (0, 0, rows, 0, number, 0, size)
    return SnapshotFacts(number, number - 1 or None, number, at(ago), "append", False, *added, frazil=own)


def facts(*snapshots: SnapshotFacts, state: SinkState | None = None, head: int | None = None) -> TableFacts:
    """A table with these snapshots, whose head is the last one or another."""
    from dataclasses import replace

    from frazil.model.ledger import Ancestor

    newest = head if head is not None else snapshots[-1].id if snapshots else None
    own = tuple(replace(one, current=one.id == newest) for one in snapshots)
    line = [Ancestor(one.id, one.sequence, one.parent) for one in reversed(own) if newest is not None and one.id <= newest]
    ledgers = {} if state is None else {SINK_ID: state}
    return TableFacts(
        name="shop.orders", uuid="u", location="/t", metadata_location="/t/m", format_version=2, columns=(), identifier_fields=(),
        partition=(), properties={}, snapshots=own, ledgers=ledgers, paused={}, branch="main", ancestors=tuple(line),
        unpublished=0,
    )  # fmt: skip


def known(
    table: TableFacts | None = None,
    *,
    live: LiveFacts | None = None,
    error: FrazilError | None = None,
    read: bool = True,
    pipeline: Watched | None = None,
) -> Known:
    """What is known of a pipeline."""
    reading = Reading(table, NOW_MS / 1000 if read and (error is None or table is not None) else None, error)
    return Known(pipeline or watched(), reading, live, NOW_MS)
