"""What the history of a table says about a sink."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.model.commit import RowCounts
from frazil.model.verify import Record, chain_findings, count_findings, expired


def history(sizes: list[int]) -> list[Record]:
    """Batches of so many rows, one after the other."""
    ends = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    return [
        Record(n + 1, 100 + n, str(ends[n]) if n else "", str(ends[n + 1]), RowCounts(read=size, written=size))
        for n, size in enumerate(sizes)
    ]


def size_of(start: str | None, end: str) -> int:
    return int(end) - int(start or 0)


@given(st.lists(st.integers(1, 9), max_size=8), st.integers(0, 3))
def test_a_history_without_gaps_has_no_findings_also_when_its_beginning_has_expired(sizes: list[int], gone: int) -> None:
    records = history(sizes)
    kept = records[gone:]
    assert chain_findings(kept, kept[-1].end if kept else "") == []
    assert count_findings(kept, size_of) == []
    assert expired(kept) == (min(gone, len(records)) if kept else 0)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), st.data())
def test_whatever_is_wrong_with_one_batch_is_found_at_it(sizes: list[int], data: st.DataObject) -> None:
    records = history(sizes)
    at = data.draw(st.integers(1, len(records) - 1))
    one = records[at]
    assert one.counts is not None
    ways = {
        "begins": replace(one, start=str(int(one.start) + 1)),
        "add up": replace(one, counts=replace(one.counts, written=one.counts.written + 1)),
        "twice": replace(one, batch=one.batch - 1),
        "rows than": replace(one, counts=RowCounts(one.counts.read + 1, one.counts.written + 1)),
    }
    way = data.draw(st.sampled_from(sorted(ways)))
    wrong = [*records[:at], ways[way], *records[at + 1 :]]
    found = chain_findings(wrong, wrong[-1].end) + count_findings(wrong, size_of)
    assert any(finding.at == f"batch {ways[way].batch}" and way in finding.problem for finding in found)


def test_a_ledger_that_is_elsewhere_than_the_last_batch() -> None:
    (found,) = chain_findings(history([1, 2]), "7")
    assert (found.at, found.problem) == ("ledger", "it ends at 7, but the last batch in the history ended at 3")


def test_a_rewind_is_no_gap() -> None:
    first, second = history([2, 3])
    moved = Record(2, 200, "5", "1", None)
    again = Record(3, 201, "1", "5", RowCounts(4, 4))
    assert chain_findings([first, second, moved, again], "5") == []


@pytest.mark.parametrize("kind", ["claim", "settle", "compact"])
def test_snapshots_that_are_no_batches(kind: str) -> None:
    assert Record.of(1, {"frazil.kind": kind, "frazil.batch": "3"}) is None
