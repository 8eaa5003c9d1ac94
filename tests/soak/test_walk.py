"""Whatever happens to tables that are maintained, and in whatever order: no row is lost, and nothing grows without a bound."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from soak.kinds import KINDS, Kind, Place
from soak.walk import Walk, seed_given

STEPS = 40
# A walk that is always taken: all that matters once, and what is left to chance is the same each time.
SHORT = ("write", "write", "write_and_die", "branch", "write_and_meet", "maintain_and_die", "foreign_rewrite", "foreign_expiry")


def walked(spark: SparkSession, folder: Path, kind: Kind, seed: int, steps: int) -> Walk:
    """A walk of so many steps, and its checks."""
    walk = Walk(spark, Place(folder, kind), random.Random(f"{seed}-{kind.name}"))
    try:
        walk.take("write")
        for _ in range(steps):
            walk.step()
        walk.check()
        walk.take("write")
        walk.check()
    finally:
        print(kind.name, *walk.log, sep="\n  ")
    return walk


def test_short_walk(spark: SparkSession, tmp_path: Path) -> None:
    walk = Walk(spark, Place(tmp_path, KINDS[2]), random.Random(seed_given(usual=1)))
    for step in (*SHORT, "write"):
        walk.take(step)
    print(*walk.log, sep="\n")
    walk.finish()


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_walk(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    walked(spark, tmp_path, kind, seed_given(), STEPS).finish()
