"""`verify --values`: rows of the table beside those of the database, value by value."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frazil.model.pipeline import PipelineSpec
from frazil.runtime.verify import verify
from helpers.lakes import IMPATIENT, Lake, run, sqlite_lake
from sources.postgres.databases import Database
from sources.postgres.test_pipeline import described

TYPES = {
    "flag": ("boolean", "true"),
    "small": ("smallint", "-1"),
    "huge": ("bigint", "9223372036854775807"),
    "single": ("real", "1.1"),
    "double": ("double precision", "'NaN'"),
    "price": ("numeric(10, 2)", "0.10"),
    "free": ("numeric", "1e-20"),
    "day": ("date", "'0001-01-01'"),
    "wall": ("timestamp", "'2024-03-31 02:30:00.123456'"),
    "moment": ("timestamptz", "'2024-03-31 02:30:00.123456+05:30'"),
    "bytes": ("bytea", "'\\x00ff'"),
    "code": ("char(5)", "'ab'"),
    "tags": ("text[]", "array[null, 'a', '']"),
    "span": ("interval", "'1 day 2 hours'"),
    "doc": ("jsonb", "'{\"a\": [1, null]}'"),
    "uid": ("uuid", "'00000000-0000-0000-0000-000000000001'"),
}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return sqlite_lake(spark, tmp_path)


def problems(pipeline: PipelineSpec) -> list[str]:
    return [finding.problem for finding in verify(pipeline, IMPATIENT, values=True).findings]


@pytest.mark.slow
def test_values_of_all_types_are_compared(database: Database, lake: Lake) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    values = ", ".join(value for _, value in TYPES.values())
    database.run(
        f"create table t (id int, part text, {columns}, gone text, primary key (part, id))",
        f"insert into t select i, 'p', {values} from generate_series(1, 40) i",
        "insert into t (id, part) values (50, 'nulls')",
        "insert into t (id, part, day) values (51, 'unreadable', 'infinity')",
    )
    transforms = [{"type": "rename_field", "from": "price", "to": "cost"}, {"type": "remove_field", "field": "gone"}]
    pipeline = lake.pipeline(described(database, "t"), commit_mode="upsert", on_error="dead_letter", transforms=transforms)
    run(pipeline, once=True)
    verified = verify(pipeline, IMPATIENT, values=True)
    assert (verified.findings, verified.compared) == ((), ("db.t",))
    assert verified.notes == ("public.t: 1 rows cannot be written to the table, and were not compared.",)
    table = f"{lake.name}.db.t"
    for change in (
        f"update {table} set cost = 0.20, tags = array('a', null, '') where id between 3 and 9",
        f"update {table} set flag = true where id = 50",
        f"delete from {table} where id = 20",
        f"insert into {table} (id, part) values (60, 'more')",
    ):
        lake.spark.sql(change)
    assert problems(pipeline) == [
        "1 rows of public.t are missing; keys between (id=20, part=p) and (id=20, part=p): (id=20, part=p)",
        "1 rows are not in public.t; keys between (id=60, part=more) and (id=60, part=more): (id=60, part=more)",
        "8 rows have other values than in public.t, in flag (1), cost (7), tags (7); keys between (id=3, part=p) and "
        "(id=50, part=nulls): (id=3, part=p), (id=4, part=p), (id=5, part=p), (id=6, part=p), (id=7, part=p), ...",
    ]
    # What is waiting to be read is no difference.
    database.run("delete from t where id = 1")
    waiting = verify(pipeline, IMPATIENT, values=True)
    assert (waiting.findings, waiting.compared) == ((), ())
    assert "There are changes that are not in the table yet" in waiting.notes[0]


@pytest.mark.slow
def test_a_column_that_the_table_lacks_is_found(database: Database, lake: Lake) -> None:
    """The log does not tell of a column before a row changes."""
    database.run("create table t (id int primary key)", "insert into t select generate_series(1, 3)")
    pipeline = lake.pipeline(described(database, "t"), commit_mode="upsert")
    run(pipeline, once=True)
    database.run("alter table t add c int default 7")
    assert problems(pipeline) == [
        "3 rows have other values than in public.t, in c (3); keys between id=1 and id=3: id=1, id=2, id=3"
    ]
    database.run("delete from t where id = 3")
    run(pipeline, once=True)
    assert problems(pipeline) == []


def test_what_is_not_compared_is_said(lake: Lake) -> None:
    pipeline = lake.pipeline({"connector": "generator", "rows": 3})
    run(pipeline, once=True)
    verified = verify(pipeline, IMPATIENT, values=True)
    assert (verified.findings, verified.compared) == ((), ())
    assert "No values were compared: this generator source" in verified.notes[0]
