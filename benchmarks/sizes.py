"""How much is measured, and how often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The size of a run. A round is one measurement of every contestant; the first ``warm_up`` rounds are thrown away."""

    rows: int
    rounds: int
    warm_up: int
    batches: int
    rows_per_batch: int = 1_000
    first_batches: int = 5
    heap: str = "2g"
    memory_tables: tuple[str, ...] = ("unpartitioned", "bucket(8, id)")
    tables: tuple[int, ...] = (1_000_000, 10_000_000, 50_000_000)
    upsert_rows: int = 50_000
    upsert_rounds: int = 5
    upserts: int = 20
    scan_rounds: int = 11
    messages: int = 1_000_000
    message_batches: int = 4
    changes: int = 300_000
    partitions: tuple[int, ...] = (2_000, 10_000)
    partition_rows: int = 200_000
    partition_heap: str = "1g"
    load_rows: int = 2_000_000
    load_processes: int = 5
    life_rows: int = 100
    life_appends: int = 10_000
    life_upserts: int = 1_000
    life_keys: int = 1_000_000
    procedures_every: int = 300
    delete_files: int = 20_000
    delete_rows: int = 2_000_000
    backlog_rows: int = 5_000_000
    backlog_batches: int = 5
    backlog_pause: float = 5.0
    commits: int = 40


FULL = Sizes(rows=5_000_000, rounds=5, warm_up=1, batches=35)
QUICK = Sizes(rows=20_000, rounds=1, warm_up=0, batches=4, first_batches=1, heap="1g", memory_tables=("bucket(8, id)",),
              tables=(1_000, 2_000, 4_000), upsert_rows=100, upsert_rounds=1, upserts=2, scan_rounds=1, messages=100,
              message_batches=1, changes=400, partitions=(50,), partition_rows=1_000, load_rows=2_000,
              load_processes=0, life_appends=20, life_upserts=10, life_keys=2_000, procedures_every=2, delete_files=20,
              delete_rows=2_000, backlog_rows=1_000, backlog_batches=3, backlog_pause=0.3, commits=3)  # fmt: skip
