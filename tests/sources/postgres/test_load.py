"""Much at once: bounded memory, and whole transactions all the same."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sources.postgres.databases import ArrowReader, Database

Watch = Callable[..., ArrowReader]

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


@pytest.mark.slow(seconds=30)
def test_a_large_transaction_is_one_slice_and_does_not_fill_memory(database: Database, watch: Watch) -> None:
    database.run("create table t (id int primary key, a text, b timestamptz default now(), c numeric(10, 2))")
    reader = watch("t")
    reader.changes()
    database.run(f"insert into t select i, repeat('x', 200) || i, now(), i / 7.0 from generate_series(1, {ROWS}) i")
    began, busy = time.monotonic(), time.process_time()
    with growth_of_memory() as grown:
        part = reader.plan(1000)
    took, busy = time.monotonic() - began, time.process_time() - busy
    print(f"{ROWS / took:,.0f} changes/s read and decoded, {ROWS / busy:,.0f} a core, {grown[0] / MB:.0f} MB")
    assert part is not None
    assert (part.rows, part.full) == (ROWS, True)
    assert grown[0] < 200 * MB, "the changes have 80 MB, their Python objects would have several times that"
    assert reader.source._reader is not None
    files = [pq.read_table(file.path, columns=["c0"]) for file in reader.source._reader.files()]
    assert pa.concat_tables(files)["c0"].to_numpy().tolist() == list(range(1, ROWS + 1))
    reader.commit(part)
    assert reader.plan() is None
