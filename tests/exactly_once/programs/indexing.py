"""Upserts by position, killed while the key index is written: ``indexing.py FOLDER STEP``.

Java writes the index, so that the moment is found by looking at the files in its folder: the process and its JVM are killed as
soon as a run is there, or the next state. Others commit between the batches.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import frazil
from exactly_once.ground import sqlite_ground
from exactly_once.programs.moments import kill_all
from frazil.model.settings import Settings, SparkSettings
from frazil.spark.cache import state_dir

BATCHES, ROWS = 7, 30_000
TABLE = "lake.changes.t"
UPSERT: dict[str, Any] = {
    "commit_mode": "upsert",
    "key_fields": ["id"],
    "upsert_strategy": "position",
    "format_version": 3,
}
WHOLE = "map('rewrite-all', 'true')"


@dataclass(frozen=True)
class Files:
    """What is in the folder of the index."""

    runs: frozenset[str]
    fresh_state: bool
    state: int
    """Which state it is: another one has another number."""

    @classmethod
    def now(cls, folder: Path) -> Files:
        """As they are now."""
        state = folder / "state"
        runs = frozenset(file.name for file in folder.glob("*.run"))
        return cls(runs, (folder / "state.new").exists(), state.stat().st_ino if state.exists() else 0)


# Each asks whether its step has come, by the files at the start and now.
STEPS: dict[str, Callable[[Files, Files], bool]] = {
    "written": lambda then, now: bool(now.runs - then.runs),
    "merged": lambda then, now: len(now.runs - then.runs) > 1,
    "saving": lambda _, now: now.fresh_state,
    "saved": lambda then, now: now.state != then.state,
    "deleting": lambda then, now: bool(then.runs - now.runs),
}


def write_all(spark: SparkSession, folder: Path) -> None:
    """Writes the batches that the table lacks: each has half of the keys of the one before it, and as many new ones."""
    session = sqlite_ground(spark, folder).session()
    sql = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "warehouse").as_uri()}
    for number in range(BATCHES):
        first = number * ROWS // 2
        frame = session.range(first, first + ROWS, 1, 2).selectExpr("id", f"{number} v")
        frazil.sink(frame).to(TABLE).catalog(type="sql", sql=sql).options(**UPSERT).write(batch=str(number))
        session.sql(f"CALL lake.system.rewrite_data_files(table => 'changes.t', options => {WHOLE})").collect()


def killed_at(step: str) -> None:
    """Waits for a step in a thread of its own, after the index was built, and kills this process and its JVM."""
    while not (states := list(state_dir().glob("key-index/*/state"))):
        pass
    then = Files.now(states[0].parent)
    while not STEPS[step](then, Files.now(states[0].parent)):
        pass
    kill_all()


if __name__ == "__main__":
    place, wanted = sys.argv[1:]
    os.environ["FRAZIL_STATE_DIR"] = f"{place}/state"
    session = frazil.session(Settings(spark=SparkSettings(master="local[2]")))
    threading.Thread(target=killed_at, args=(wanted,), daemon=True).start()
    write_all(session, Path(place))
