"""Columns that are renamed in the database are renamed in the table: what is in it stays, under the new name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.errors import DataError, Halted
from frazil.iceberg.jvm import active
from frazil.model.pipeline import PipelineSpec
from frazil.model.plan import PipelinePlan
from frazil.runtime.plan import plan_pipeline
from helpers.lakes import IMPATIENT, Lake, run, sqlite_lake
from sources.postgres.databases import ArrowReader, Database
from sources.postgres.test_pipeline import described

pytestmark = pytest.mark.slow

Watch = Callable[..., ArrowReader]

REPLACED = "alter table t drop b, add b text"
UPSERT = {"commit_mode": "upsert", "schema_evolution": "full"}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return sqlite_lake(spark, tmp_path)


def filled(database: Database) -> None:
    database.run(
        "create table t (id int primary key, a text, b text)",
        "insert into t values (1, 'a1', 'b1'), (2, 'a2', 'b2')",
    )


def read(database: Database, lake: Lake, **options: Any) -> PipelineSpec:
    """A pipeline that has read the table once."""
    pipeline = lake.pipeline(described(database, "t"), **(options or UPSERT))
    run(pipeline, once=True)
    return pipeline


def planned(pipeline: PipelineSpec, lake: Lake) -> PipelinePlan:
    """The plan of a pipeline. It looks at the catalog from a session of its own, which must not stay the active one."""
    with active(lake.spark):
        return plan_pipeline(pipeline, IMPATIENT)


def assert_same(database: Database, lake: Lake, table: str = "t", target: str = "db.t") -> None:
    """The lake's table has the rows of the database's, under the same names."""
    names = [row[0] for row in database.rows(
        f"select attname::text from pg_attribute where attrelid = '{table}'::regclass and attnum > 0 and not attisdropped"
    )]  # fmt: skip
    assert sorted(lake.table(target).columns) == sorted(names)
    assert lake.rows(", ".join(names), target) == sorted(database.rows(f"select {', '.join(names)} from {table}"), key=repr)


def test_a_renamed_column_keeps_its_values(database: Database, lake: Lake) -> None:
    filled(database)
    pipeline = read(database, lake)
    field = {one["name"]: one["id"] for one in lake.metadata()["schemas"][-1]["fields"]}
    database.run("insert into t values (3, 'a3', 'b3')", "alter table t rename a to x", "update t set x = 'new' where id = 2")
    run(pipeline, once=True)
    assert_same(database, lake)
    assert {one["name"]: one["id"] for one in lake.metadata()["schemas"][-1]["fields"]}["x"] == field["a"]
    database.run("alter table t rename x to y", "alter table t rename y to z", "insert into t values (4, 'z4', 'b4')")
    run(pipeline, once=True)
    assert_same(database, lake)
    with database.connection.transaction():
        database.run("insert into t values (5, 'z5', 'b5')", "alter table t rename z to a", "alter table t add c int")
        database.run("insert into t values (6, 'a6', 'b6', 6)")
    database.run("alter table t rename a to e", "update t set e = 'e1' where id = 1")
    run(pipeline, once=True)
    assert_same(database, lake)


def test_a_renamed_key_is_the_key_still(database: Database, lake: Lake) -> None:
    filled(database)
    pipeline = read(database, lake)
    database.run(
        "update t set a = 'before' where id = 1",
        "alter table t rename id to number",
        "update t set a = 'after' where number = 2",
        "delete from t where number = 1",
        "update t set number = 20 where number = 2",
    )
    run(pipeline, once=True)
    assert_same(database, lake)
    database.run("update t set b = 'more' where number = 20")
    run(pipeline, once=True)
    assert_same(database, lake)


def test_values_that_were_not_sent_are_found_under_the_new_name(database: Database, lake: Lake) -> None:
    database.run(
        "create table t (id int primary key, title text, body text)",
        "alter table t alter body set storage external",
        "insert into t select i, 'title', repeat(i::text, 4000) from generate_series(1, 4) i",
    )
    pipeline = read(database, lake)
    database.run(
        "update t set title = 'before' where id in (1, 2)",
        "alter table t rename body to words",
        "update t set title = 'after' where id in (2, 3)",
    )
    run(pipeline, once=True)
    assert_same(database, lake)


def test_names_that_change_places(database: Database, lake: Lake) -> None:
    filled(database)
    pipeline = read(database, lake)
    database.run(
        "insert into t values (3, 'a3', 'b3')",
        "alter table t rename a to other", "alter table t rename b to a", "alter table t rename other to b",
        "insert into t values (4, 'b4', 'a4')",
    )  # fmt: skip
    run(pipeline, once=True)
    assert_same(database, lake)
    database.run("alter table t rename b to c", "alter table t rename a to b", "alter table t add a text")
    database.run("insert into t values (5, 'c5', 'b5', 'a5')")
    run(pipeline, once=True)
    assert_same(database, lake)


def test_a_column_that_only_has_the_name_of_another_stops(database: Database, lake: Lake) -> None:
    filled(database)
    pipeline = read(database, lake)
    database.run("insert into t values (3, 'old', 'b3')", "alter table t drop b", "alter table t add b text")
    database.run("insert into t values (4, 'a4', 'new')")
    with pytest.raises(Halted, match="column 'b' of the source is not the one") as caught:
        run(pipeline, once=True)
    assert caught.value.code == "column-replaced"
    assert "new" not in {row[0] for row in lake.rows("b")}
    lake.spark.sql(f"alter table {lake.name}.db.t rename column b to b_before")
    run(pipeline, once=True)
    assert lake.rows("id, b_before, b")[:2] == [(1, "b1", None), (2, "b2", None)]
    assert (4, None, "new") in lake.rows("id, b_before, b")
    database.run("alter table t drop a", "alter table t rename b to a", "insert into t values (5, 'mixed')")
    with pytest.raises(Halted, match="column 'a' of the source"):
        run(pipeline, once=True)
    (known,) = [name for name in lake.properties() if name.startswith("frazil.columns.")]
    lake.spark.sql(f"alter table {lake.name}.db.t unset tblproperties ('{known}')")
    run(pipeline, once=True)
    assert (5, "mixed") in lake.rows("id, a"), "the user has said so"


def test_other_modes_add_or_refuse_and_say_what_happened(database: Database, lake: Lake) -> None:
    filled(database)
    strict = read(database, lake, commit_mode="upsert", schema_evolution="strict")
    database.run("alter table t rename a to x", "insert into t values (3, 'x3', 'b3')")
    with pytest.raises(DataError, match=r"column 'x' .* which has it as 'a': the source has renamed it"):
        run(strict, once=True)
    adding = lake.pipeline(described(database, "t"), commit_mode="upsert")
    assert "The source has renamed 'a' to 'x'" in planned(adding, lake).notes[0]
    run(adding, once=True)
    assert lake.rows("id, a, b, x") == [(1, "a1", "b1", None), (2, "a2", "b2", None), (3, None, "b3", "x3")]
    database.run("alter table t rename x to a", "insert into t values (4, 'a4', 'b4')")
    run(adding, once=True)
    assert (4, "a4", None) in lake.rows("id, a, x"), "it is the column that had this name"
    full = lake.pipeline(described(database, "t"), **UPSERT)
    database.run("alter table t rename a to y", "insert into t values (5, 'y5', 'b5')")
    changes = {column.name: (column.change, column.old_name) for column in planned(full, lake).columns}
    assert changes["y"] == ("rename", "a")
    run(full, once=True)
    assert [row[:2] for row in lake.rows("id, y, x")] == [(1, "a1"), (2, "a2"), (3, None), (4, "a4"), (5, "y5")]


def test_a_table_of_before_is_taken_by_names(database: Database, lake: Lake) -> None:
    filled(database)
    pipeline = read(database, lake, schema_evolution="full")
    (known,) = [name for name in lake.properties() if name.startswith("frazil.columns.")]
    lake.spark.sql(f"alter table {lake.name}.db.t unset tblproperties ('{known}')")
    database.run("insert into t values (3, 'a3', 'b3')")
    run(pipeline, once=True)
    assert sorted(json.loads(lake.properties()[known]).values()) == [[1], [2], [3]]
    database.run("alter table t rename a to x", "insert into t values (4, 'x4', 'b4')")
    run(pipeline, once=True)
    assert_same(database, lake)


def shapes(reader: ArrowReader) -> list[dict[str, str | None]]:
    """The columns of the changes that the reader has before it, with their numbers."""
    assert reader.source._reader is not None
    files = reader.source._reader.files()
    return [{column.name: column.id and column.id.rpartition(".")[2] for column in file.columns} for file in files]


def test_changes_of_before_and_after_a_replaced_column_are_slices_of_their_own(database: Database, watch: Watch) -> None:
    filled(database)
    reader = watch("t")
    reader.all_changes()
    database.run("insert into t values (3, 'a3', 'b3')")
    assert reader.plan() is not None
    database.run(REPLACED, "insert into t values (5, 'a5', 'new')")
    assert reader.changes() == [("insert", 3, "a3", "b3")]
    assert reader.plan() is not None
    assert shapes(reader) == [{"id": "1", "a": "2", "b": "4"}]
    assert reader.changes() == [("insert", 5, "a5", "new")]
    assert reader.plan() is None
    with database.connection.transaction():
        database.run("insert into t values (6, 'a6', 'b6')", "alter table t drop b, add b int", "insert into t values (7, '', 7)")
    with pytest.raises(Halted, match="A transaction gave the name of a column") as caught:
        reader.plan()
    assert caught.value.code == "column-replaced"


def test_what_a_publication_lets_through_is_numbered_too(database: Database, watch: Watch) -> None:
    database.run(
        "create table few (id int primary key, hidden text, a text, twice int generated always as (id * 2) stored)",
        "create table parts (gone int, id int, a text, primary key (id)) partition by range (id)",
        "create table parts_1 partition of parts for values from (0) to (100)",
        "create table parts_2 (a text, unlike int, id int not null)",
        "alter table parts_2 drop unlike",
        "alter table parts drop gone",
        "alter table parts attach partition parts_2 for values from (100) to (200)",
        "create publication chosen for table few (id, a), parts with (publish_via_partition_root)",
    )
    reader = watch("few", "parts", publication="chosen")
    reader.all_changes()
    database.run("insert into few values (1, 'h', 'a')", "insert into parts values (1, 'a'), (101, 'a')")
    database.run("alter table few rename a to x", "alter table parts rename a to x")
    database.run("insert into few values (2, 'h', 'a')", "insert into parts values (2, 'a'), (102, 'a')")
    assert reader.plan() is not None
    found = shapes(reader)
    assert {"id": "1", "a": "3"} in found
    assert {"id": "1", "x": "3"} in found
    assert {"id": "2", "a": "3"} in found
    assert {"id": "2", "x": "3"} in found
    assert len(found) == 4


def test_tables_of_a_route_follow_their_own(database: Database, lake: Lake) -> None:
    filled(database)
    database.run("create table u (id int primary key, a text)", "insert into u values (1, 'u1')")
    pipeline = lake.pipeline(described(database, "t", "u"), route={"source": True}, **UPSERT)
    run(pipeline, once=True)
    with database.connection.transaction():
        database.run("insert into t values (3, 'a3', 'b3')", "alter table t rename a to x", "insert into u values (2, 'u2')")
        database.run(
            "alter table u rename id to number", "insert into t values (4, 'x4', 'b4')", "insert into u values (3, 'u3')"
        )
    run(pipeline, once=True)
    assert_same(database, lake, "t", "db.public_t")
    assert_same(database, lake, "u", "db.public_u")
