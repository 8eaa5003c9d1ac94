"""A plan is the same whether PyIceberg or Spark looks at the table, and whether the rows or their columns alone are looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.errors import FrazilError
from frazil.iceberg import Lake as Catalog
from frazil.model.pipeline import PipelineSpec
from frazil.model.plan import PipelinePlan
from frazil.model.sink import SinkSpec
from frazil.observe.described import TableDescription, described_table
from frazil.runtime import find, plan
from frazil.runtime.plan import plan_pipeline
from frazil.sources.generator import Generator
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for
from helpers.lakes import IMPATIENT, Lake, run

EVENTS = {"connector": "generator", "rows": 20}
MORE = {"connector": "generator", "rows": 30}
UPSERT = {"commit_mode": "upsert", "key_fields": ["event_id"]}

Outcome = PipelinePlan | str


def outcome(pipeline: PipelineSpec) -> Outcome:
    """The plan without the clock's time, or the code of the error that stops it."""
    try:
        return replace(plan_pipeline(pipeline, IMPATIENT), end=None)
    except FrazilError as error:
        return error.code


def without_spark(pipeline: PipelineSpec) -> Outcome:
    """The outcome when Spark cannot be started."""

    def refuse(*_: object) -> SparkSession:
        raise AssertionError("Spark was started")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "start_spark", refuse)
        return outcome(pipeline)


def with_spark(pipeline: PipelineSpec) -> Outcome:
    """The outcome when Spark looks for the table, and reads rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "can_describe", lambda _: False)
        patch.delattr(Generator, "columns")
        return outcome(pipeline)


def same(pipeline: PipelineSpec) -> Outcome:
    """The outcome, which is the same both ways."""
    found = without_spark(pipeline)
    assert with_spark(pipeline) == found
    return found


def test_a_plan_is_the_same_with_spark_and_without(lake: Lake) -> None:
    events = lake.pipeline(EVENTS, table="a.b.t", partition_by=["day(event_time)"], sort_by=["event_number desc"], **UPSERT)
    new = same(events)
    assert isinstance(new, PipelinePlan)
    assert (new.create_namespaces, new.identifier_fields, new.rows) == (("a", "a.b"), ("event_id",), 20)
    run(lake.pipeline(EVENTS, table="a.u", **UPSERT), once=True)
    beside = same(events)
    assert isinstance(beside, PipelinePlan)
    assert beside.create_namespaces == ("a.b",)
    run(events, once=True)
    assert isinstance(done := same(events), PipelinePlan)
    assert (done.create_table, done.notes) == (False, ("The source has nothing to read now.",))
    changed = lake.pipeline(
        MORE,
        table="a.b.t",
        schema_evolution="full",
        partition_evolution="evolve",
        partition_by=["bucket(4, user_id)"],
        write_properties={"commit.retry.num-retries": "7"},
        dropped_columns="hard",
        **UPSERT,
    )
    lake.spark.sql(f"alter table {lake.name}.a.b.t drop column country")
    lake.spark.sql(f"alter table {lake.name}.a.b.t add column extra struct<n: int>")
    after = same(changed)
    assert isinstance(after, PipelinePlan)
    assert {c.name: c.change for c in after.columns if c.change != "keep"} == {"country": "add", "extra": "drop"}
    assert (after.partition, after.old_partition) == (("bucket(4, user_id)",), ("day(event_time)",))


def test_a_plan_stops_for_the_same_reason_with_spark_and_without(lake: Lake) -> None:
    assert same(lake.pipeline(EVENTS, auto_create_table=False)) == "table-missing"
    assert same(lake.pipeline(EVENTS, partition_by=["day(nothing)"])) == "partition-column"
    assert same(lake.pipeline(EVENTS, commit_mode="upsert", key_fields=["nothing"])) == "key-missing"
    run(lake.pipeline(EVENTS, batch_size=10), once=True)
    assert same(lake.pipeline(MORE, partition_by=["day(event_time)"], partition_evolution="refuse")) == "partitioning-differs"
    assert same(lake.pipeline(MORE, sort_by=["event_number"])) == "order-differs"
    assert same(lake.pipeline({**MORE, "seed": 9})) == "source-changed"
    assert same(lake.pipeline(MORE, write_properties={"format-version": "1"})) == "write-property"
    first = lake.data_snapshots()[0].snapshot_id
    lake.spark.sql(f"call {lake.name}.system.rollback_to_snapshot('db.t', {first})")
    assert same(lake.pipeline(MORE)) == "rolled-back"
    state = "frazil.sink.p/lake"
    lake.spark.sql(f"alter table {lake.name}.db.t set tblproperties ('{state}' = 'nonsense')")
    assert same(lake.pipeline(MORE)) == "ledger-unreadable"


def test_both_readers_describe_a_table_alike(lake: Lake) -> None:
    upsert = {"commit_mode": "upsert", "key_fields": ["id"], "upsert_strategy": "equality_delete"}
    rows = (
        "id, date'2026-01-01' day, 'DE' country, uuid() u, 1.5d d, cast(1 as decimal(9, 2)) money, timestamp'2026-01-01' t, "
        "array(named_struct('k', 1)) list, map('a', binary('b')) map, "
        "named_struct('name', 'x', 'at', timestamp_ntz'2026-01-01') s"
    )
    schema = {"id": "long", "u": "uuid", "country": "string"}
    for _ in range(2):
        lake.sink(f"select {rows} from range(3)", partition_by=["truncate(2, country)"], schema=schema, **upsert).write()
    table = f"{lake.name}.db.t"
    lake.spark.sql(f"alter table {table} replace partition field truncate(2, country) with bucket(8, id)")
    lake.spark.sql(f"alter table {table} write ordered by bucket(4, id) desc, s.name")
    lake.spark.sql(f"alter table {table} alter column country comment 'of the visitor'")
    sink = lake.pipeline(EVENTS, schema_evolution="full", dropped_columns="hard").sink
    session = session_for(lake.spark, catalog_settings(sink))
    java = Catalog(session, sink.catalog.name, sink.catalog.address).load(("db",), "t")
    python = described_table(sink)
    assert java is not None
    assert python is not None
    assert (python.compared_columns, python.layout_columns) == ({"id"}, {"country", "id", "s.name"})
    assert (python.partition, python.holds_no_files) == ((("id", "bucket[8]"),), False)
    for name in (field.name for field in fields(TableDescription) if field.name != "branch"):
        assert (name, getattr(java, name)) == (name, getattr(python, name))


@pytest.mark.parametrize("location", [str, lambda folder: f"file://{folder}"], ids=["path", "uri"])
def test_a_catalog_that_is_a_folder(lake: Lake, location: Callable[[Any], str]) -> None:
    folder = lake.with_catalog({"type": "hadoop", "hadoop": {"warehouse": location(lake.folder / "hadoop")}})
    events = folder.pipeline(EVENTS, table="a.b.t")
    new = same(events)
    assert isinstance(new, PipelinePlan)
    assert new.create_namespaces == ("a", "a.b")
    run(events, once=True)
    assert isinstance(done := same(events), PipelinePlan)
    assert (done.create_table, done.create_namespaces) == (False, ())
    assert isinstance(beside := same(folder.pipeline(EVENTS, table="a.b.t.u")), PipelinePlan)
    assert beside.create_namespaces == ("a.b.t",)


def test_where_pyiceberg_fails_spark_decides(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    run(lake.pipeline(EVENTS), once=True)
    known = without_spark(lake.pipeline(MORE))

    def fails(_: SinkSpec) -> None:
        raise NotImplementedError("a type that PyIceberg does not know")

    monkeypatch.setattr(find, "described_table", fails)
    assert outcome(lake.pipeline(MORE)) == known


def test_transforms_columns_of_the_sink_and_new_files_are_looked_at_with_spark(lake: Lake) -> None:
    (lake.folder / "in").mkdir()
    files = lake.pipeline({"connector": "files", "path": str(lake.folder / "in"), "format": "json"})
    nothing_new = without_spark(files)
    (lake.folder / "in" / "a.json").write_text('{"id": 1}')
    shorter = lake.pipeline(EVENTS, transforms=[{"type": "remove_field", "field": "tags"}])
    marked = lake.pipeline(EVENTS, op_column="op")
    columns = []
    for pipeline in (shorter, marked, files):
        with pytest.raises(AssertionError, match="Spark was started"):
            without_spark(pipeline)
        made = outcome(pipeline)
        assert isinstance(made, PipelinePlan)
        columns.append(len(made.columns))
    assert columns == [12, 14, 1]
    assert isinstance(nothing_new, PipelinePlan)
    assert nothing_new.columns == ()
