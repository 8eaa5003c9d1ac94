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


FULL = Sizes(rows=5_000_000, rounds=5, warm_up=1, batches=35)
QUICK = Sizes(rows=20_000, rounds=1, warm_up=0, batches=4, first_batches=1, heap="1g")
