"""kill -9 at every moment of a batch, then a new start: every row once, none missing."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import frazil
from exactly_once.children import end, ended, gone, pipeline_file, pipeline_rows, rows_in, started
from exactly_once.programs.structured_streaming import SINK_ID, described, numbers
from services.processes import wait_until
from tiers import first_or_all

BATCH = 10


def killed(program: str, moment: str, nth: int, act: str, *arguments: str | Path, log: Path) -> None:
    """Starts the program, and sees it die at the moment."""
    child = started(program, moment, str(nth), act, *arguments, log=log)
    try:
        assert ended(child) == -signal.SIGKILL, child.log_text()
        if act == "kill-python":
            wait_until(lambda: gone(child), 60, "the end of the JVM that was left alone")
    finally:
        end(child)


def test_a_pipeline_killed_at_any_moment(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start has a working folder and a state folder of its own: nothing is needed but the table."""
    file, held = pipeline_file(tmp_path, rows=8 * BATCH), 0
    for moment, nth in first_or_all((("applied", 2), ("staged", 3))):
        held += 2 * BATCH
        assert rows_when_killed(tmp_path, file, moment, nth) == held

    monkeypatch.chdir(tmp_path)
    frazil.run(file, once=True, env={"STATE_DIR": "never-seen-before"})
    assert pipeline_rows(tmp_path) == 8 * BATCH


@pytest.mark.slow(seconds=40)
def test_a_pipeline_killed_while_it_commits_a_batch_and_has_written_the_next(spark: SparkSession, tmp_path: Path) -> None:
    file = pipeline_file(tmp_path, rows=8 * BATCH)
    first = rows_when_killed(tmp_path, file, "ahead-staged", 3, "kill-python")
    assert first in (2 * BATCH, 3 * BATCH), "the third batch was being committed"
    assert rows_when_killed(tmp_path, file, "ahead-staged", 1) in (first, first + BATCH)
    frazil.run(file, once=True)
    assert pipeline_rows(tmp_path) == 8 * BATCH


@pytest.mark.slow(seconds=50)
def test_a_pipeline_killed_before_it_hears_of_its_commit_or_right_after(spark: SparkSession, tmp_path: Path) -> None:
    file = pipeline_file(tmp_path, rows=6 * BATCH)
    known = rows_when_killed(tmp_path, file, "sent", 2, "kill-python")
    assert known in (BATCH, 2 * BATCH)
    assert rows_when_killed(tmp_path, file, "ahead-acknowledged", 2) == known + 2 * BATCH
    frazil.run(file, once=True)
    assert pipeline_rows(tmp_path) == 6 * BATCH


@pytest.mark.slow(seconds=90)
def test_a_pipeline_killed_while_it_maintains_its_table(spark: SparkSession, tmp_path: Path) -> None:
    """Every second file is merged, and few snapshots stay: about half of the commits are maintenance."""
    eager = "{small_files: 2, max_snapshots: 4, reader_grace_minutes: 0, max_time_share: 1}"
    file = pipeline_file(tmp_path, rows=40 * BATCH, maintenance=eager)
    rows = 0
    for moment, nth in (("applied", 6), ("ahead-acknowledged", 7), ("applied", 9), ("sent", 8)):
        elsewhere = tmp_path / f"killed-when-{moment}-{nth}"
        elsewhere.mkdir()
        killed("command_line", moment, nth, "kill-all", elsewhere, "run", "--once", "-c", file, log=elsewhere / "log")
        rows, before = pipeline_rows(tmp_path, expires=True), rows
        assert rows > before
    frazil.run(file, once=True)
    assert pipeline_rows(tmp_path, expires=True) == 40 * BATCH
    catalog = load_catalog(
        "lake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=(tmp_path / "warehouse").as_uri()
    )
    table = catalog.load_table("shop.events")
    assert len(table.metadata.snapshots) <= 6
    assert len(list(table.scan().plan_files())) <= 10


def rows_when_killed(folder: Path, file: Path, moment: str, nth: int, act: str = "kill-all") -> int:
    """Starts the pipeline in a folder of its own, where it dies at a moment; the rows that the table has then."""
    elsewhere = folder / f"killed-when-{moment}-{nth}"
    elsewhere.mkdir()
    killed("command_line", moment, nth, act, elsewhere, "run", "--once", "-c", file, log=elsewhere / "log")
    return pipeline_rows(folder)


@pytest.mark.slow(seconds=100)
def test_a_stream_killed_at_any_moment(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(12):
        file = tmp_path / "in" / f"{number}.json"
        file.write_text("\n".join(json.dumps({"id": row}) for row in range(number * BATCH, (number + 1) * BATCH)))
        os.utime(file, (number + 1, number + 1))

    def run_and_die(moment: str, nth: int, act: str = "kill-all") -> int:
        killed("structured_streaming", moment, nth, act, tmp_path, log=tmp_path / f"killed-when-{moment}")
        return rows_in(tmp_path, "streams.numbers", "id", SINK_ID)

    assert run_and_die("staged", 3) == 2 * BATCH
    assert run_and_die("applied", 2, "kill-python") == 4 * BATCH
    # Spark asks for the last batch again, as it does not know that it is in the table: the second call is the first new one.
    assert run_and_die("acknowledged", 2) == 6 * BATCH
    assert run_and_die("before-sparks-own-log", 2) == 7 * BATCH

    with pytest.raises(StreamingQueryException, match="was written through another checkpoint"):
        described(numbers(spark, tmp_path), tmp_path, tmp_path / "another-checkpoint").start().awaitTermination()
    assert rows_in(tmp_path, "streams.numbers", "id", SINK_ID) == 7 * BATCH

    described(numbers(spark, tmp_path), tmp_path, tmp_path / "checkpoint").start().awaitTermination()
    assert rows_in(tmp_path, "streams.numbers", "id", SINK_ID) == 12 * BATCH
