"""Events with everything filled in that a test does not care about."""

from __future__ import annotations

from frazil.model.commit import RowCounts
from frazil.model.events import CommitFailed, Committed, FencedOut, Staged, Started, Stopped

COMMITTED_AT_MS = 1_760_000_000_500


def started(pipeline: str = "orders", *, table: str = "lake.shop.orders", total: int | None = None) -> Started:
    return Started(pipeline, table, epoch=3, start=None, continuous=total is None, total_rows=total)


def staged(pipeline: str = "orders", *, rows: int = 100) -> Staged:
    return Staged(pipeline, rows=rows, files=2, bytes=4096, seconds=0.2)


def committed(
    pipeline: str = "orders",
    *,
    table: str = "lake.shop.orders",
    batch: int = 1,
    written: int = 100,
    filtered: int = 0,
    dead_lettered: int = 0,
    seconds: float = 0.3,
    skipped: bool = False,
) -> Committed:
    return Committed(
        pipeline,
        table,
        batch=batch,
        snapshot=7_000_000_000_000_000_000 + batch,
        counts=RowCounts(written + filtered + dead_lettered, written, dead_lettered, filtered),
        files=2,
        bytes=4096,
        seconds=seconds,
        attempts=1,
        at_ms=COMMITTED_AT_MS,
        skipped=skipped,
    )


def failed(kind: str = "unreachable", *, pipeline: str = "orders", attempt: int = 1, will_retry: bool = True) -> CommitFailed:
    return CommitFailed(pipeline, kind, "the catalog said no", attempt, will_retry)


def fenced(pipeline: str = "orders") -> FencedOut:
    return FencedOut(pipeline, "another instance took over")


def stopped(pipeline: str = "orders", error: str | None = None) -> Stopped:
    return Stopped(pipeline, batches=1, rows=100, error=error)
