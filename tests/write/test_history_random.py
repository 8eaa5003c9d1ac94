"""However changes come, in whatever batches, and wherever a writer is broken off: a history table has the versions of a model."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from exactly_once.programs.moments import act_at
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import Settings
from frazil.runtime.verify import verify
from helpers.history import Case, Change, Model, Version, in_order, in_rows, in_time, late, wild
from helpers.lakes import Lake, run, sqlite_lake
from services.kafka import Kafka, Message

WAYS = [(3, "auto"), (2, "merge"), (2, "equality_delete"), (3, "position"), (2, "position"), (3, "merge"), (3, "equality_delete")]
COLUMNS = "id, v, w, {0}(valid_from), {0}(valid_to), is_current, operation"
HISTORY: dict[str, Any] = {"commit_mode": "upsert", "history": "scd2"}
# What Debezium writes for a value that did not change and that the database did not log.
UNSENT = "__debezium_unavailable_value"
# Where a writer is broken off.
MOMENTS = ("staged", "unsent", "applied")
CASES, STEPS = 150, 6


class BrokenOff(BaseException):
    """Nothing takes care of it, like the end of a process."""


def broken_off() -> None:
    raise BrokenOff


@contextmanager
def breaking_off(moment: str, nth: int = 1) -> Any:
    """What is written in the block ends at a moment of a batch, if it comes there."""
    undo = act_at(moment, nth, broken_off)
    try:
        yield
    except BrokenOff:
        pass
    finally:
        undo()


# Debezium's envelopes. Of a row from before only the key is told, as with PostgreSQL's default replica identity.


def envelope(number: int, one: Change, begin: int = 0) -> dict[str, Any]:
    """A change of a case, whose number is a part of the key. Times count from ``begin`` on."""
    key = {"c": number, "id": one.key}
    source = {"ts_ms": begin + one.at, "lsn": 100 * number + one.place}
    if one.values is None:
        return {"op": "d", "before": key | {"v": None, "w": None}, "after": None, "source": source}
    v, w = one.values
    return {"op": "u", "before": None, "after": key | {"v": v, "w": UNSENT if one.unsent else w}, "source": source}


def held(lake: Lake, as_number: str, begin: int = 0) -> dict[int, list[Version]]:
    """The versions of each case."""
    found: dict[int, list[Version]] = {}
    for number, key, v, w, since, until, current, operation in lake.rows(f"c, {COLUMNS.format(as_number)}"):
        ends = None if until is None else until - begin
        found.setdefault(number, []).append((key, v, w, since - begin, ends, current, operation))
    return {number: in_rows(versions) for number, versions in found.items()}


def received(cases: Sequence[Case], steps: int) -> list[list[Version]]:
    """What the first batches of each case lead to."""
    return [in_order(one for batch in case.batches[:steps] for one in batch) for case in cases]


def writer_of_envelopes(
    lake: Lake, version: int, strategy: str, **options: Any
) -> Callable[[Sequence[Sequence[Change]], str], None]:
    row = "struct<c: long, id: long, v: string, w: string>"
    kind = f"op string, before {row}, after {row}, source struct<ts_ms: long, lsn: long>"
    given = HISTORY | {"key_fields": ["c", "id"], "change_format": "debezium", "unchanged_value": UNSENT}
    given |= {"order_by": ["source.ts_ms", "source.lsn"], "format_version": version, "upsert_strategy": strategy}

    def write(batches: Sequence[Sequence[Change]], name: str) -> None:
        lines = [(json.dumps(envelope(number, one)),) for number, batch in enumerate(batches) for one in batch]
        frame = lake.spark.createDataFrame(lines, "line string").selectExpr(f"from_json(line, '{kind}') e").select("e.*")
        lake.sink(frame, **given | options).write(name)

    return write


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize(("version", "strategy"), WAYS)
def test_envelopes_in_any_batches_lead_to_the_versions_of_those_in_order(lake: Lake, version: int, strategy: str) -> None:
    seed = 1_000 * WAYS.index((version, strategy))
    cases = [made(seed + number, STEPS) for made in (in_time, late) for number in range(CASES // 2)]
    write, chance = writer_of_envelopes(lake, version, strategy), random.Random(seed)
    for step in range(STEPS):
        batches = [one.batches[step] for one in cases]
        if step % 2:
            with breaking_off(chance.choice(MOMENTS)):
                write(batches, f"step {step}")
        write(batches, f"step {step}")
        found = held(lake, "")
        for number, expected in enumerate(received(cases, step + 1)):
            assert found.get(number, []) == expected, (number, step, cases[number])


@pytest.mark.slow(seconds=45)
@pytest.mark.parametrize(("version", "strategy"), WAYS[:3])
def test_whatever_comes_the_versions_are_those_of_the_model(lake: Lake, version: int, strategy: str) -> None:
    """Also where values are missing, and where changes at the same time contradict each other."""
    seed = 1_000 * WAYS.index((version, strategy))
    cases, models = [wild(seed + number, STEPS) for number in range(CASES)], [Model() for _ in range(CASES)]
    write = writer_of_envelopes(lake, version, strategy, unchanged_missing="write_null")
    for step in range(STEPS):
        batches = [one.batches[step] for one in cases]
        write(batches, f"step {step}")
        found = held(lake, "")
        for number, (model, batch) in enumerate(zip(models, batches, strict=True)):
            model.write(batch)
            assert found.get(number, []) == model.versions, (number, step, cases[number])


def test_a_value_that_was_not_sent_is_that_of_the_version_whose_place_another_takes(lake: Lake) -> None:
    write = writer_of_envelopes(lake, 3, "auto")
    write([[Change(1, 10, 0, ("a", "old")), Change(1, 20, 1, ("b", "new"))]], "first")
    write([[Change(1, 20, 2, ("c", None), unsent=True), Change(1, 30, 3, ("d", None), unsent=True)]], "second")
    assert [version[1:4] for version in held(lake, "")[0]] == [("a", "old", 10), ("c", "new", 20), ("d", "new", 30)]


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("made", [in_time, late])
def test_a_topic_of_envelopes_in_any_batches(
    kafka: Kafka, spark: SparkSession, tmp_path: Path, made: Callable[..., Case]
) -> None:
    """Versions begin at the times of the database. The borders of batches are anywhere, also within those of a case."""
    lake, chance, begin = sqlite_lake(spark, tmp_path), random.Random(made.__name__), int(time.time() * 1000)
    cases = [made(number, 3) for number in range(30)]
    topic = kafka.create_topic()
    row = {"c": "long", "id": "long", "v": "string", "w": "string"}
    source = {"connector": "kafka", "bootstrap_servers": kafka.address(), "topics": [topic], "start_offset": "earliest"}
    source |= {"format": {"type": "json", "envelope": "debezium", "schema": row}}
    for step in range(3):
        kafka.produce(topic, [Message(json.dumps(one)) for one in mixed(chance, [case.batches[step] for case in cases], begin)])
        given = HISTORY | {"key_fields": ["c", "id"], "change_format": "debezium", "batch_size": chance.choice((13, 29, 71))}
        pipeline = lake.pipeline(source, **given)
        with breaking_off(chance.choice(MOMENTS), chance.randint(1, 3)):
            run(pipeline, once=True)
        run(pipeline, once=True)
        found = held(lake, "unix_millis", begin)
        for number, expected in enumerate(received(cases, step + 1)):
            assert found.get(number, []) == expected, (number, step, cases[number])
    assert verify(pipeline, Settings()).findings == ()


def mixed(chance: random.Random, batches: Sequence[Sequence[Change]], begin: int) -> list[dict[str, Any]]:
    """The changes of all cases, each in its order."""
    left = [(number, list(batch)) for number, batch in enumerate(batches) if batch]
    coming = []
    while left:
        number, batch = chance.choice(left)
        coming.append(envelope(number, batch.pop(0), begin))
        left = [one for one in left if one[1]]
    return coming


# The changes of a table


class Followed:
    """A table that is changed in many ways, and the versions that its snapshots make."""

    STEPS = ("upsert", "upsert", "upsert", "merge", "delete", "append", "move", "same", "compact", "roll_back")
    KEYS = 8

    def __init__(self, lake: Lake, version: int, strategy: str, seed: int) -> None:
        self.lake, self.chance, self.turn = lake, random.Random(seed), 0
        self._options = {"commit_mode": "upsert", "key_fields": ["id"], "format_version": version, "upsert_strategy": strategy}
        self._name = f"{lake.name}.db.a"
        self._rolled_back = False
        self._read: int | None = None
        self._rows: dict[int, tuple[str | None, str | None]] = {}
        self._at = 0
        self.changes: list[Change] = []
        self.upsert()

    def take(self, step: str) -> None:
        """Changes the table."""
        getattr(self, step)()

    def upsert(self) -> None:
        """Some rows come, change or go."""
        keys = self.chance.sample(range(self.KEYS), self.chance.randint(1, 5))
        self._upsert([(key, self._value(), self._value(), self.chance.choice("uud")) for key in keys])

    def same(self) -> None:
        """Rows are written anew as they are."""
        rows = self.lake.rows("id, v, w", "db.a")[:3]
        self._upsert([(*row, "u") for row in rows] or [(0, "x", "x", "u")])

    def merge(self) -> None:
        """Somebody else changes, deletes and inserts."""
        first = self.chance.randrange(self.KEYS)
        keys = f"(SELECT explode(sequence({first}L, {first + 3}L)) AS id)"
        self._sql(
            f"MERGE INTO {self._name} t USING {keys} s ON t.id = s.id WHEN MATCHED AND s.id % 3 = 0 THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET w = '{self._value()}' "
            f"WHEN NOT MATCHED THEN INSERT (id, v, w) VALUES (s.id, '{self._value()}', null)"
        )

    def delete(self) -> None:
        """Somebody else deletes rows."""
        self._sql(f"DELETE FROM {self._name} WHERE id {self.chance.choice(['> 5', '= 3', '< 100', '% 2 = 0'])}")

    def append(self) -> None:
        """A row whose key no one else uses."""
        self._value()
        self._sql(f"INSERT INTO {self._name} VALUES ({1000 + self.turn}L, 'new', null)")

    def move(self) -> None:
        """A row gets another key."""
        self._value()
        self._sql(f"UPDATE {self._name} SET id = {2000 + self.turn}L WHERE id = (SELECT min(id) FROM {self._name})")

    def compact(self) -> None:
        """All files are written anew."""
        self._sql(f"CALL {self.lake.name}.system.rewrite_data_files(table => 'db.a', options => map('rewrite-all', 'true'))")

    def roll_back(self) -> None:
        """The table is as it was some snapshots ago. Its sink stops then, and another one goes on."""
        line = [row.snapshot_id for row in self._line()]
        self._sql(f"CALL {self.lake.name}.system.rollback_to_snapshot('db.a', {self.chance.choice(line[-4:])})")
        self._rolled_back = True

    def read(self) -> None:
        """What a pipeline that comes to the table's head makes of it: each snapshot that changes rows is a batch."""
        line = self._line()
        known = [row.snapshot_id for row in line]
        since = known.index(self._read) + 1 if self._read in known else len(line) - 1
        for row in line[since:]:
            now = {key: (v, w) for key, v, w in self.lake.rows("id, v, w", "db.a", at=row.snapshot_id)}
            at = max(row.at, self._at + 1)
            gone = [(key, None) for key in self._rows.keys() - now.keys()]
            came = [(key, values) for key, values in now.items() if self._rows.get(key) != values]
            self.changes += [Change(key, at, len(self.changes), values) for key, values in (*gone, *came)]
            self._rows, self._at = now, at
        self._read = known[-1]

    def _line(self) -> list[Any]:
        """The snapshots that lead to the head, from the first on."""
        return self.lake.spark.sql(
            f"SELECT h.snapshot_id, unix_micros(s.committed_at) AS at FROM {self._name}.history h JOIN {self._name}.snapshots s "
            "ON h.snapshot_id = s.snapshot_id WHERE h.is_current_ancestor GROUP BY ALL ORDER BY at"
        ).collect()

    def _upsert(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self.turn += 1
        frame = self.lake.spark.createDataFrame(list(rows), "id long, v string, w string, op string")
        sink_id = f"writer-{self.turn}" if self._rolled_back else "writer"
        self.lake.sink(frame, "db.a", **self._options, op_field="op").id(sink_id).write()

    def _value(self) -> str:
        self.turn += 1
        return self.chance.choice(["x", "y", str(self.turn)])

    def _sql(self, text: str) -> None:
        self.lake.spark.sql(text).collect()


def walked(lake: Lake, version: int, strategy: str, seed: int, steps: Sequence[str]) -> PipelineSpec:
    """A table that takes these steps, and its history, whose pipeline runs now and then, and is broken off."""
    table, chance = Followed(lake, version, strategy, seed), random.Random(seed)
    source = {"connector": "table", "table": f"{lake.name}.db.a", "changes": True}
    pipeline = lake.pipeline(source, format_version=version, upsert_strategy=strategy, **HISTORY)
    for number, step in enumerate(steps):
        table.take(step)
        if number < len(steps) - 1 and chance.random() < 0.5:
            continue
        table.read()
        if chance.random() < 0.5:
            with breaking_off(chance.choice(MOMENTS), chance.randint(1, 2)):
                run(pipeline, once=True)
        run(pipeline, once=True)
        found = in_rows(lake.rows(COLUMNS.format("unix_micros")))
        assert found == in_order(table.changes), (number, steps[: number + 1])
    return pipeline


def test_a_table_that_is_followed_for_a_while(lake: Lake) -> None:
    pipeline = walked(lake, 3, "auto", 1, ["merge", "compact", "upsert", "move", "delete", "upsert"])
    assert verify(pipeline, Settings(), values=True).findings == ()


@pytest.mark.slow(seconds=90)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("version", "strategy"), WAYS)
def test_a_table_that_is_followed(spark: SparkSession, tmp_path: Path, version: int, strategy: str, seed: int) -> None:
    steps = 2 * list(Followed.STEPS)
    random.Random(f"{version} {strategy} {seed}").shuffle(steps)
    pipeline = walked(sqlite_lake(spark, tmp_path), version, strategy, seed, steps)
    assert verify(pipeline, Settings(), values=True).findings == ()
