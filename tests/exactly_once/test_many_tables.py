"""A process that writes to many tables is killed between them, again and again: every row is in one of them, once."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from exactly_once.children import end, ended, started
from exactly_once.ground import sqlite_ground
from exactly_once.programs.routing import FILES, ROWS, TABLES, is_letter, prepare, run_all
from tiers import first_or_all


def test_killed_between_tables(spark: SparkSession, tmp_path: Path) -> None:
    prepare(tmp_path)
    for moment, nth in first_or_all((("applied", 2), ("unsent", 3), ("applied", 6))):
        child = started("routing", moment, str(nth), "kill-all", tmp_path, log=tmp_path / f"killed-when-{moment}-{nth}")
        try:
            assert ended(child) == -signal.SIGKILL, child.log_text()
        finally:
            end(child)
    run_all(tmp_path)
    session = sqlite_ground(spark, tmp_path).session()
    written = [row.id for number in range(TABLES) for row in session.table(f"lake.many.t{number}").collect()]
    letters = session.sql(
        "select from_json(cast(raw as string), 'id long').id as id from lake.many.frazil__dead_letters"
    ).collect()
    numbers = range(FILES * ROWS)
    assert Counter(written) == Counter(number for number in numbers if not is_letter(number))
    assert Counter(row.id for row in letters) == Counter(filter(is_letter, numbers))
    home = session.sql("select summary from lake.many.frazil__ledger.snapshots where summary['frazil.kind'] = 'data'").collect()
    assert sum(int(row.summary["frazil.rows-in"]) for row in home) == len(numbers)
