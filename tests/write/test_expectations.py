"""What is expected of rows: those that are not like that stop the batch, are kept apart, or are written and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import frazil
from frazil.errors import ConfigError, DataError
from frazil.model.events import Committed
from frazil.observe.metrics import Metrics
from helpers.lakes import Lake, run

ROWS = "select id, id - 2 as amount, if(id = 3, null, 'x') as name from range(5)"
LETTERS = "db.t__dead_letters"


def expect(sql: str, on_fail: str, name: str = "good") -> dict[str, Any]:
    return {"name": name, "sql": sql, "on_fail": on_fail}


@pytest.mark.every_case
@pytest.mark.parametrize(("sql", "lost"), [("amount >= 0", [0, 1]), ("name is not null", [3]), ("name = 'x'", [3])])
def test_rows_that_are_not_as_expected_become_dead_letters(lake: Lake, sql: str, lost: list[int]) -> None:
    done = lake.sink(ROWS, expect=[expect(sql, "dead_letter")], on_error="dead_letter").write()
    assert (done.counts.written, done.counts.dead_lettered, done.counts.unmet) == (
        5 - len(lost),
        len(lost),
        (("good", len(lost)),),
    )
    assert lake.rows("id") == [(number,) for number in range(5) if number not in lost]
    why = f"the row does not meet the expectation 'good': {sql}"
    letters = [
        (row.stage, row.code, row.error, json.loads(row.raw)["id"]) for row in lake.table(LETTERS).orderBy("raw").collect()
    ]
    assert letters == [("expect", "expectation-failed", why, number) for number in lost]


def test_rows_are_written_and_counted(lake: Lake) -> None:
    wanted = [expect("amount >= 0", "warn"), expect("length(name) = 1", "warn", "named"), expect("id >= 0", "warn", "met")]
    pipeline = lake.pipeline({"connector": "query", "query": ROWS}, expect=wanted)
    metrics = Metrics()
    events = run(pipeline, once=True, listeners=[metrics])
    (done,) = [event for event in events if isinstance(event, Committed)]
    assert dict(done.counts.unmet) == {"good": 2, "named": 1}
    assert lake.count() == 5
    summary = lake.data_snapshots()[-1].summary
    assert {key: value for key, value in summary.items() if key.startswith("frazil.expect.")} == {
        "frazil.expect.good": "2",
        "frazil.expect.named": "1",
    }
    families = text_string_to_metric_families(metrics.exposition().decode())
    (unmet,) = [family for family in families if family.name == "frazil_rows_unmet"]
    assert {sample.labels["expectation"]: sample.value for sample in unmet.samples} == {"good": 2, "named": 1}


def test_a_batch_with_a_row_that_stops_it_is_not_written(lake: Lake) -> None:
    lake.sink("select 7L id, 1L amount, 'x' name").write()
    with pytest.raises(DataError) as caught:
        lake.sink(ROWS, expect=[expect("amount >= 0 and name is not null", "stop")]).write()
    assert caught.value.code == "expectation-failed"
    assert caught.value.message == (
        "db.t: 3 rows do not meet the expectation 'good': amount >= 0 and name is not null. The first: amount = -2, name = 'x'. "
        "Nothing of the batch was written."
    )
    assert lake.rows("id") == [(7,)]


def test_what_is_expected_is_seen_after_transforms_and_in_the_types_of_the_table(lake: Lake) -> None:
    source = {"connector": "query", "query": "select '7' as n, 'a' as b union all select '12', 'b'"}
    renamed = [{"type": "rename_field", "from": "b", "to": "kind"}]
    wanted = [expect("typeof(n) = 'int' and n < 10 and kind is not null", "dead_letter")]
    given = {"schema": {"n": "int", "kind": "string"}, "on_error": "dead_letter"}
    run(lake.pipeline(source, transforms=renamed, expect=wanted, **given), once=True)
    assert (lake.rows(), lake.rows("stage", LETTERS)) == ([(7, "a")], [("expect",)])


def test_a_row_with_another_error_is_not_looked_at(lake: Lake) -> None:
    wanted = [expect("n is not null", "dead_letter"), expect("n > 0", "warn", "positive")]
    given = {"schema": {"n": "int"}, "on_error": "dead_letter"}
    done = lake.sink("select 'x' n union all select '0'", expect=wanted, **given).write()
    assert (done.counts.written, done.counts.dead_lettered, done.counts.unmet) == (1, 1, (("positive", 1),))
    assert lake.rows("stage", LETTERS) == [("cast",)]


def test_a_condition_that_cannot_be_computed_is_not_met(lake: Lake) -> None:
    done = lake.sink("select id from range(2)", expect=[expect("1 / id > 0", "warn")]).write()
    assert (done.counts.written, done.counts.unmet) == (2, (("good", 1),))


def test_the_time_in_a_condition_is_the_same_for_rows_and_letters(lake: Lake) -> None:
    rows = "select timestampadd(second, cast(id as int) * 3600 - 7200, current_timestamp()) at from range(5)"
    given = {"on_error": "dead_letter", "expect": [expect("at <= current_timestamp()", "dead_letter")]}
    done = lake.sink(lake.frame(rows).localCheckpoint(), **given).write()
    assert (done.counts.written, done.counts.dead_lettered) == (3, 2)


def test_deletes_are_not_looked_at(lake: Lake) -> None:
    keys = {"commit_mode": "upsert", "key_fields": ["id"], "op_field": "op", "on_error": "dead_letter"}
    wanted = [expect("v is not null", "dead_letter")]
    lake.sink("select 1L id, 'a' v, 'c' op union all select 2, 'b', 'c'", expect=wanted, **keys).write()
    changes = "select 1L id, cast(null as string) v, 'd' op union all select 2, null, 'u' union all select 3, 'c', 'c'"
    done = lake.sink(changes, expect=wanted, **keys).write()
    assert lake.rows() == [(2, "b"), (3, "c")]
    assert (done.counts.deleted, done.counts.dead_lettered) == (1, 1)


def test_each_table_of_a_route_has_its_own(lake: Lake) -> None:
    route = {"field": "kind", "tables": {"a": {"table": "a", "expect": [expect("n > 1", "warn")]}, "b": "b"}}
    source = {"connector": "query", "query": "select id n, if(id % 2 = 0, 'a', 'b') kind from range(6)"}
    events = run(lake.pipeline(source, route=route), once=True)
    unmet = {event.table: event.counts.unmet for event in events if isinstance(event, Committed)}
    assert (unmet["db.a"], unmet["db.b"]) == ((("good", 1),), ())


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("amonut > 0", "cannot be used"),
        ("amount >", "cannot be used"),
        ("amount + 1", "cannot be used"),
        ("sum(amount) > 0", "cannot be used"),
        ("rand() > 0.5", "gives another value each time"),
        ("amount in (select 1)", "it has a subquery"),
    ],
)
def test_a_condition_that_is_none_is_refused(lake: Lake, sql: str, words: str) -> None:
    with pytest.raises(ConfigError, match="expect 'good'") as caught:
        lake.sink(ROWS, expect=[expect(sql, "stop")]).write()
    assert words in caught.value.message
    assert "Py4J" not in str(caught.value)
    assert caught.value.fix
    assert not lake.data_snapshots() if lake.exists() else True


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"expect": [expect("a > 0", "dead_letter")]}, "needs on_error: dead_letter"),
        ({"expect": [expect("a > 0", "warn"), expect("a > 1", "warn")]}, "'good' is there twice"),
        ({"expect": [expect("a > 0", "warn")], "commit_mode": "upsert", "key_fields": ["a"], "partial_updates": True}, "partial"),
        ({"expect": [expect("__frazil_op = 'u'", "warn")]}, "frazil's own"),
        ({"expect": [expect("a > 0", "warn", "a b")]}, "expect"),
    ],
)
def test_what_does_not_fit_together_is_refused_at_once(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    options = {"catalog": {"type": "hadoop", "hadoop": {"warehouse": str(tmp_path)}}, "namespace": "n", "table": "t"}
    with pytest.raises((ConfigError, ValueError), match=words):
        frazil.model.sink.SinkSpec.model_validate(options | given)
