"""Much at once: bounded memory, and whole transactions all the same."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from services.postgres import Postgres
from sources.postgres.databases import Database, Reader

Follow = Callable[..., Reader]

ROWS = 300_000
MB = 1 << 20


@contextmanager
def growth_of_memory() -> Iterator[list[int]]:
    """How much more memory this process had at most within the block than before it."""
    pages = Path("/proc/self/statm")
    resident = lambda: int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")  # noqa: E731
    before, ended, most = resident(), threading.Event(), [0]

    def watch() -> None:
        while not ended.wait(0.01):
            most[0] = max(most[0], resident() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()


def test_a_large_transaction_is_one_slice_and_does_not_fill_memory(
    database: Database, follow: Follow, postgres: Postgres
) -> None:
    database.run("create table t (id int primary key, a text, b timestamptz default now(), c numeric(10, 2))")
    reader = follow("t")
    reader.batch()
    database.run(f"insert into t select i, repeat('x', 200) || i, now(), i / 7.0 from generate_series(1, {ROWS}) i")
    began = time.monotonic()
    with growth_of_memory() as grown:
        part = reader.plan(1000)
    print(f"{ROWS / (time.monotonic() - began):,.0f} changes/s planned, {grown[0] / MB:.0f} MB")
    assert part is not None
    assert (part.rows, part.full) == (ROWS, True)
    assert grown[0] < 200 * MB, "the changes have 80 MB, their Python objects would have several times that"
    told = reader.source.read(part).selectExpr("count(*) n", "count(distinct id) d", "sum(id) s", "max(length(a)) l").first()
    assert tuple(told or ()) == (ROWS, ROWS, ROWS * (ROWS + 1) // 2, 206)
    reader.commit(part)
    assert reader.plan() is None
