"""History tables of a database: every version of a row, whatever its deletes tell, from the times of the transactions."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.model.hidden import CHANGED_AT
from frazil.model.pipeline import pipeline_problems
from frazil.sources.postgres.position import PostgresPlace
from frazil.sources.postgres.source import PostgresCdc
from helpers.lakes import Lake, run, sqlite_lake
from sources.postgres.databases import Database
from sources.postgres.test_pipeline import described

HISTORY: dict[str, Any] = {"commit_mode": "upsert", "history": "scd2"}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return sqlite_lake(spark, tmp_path)


class People:
    """A table of people, and what its history is to be: each transaction makes a version of each row that it touches."""

    def __init__(self, database: Database, identity: str) -> None:
        self._database = database
        self._whole = identity == "full"
        self.rows: dict[int, str] = {}
        self.versions: list[tuple[int, str | None, str, datetime, datetime]] = []
        database.run("create table people (id int primary key, name text not null)")
        database.run(f"alter table people replica identity {identity}")

    def transaction(self, *changes: tuple[int, str | None]) -> None:
        """Changes rows: the key and the new name; none if the row goes."""
        was, told = dict(self.rows), dict[int, str | None]()
        statements = []
        for key, name in changes:
            if name is None:
                statements.append(f"delete from people where id = {key}")
                told[key] = self.rows.pop(key)
            else:
                known = f"update people set name = '{name}' where id = {key}"
                statements.append(known if key in self.rows else f"insert into people values ({key}, '{name}')")
                self.rows[key] = name
        before = self._database.value("select clock_timestamp()")
        self._database.run("; ".join(["begin", *statements, "commit"]))
        after = self._database.value("select clock_timestamp()")
        for key in dict.fromkeys(key for key, _ in changes):
            if key in self.rows:
                self.versions.append((key, self.rows[key], "update" if key in was else "insert", before, after))
            else:
                lost = told[key] if self._whole else None
                self.versions.append((key, was.get(key, lost), "delete", before, after))

    def expected(self) -> list[tuple[Any, ...]]:
        """The versions of each row in their order, and whether each is current."""
        in_order = self._in_order()
        last = dict(zip((version[0] for version in in_order), in_order, strict=True))
        return [(one[0], one[1], one[2], one[2] != "delete" and one is last[one[0]]) for one in in_order]

    def times(self) -> list[tuple[datetime, datetime]]:
        """Between which moments each version began, in the same order."""
        return [version[3:] for version in self._in_order()]

    def _in_order(self) -> list[tuple[int, str | None, str, datetime, datetime]]:
        return sorted(self.versions, key=lambda version: version[0])


def held(lake: Lake) -> list[Any]:
    return lake.table().orderBy("id", "valid_from").collect()


def require_as(people: People, lake: Lake) -> None:
    """The table has the versions, and each ends where the next one begins."""
    rows = held(lake)
    assert [(row.id, row.name, row.operation, row.is_current) for row in rows] == people.expected()
    for row, (before, after) in zip(rows, people.times(), strict=True):
        assert before <= row.valid_from.astimezone(before.tzinfo) <= after
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        next_one = following.valid_from if following is not None and following.id == row.id else None
        assert row.valid_to == (row.valid_from if row.operation == "delete" else next_one)


@pytest.mark.parametrize("identity", ["default", pytest.param("full", marks=pytest.mark.slow(seconds=30))])
def test_every_version_of_a_row(database: Database, lake: Lake, identity: str) -> None:
    chance = random.Random(identity)
    people = People(database, identity)
    pipeline = lake.pipeline(described(database, "people"), **HISTORY)
    people.transaction((1, "Ada"), (2, "Bob"), (3, "Eve"))
    for key, _, operation, before, _ in [*people.versions]:
        people.versions[key - 1] = (key, people.rows[key], operation, before, datetime.max.replace(tzinfo=before.tzinfo))
    run(pipeline, once=True)
    for batch in range(2):
        for number in range(10):
            name = f"name {batch}.{number}"
            keys = chance.sample(range(1, 6), chance.choice([1, 1, 2]))
            people.transaction(*[(key, None if key in people.rows and chance.random() < 0.4 else name) for key in keys])
        run(pipeline, once=True)
        require_as(people, lake)
    people.transaction((1, "once"), (1, "twice"))
    people.transaction((1, None), (1, "back"))
    people.transaction((1, None))
    people.transaction((1, "again"))
    run(pipeline, once=True)
    require_as(people, lake)


def test_a_key_that_moves_ends_one_row_and_begins_another(database: Database, lake: Lake) -> None:
    database.run("create table people (id int primary key, name text)", "insert into people values (1, 'Ada')")
    pipeline = lake.pipeline(described(database, "people"), **HISTORY)
    run(pipeline, once=True)
    database.run("update people set id = 2 where id = 1", "update people set name = 'Eve' where id = 2")
    run(pipeline, once=True)
    rows = held(lake)
    assert [(row.id, row.name, row.operation, row.is_current) for row in rows] == [
        (1, "Ada", "insert", False),
        (1, "Ada", "delete", False),
        (2, "Ada", "insert", False),
        (2, "Eve", "update", True),
    ]
    assert rows[0].valid_to == rows[1].valid_from == rows[2].valid_from


def test_times_are_the_same_when_read_again_and_only_grow(database: Database, spark: SparkSession) -> None:
    database.run("create table t (id int primary key, n int)", "insert into t values (1, 0)")
    spec = database.spec("t")

    def read(start: str | None) -> tuple[list[tuple[int, Any]], str]:
        source = PostgresCdc(spec, spark, versions=True)
        try:
            part = source.plan(start, 100)
            assert part is not None
            rows = source.read(part).orderBy("__frazil_order").selectExpr("n", f"unix_micros({CHANGED_AT}) at").collect()
            return [tuple(row) for row in rows], part.end
        finally:
            source.close()

    ((_, began),), ledger = read(None)
    database.run("update t set n = 1", "update t set n = 2")
    told, end = read(ledger)
    assert read(ledger) == (told, end)
    assert [n for n, _ in told] == [1, 2]
    assert began < told[0][1] < told[1][1] == PostgresPlace.from_position(end).times["public.t"]
    # The clock of the server was set back by a year.
    ahead = told[1][1] + 365 * 86_400_000_000
    late = PostgresPlace.from_position(ledger).with_times({"public.t": ahead}).to_position()
    assert read(late)[0] == [(1, ahead + 1), (2, ahead + 2)]


def test_a_column_of_the_rows_cannot_tell_when_they_went(database: Database, lake: Lake) -> None:
    pipeline = lake.pipeline(described(database, "people"), **HISTORY, order_by=["updated_at"])
    (problem,) = pipeline_problems(pipeline.source, pipeline.sink, ())
    assert problem.at == ("order_by",)
    assert "it does not say when the row went. Leave order_by out" in str(problem)
    assert not pipeline_problems(pipeline.source, lake.pipeline(described(database, "people"), **HISTORY).sink, ())
