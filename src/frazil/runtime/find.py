"""Where a plan finds the table of a sink: PyIceberg reads it where that can, and Spark does where it cannot."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from frazil.commit.protocol import AttemptFailed
from frazil.errors import CatalogUnborn
from frazil.iceberg import Lake
from frazil.model.commit import SinkState
from frazil.model.ledger import Lineage, ledger_entry, lineage_of
from frazil.model.sink import SinkSpec
from frazil.observe.described import TableDescription, can_describe, described_table, missing_namespaces
from frazil.spark.catalogs import catalog_settings
from frazil.write.table_after import DescribedTable

_log = logging.getLogger("frazil")


@dataclass(frozen=True)
class FoundTable:
    """The table of a sink, or the namespaces that are missing for it.

    ``state`` is the sink's entry in the table's ledger, ``lineage`` where the snapshot of that entry is.
    """

    table: DescribedTable | None
    missing: tuple[str, ...] = ()
    state: SinkState | None = None
    lineage: Lineage = Lineage.CURRENT


def find_table(sink: SinkSpec, sink_id: str, session: Callable[[], SparkSession]) -> FoundTable:
    """Looks for the sink's table. Nothing is changed."""
    if catalog_settings(sink).is_unborn:
        # Opening a SQLite catalog makes its file; a file that is not there holds no tables.
        return _nothing(sink)
    seen = _by_pyiceberg(sink) if can_describe(sink) else None
    if seen is None:
        return _by_spark(sink, sink_id, session())
    table, missing = seen
    state = None if table is None else ledger_entry(table.properties, sink_id)
    if table is None or state is None:
        return FoundTable(table, missing)
    return FoundTable(table, missing, state, lineage_of(state, table.branch))


def _nothing(sink: SinkSpec) -> FoundTable:
    return FoundTable(None, tuple(".".join(levels) for levels in sink.namespaces))


def _by_pyiceberg(sink: SinkSpec) -> tuple[TableDescription | None, tuple[str, ...]] | None:
    """The table, or the missing namespaces; None if PyIceberg fails.

    A run asks Iceberg's Java library, which knows more ways to log in, more stores and more types: its answer counts, and so do
    its errors.
    """
    try:
        table = described_table(sink)
        return table, missing_namespaces(sink) if table is None else ()
    except Exception:  # noqa: BLE001 - whatever it is, the table is looked for again, and an error of that is raised
        _log.debug("PyIceberg could not look for %s, and Spark does.", sink.full_name, exc_info=True)
        return None


def _by_spark(sink: SinkSpec, sink_id: str, session: SparkSession) -> FoundTable:
    try:
        lake = Lake(session, sink.catalog.name, sink.catalog.address)
        table = lake.load(sink.namespace_levels, sink.table or "", sink.written_branch)
        if table is None:
            return FoundTable(None, lake.missing_namespaces(sink.namespace_levels))
    except CatalogUnborn:
        return _nothing(sink)
    try:
        view = table.port(sink_id).refresh()
    except AttemptFailed as failed:
        raise failed.outcome.error from failed
    return FoundTable(table, (), view.state, view.lineage)
