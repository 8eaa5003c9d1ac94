"""Whatever changes come, in whatever order, and whoever rewrites the files in between: the table holds what a dictionary says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from engine.lakes import Lake, sqlite_lake
from engine.readers import by_duckdb

WALKS, STEPS, KEYS = 2, 9, 12

# The steps of a walk and how often they are taken; the number that goes with each is for what it has to choose.
WEIGHTS = {"change": 6, "settle": 2, "compact": 1, "foreign_compaction": 1, "foreign_append": 1, "new_column": 1, "expire": 1}
kinds = st.sampled_from([kind for kind, times in WEIGHTS.items() for _ in range(times)])
walks = st.lists(st.tuples(kinds, st.integers(0, 9_999)), min_size=STEPS, max_size=STEPS)

Row = tuple[Any, ...]


class Walk:
    """One table and the dictionary that it is held against: key to value and partition."""

    def __init__(self, lake: Lake, strategy: str, version: int, partition: list[str]) -> None:
        self.lake = lake
        self.options = {"upsert_strategy": strategy, "format_version": version, "key_fields": ["id"], "op_field": "op"}
        self.truth: dict[int, Row] = {}
        self.columns = ["v", "p"]
        self.turn = 0
        self._write(dict.fromkeys(range(0, KEYS, 2), "c"), random.Random(version), partition_by=partition)

    def change(self, number: int, **options: Any) -> None:
        """Some keys are inserted, updated, deleted or moved to another partition; some of them twice in the batch."""
        chance = random.Random(number)
        touched = chance.sample(range(KEYS), chance.randint(1, 6))
        self._write({key: chance.choice("ccud") for key in touched}, chance, partitioning="table_default", **options)

    def settle(self, number: int) -> None:
        """A batch that leaves no deletes by key."""
        self.change(number, max_equality_deletes=0)

    def compact(self, number: int) -> None:
        """A batch that leaves no delete files."""
        self.change(number, max_delete_files=0)

    def foreign_compaction(self, _number: int) -> None:
        """Somebody else writes all files anew."""
        self._call("rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))")

    def foreign_append(self, number: int) -> None:
        """Somebody else adds a row, whose key no one else uses."""
        key = 1000 + self.turn
        columns = ", ".join(f"'x' {name}" if name != "p" else f"{number % 3} p" for name in self.columns)
        self.lake.sink(f"select {key}L id, {columns}", partitioning="table_default").id("other").write()
        self.truth[key] = tuple("x" if name != "p" else number % 3 for name in self.columns)
        self.turn += 1

    def new_column(self, number: int) -> None:
        """A column that older rows do not have."""
        self.columns.append(f"c{len(self.columns)}")
        self.truth = {key: (*row, None) for key, row in self.truth.items()}
        self.change(number)

    def expire(self, _number: int) -> None:
        """All snapshots but the last, with the files that only they name."""
        self._call("expire_snapshots(table => 'db.t', older_than => timestamp'2100-01-01', retain_last => 1)")

    def check(self) -> None:
        """Spark and DuckDB see what the dictionary holds."""
        expected = sorted((key, *row) for key, row in self.truth.items())
        names = ["id", *self.columns]
        assert sorted(tuple(row[name] for name in names) for row in self.lake.table().collect()) == expected
        assert sorted(tuple(row[name] for name in names) for row in by_duckdb(self.lake)) == expected

    def _write(self, ops: dict[int, str], chance: random.Random, **options: Any) -> None:
        rows = []
        for key, op in ops.items():
            for at in range(chance.randint(1, 2)):
                self.turn += 1
                values = tuple(f"{name}{self.turn}" if name != "p" else chance.randint(0, 2) for name in self.columns)
                rows.append((key, *values, op if at == 0 else "u", at))
                if rows[-1][-2] == "d":
                    self.truth.pop(key, None)
                else:
                    self.truth[key] = values
        chance.shuffle(rows)
        literals = ", ".join(str(tuple(row)) for row in rows)
        query = (
            f"select cast(id as long) id, * except (id, at), at from values {literals} t(id, {', '.join(self.columns)}, op, at)"
        )
        order = self.lake.frame(query)
        self.lake.sink(order, commit_mode="upsert", order_by=["at"], **(self.options | options)).write()

    def _call(self, procedure: str) -> None:
        self.lake.spark.sql(f"CALL {self.lake.name}.system.{procedure}").collect()


@pytest.mark.parametrize(
    ("strategy", "version", "partition"),
    [("equality_delete", 2, ["p"]), ("equality_delete", 3, ["bucket(2, id)"]), ("merge", 3, ["p"]), ("auto", 2, [])],
    ids=str,
)
def test_a_walk(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, strategy: str, version: int, partition: list[str]
) -> None:
    @settings(max_examples=WALKS, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(walks)
    def walk(steps: list[tuple[str, int]]) -> None:
        folder: Path = tmp_path_factory.mktemp("walk")
        walking = Walk(sqlite_lake(spark, folder), strategy, version, partition)
        for kind, number in steps:
            getattr(walking, kind)(number)
        walking.check()

    walk()
