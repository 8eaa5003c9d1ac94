"""What the history of a table says about a sink, and where it does not add up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from frazil.model.commit import DIGEST, RowCounts

_COUNTS = {
    "read": "in",
    "written": "out",
    "dead_lettered": "dead-lettered",
    "filtered": "filtered",
    "deleted": "deleted",
    "superseded": "superseded",
    "extra": "extra",
}


@dataclass(frozen=True)
class Record:
    """What a snapshot's summary says of a batch; of a move to another place of the source it is no batch."""

    batch: int
    snapshot: int
    start: str
    end: str
    counts: RowCounts | None

    @classmethod
    def of(cls, snapshot: int, summary: Mapping[str, str]) -> Record | None:
        """From a snapshot of a sink; None when it moved no position."""
        if summary.get("frazil.kind") not in ("data", "rewind"):
            return None
        counts: dict[str, Any] = {field: int(summary.get(f"frazil.rows-{name}", 0)) for field, name in _COUNTS.items()}
        return cls(
            int(summary["frazil.batch"]),
            snapshot,
            summary.get("frazil.start", ""),
            summary.get("frazil.end", ""),
            RowCounts(**counts) if summary["frazil.kind"] == "data" else None,
        )


@dataclass(frozen=True)
class Finding:
    """Something that does not add up, and where."""

    at: str
    problem: str


@dataclass(frozen=True)
class Verified:
    """What was checked, and what was found. No findings: nothing is missing, and nothing is there twice.

    ``compared`` are the tables whose rows were compared with the source's value by value.
    """

    pipeline: str
    table: str
    batches: int
    rows: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    compared: tuple[str, ...] = ()


def chain_findings(records: Sequence[Record], end: str) -> list[Finding]:
    """What is wrong between the batches of a sink, from the first that has not expired to the ledger's end."""
    found = [
        Finding(f"batch {one.batch}", f"its rows do not add up: {_sum_of(one.counts)}")
        for one in records
        if one.counts is not None and not one.counts.balanced
    ]
    for one, other in pairwise(records):
        if other.counts is None:
            continue
        if other.batch == one.batch and one.counts is not None:
            found.append(
                Finding(f"batch {other.batch}", f"it is in the table twice: snapshots {one.snapshot} and {other.snapshot}")
            )
        elif other.batch == one.batch + 1 and other.start != one.end:
            found.append(
                Finding(f"batch {other.batch}", f"it begins at {other.start}, but the batch before it ended at {one.end}")
            )
    if records and records[-1].end != end:
        found.append(Finding("ledger", f"it ends at {end}, but the last batch in the history ended at {records[-1].end}"))
    return found


def expired(records: Sequence[Record]) -> int:
    """How many batches are no longer in the history."""
    numbers = {one.batch for one in records if one.counts is not None}
    return max(numbers, default=0) - len(numbers)


def count_findings(records: Sequence[Record], expected: Callable[[str | None, str], int | None]) -> list[Finding]:
    """Where a batch read another number of rows than its part of the source holds."""
    found = []
    for one in records:
        if one.counts is None or DIGEST in (one.start[: len(DIGEST)], one.end[: len(DIGEST)]):
            continue
        there = expected(one.start or None, one.end)
        if there is not None and there != one.counts.read:
            what = "more rows than" if one.counts.read > there else "fewer rows than"
            found.append(
                Finding(f"batch {one.batch}", f"it read {one.counts.read} rows, {what} the {there} of its part of the source")
            )
    return found


def _sum_of(counts: RowCounts | None) -> str:
    return "" if counts is None else ", ".join(f"{getattr(counts, field)} {name}" for field, name in _COUNTS.items())
