"""Rows under deleted keys are found by keys of every sort, in the quick way and in the other, which agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from frazil.iceberg import DeadRows, DeletedKeys, dead
from frazil.model.events import Event, Settled
from frazil.write.modes.lookup import DeadPositions, Search
from helpers.lakes import Lake
from iceberg.test_debt import totals

KEYS = {
    "long": {"k": "cast(n as long)"},
    "int": {"k": "cast(n as int)"},
    "string": {"k": "concat('key ', n)"},
    "date": {"k": "date_add(date'2026-01-01', cast(n as int))"},
    "two": {"k": "cast(n % 3 as long)", "m": "cast(n as int)"},
}
PARTITIONS: dict[str, list[str]] = {"whole": [], "by key": ["bucket(2, k)"], "by another": ["p"]}


def upsert(lake: Lake, rows: str, keys: dict[str, str], partition: list[str], **options: Any) -> list[Settled]:
    """Rows with a column `n`, of which the keys are made; what was settled after it."""
    events: list[Event] = []
    columns = ", ".join(f"{how} {name}" for name, how in keys.items())
    given = {"key_fields": list(keys), "upsert_strategy": "equality_delete", "format_version": 3, "partition_by": partition}
    sink = lake.sink(f"select {columns}, n % 2 p, n, v from ({rows})", commit_mode="upsert", **given | options)
    sink.listen(events.append).write()
    return [event for event in events if isinstance(event, Settled)]


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_sort_are_settled(lake: Lake, kind: str, partition: str) -> None:
    how = KEYS[kind], PARTITIONS[partition]
    upsert(lake, "select id n, 'a' v from range(20)", *how)
    upsert(lake, "select id n, 'b' v from range(2, 9)", *how)
    (settled,) = upsert(lake, "select id n, 'c' v from range(6, 12)", *how, max_equality_deletes=0)
    assert settled.rows == 7 + 6
    expected = [(n, "c" if 6 <= n < 12 else "b" if 2 <= n < 9 else "a") for n in range(20)]
    assert lake.rows("n, v") == sorted(expected, key=repr)
    assert totals(lake)["total-equality-deletes"] == 0


def test_a_session_without_the_jar_settles_as_well(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead, "FINDER", "frazil.NotThere")
    upsert(lake, "select id n, 'a' v from range(20)", KEYS["long"], [])
    (settled,) = upsert(lake, "select id n, 'b' v from range(5)", KEYS["long"], [], max_equality_deletes=0)
    assert settled.rows == 5
    assert lake.rows("v").count(("b",)) == 5


def test_deletes_that_are_left_without_any_rows(lake: Lake) -> None:
    how = KEYS["long"], PARTITIONS["whole"]
    upsert(lake, "select id n, 'a' v from range(20)", *how)
    upsert(lake, "select id n, 'b' v from range(5)", *how)
    lake.spark.sql(f"delete from {lake.name}.db.t")
    rows = "select id n, 'c' v, 'd' op from range(3)"
    options = {"key_fields": ["k"], "upsert_strategy": "equality_delete", "op_field": "op", "max_equality_deletes": 0}
    lake.sink(f"select n k, n % 2 p, n, v, op from ({rows})", commit_mode="upsert", **options).write()
    assert (lake.count(), totals(lake)["total-equality-deletes"]) == (0, 0)


@pytest.fixture
def found_twice(monkeypatch: pytest.MonkeyPatch) -> list[tuple[DeadRows | None, DeadRows]]:
    """Every search is made in both ways."""
    both: list[tuple[DeadRows | None, DeadRows]] = []

    def found(search: Search, keys: DeletedKeys, rows: DeadPositions) -> DeadRows:
        both.append((search._passed(keys, rows), search._joined(rows)))
        return both[-1][1]

    monkeypatch.setattr(Search, "found", found)
    return both


# Upserts of some keys each.
BATCHES = some.lists(some.sets(some.integers(-3, 12), min_size=1, max_size=8), min_size=2, max_size=5)


@pytest.mark.slow(seconds=35)
@given(batches=BATCHES, partitions=some.lists(some.sampled_from(sorted(PARTITIONS)), min_size=1, max_size=2))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_ways_find_the_same(
    lake: Lake, found_twice: list[tuple[DeadRows | None, DeadRows]], batches: list[set[int]], partitions: list[str]
) -> None:
    lake.introduced().spark.sql(f"drop table if exists {lake.name}.db.t")
    keys = {"k": "cast(n as long)"}
    for number, batch in enumerate(batches):
        values = ", ".join(f"({n}, '{number}')" for n in sorted(batch))
        last = number == len(batches) - 1
        partition = PARTITIONS[partitions[min(number, len(partitions) - 1)]]
        debt = {"max_equality_deletes": 0} if last else {}
        upsert(lake, f"select * from values {values} as t(n, v)", keys, partition, **debt)
    quick, joined = found_twice[-1]
    assert quick == joined
    assert joined.gone.rows == sum(map(len, batches)) - len(set().union(*batches))
    newest = {n: str(number) for number, batch in enumerate(batches) for n in batch}
    assert lake.rows("k, v") == sorted(newest.items(), key=repr)
