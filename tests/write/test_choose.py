"""Which way an upsert takes by itself, by what is known of the table and the batch."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.model.sink import SinkSpec
from frazil.write.modes.choose import MOST_INDEXED_AT_ONCE, Facts, choose, why_known_rows

WARM = {"vectors": True}
COLD = {"vectors": True, "unindexed": MOST_INDEXED_AT_ONCE + 1}
UPSERT = {"catalog": {"type": "memory"}, "namespace": "db", "table": "t", "commit_mode": "upsert", "key_fields": ["id"]}
PYICEBERG = {"readers": ["pyiceberg"]}


@pytest.mark.parametrize(
    ("facts", "options", "way"),
    [
        ({"empty": True} | WARM, {}, "append"),
        ({"disjoint": True} | WARM, PYICEBERG, "append"),
        (WARM, {}, "position"),
        (COLD | {"unindexed": MOST_INDEXED_AT_ONCE}, {}, "position"),
        (COLD, {}, "equality_delete"),
        (COLD, PYICEBERG, "position"),
        (COLD, {"upsert_strategy": "position"}, "position"),
        ({}, {}, "equality_delete"),
        ({}, PYICEBERG, "position"),
        ({}, {"upsert_strategy": "position"}, "position"),
        ({"misread": ("id",)}, {}, "position"),
        ({"unfit": "duckdb cannot"}, {}, "position"),
        ({"keys": 2_000_000}, {}, "position"),
        ({"keys": 2_000_000, "debt": 1}, {}, "equality_delete"),
        (WARM | {"no_index": "the disk is full"}, {}, "equality_delete"),
        (WARM | {"no_index": "the disk is full"}, PYICEBERG, "merge"),
        (WARM | {"no_index": "the disk is full"}, {"upsert_strategy": "position"}, "merge"),
        (WARM | {"read": "asked for"}, {}, "position"),
        (WARM | {"read": "asked for", "replaces": False}, {"upsert_strategy": "merge"}, "append"),
        (WARM, {"upsert_strategy": "equality_delete"}, "equality_delete"),
    ],
)
def test_a_way_is_chosen(facts: dict[str, Any], options: dict[str, Any], way: str) -> None:
    chosen = choose(SinkSpec.model_validate(UPSERT | options), Facts(**facts))
    assert chosen.way == way
    assert facts.get("no_index", "") in chosen.reason or way == "append"
    assert facts.get("read", "") in chosen.reason


@pytest.mark.parametrize(
    ("facts", "options", "known"),
    [
        ({}, {}, False),
        ({"unchanged": 1}, {}, True),
        ({"unchanged": 1, "empty": True}, {}, True),
        ({"lacks_columns": True}, {}, False),
        ({"lacks_columns": True}, {"partial_updates": True}, True),
        ({"lacks_columns": True, "empty": True}, {"partial_updates": True}, False),
        ({}, {"when_matched_update_all": False}, True),
        ({"empty": True}, {"when_matched_update_all": False}, False),
        ({"empty": True}, {"when_not_matched_insert_all": False}, True),
        ({}, {"combine": {"v": "sum"}}, True),
        ({"disjoint": True}, {"combine": {"v": "sum"}}, False),
    ],
)
def test_the_rows_of_the_table_are_read_where_they_count(facts: dict[str, Any], options: dict[str, Any], known: bool) -> None:
    assert (why_known_rows(SinkSpec.model_validate(UPSERT | options), Facts(**facts)) is not None) == known
