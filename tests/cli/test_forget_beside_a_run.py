"""`frazil forget` in one process, and `frazil run` in another that writes to the same table all the while."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.commands import FRAZIL, Frazil
from cli.test_forget import JANE, proof_of, traces
from helpers.lakes import Lake
from services.processes import Child, start, wait_until

SECONDS = 300
EAGER = {"small_files": 4, "max_snapshots": 5, "reader_grace_minutes": 0, "max_time_share": 1}


class Arrivals:
    """A folder of files that a pipeline reads, each with a row of its own and, as an upsert, another version of one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.count = 0

    def add(self, *ids: str) -> None:
        """One more file. It is there as a whole, or not at all."""
        rows = [{"id": one, "at": self.count} for one in ids or (f"n{self.count}", "same")]
        made = self.folder / ".next"
        made.write_text("".join(json.dumps(row) + "\n" for row in rows))
        made.rename(self.folder / f"{self.count:06}.json")
        self.count += 1

    @contextmanager
    def coming(self) -> Iterator[None]:
        """More and more of them, as long as the block."""
        over = threading.Event()

        def add() -> None:
            while not over.wait(0.3):
                self.add()

        adding = threading.Thread(target=add)
        adding.start()
        try:
            yield
        finally:
            over.set()
            adding.join()


def pipeline_file(lake: Lake, source: Path, sink: dict[str, Any]) -> Path:
    config = {"catalog": lake.catalog, "namespace": "db", "table": "t", "flush_interval_secs": 1, "maintenance": EAGER, **sink}
    files = {"path": str(source), "format": "json", "pattern": "*.json", "poll_interval_secs": 0.1}
    off = {"enabled": False}
    document = {
        "version": "1.0",
        "sources": {"folder": {"connector": "files", "config": files | {"schema": {"id": "string", "at": "long"}}}},
        "sinks": {"lake": {"connector": "iceberg", "config": config}},
        "pipelines": {"load": {"source": "folder", "sink": "lake"}},
        "settings": {"health": off, "metrics": off, "spark": {"master": "local[1]"}},
    }
    file = lake.folder / "frazil.yaml"
    file.write_text(json.dumps(document))
    return file


def batches(child: Child) -> int:
    return child.log_text().count("batch_committed")


@pytest.mark.slow(seconds=90)
@pytest.mark.parametrize("version", [2, 3], ids=["v2-upsert", "v3-append"])
def test_another_process_writes_meanwhile(lake: Lake, frazil: Frazil, version: int) -> None:
    upsert = {"commit_mode": "upsert", "key_fields": ["id"], "order_by": ["at"], "upsert_strategy": "equality_delete"}
    upsert = upsert if version == 2 else {}
    arrivals = Arrivals(lake.folder / "incoming")
    file = pipeline_file(lake, arrivals.folder, {"format_version": version, **upsert})
    child = start("frazil run", [str(FRAZIL), "run", "-c", str(file)], lake.folder / "run.log")
    try:
        for written in range(2):
            arrivals.add(*(f"{JANE}{number}" for number in range(5)), "kept")
            wait_until(lambda written=written: batches(child) > written, SECONDS, "a batch of rows to be erased", child)
        with arrivals.coming():
            before = batches(child)
            wait_until(lambda: batches(child) > before, SECONDS, "a batch of what comes", child)
            begun = batches(child)
            done = frazil("forget", "db.t", "-c", file, "--where", f"id like '{JANE}%'", "--yes", "--json")
            during = batches(child) - begun
        assert done.code == 0, done.text
        assert during > 0, "the other process wrote meanwhile"
        proof = proof_of(done)
        assert (proof["proven"], proof["left"]) == (True, [])
        assert proof["rows_deleted"] == (5 if version == 2 else 10)
        arrivals.add("last")
        lake.introduced()
        wait_until(lambda: ("last",) in lake.rows("id"), SECONDS, "everything that came", child)
        assert child.stop(timeout=60) == 0, child.log_text()
    finally:
        child.stop()
    last = arrivals.count - 1
    once = [*((f"n{number}", number) for number in range(2, last)), ("last", last)]
    kept, same = [("kept", 0), ("kept", 1)], [("same", number) for number in range(2, last)]
    if version == 2:
        kept, same = kept[-1:], same[-1:]
    assert lake.rows("id, at") == sorted([*once, *kept, *same], key=repr)
    assert traces(lake) == []
    assert "fenced" not in child.log_text()
