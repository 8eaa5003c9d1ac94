"""Whatever happens to tables that are maintained, and in whatever order: no row is lost, and nothing grows without a bound."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from soak.kinds import KINDS, Kind, Place
from soak.walk import Walk

STEPS, STEPS_OF_A_CHANGE = 40, 10


def seed_given(usual: int | None = None) -> int:
    """The seed of the environment, another one each time, or the usual one; it is printed, so that a walk can be taken again."""
    seed = int(os.environ.get("FRAZIL_SOAK_SEED") or usual or random.randrange(1_000_000))
    print(f"FRAZIL_SOAK_SEED={seed}")
    return seed


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


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_walk(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    walked(spark, tmp_path, kind, seed_given(), STEPS).finish()
