"""What a run would do: looked up, never done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession

from frazil.columns.partition import partition_json
from frazil.columns.schema import keys_from_source
from frazil.columns.table_columns import frame_schema, key_columns
from frazil.commit.protocol import AttemptFailed, Intent, not_rolled_back, require_same_source
from frazil.errors import CatalogUnborn
from frazil.iceberg import IcebergTable, Lake
from frazil.model.commit import Position, SinkState
from frazil.model.evolution import SetPartition, TableChange, partition_after, renamed
from frazil.model.origins import source_columns
from frazil.model.pipeline import PipelineSpec
from frazil.model.plan import PipelinePlan, PlannedColumn, planned_columns
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec
from frazil.model.types import schema_json
from frazil.runtime.runner import start_spark
from frazil.sources import open_source
from frazil.sources.base import Inferring, Slice, Source
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for
from frazil.write import target
from frazil.write.fit import fit_of, repartitioning
from frazil.write.shape import sink_rows


@dataclass(frozen=True)
class Ahead:
    """What would be read first: the part, its rows or at least their columns, and what is to be said about it."""

    part: Slice | None
    rows: DataFrame | None
    note: str = ""


Look = Callable[[Source, Position | None, int], Ahead]


@runtime_checkable
class Looked(Protocol):
    """A source that cannot plan without leaving a trace; its columns can be looked up."""

    def empty(self) -> DataFrame:
        """The columns, without rows."""


def plan_pipeline(pipeline: PipelineSpec, settings: Settings) -> PipelinePlan:
    """What the pipeline would create, change and read first; of a sink with many tables only of its home is that known."""
    route = pipeline.sink.route
    if route is None:
        return _planned(pipeline, settings, first_rows)
    note = f"Rows go into tables by the {route.decides}: which, only reading them tells."
    return _planned(pipeline.model_copy(update={"sink": pipeline.sink.home}), settings, lambda *_: Ahead(None, None, note))


def _planned(pipeline: PipelineSpec, settings: Settings, look: Look) -> PipelinePlan:
    spark = start_spark([pipeline], settings)
    catalog = catalog_settings(pipeline.sink)
    if catalog.is_unborn:
        # Opening a SQLite catalog makes its file; a file that is not there holds no tables.
        return _plan(pipeline, spark, None, pipeline.sink.namespace_levels, look)
    session = session_for(spark, catalog.read_only)
    try:
        lake = Lake(session, catalog.name, pipeline.sink.catalog.address)
        table = target.existing(lake, pipeline.sink)
        missing = () if table is not None else lake.missing_namespaces(pipeline.sink.namespace_levels)
    except CatalogUnborn:
        table, missing = None, pipeline.sink.namespace_levels
    return _plan(pipeline, session, table, missing, look)


def first_rows(source: Source, start: Position | None, limit: int) -> Ahead:
    """The first part after a position, or the columns alone of a source that cannot plan without leaving a trace."""
    if isinstance(source, Looked):
        note = "How much there is to read is not known before the pipeline runs: a plan leaves no trace in the source."
        return Ahead(None, source.empty(), note)
    part = source.plan(start, limit)
    return Ahead(None, None, "The source has nothing to read now.") if part is None else Ahead(part, source.read(part))


def _plan(
    pipeline: PipelineSpec, session: SparkSession, table: IcebergTable | None, missing: tuple[str, ...], look: Look
) -> PipelinePlan:
    source = open_source(pipeline.source, session, images=pipeline.sink.has_own_key)
    try:
        return _of_source(pipeline, source, table, missing, look)
    finally:
        source.close()


def _of_source(
    pipeline: PipelineSpec, source: Source, table: IcebergTable | None, missing: tuple[str, ...], look: Look
) -> PipelinePlan:
    sink = pipeline.sink
    source.check()
    state = None if table is None else _state(table, pipeline.sink_id)
    start = state.end if state else None
    if state is not None and start is not None:
        require_same_source(state, source.fingerprint, pipeline.sink_id)
    if isinstance(source, Inferring) and table is not None:
        expected = source_columns(table.schema, sink.change_format, pipeline.transforms)
        source.expect(expected, exactly=sink.strict_casting)
    ahead = look(source, start, sink.rows_per_batch)
    total = source.total_rows(start)
    frame = None if ahead.rows is None else sink_rows(ahead.rows, sink, pipeline.transforms)
    columns, changes, notes = _columns(sink, pipeline.sink_id, frame, table)
    partition, old_partition = _partition(sink, table, changes)
    return PipelinePlan(
        pipeline=pipeline.name,
        sink_id=pipeline.sink_id,
        catalog=f"{sink.catalog.name} ({sink.catalog.type}, {sink.catalog.address})",
        table=sink.full_name,
        create_namespaces=missing,
        create_table=table is None,
        columns=columns,
        partition=partition,
        identifier_fields=_keys(sink, frame) if table is None else _identifiers(table, changes),
        format_version=sink.format_version if table is None else table.format_version,
        properties=_properties(sink, table),
        mode=sink.commit_mode.value,
        epoch=_next_epoch(state),
        start=start,
        end=ahead.part.end if ahead.part else None,
        rows=ahead.part.rows if total is None and ahead.part else total,
        counted=total is not None,
        notes=(*notes, *filter(None, [ahead.note])),
        old_partition=old_partition,
    )


def _state(table: IcebergTable, sink_id: str) -> SinkState | None:
    """The sink's place in the ledger; stops where a run would stop before it reads."""
    try:
        view = table.port(sink_id).refresh()
    except AttemptFailed as failed:
        raise failed.outcome.error from failed
    not_rolled_back(view, Intent(sink_id, instance="", at_ms=0))
    return view.state


def _columns(
    sink: SinkSpec, sink_id: str, frame: DataFrame | None, table: IcebergTable | None
) -> tuple[tuple[PlannedColumn, ...], tuple[TableChange, ...], tuple[str, ...]]:
    if table is None:
        schema = sink.declared_schema or (frame_schema(frame, sink) if frame is not None else None)
        if schema is None:
            return (), (), ("The columns are not known before the source has data.",)
        names = [column.name for column in schema.fields]
        keys = tuple(sink.key_column(key, names) or key for key in _keys(sink, frame))
        partition_json(sink.partition, schema, schema_json(schema, keys))
        # What identifies a row is required in the table, whatever the data says.
        return tuple(PlannedColumn(c.name, str(c.type), c.required or c.name in keys, "create") for c in schema.fields), (), ()
    if frame is not None:
        fit = fit_of(table, sink, sink_id, frame)
        return planned_columns(table.schema, fit.evolution), fit.evolution, fit.notes
    partition = repartitioning(sink, table.partition)
    changes = () if partition is None else (partition,)
    return planned_columns(table.schema, changes), changes, ()


def _keys(sink: SinkSpec, frame: DataFrame | None) -> tuple[str, ...]:
    if frame is None:
        return sink.key_fields
    return key_columns(sink, sink.declared_schema or frame_schema(frame, sink), keys_from_source(frame, sink))


def _identifiers(table: IcebergTable, changes: tuple[TableChange, ...]) -> tuple[str, ...]:
    return tuple(renamed(name, changes) for name in table.identifier_fields)


def _partition(
    sink: SinkSpec, table: IcebergTable | None, changes: tuple[TableChange, ...]
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The partitioning as it would be, and the table's own when that is another."""
    if table is None:
        return tuple(str(field) for field in sink.partition), None
    have = tuple(map(_partition_text, table.partition))
    will = tuple(map(_partition_text, partition_after(table.partition, changes)))
    return will, have if any(isinstance(change, SetPartition) for change in changes) else None


def _partition_text(field: tuple[str, str]) -> str:
    source, transform = field
    name, _, width = transform.rstrip("]").partition("[")
    if name == "identity":
        return source
    return f"{name}({width}, {source})" if width else f"{name}({source})"


def _properties(sink: SinkSpec, table: IcebergTable | None) -> tuple[tuple[str, str], ...]:
    wanted = target.table_properties(sink) if table is None else target.lacking_properties(table, sink)
    return tuple(sorted(wanted.items()))


def _next_epoch(state: SinkState | None) -> int:
    return state.epoch + 1 if state else 1
