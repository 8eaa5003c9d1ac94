from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.model.commit import (
    NAMES_KEPT,
    SUMMARY_RANGE_LIMIT,
    RowCounts,
    SinkState,
    position,
    state_property,
    summary_of,
)

POSITIONS = st.none() | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
).map(position).filter(lambda text: text != "null")

STATES = st.builds(
    SinkState,
    epoch=st.integers(0),
    instance=st.text(max_size=20),
    batch=st.integers(0),
    source=st.text(max_size=20),
    start=POSITIONS,
    end=POSITIONS,
    snapshot=st.integers(0, 2**63 - 1),
    sequence=st.integers(0),
    at_ms=st.integers(0),
    names=st.lists(st.text(max_size=11), max_size=3).map(tuple),
)


@settings(deadline=None)
@given(STATES)
def test_a_state_survives_the_table(state: SinkState) -> None:
    assert SinkState.from_json(state.to_json()) == state


@settings(deadline=None)
@given(STATES)
def test_the_same_state_is_the_same_text(state: SinkState) -> None:
    assert SinkState.from_json(state.to_json()).to_json() == state.to_json()


def test_the_last_names_are_remembered() -> None:
    state = SinkState(1, "i")
    for number in range(NAMES_KEPT + 1):
        state = state.remembering(position({"write": str(number)}))
    known = [state.remembers(position({"write": str(number)})) for number in (0, 1, NAMES_KEPT, NAMES_KEPT + 1)]
    assert known == [False, True, True, False]
    assert len(state.to_json()) < 16_000


def test_a_ledger_of_another_version_is_refused() -> None:
    text = json.dumps(json.loads(SinkState(1, "a").to_json()) | {"v": 2})
    with pytest.raises(ValueError, match="version 2, and this frazil reads version 1"):
        SinkState.from_json(text)


def test_positions_are_equal_when_their_values_are() -> None:
    assert position({"b": 1, "a": [1, 2]}) == position({"a": [1, 2], "b": 1})
    assert position({"a": 1}) != position({"a": 2})


def test_a_state_moves_into_its_snapshot() -> None:
    state = SinkState(3, "me", batch=7).in_snapshot(11, 4)
    assert (state.epoch, state.batch, state.snapshot, state.sequence) == (3, 7, 11, 4)


def test_every_row_is_accounted_for() -> None:
    assert RowCounts(10, 7, 2, 1).balanced
    assert not RowCounts(10, 7, 2, 0).balanced


def test_the_summary_is_small_and_the_property_is_whole() -> None:
    long = position({"offsets": {str(n): n for n in range(1000)}})
    state = SinkState(1, "me", batch=2, source="s", start=position(1), end=long, at_ms=5)
    summary = summary_of("p/s", state, RowCounts(10, 7, 2, 1), "0.1")
    assert summary["frazil.kind"] == "data"
    assert summary["frazil.start"] == "1"
    assert summary["frazil.end"].startswith("sha256:")
    assert all(len(value) <= SUMMARY_RANGE_LIMIT for value in summary.values())
    counts = [summary[f"frazil.rows-{name}"] for name in ("in", "out", "dead-lettered", "filtered")]
    assert counts == ["10", "7", "2", "1"]
    assert summary_of("p/s", state, None, "0.1")["frazil.kind"] == "claim"
    assert state_property("p/s") == "frazil.sink.p/s"
