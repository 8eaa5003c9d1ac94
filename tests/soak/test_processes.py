"""Processes that write and maintain, killed at any time, and somebody else who rewrites and expires beside them."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
import yaml
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from exactly_once.children import end
from services.processes import Child, start, wait_until
from soak.kinds import EAGER, KINDS, NAMESPACE, Kind, Place
from soak.truth import Truth
from soak.walk import Walk, seed_given

SECONDS = float(os.environ.get("FRAZIL_SOAK_SECONDS") or 90)
TESTS = Path(__file__).parent.parent
# What a rewrite or an expiry of somebody else says when frazil was faster.
OVERTAKEN = re.compile("ValidationException|CommitFailedException|NotFoundException|Cannot commit|conflict|database is locked")


def pipeline_file(folder: Path, kinds: Sequence[Kind]) -> Path:
    """The file of `frazil maintain`: only its sinks matter."""
    sinks = {}
    for kind in kinds:
        place = Place(folder, kind)
        catalog = {"type": "sql", "sql": dict(place.catalog)}
        options = {key: value for key, value in kind.options.items() if key != "schema"}
        config = {"catalog": catalog, "namespace": NAMESPACE, "table": kind.name, **options, "maintenance": EAGER}
        sinks[kind.name] = {"connector": "iceberg", "config": config}
    file = folder / "soak.yaml"
    file.write_text(yaml.safe_dump({"version": "1.0", "sinks": sinks}))
    return file


class Process:
    """A program that is killed and started again."""

    def __init__(self, folder: Path, program: str, *arguments: str | Path) -> None:
        self._folder = folder
        self._program = program
        self._command = [sys.executable, "-m", f"soak.programs.{program}", *map(str, arguments)]
        self._starts = 0
        self.child = self._started()

    def _started(self) -> Child:
        self._starts += 1
        log = self._folder / f"{self._program}-{self._starts}.log"
        path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
        return start(self._program, self._command, log, env={"PYTHONPATH": path})

    def require_running(self) -> None:
        """It ends only when it is killed."""
        assert self.child.running, self.child.log_text()

    def kill(self) -> None:
        """Ends it with its Java, without a warning."""
        self.require_running()
        os.killpg(self.child.pid, signal.SIGKILL)
        end(self.child)

    def restart(self) -> None:
        """Kills it, and starts it again."""
        self.kill()
        self.child = self._started()


@contextmanager
def running(*processes: Process) -> Iterator[None]:
    """Ends them after the block."""
    try:
        yield
    finally:
        for process in processes:
            end(process.child)


def foreign(walk: Walk, chance: random.Random) -> None:
    """Somebody else rewrites or expires, unless he is overtaken."""
    try:
        chance.choice([walk.foreign_rewrite, walk.foreign_expiry])()
    except (Py4JJavaError, PySparkException) as error:
        if not OVERTAKEN.search(str(error)):
            raise


def check_while_written(place: Place) -> None:
    """The table as a reader finds it has the rows of the model, unless its snapshot expires while it is read."""
    while True:
        truth = Truth(place)
        try:
            truth.assert_rows(truth.head)
        except (OSError, duckdb.Error):
            if truth.head.snapshot_id in {one.snapshot_id for one in Truth(place).snapshots}:
                raise
        else:
            return


def check_bounds_while_written(place: Place) -> None:
    """Nothing has grown beyond its bounds. A snapshot may expire while it is looked at, and its files may go."""
    tries = 20
    while tries:
        tries -= 1
        try:
            Truth(place).assert_bounded(refs=1)
        except OSError:
            if not tries:
                raise
        else:
            return


@pytest.mark.slow(seconds=240)
def test_killed_and_meddled_with(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(seed_given())
    kinds = [kind for kind in KINDS if kind.name in ("append_v2", "append_v3_parts", "upsert_v2_parts", "upsert_v3")]
    places = [Place(tmp_path, kind) for kind in kinds]
    walks = {place: Walk(spark, place, chance) for place in places}
    writer = Process(tmp_path, "writing", tmp_path, *(kind.name for kind in kinds))
    with running(writer):
        for place in places:
            wait_until(lambda place=place: len(list(place.files.rglob("*.parquet"))) > 3, 120, "rows", writer.child)
        maintainer = Process(tmp_path, "maintaining", pipeline_file(tmp_path, kinds))
        with running(maintainer):
            deadline = time.monotonic() + SECONDS
            kills = {process: time.monotonic() + chance.uniform(15, 40) for process in (writer, maintainer)}
            while time.monotonic() < deadline:
                for process, at in kills.items():
                    process.require_running()
                    if time.monotonic() > at:
                        process.restart()
                        kills[process] = time.monotonic() + chance.uniform(15, 40)
                place = chance.choice(places)
                if chance.random() < 0.3:
                    foreign(walks[place], chance)
                check_while_written(place)
                check_bounds_while_written(place)
            maintainer.kill()
            writer.kill()
    for place, walk in walks.items():
        truth = walk.truth()
        print(place.kind.name, truth.changes_in(truth.head), truth.counts())
        walk.finish()
