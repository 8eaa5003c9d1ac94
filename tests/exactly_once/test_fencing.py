"""Two instances of one sink: the newer one goes on, the older one stops as soon as it tries to write."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import frazil
from exactly_once.children import END_SECONDS, end, ended, frozen, pipeline_file, pipeline_rows, started
from exactly_once.ground import SINK_ID, Ground, run_together
from exactly_once.truth import Truth, assert_exactly_once
from frazil.errors import Fenced
from services.processes import wait_until


def test_of_two_writers_the_older_is_fenced(either: Ground) -> None:
    older, newer = either.writer(), either.writer()
    older.pump(10)
    assert newer.open() == 10
    with pytest.raises(Fenced):
        older.write(10, 20)
    assert len(older.fenced) == 1
    newer.write(10, 20)
    with pytest.raises(Fenced):
        older.write(20, 30)
    assert_exactly_once(either.table(), SINK_ID, range(20))


@pytest.mark.slow
def test_instances_that_keep_taking_over_from_each_other(either: Ground) -> None:
    """Each starts again when it was fenced, as soon as the other one has written something."""
    either.writer().open()
    fenced: list[str] = []

    def batches() -> int:
        return Truth(either.table()).ledger(SINK_ID)["batch"]

    def await_more_than(known: int) -> None:
        wait_until(lambda: batches() > min(known, 7), 60, "a batch of the other instance")

    def insist() -> None:
        while True:
            writer = either.writer()
            try:
                writer.pump(80)
            except Fenced as stopped:
                fenced.append(stopped.message)
                await_more_than(batches())
            else:
                return

    run_together([insist, insist])
    assert len(fenced) > 1
    assert_exactly_once(either.table(), SINK_ID, range(80))


@pytest.mark.slow(seconds=35)
def test_an_instance_that_was_frozen_is_fenced_when_it_wakes(spark: SparkSession, tmp_path: Path) -> None:
    """It is frozen with a commit in its hands, that only has to be sent."""
    file = pipeline_file(tmp_path, rows=60)
    older = started("command_line", "unsent", "3", "freeze", tmp_path, "run", "--once", "-c", file, log=tmp_path / "older.log")
    try:
        wait_until(lambda: frozen(older), END_SECONDS, "its third commit", older)
        assert pipeline_rows(tmp_path) == 20
        frazil.run(file, once=True)
        assert pipeline_rows(tmp_path) == 60

        os.killpg(older.pid, signal.SIGCONT)
        assert ended(older) == 1
        assert "pipeline_fenced" in older.log_text()
        assert re.search(r"^frazil_fenced_total\{.*\} 1\.0$", older.log_text(), re.MULTILINE)
        assert re.search(r"^iceberg_records_written_total\{.*\} 20\.0$", older.log_text(), re.MULTILINE)
    finally:
        end(older)
    frazil.run(pipeline_file(tmp_path, rows=80), once=True)
    assert pipeline_rows(tmp_path) == 80
