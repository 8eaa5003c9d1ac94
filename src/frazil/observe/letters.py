"""The newest rows of a table of dead letters, read without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from frazil.model.sink import SinkSpec
from frazil.observe.faults import translated
from frazil.observe.lake import opened

# What is read of one record; a record may be large.
MOST_BYTES = 2_000
_COLUMNS = ("code", "stage", "error", "table", "at", "raw", "failed_at", "batch")


@dataclass(frozen=True)
class Letter:
    """A record that could not be written, and why. ``raw`` is its beginning, as text."""

    code: str
    stage: str
    error: str
    table: str
    at: str
    raw: str
    failed_at: datetime | None
    batch: int


@dataclass(frozen=True)
class Letters:
    """A table of dead letters: how many rows it has of whatever sink, and some of one sink from new to old."""

    table: str
    rows: int
    newest: tuple[Letter, ...]


def letters_of(sink: SinkSpec, sink_id: str, since_batch: int, most: int) -> Letters | None:
    """The letters of a sink since a batch; None if there is no table of them."""
    from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, Reference

    namespace, name = sink.letters_name
    theirs = sink.model_copy(update={"namespace": namespace, "table": name, "branch": None, "route": None})
    with opened(theirs) as table:
        if table is None:
            return None
        with translated(sink.catalog):
            head = table.current_snapshot()
            summary = head.summary.additional_properties if head is not None and head.summary is not None else {}
            lately = GreaterThanOrEqual(term=Reference("batch"), value=since_batch)
            wanted = And(EqualTo(term=Reference("sink"), value=sink_id), lately)
            found: Sequence[dict[str, Any]] = (
                table.scan(row_filter=wanted, selected_fields=_COLUMNS, limit=most).to_arrow().to_pylist()
            )
    newest = sorted((_letter(row) for row in found), key=_age, reverse=True)
    return Letters(theirs.full_name, int(summary.get("total-records", 0)), tuple(newest))


def _letter(row: dict[str, Any]) -> Letter:
    raw = bytes(row["raw"] or b"")[:MOST_BYTES].decode("utf-8", errors="replace")
    texts = {name: str(row[name] or "") for name in ("code", "stage", "error", "table", "at")}
    return Letter(**texts, raw=raw, failed_at=row["failed_at"], batch=int(row["batch"] or 0))


def _age(letter: Letter) -> tuple[int, float]:
    return letter.batch, letter.failed_at.timestamp() if letter.failed_at is not None else 0.0
