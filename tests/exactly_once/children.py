"""The programs of the tests as processes of their own, each with the JVM that it starts in one process group."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyiceberg.catalog import load_catalog

from exactly_once.truth import Truth, assert_every_snapshot_readable, assert_ledger_agrees
from services.processes import Child, start, wait_until

PROGRAMS = "exactly_once.programs"
TESTS = Path(__file__).parent.parent
END_SECONDS = 240

PIPELINE = """\
version: "1.0"
sources:
  shop:
    connector: generator
    config: {{rows: {rows}, rows_per_second: 1000}}
sinks:
  lake:
    connector: iceberg
    config:
      catalog:
        type: sql
        sql: {{uri: "sqlite:///{folder}/catalog.db", warehouse: "{folder}/warehouse"}}
      namespace: shop
      table: events
      batch_size: 10
      maintenance: {maintenance}
pipelines:
  load: {{source: shop, sink: lake}}
settings:
  state_dir: ${{STATE_DIR:-./state}}
  spark: {{master: "local[1]"}}
"""


def pipeline_file(folder: Path, rows: int, maintenance: str = "{}") -> Path:
    """So many made-up events into a SQLite catalog, ten a batch."""
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE.format(folder=folder, rows=rows, maintenance=maintenance))
    return file


def pipeline_rows(folder: Path, *, expires: bool = False) -> int:
    """How many events the table of the pipeline file holds."""
    return rows_in(folder, "shop.events", "event_number", "load/lake", expires=expires)


def rows_in(folder: Path, name: str, column: str, sink_id: str, catalog: str = "lake", *, expires: bool = False) -> int:
    """How many rows the table holds, which are numbered from 0 without a gap and there once each, as the ledger says.

    ``expires``: the summaries of the first batches are gone with their snapshots.
    """
    uri, warehouse = f"sqlite:///{folder}/catalog.db", (folder / "warehouse").as_uri()
    truth = Truth(load_catalog(catalog, type="sql", uri=uri, warehouse=warehouse).load_table(name), (column,))
    held = sorted(number for (number,) in truth.rows.elements())
    assert held == list(range(len(held)))
    assert_every_snapshot_readable(truth)
    if not expires:
        assert_ledger_agrees(truth, sink_id, len(held))
    return len(held)


def started(program: str, *arguments: str | Path, log: Path) -> Child:
    """One of the programs."""
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", f"{PROGRAMS}.{program}", *map(str, arguments)]
    return start(program, command, log, env={"PYTHONPATH": path})


def ended(child: Child) -> int:
    """Waits until the process has ended, and says how."""
    wait_until(lambda: not child.running, END_SECONDS, "its end")
    return int(child.process.returncode)


def frozen(child: Child) -> bool:
    """Whether the process was stopped, and not told to continue since."""
    return os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None


def gone(child: Child) -> bool:
    """Whether nothing is left of the process and of the JVM that it started."""
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return True
    return False


def end(child: Child) -> None:
    """Ends what is left of it."""
    if not gone(child):
        os.killpg(child.pid, signal.SIGKILL)
    child.process.wait()
