"""Whatever changes come, in whatever order, and whoever rewrites the files in between: the table holds what a dictionary says."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import frazil
from exactly_once.programs.moments import act_at
from helpers.lakes import Lake, sqlite_lake
from helpers.readers import by_duckdb, by_polars, by_pyiceberg

pytestmark = pytest.mark.slow(seconds=90)

KEYS = 12
# A run of the tests takes the same walks each time; to look for more, say how many: each then is another one.
WALKS = int(os.environ.get("FRAZIL_WALKS", "0"))

# The steps of a walk and how often each is taken; their order is a matter of chance.
WEIGHTS = {
    "change": 5, "move": 3, "again": 1, "interrupted": 2, "settle": 2, "compact": 1, "foreign_compaction": 1, "foreign_append": 1,
    "foreign_delete": 1, "new_column": 1, "rename": 1, "rename_key": 1, "widen": 1, "leave_out": 1, "keep": 2, "only_new": 1,
    "only_known": 1, "repartition": 1, "upgrade": 1, "expire": 1,
}  # fmt: skip

# Where rows are deleted by position, what others do meanwhile comes in place of what concerns equality deletes.
BY_POSITION = {"foreign_update": 1, "foreign_duplicates": 1, "overtaken": 2, "rolled_back": 1}
OF_EQUALITY_DELETES = {"settle": 2, "compact": 1, "change": 1, "move": 1}

PARTITIONS: tuple[list[str], ...] = (["void(KEY)"], ["p"], ["bucket(2, KEY)"], ["p", "truncate(4, KEY)"], ["bucket(3, p)"])
# Where a batch is broken off. Of those that do not come in a batch nothing is to be seen.
MOMENTS = ("index-added", "index-saved", "looked-up", "unsent", "applied")
# Numbers that only a long holds begin here.
LONG = 5_000_000_000

# Who reads each state of a table whose rows are deleted by position.
EVERY_READER = (by_duckdb, by_polars, by_pyiceberg)

Row = tuple[Any, ...]


class BrokenOff(BaseException):
    """Nothing takes care of it, like the end of a process."""


def broken_off() -> None:
    raise BrokenOff


class Walk:
    """One table and the dictionary that it is held against: key to the values of the other columns."""

    def __init__(self, lake: Lake, strategy: str, version: int, partition: list[str]) -> None:
        self.lake = lake
        self.options = {"upsert_strategy": strategy, "format_version": version, "key_fields": ["id"], "commit_mode": "upsert"}
        self.truth: dict[int, Row] = {}
        self.key, self.columns = "id", ["v", "p"]
        self.least = 0
        self.turn = 0
        self._write(dict.fromkeys(range(0, KEYS, 2), "c"), random.Random(version), partition_by=partition)

    def change(self, number: int, **options: Any) -> None:
        """Some keys are inserted, updated, deleted or moved to another partition; some of them twice in the batch."""
        chance = random.Random(number)
        self._write(self._touched(chance), chance, **options)

    def move(self, number: int) -> None:
        """Rows get other keys, as Debezium tells it: those of rows that are there, of each other, or new ones."""
        chance = random.Random(number)
        envelopes = []
        for at in range(chance.randint(1, 5)):
            old, new = chance.choice(sorted(self.truth) or [0]), chance.randrange(KEYS)
            after = self._values(chance)
            images = {"before": {self.key: old}, "after": {self.key: new} | after}
            envelopes.append({"op": "u", "source": {"lsn": at}} | images)
            self.truth.pop(old, None)
            self.truth[new] = tuple(after.values())
        chance.shuffle(envelopes)
        others = [f"{name}: {self.number if name == 'p' else 'string'}" for name in self.columns]
        image = ", ".join([f"{self.key}: long", *others])
        kind = f"before struct<{image}>, after struct<{image}>, op string, source struct<lsn: long>"
        lines = ", ".join(f"('{json.dumps(envelope)}')" for envelope in envelopes)
        query = f"select e.* from (select from_json(line, '{kind}') e from values {lines} t(line))"
        options = {"change_format": "debezium", "order_by": ["source.lsn"], "partitioning": "table_default"}
        self.lake.sink(query, **self.options | options).write()

    def again(self, number: int) -> None:
        """A batch whose writer does not learn that it was committed, and that comes once more after another."""
        chance = random.Random(number)
        write = self._sink(self._touched(chance), chance)
        write.write(batch=f"batch {self.turn}")
        write.write(batch=f"batch {self.turn}")

    def interrupted(self, number: int) -> None:
        """A batch that is broken off, and comes once more: to a new writer, as after the end of a process."""
        chance = random.Random(number)
        write = self._sink(self._touched(chance), chance)
        undo = act_at(chance.choice(MOMENTS), 1, broken_off)
        try:
            write.write(batch=f"batch {self.turn}")
        except BrokenOff:
            pass
        finally:
            undo()
        write.write(batch=f"batch {self.turn}")

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
        self.lake.sink(f"select {key}L {self.key}, {columns}", partitioning="table_default").id("other").write()
        self.truth[key] = tuple("x" if name != "p" else number % 3 for name in self.columns)
        self.turn += 1

    def foreign_delete(self, number: int) -> None:
        """Somebody else deletes some rows."""
        self._foreign_delete(number, frozenset())

    def foreign_update(self, number: int) -> None:
        """Somebody else changes some rows."""
        self._foreign_update(number, frozenset())

    def foreign_duplicates(self, number: int) -> None:
        """Somebody else adds some rows a second time; the next batch leaves one of each key."""
        chance = random.Random(number)
        twice = chance.sample(sorted(key for key in self.truth if key < KEYS), min(3, sum(key < KEYS for key in self.truth)))
        if twice:
            table = f"{self.lake.name}.db.t"
            self.lake.spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE {self.key} IN ({', '.join(map(str, twice))})")
        self._write({key: chance.choice("cud") for key in twice} | {0: "c"}, chance)

    def overtaken(self, number: int) -> None:
        """Somebody else commits something after a batch has looked up its rows."""
        chance = random.Random(number)
        touched = self._touched(chance)
        write = self._sink(touched, chance)
        act = chance.choice([self._foreign_update, self._foreign_delete, lambda *_: self.foreign_compaction(0)])
        undo = act_at("unsent", 1, lambda: act(number, touched.keys()))
        try:
            write.write()
        finally:
            undo()

    def rolled_back(self, number: int) -> None:
        """Somebody else takes back what they did, after a batch has looked at it; that is broken off, and comes once more."""
        chance = random.Random(number)
        truth, before = dict(self.truth), self.lake.meta("refs")[0].snapshot_id
        chance.choice([self._foreign_update, self._foreign_delete])(number, frozenset())
        self.truth = truth
        write = self._sink(self._touched(chance), chance)
        undo = act_at("unsent", 1, broken_off)
        try:
            write.write(batch=f"batch {self.turn}")
        except BrokenOff:
            self._call(f"rollback_to_snapshot('db.t', {before})")
        finally:
            undo()
        write.write(batch=f"batch {self.turn}")

    def new_column(self, number: int) -> None:
        """A column that older rows do not have."""
        self.turn += 1
        self.columns.append(f"c{self.turn}")
        self.truth = {key: (*row, None) for key, row in self.truth.items()}
        self.change(number)

    def rename(self, number: int) -> None:
        """A column has another name from now on, and keeps its values."""
        self.turn += 1
        at = random.Random(number).choice([n for n, name in enumerate(self.columns) if name != "p"])
        old, self.columns[at] = self.columns[at], f"r{self.turn}"
        self.change(number, schema_evolution="full", aliases={self.columns[at]: old})

    def rename_key(self, number: int) -> None:
        """The key itself has another name from now on."""
        self.turn += 1
        old, self.key = self.key, f"k{self.turn}"
        self.options["key_fields"] = [self.key]
        self.change(number, schema_evolution="full", aliases={self.key: old})

    def widen(self, number: int) -> None:
        """The column that partitions are made of gets numbers that it had no room for."""
        self.least = LONG
        self.change(number, schema_evolution="type_widen")

    def leave_out(self, number: int) -> None:
        """A batch without one of the columns, whose values are gone with it: rows of MERGE keep them on no account either."""
        chance = random.Random(number)
        self._write(self._touched(chance), chance, without=self._any_column(chance))

    def keep(self, number: int) -> None:
        """A batch without one of the columns, whose values stay as they are."""
        chance = random.Random(number)
        self._write(self._touched(chance), chance, without=self._any_column(chance), partial_updates=True)

    def only_new(self, number: int) -> None:
        """Rows that are there stay as they are."""
        self.change(number, when_matched_update_all=False)

    def only_known(self, number: int) -> None:
        """Rows that are not there are left out."""
        self.change(number, when_not_matched_insert_all=False)

    def repartition(self, number: int) -> None:
        """New rows are divided in another way than those that are there."""
        fields = PARTITIONS[number % len(PARTITIONS)]
        self.change(number, partition_by=[field.replace("KEY", self.key) for field in fields])

    def upgrade(self, _number: int) -> None:
        """The table gets the newer version of the format, in which positions are vectors."""
        self.options["format_version"] = 3
        self.lake.spark.sql(f"ALTER TABLE {self.lake.name}.db.t SET TBLPROPERTIES ('format-version' = '3')")

    def expire(self, _number: int) -> None:
        """All snapshots but the last, with the files that only they name."""
        self._call("expire_snapshots(table => 'db.t', older_than => timestamp'2100-01-01', retain_last => 1)")

    def check(self, rows: Iterable[Any]) -> None:
        """A reader sees what the dictionary holds."""
        names = [self.key, *self.columns]
        expected = sorted(((key, *row) for key, row in self.truth.items()), key=repr)
        assert sorted((tuple(row[name] for name in names) for row in rows), key=repr) == expected

    @property
    def number(self) -> str:
        """The type of the column that partitions are made of."""
        return "long" if self.least else "int"

    def _foreign_delete(self, number: int, ours: Collection[int]) -> None:
        """What becomes of keys that are ours is up to a batch that is under way."""
        gone = random.Random(number).sample(range(KEYS), 4)
        self.lake.spark.sql(f"DELETE FROM {self.lake.name}.db.t WHERE {self.key} IN ({', '.join(map(str, gone))})")
        for key in set(gone) - set(ours):
            self.truth.pop(key, None)

    def _foreign_update(self, number: int, ours: Collection[int]) -> None:
        chance = random.Random(number)
        keys, column = chance.sample(range(KEYS), 4), self._any_column(chance)
        changed = f"{self.lake.name}.db.t SET {column} = 'theirs {number}'"
        self.lake.spark.sql(f"UPDATE {changed} WHERE {self.key} IN ({', '.join(map(str, keys))})")
        at = self.columns.index(column)
        for key in set(keys) & self.truth.keys() - set(ours):
            self.truth[key] = (*self.truth[key][:at], f"theirs {number}", *self.truth[key][at + 1 :])

    def _any_column(self, chance: random.Random) -> str:
        return chance.choice([name for name in self.columns if name != "p"])

    def _touched(self, chance: random.Random) -> dict[int, str]:
        return {key: chance.choice("ccud") for key in chance.sample(range(KEYS), chance.randint(1, 6))}

    def _values(self, chance: random.Random) -> dict[str, Any]:
        self.turn += 1
        return {name: f"{name} {self.turn}" if name != "p" else self.least + chance.randint(0, 2) for name in self.columns}

    def _write(self, ops: dict[int, str], chance: random.Random, **options: Any) -> None:
        self._sink(ops, chance, **options).write()

    def _sink(self, ops: dict[int, str], chance: random.Random, without: str | None = None, **options: Any) -> frazil.Sink:
        """A sink with a batch that the dictionary has taken in already."""
        rows = []
        for key, op in ops.items():
            for at in range(chance.randint(1, 2)):
                values = self._values(chance)
                rows.append((key, *(value for name, value in values.items() if name != without), op if at == 0 else "u", at))
                if rows[-1][-2] == "d":
                    self.truth.pop(key, None)
                elif options.get("when_not_matched_insert_all" if key not in self.truth else "when_matched_update_all", True):
                    kept = dict(zip(self.columns, self.truth.get(key, ()), strict=False)) if "partial_updates" in options else {}
                    self.truth[key] = tuple(value if name != without else kept.get(name) for name, value in values.items())
        chance.shuffle(rows)
        literals = ", ".join(str(tuple(row)) for row in rows)
        names = ", ".join(name for name in self.columns if name != without)
        typed = f"cast({self.key} as long) {self.key}, cast(p as {self.number}) p"
        query = f"select {typed}, * except ({self.key}, p) from values {literals} t({self.key}, {names}, op, at)"
        leaving = {} if "partition_by" in options else {"partitioning": "table_default"}
        return self.lake.sink(query, **self.options | {"op_field": "op", "order_by": ["at"]} | leaving | options)

    def _call(self, procedure: str) -> None:
        self.lake.spark.sql(f"CALL {self.lake.name}.system.{procedure}").collect()


@pytest.mark.parametrize(
    ("strategy", "version", "partition"),
    [
        ("equality_delete", 2, ["p"]),
        ("equality_delete", 3, ["bucket(2, id)"]),
        ("merge", 3, ["p"]),
        ("auto", 2, []),
        ("position", 2, ["p"]),
        ("position", 3, ["bucket(2, id)"]),
    ],
    ids=str,
)
def test_a_walk(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, strategy: str, version: int, partition: list[str]
) -> None:
    # A walk takes half a minute, and a failed one is told as it was: to look for a shorter one would take many.
    @settings(
        max_examples=WALKS or 1,
        deadline=None,
        derandomize=not WALKS,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.permutations(steps_of(f"{strategy} {version}")), st.integers(0, 10_000))
    def walk(steps: list[str], chance: int) -> None:
        folder: Path = tmp_path_factory.mktemp("walk")
        walking = Walk(sqlite_lake(spark, folder), strategy, version, partition)
        for number, kind in enumerate(steps):
            getattr(walking, kind)(100 * chance + number)
            # A wrong row may be overwritten by a later step.
            walking.check(walking.lake.table().collect())
            for read in EVERY_READER if strategy == "position" else ():
                walking.check(read(walking.lake))
        walking.check(by_duckdb(walking.lake))

    walk()


def steps_of(seed: str) -> list[str]:
    """The steps of the first walk. Others have them in another order; Hypothesis begins with this one."""
    weights = Counter(WEIGHTS)
    if seed.startswith("position"):
        weights += Counter(BY_POSITION)
        weights -= Counter(OF_EQUALITY_DELETES)
    steps = list(weights.elements())
    random.Random(seed).shuffle(steps)
    return steps
