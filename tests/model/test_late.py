"""Late rows, without a table: in whatever order, batches and restarts a history comes, it leads to the same rows."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frazil.model.sink import SinkSpec
from helpers.late import Change, Model, case, in_order
from tiers import examples

CASES = 10_000
UPSERT = {"catalog": {"type": "memory"}, "commit_mode": "upsert", "key_fields": ["id"]}


def test_shuffled_late_and_doubled_changes_lead_to_the_rows_of_the_sorted_ones() -> None:
    late = cut_off = back = 0
    for seed in range(examples(CASES)):
        one, model = case(seed), Model()
        model.write_all(one)
        assert model.values == in_order(one.history), seed
        late += [change for batch in one.batches for change in batch] != sorted(one.history, key=lambda change: change.place)
        cut_off += bool(one.cut_off)
        back += any(change.value is None for change in one.history)
    assert min(late, cut_off, back) > examples(CASES) / 10, "the cases show something"


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        ((2,), (1,), False),
        ((2,), (2,), True),
        ((2,), (3,), True),
        ((None,), (1,), True),
        ((1,), (None,), False),
        ((None,), (None,), True),
        ((1, 5), (2, 0), True),
        ((1, 5), (1, 4), False),
        ((1, None), (1, 4), True),
    ],
)
@pytest.mark.parametrize("deleted", [False, True])
def test_who_wins(first: tuple[int | None, ...], second: tuple[int | None, ...], wins: bool, deleted: bool) -> None:
    model = Model()
    model.write([Change(1, first, None if deleted else "first")])
    superseded = model.write([Change(1, second, "second")])
    before = {} if deleted else {1: "first"}
    assert (model.values, superseded) == (({1: "second"}, 0) if wins else (before, 1))


def sink(**options: Any) -> SinkSpec:
    return SinkSpec.model_validate(UPSERT | options)


def test_late_rows_are_written_unless_the_sink_says_otherwise() -> None:
    assert (sink().ignores_late, sink(late="apply").ignores_late) == (False, False)
    value = sink(late="ignore", order_by=["at"])
    assert (value.ignores_late, value.tombstone_retention_hours) == (True, 168)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"late": "ignore"}, "late: ignore needs order_by"),
        ({"tombstone_retention_hours": 5}, "tombstone_retention_hours has no meaning without late: ignore"),
        ({"late": "ignore", "order_by": ["a"], "tombstone_retention_hours": 0}, "tombstone_retention_hours"),
        ({"late": "ignore", "order_by": ["a"], "partial_updates": True}, "late: ignore cannot be used with partial_updates"),
        ({"late": "ignore", "order_by": ["a"], "unchanged_value": "?"}, "late: ignore cannot be used with unchanged_value"),
        ({"late": "ignore", "order_by": ["a"], "when_matched_update_all": False}, "late has no meaning with when_matched_update"),
        ({"late": "ignore", "order_by": ["a"], "change_format": "debezium"}, "change_format: debezium: the table would not have"),
        ({"late": "ignore", "order_by": ["a"], "change_format": "tombstones"}, "cannot be used with change_format: tombstones"),
        ({"late": "ignore", "order_by": ["frazil_batch"]}, "order_by cannot have 'frazil_batch' with late: ignore"),
        ({"late": "ignore", "combine": {"a": "sum"}}, "late: ignore needs order_by"),
        ({"late": "apply", "commit_mode": "append", "key_fields": []}, "late has no meaning with commit_mode: append"),
        ({"late": "sometimes"}, "late"),
        ({"order_by": ["after.at"], "change_format": "debezium"}, "'after.at' is a column of the rows, which a delete"),
        ({"order_by": ["value.at", "at"], "change_format": "tombstones"}, "name what each message has, as `[kafka_timestamp,"),
    ],
)
def test_what_does_not_fit_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        sink(**options)
    assert words in str(caught.value)
