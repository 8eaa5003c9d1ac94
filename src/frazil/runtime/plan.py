"""What a run would do: looked up, never done. Spark is started where the source, a transform or the catalog needs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession

from frazil.columns.partition import partition_json
from frazil.columns.table_columns import key_columns, new_table_schema
from frazil.commit.protocol import require_lineage, require_same_source
from frazil.model.commit import Position, SinkState
from frazil.model.evolution import SetPartition, TableChange, partition_after, renamed
from frazil.model.origins import source_columns
from frazil.model.pipeline import PipelineSpec
from frazil.model.plan import PipelinePlan, PlannedColumn, planned_columns
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec
from frazil.model.types import schema_json
from frazil.runtime.find import Found, find_table
from frazil.runtime.runner import start_spark
from frazil.sources import open_source
from frazil.sources.base import Inferring, KnownColumns, Slice, Source
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for
from frazil.write import target
from frazil.write.fit import incoming_of
from frazil.write.modes.rows import keeps_columns
from frazil.write.shape import sink_rows
from frazil.write.table_after import DescribedTable, Incoming, inputs_of, repartitioning, table_after


@dataclass(frozen=True)
class Ahead:
    """What would be read first: the part, what reads its rows or at least their columns, and what is to be said about it."""

    part: Slice | None
    read: Callable[[], DataFrame] | None
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
    sink = pipeline.sink

    @cache
    def session() -> SparkSession:
        spark = start_spark([pipeline], settings)
        catalog = catalog_settings(sink)
        return spark if catalog.is_unborn else session_for(spark, catalog.read_only)

    target.require_settings(sink)
    found = find_table(sink, pipeline.sink_id, session)
    target.require_usable(found.table, sink)
    source = open_source(pipeline.source, session, images=sink.needs_images, versions=sink.keeps_versions)
    try:
        return _of_source(pipeline, source, found, look)
    finally:
        source.close()


def first_rows(source: Source, start: Position | None, limit: int) -> Ahead:
    """The first part after a position, or the columns alone of a source that cannot plan without leaving a trace."""
    if isinstance(source, Looked):
        note = "How much there is to read is not known before the pipeline runs: a plan leaves no trace in the source."
        return Ahead(None, source.empty, note)
    part = source.plan(start, limit)
    if part is None:
        return Ahead(None, None, "The source has nothing to read now.")
    return Ahead(part, lambda: source.read(part))


def _of_source(pipeline: PipelineSpec, source: Source, found: Found, look: Look) -> PipelinePlan:
    sink = pipeline.sink
    source.check()
    table, state = found.table, found.state
    if state is not None:
        require_lineage(state, found.lineage, pipeline.sink_id)
    start = state.end if state else None
    if state is not None and start is not None:
        require_same_source(state, source.fingerprint, pipeline.sink_id)
    if isinstance(source, Inferring) and table is not None:
        expected = source_columns(table.schema, sink.change_format, pipeline.transforms)
        source.expect(expected, exactly=sink.strict_casting)
    ahead = look(source, start, sink.rows_per_batch)
    data = _incoming(pipeline, source, ahead)
    total = source.total_rows(start)
    columns, changes, notes = _columns(sink, pipeline.sink_id, data, table)
    partition, old_partition = _partition(sink, table, changes)
    return PipelinePlan(
        pipeline=pipeline.name,
        sink_id=pipeline.sink_id,
        catalog=f"{sink.catalog.name} ({sink.catalog.type}, {sink.catalog.address})",
        table=sink.full_name,
        create_namespaces=found.missing,
        create_table=table is None,
        columns=columns,
        partition=partition,
        identifier_fields=_keys(sink, data) if table is None else _identifiers(table, changes),
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


def _incoming(pipeline: PipelineSpec, source: Source, ahead: Ahead) -> Incoming | None:
    """The columns that the sink's table is to get; None when nothing is there to be read."""
    if ahead.read is None:
        return None
    if isinstance(source, KnownColumns) and not pipeline.transforms and keeps_columns(pipeline.sink):
        return Incoming(source.columns)
    return incoming_of(sink_rows(ahead.read(), pipeline.sink, pipeline.transforms), pipeline.sink)


def _columns(
    sink: SinkSpec, sink_id: str, data: Incoming | None, table: DescribedTable | None
) -> tuple[tuple[PlannedColumn, ...], tuple[TableChange, ...], tuple[str, ...]]:
    if table is None:
        schema = sink.declared_schema or (new_table_schema(data.schema, sink) if data is not None else None)
        if schema is None:
            return (), (), ("The columns are not known before the source has data.",)
        names = [column.name for column in schema.fields]
        keys = tuple(sink.key_column(key, names) or key for key in _keys(sink, data))
        partition_json(sink.partition, schema, schema_json(schema, keys))
        # What identifies a row is required in the table, whatever the data says.
        return tuple(PlannedColumn(c.name, str(c.type), c.required or c.name in keys, "create") for c in schema.fields), (), ()
    if data is not None:
        after = table_after(table, sink, sink_id, inputs_of(table, sink_id, data))
        left_out = f"Columns that the table does not have are left out: {', '.join(after.left_out)}." if after.left_out else ""
        return planned_columns(table.schema, after.changes), after.changes, (*after.notes, *filter(None, [left_out]))
    partition = repartitioning(sink, table.partition)
    changes = () if partition is None else (partition,)
    return planned_columns(table.schema, changes), changes, ()


def _keys(sink: SinkSpec, data: Incoming | None) -> tuple[str, ...]:
    if data is None:
        return sink.key_fields
    return key_columns(sink, sink.declared_schema or new_table_schema(data.schema, sink), data.keys)


def _identifiers(table: DescribedTable, changes: tuple[TableChange, ...]) -> tuple[str, ...]:
    return tuple(renamed(name, changes) for name in table.identifier_fields)


def _partition(
    sink: SinkSpec, table: DescribedTable | None, changes: tuple[TableChange, ...]
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


def _properties(sink: SinkSpec, table: DescribedTable | None) -> tuple[tuple[str, str], ...]:
    wanted = target.table_properties(sink) if table is None else target.lacking_properties(table, sink)
    return tuple(sorted(wanted.items()))


def _next_epoch(state: SinkState | None) -> int:
    return state.epoch + 1 if state else 1
