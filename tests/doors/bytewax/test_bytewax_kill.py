"""Processes that run a flow are killed with SIGKILL, and others go on: every row is there once."""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from bytewax.testing import cluster_main
from flows import Numbers, Pond

from exactly_once.children import TESTS, end, ended, gone
from services.processes import Child, free_port, start, wait_until

PROGRAM = Path(__file__).with_name("flow_program.py")
ALONE = ("0",)


def started(pond: Pond, count: int, place: tuple[str, ...], *moment: str) -> Child:
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(PROGRAM), str(pond.folder), str(count), *place, "--", *moment]
    return start("flow", command, pond.folder / f"log-{place[0]}", env={"PYTHONPATH": path})


@pytest.mark.slow(seconds=20)
def test_a_flow_that_is_killed_when_the_table_has_what_bytewax_does_not_know_of(pond: Pond) -> None:
    child = started(pond, 20, ALONE, "applied", "5", "kill-python")
    try:
        assert ended(child) == -signal.SIGKILL, child.log_text()
        wait_until(lambda: gone(child), 60, "the end of the JVM that was left alone")
    finally:
        end(child)
    assert pond.ids() == [0, 1, 2, 3, 4]
    pond.run(Numbers(8), num_partitions=4)
    assert pond.ids() == list(range(8))
    assert len(pond.snapshots("rewind")) == 1, "the last row came again, and was taken back before"


@pytest.mark.slow(seconds=40)
def test_a_cluster_of_which_one_process_is_killed(pond: Pond) -> None:
    _ = pond.recovery  # made before two processes look for it
    ports = (str(free_port()), str(free_port()))
    whole = started(pond, 60, ("0", *ports))
    killed = started(pond, 60, ("1", *ports), "acknowledged", "4", "kill-all")
    try:
        assert ended(killed) == -signal.SIGKILL, killed.log_text() + whole.log_text()
    finally:
        end(killed)
        end(whole)
    held = pond.ids()
    assert held == sorted(set(held))
    assert len(held) >= 4
    flow = pond.flow(Numbers(60), num_partitions=4)
    cluster_main(flow, [], 0, epoch_interval=timedelta(seconds=1), recovery_config=pond.recovery, worker_count_per_proc=3)
    assert pond.ids() == list(range(60))
