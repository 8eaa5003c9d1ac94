"""Whatever is done to a table, and however its changes are cut into slices: whoever applies them has its rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from helpers.lakes import Lake, sqlite_lake
from sources.table.feed import Feed

KEYS = 12
# The steps of a walk, and how often each is taken.
WEIGHTS = {
    "upsert": 6, "settle": 1, "foreign_merge": 2, "foreign_delete": 2, "foreign_append": 1, "move": 1, "compact": 2,
    "rewrite_deletes": 1, "other_way": 2, "add_column": 1, "rename_column": 1, "drop_column": 1, "repartition": 1, "roll_back": 2,
    "upgrade": 1,
}  # fmt: skip


class Walk:
    """A table that is changed in every way, and what two readers make of its changes."""

    def __init__(self, lake: Lake, strategy: str, version: int, seed: int) -> None:
        self.lake, self.chance = lake, random.Random(seed)
        self.options = {"commit_mode": "upsert", "key_fields": ["id"], "upsert_strategy": strategy, "format_version": version}
        self.name, self.columns = f"{lake.name}.db.t", ["v"]
        self.sink_id, self.turn = "walk", 0
        self.upsert()
        # One asks after each step, the other now and then.
        self.often, self.seldom = Feed(lake.spark, self.name), Feed(lake.spark, self.name)

    def take(self, step: str) -> None:
        """Does a step, and lets readers follow it."""
        self.turn += 1
        getattr(self, step)()
        self.follow(self.often, 1)
        if self.chance.random() < 0.3:
            self.follow(self.seldom, 1000)

    def follow(self, feed: Feed, limit: int) -> None:
        """Reads up to the table's head: there are no more changes than rows that differ."""
        before = dict(feed.state)
        counts = []
        while (changes := feed.follow("id", limit)) is not None:
            counts.append(changes)
        differing = [key for key in {*before, *feed.state} if before.get(key) != feed.state.get(key)]
        assert sum(counts) == len(differing) or len(counts) > 1
        metadata = self.lake.metadata()
        schema = next(one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
        ids = {field["name"]: f"{metadata['table-uuid']}.{field['id']}" for field in schema["fields"]}
        held = {key: {name: row.get(column) for name, column in ids.items()} for key, row in feed.state.items()}
        assert held == {row["id"]: row.asDict() for row in self.lake.table().collect()}

    def upsert(self, **options: Any) -> None:
        """Some keys are inserted, updated or deleted."""
        keys = self.chance.sample(range(KEYS), self.chance.randint(1, 6))
        rows = [(key, *(self._value() for _ in self.columns), self.chance.choice("ccd")) for key in keys]
        literals = ", ".join(map(str, rows))
        names = ", ".join([*self.columns, "op"])
        query = f"select cast(id as long) id, {names} from values {literals} t(id, {names})"
        given = self.options | {"op_field": "op"} | ({"partitioning": "table_default"} if self.turn else {}) | options
        self.lake.sink(query, **given).id(self.sink_id).write()

    def settle(self) -> None:
        """An upsert that leaves no deletes by key."""
        self.upsert(max_equality_deletes=0)

    def foreign_merge(self) -> None:
        """Somebody else updates, deletes and inserts."""
        first, second = self.columns[0], self.chance.randrange(KEYS)
        source = f"SELECT explode(sequence({second}L, {second + 3}L)) AS id"
        names, values = ", ".join(["id", *self.columns]), ", ".join(f"'{self._value()}'" for _ in self.columns)
        self._sql(
            f"MERGE INTO {self.name} t USING ({source}) s ON t.id = s.id WHEN MATCHED AND s.id % 3 = 0 THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {first} = '{self._value()}' "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES (s.id, {values})"
        )

    def foreign_delete(self) -> None:
        """Somebody else deletes rows, or all of some files."""
        self._sql(f"DELETE FROM {self.name} WHERE id {self.chance.choice(['> 6', '= 3', '< 100', '% 2 = 0'])}")

    def foreign_append(self) -> None:
        """A row whose key no one else uses."""
        names, values = ", ".join(["id", *self.columns]), ", ".join(f"'{self._value()}'" for _ in self.columns)
        self._sql(f"INSERT INTO {self.name} ({names}) VALUES ({1000 + self.turn}L, {values})")

    def move(self) -> None:
        """A row gets another key."""
        self._sql(f"UPDATE {self.name} SET id = {2000 + self.turn}L WHERE id = (SELECT min(id) FROM {self.name})")

    def compact(self) -> None:
        """All files are written anew."""
        self._call("rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))")

    def rewrite_deletes(self) -> None:
        """Files of deletes are written anew."""
        self._call("rewrite_position_delete_files(table => 'db.t', options => map('rewrite-all', 'true'))")

    def other_way(self) -> None:
        """From now on others write whole files anew, or deletes beside them."""
        way = self.chance.choice(["copy-on-write", "merge-on-read"])
        properties = ", ".join(f"'write.{kind}.mode' = '{way}'" for kind in ("delete", "update", "merge"))
        self._sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ({properties})")

    def add_column(self) -> None:
        self._sql(f"ALTER TABLE {self.name} ADD COLUMN c{self.turn} string")
        self.columns.append(f"c{self.turn}")

    def rename_column(self) -> None:
        old, self.columns[0] = self.columns[0], f"r{self.turn}"
        self._sql(f"ALTER TABLE {self.name} RENAME COLUMN {old} TO {self.columns[0]}")

    def drop_column(self) -> None:
        if len(self.columns) > 1:
            self._sql(f"ALTER TABLE {self.name} DROP COLUMN {self.columns.pop()}")

    def repartition(self) -> None:
        """New files are divided in another way."""
        old = self._field()
        change = f"REPLACE PARTITION FIELD {old} WITH" if old else "ADD PARTITION FIELD"
        self._sql(f"ALTER TABLE {self.name} {change} bucket({self.turn + 2}, id)")

    def roll_back(self) -> None:
        """The table is as it was some snapshots ago. Its sinks stop then, and another one goes on."""
        line = self.lake.spark.sql(f"SELECT snapshot_id FROM {self.name}.history WHERE is_current_ancestor").collect()
        self._call(f"rollback_to_snapshot('db.t', {self.chance.choice(line[-4:]).snapshot_id})")
        self.sink_id = f"walk-{self.turn}"

    def upgrade(self) -> None:
        """Positions are vectors from now on."""
        self.options["format_version"] = 3
        self._sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('format-version' = '3')")

    def _field(self) -> str | None:
        specs = self.lake.metadata()["partition-specs"]
        fields = max(specs, key=lambda spec: spec["spec-id"])["fields"]
        return fields[0]["name"] if fields else None

    def _value(self) -> str:
        return self.chance.choice(["x", "y", str(self.turn)])

    def _sql(self, text: str) -> None:
        self.lake.spark.sql(text).collect()

    def _call(self, procedure: str) -> None:
        self._sql(f"CALL {self.lake.name}.system.{procedure}")


def walked(lake: Lake, strategy: str, version: int, seed: int, steps: list[str]) -> None:
    """A walk of these steps."""
    walk = Walk(lake, strategy, version, seed)
    for step in steps:
        walk.take(step)
    walk.follow(walk.seldom, 1000)


def test_a_short_walk(lake: Lake) -> None:
    walked(lake, "auto", 2, 1, ["upsert", "foreign_merge", "compact", "upsert", "settle", "roll_back", "upsert"])


@pytest.mark.slow(seconds=90)
@pytest.mark.parametrize(
    ("strategy", "version"),
    [("equality_delete", 2), ("equality_delete", 3), ("position", 2), ("position", 3), ("merge", 2), ("merge", 3), ("auto", 2)],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_walk(spark: SparkSession, tmp_path: Path, strategy: str, version: int, seed: int) -> None:
    steps = [step for step, times in WEIGHTS.items() for _ in range(times)]
    random.Random(f"{strategy} {version} {seed}").shuffle(steps)
    walked(sqlite_lake(spark, tmp_path), strategy, version, seed, steps)
