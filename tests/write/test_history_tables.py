"""History tables: every version of a row with the time from which and to which it was valid, whatever order rows come in."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

import frazil
from exactly_once.programs.moments import act_at
from frazil.model.events import Event as Heard
from frazil.model.events import Staged
from helpers.lakes import Lake, run
from helpers.readers import by_duckdb, by_polars, by_pyiceberg, by_spark
from tiers import few_or_all

HISTORY: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["id"], "order_by": ["at"], "op_field": "op", "history": "scd2"}
COLUMNS = "id, v, valid_from, valid_to, is_current, operation"


@dataclass(frozen=True)
class Event:
    """A change of a row: its key, when it was, and the value; none if the row went."""

    id: int
    at: int
    value: str | None


def versions_of(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """What the table is to have, however the events came: of two at the same time the later one counts."""
    last = {(event.id, event.at): event for event in events}
    rows: list[tuple[Any, ...]] = []
    for key in {event.id for event in last.values()}:
        mine = sorted((event for event in last.values() if event.id == key), key=lambda event: event.at)
        value: str | None = None
        there = False
        for number, event in enumerate(mine):
            following = mine[number + 1].at if number + 1 < len(mine) else None
            if event.value is None:
                rows.append((key, value, event.at, event.at, False, "delete"))
            else:
                rows.append((key, event.value, event.at, following, following is None, "update" if there else "insert"))
                value = event.value
            there = event.value is not None
    return sorted(rows, key=repr)


def write(lake: Lake, events: Sequence[Event], **options: Any) -> list[Heard]:
    """One batch; what was heard of it."""
    heard: list[Heard] = []
    rows = [(event.id, event.at, event.value, "d" if event.value is None else "u") for event in events]
    frame = lake.spark.createDataFrame(rows, "id long, at long, v string, op string")
    lake.sink(frame, **HISTORY | options).listen(heard.append).write()
    return heard


def held(lake: Lake) -> list[tuple[Any, ...]]:
    return sorted(lake.rows(COLUMNS), key=repr)


def selected(lake: Lake, condition: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in lake.table().where(condition).select("id", "v").collect())


def shuffled_batches(seed: int, *, count: int, keys: int) -> list[list[Event]]:
    """Batches of changes that come in any order, some of them twice."""
    chance = random.Random(seed)
    moments = chance.sample(range(1000), count)
    events = [Event(chance.randrange(keys), at, None if chance.random() < 0.25 else f"v{at}") for at in moments]
    events += chance.sample(events, count // 10)
    chance.shuffle(events)
    cuts = sorted(chance.sample(range(1, len(events)), 4))
    return [events[start:end] for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True)]


def test_each_version_says_from_when_to_when_it_was_valid(lake: Lake) -> None:
    write(lake, [Event(1, 10, "a"), Event(2, 10, "x")])
    write(lake, [Event(1, 20, "b"), Event(1, 30, "c"), Event(2, 25, None)])
    assert held(lake) == [
        (1, "a", 10, 20, False, "insert"),
        (1, "b", 20, 30, False, "update"),
        (1, "c", 30, None, True, "update"),
        (2, "x", 10, 25, False, "insert"),
        (2, "x", 25, 25, False, "delete"),
    ]
    assert selected(lake, "is_current") == [(1, "c")]
    assert selected(lake, "valid_from <= 22 and (valid_to > 22 or valid_to is null)") == [(1, "b"), (2, "x")]


def test_a_late_row_gets_its_place_and_its_neighbours_are_mended(lake: Lake) -> None:
    write(lake, [Event(1, 10, "a"), Event(1, 30, "c")])
    write(lake, [Event(1, 20, "b"), Event(1, 5, "first")])
    write(lake, [Event(1, 25, None)])
    assert held(lake) == versions_of(
        [Event(1, 5, "first"), Event(1, 10, "a"), Event(1, 20, "b"), Event(1, 25, None), Event(1, 30, "c")]
    )


@pytest.mark.parametrize(
    ("version", "strategy"),
    few_or_all([(3, "auto"), (2, "merge")], list(product([2, 3], ["position", "equality_delete", "merge", "auto"]))),
)
def test_shuffled_input_equals_sorted_input(lake: Lake, version: int, strategy: str) -> None:
    batches = shuffled_batches(version, count=60, keys=5)
    for batch in batches:
        write(lake, batch, format_version=version, upsert_strategy=strategy)
    assert held(lake) == versions_of(event for batch in batches for event in batch)


@pytest.mark.parametrize("version", [2, 3])
def test_every_reader_reads_every_snapshot(lake: Lake, version: int) -> None:
    batches = shuffled_batches(7, count=30, keys=3)
    for batch in batches:
        write(lake, batch, format_version=version, readers=["pyiceberg", "polars"])
    seen: list[Event] = []
    for snapshot, batch in zip(lake.data_snapshots(), batches, strict=True):
        seen += batch
        for read in (by_spark, by_duckdb, by_pyiceberg, by_polars):
            rows = [tuple(row[name] for name in COLUMNS.split(", ")) for row in read(lake, snapshot.snapshot_id)]
            assert sorted(rows, key=repr) == versions_of(seen), read.__name__
    assert not lake.table().where("at <> valid_from").count()


def test_a_version_that_another_writer_adds_meanwhile_is_seen(lake: Lake) -> None:
    write(lake, [Event(1, 10, "a")])
    undo = act_at("unsent", 1, lambda: write(lake, [Event(1, 20, "b")], id="another"))
    try:
        heard = write(lake, [Event(1, 30, "c"), Event(1, 5, "first")])
    finally:
        undo()
    assert len([event for event in heard if isinstance(event, Staged)]) == 2, "it is made again from what is there"
    assert held(lake) == versions_of([Event(1, 5, "first"), Event(1, 10, "a"), Event(1, 20, "b"), Event(1, 30, "c")])


def test_values_that_were_not_sent_are_those_of_the_version_before(lake: Lake) -> None:
    write(lake, [Event(1, 10, "a"), Event(1, 20, "same")], unchanged_value="same")
    write(lake, [Event(1, 40, "same"), Event(1, 50, "b")], unchanged_value="same")
    write(lake, [Event(1, 60, None), Event(1, 30, "late")], unchanged_value="same")
    values = [row[1:3] for row in held(lake)]
    assert values == [("a", 10), ("a", 20), ("a", 40), ("b", 50), ("b", 60), ("late", 30)]
    with pytest.raises(frazil.DataError) as caught:
        write(lake, [Event(1, 70, "same")], unchanged_value="same")
    assert caught.value.code == "unchanged-missing"
    write(lake, [Event(1, 70, "same")], unchanged_value="same", unchanged_missing="write_null")
    assert held(lake)[-1] == (1, None, 70, None, True, "insert")


def test_columns_have_the_names_and_types_that_are_given(lake: Lake) -> None:
    history = {"type": "scd2", "valid_from": "since", "valid_to": "until", "current": "latest", "operation": "change"}
    declared = {"id": "long", "at": "timestamptz", "v": {"type": "string", "required": True}}
    query = "select 1L id, timestamp'2026-01-01 10:00:00' at, 'a' v, 'u' op"
    lake.sink(query, **HISTORY | {"history": history}, schema=declared).write()
    # Nothing is known of the row that goes, and a value is required.
    gone = "select 2L id, timestamp'2026-01-01 11:00:00' at, cast(null as string) v, 'd' op"
    lake.sink(f"{gone} union all {query.replace('10:', '12:')}", **HISTORY | {"history": history}, schema=declared).write()
    table = lake.table()
    assert table.columns == ["id", "at", "v", "since", "until", "latest", "change"]
    assert [table.schema[name].dataType.simpleString() for name in ("since", "until", "latest")] == [
        "timestamp",
        "timestamp",
        "boolean",
    ]
    assert sorted(tuple(row) for row in table.select("id", "latest", "change").collect()) == [
        (1, False, "insert"),
        (1, True, "update"),
    ]
    schema = lake.metadata()["schemas"][-1]
    names = {field["id"]: field["name"] for field in schema["fields"]}
    assert sorted(names[number] for number in schema["identifier-field-ids"]) == ["id", "since"]


def told(*changes: tuple[str, int, str | None, int]) -> str:
    """Changes as Debezium tells them: the operation, the key, the value, and the time in the database.

    Of a row from before only the key is told, as with PostgreSQL's default replica identity.
    """
    row = "struct<id: long, v: string>"

    def image(key: int, value: str | None, *, there: bool) -> str:
        text = "null" if value is None else f"'{value}'"
        made = f"named_struct('id', {key}, 'v', {text})" if there else "null"
        return f"cast({made} as {row})"

    rows = [
        f"('{op}', {image(key, None, there=op != 'c')}, {image(key, value, there=op != 'd')}, named_struct('ts_ms', {at}L))"
        for op, key, value, at in changes
    ]
    return f"select * from values {', '.join(rows)} t(op, before, after, source)"


def test_versions_of_debezium_begin_when_the_database_was_changed(lake: Lake) -> None:
    given: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["id"], "change_format": "debezium", "history": "scd2"}
    given["schema"] = {"id": "long", "v": {"type": "string", "required": True}}
    lake.sink(told(("c", 1, "a", 1000), ("c", 2, "x", 1000), ("c", 3, "y", 1000)), **given).write()
    lake.sink(told(("u", 1, "b", 2000), ("d", 2, None, 2000)), **given).write()
    # What comes twice changes nothing, and a row may go in the millisecond in which it came.
    lake.sink(told(("d", 2, None, 2000), ("d", 3, None, 1000)), **given).write()
    lake.sink(told(("c", 2, "z", 3000)), **given).write()
    columns = "id, v, unix_millis(valid_from), unix_millis(valid_to), is_current, operation"
    assert lake.rows(columns) == [
        (1, "a", 1000, 2000, False, "insert"),
        (1, "b", 2000, None, True, "update"),
        (2, "x", 1000, 2000, False, "insert"),
        (2, "x", 2000, 2000, False, "delete"),
        (2, "z", 3000, None, True, "insert"),
        (3, "y", 1000, 1000, False, "delete"),
    ]


def test_a_change_in_the_time_of_another_knows_what_that_one_said(lake: Lake) -> None:
    options: dict[str, Any] = {"unchanged_value": "same"}
    write(lake, [Event(1, 10, "a"), Event(1, 20, "b")], **options)
    write(lake, [Event(1, 20, "same")], **options)
    assert [row[1] for row in held(lake)] == ["a", "b"]


def test_a_column_of_envelopes_cannot_tell_when_rows_went(lake: Lake) -> None:
    source = {"connector": "query", "query": told(("c", 1, "a", 1000))}
    unwrap: dict[str, Any] = {"transforms": [{"type": "unwrap_debezium", "keys": ["id"]}], "history": "scd2"}
    refused = lake.pipeline(source, commit_mode="upsert", key_fields=["id"], order_by=["v"], **unwrap)
    with pytest.raises(frazil.ConfigError, match="it does not say when the row went") as caught:
        run(refused, once=True)
    assert (caught.value.code, lake.exists()) == ("history-order", False)
    run(lake.pipeline(source, commit_mode="upsert", key_fields=["id"], **unwrap), once=True)
    assert lake.rows("id, v, unix_millis(valid_from)") == [(1, "a", 1000)]


def test_a_column_that_comes_later_is_empty_in_the_versions_before(lake: Lake) -> None:
    given: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["id"], "order_by": ["at"], "history": "scd2"}
    lake.sink("select 1L id, 1 at, 'a' v", **given).write()
    lake.sink("select 1L id, 2 at, 'b' v, 'n' w", **given).write()
    assert lake.rows("id, at, v, w") == [(1, 1, "a", None), (1, 2, "b", "n")]


def test_a_row_without_a_time_is_a_dead_letter(lake: Lake) -> None:
    query = "select 1L id, 10L at, 'a' v, 'u' op union all select 2L, cast(null as long), 'b', 'u'"
    lake.sink(query, **HISTORY, on_error="dead_letter").write()
    assert held(lake) == [(1, "a", 10, None, True, "insert")]
    ((code, error),) = lake.rows("code, error", "db.t__dead_letters")
    assert (code, "valid_from" in error) == ("value-not-convertible", True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"order_by": ["after.at"], "op_field": None, "change_format": "debezium"},
            "when the row went; leave order_by out",
        ),
        (
            {"order_by": ["value.at"], "op_field": None, "change_format": "tombstones"},
            "when the row went; name the time",
        ),
        ({"order_by": ()}, "history needs order_by: its first column says since when a version of a row is valid"),
        ({"commit_mode": "append", "key_fields": ()}, "history has no meaning with commit_mode: append; it belongs to upsert"),
        ({"partial_updates": True}, "partial_updates has no meaning with history, which keeps every version as it came"),
        ({"history": {"valid_from": "id"}}, "history needs four columns of its own, which are no keys: id, valid_to"),
        ({"history": "scd4"}, "scd2"),
        (
            {"schema": {"id": "long", "v": "string"}},
            "the type of 'valid_from' is not known: 'at' is not among the declared columns",
        ),
    ],
    ids=["debezium", "tombstones", "no order", "append", "partial", "key", "kind", "declared"],
)
def test_options_that_cannot_be_together_are_refused(lake: Lake, options: dict[str, Any], message: str) -> None:
    with pytest.raises(frazil.ConfigError) as caught:
        lake.sink("select 1L id, 10L at, 'a' v, 'u' op", **HISTORY | options).write()
    assert message in str(caught.value)
    assert not lake.exists()
