"""Runs the benchmarks and writes what was found: ``python -m benchmarks [--quick] [--out FOLDER] [append stream ...]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks import (
    append,
    catalogs,
    changes,
    cold,
    deletes,
    health,
    loads,
    memory,
    partitions,
    plot,
    positions,
    report,
    slow_catalog,
    stores,
    stream,
    summary,
    topics,
    upsert,
)
from benchmarks.lab import Lab
from benchmarks.sizes import FULL, QUICK

ROOT = Path(__file__).parents[1]
ALL = {
    "append": append.measure,
    "stream": stream.measure,
    "cold": cold.measure,
    "memory": memory.measure,
    "partitions": partitions.measure,
    "upsert": upsert.measure,
    "positions": positions.measure,
    "topics": topics.measure,
    "changes": changes.measure,
    "loads": loads.measure,
    "health": health.measure,
    "health_upserts": health.measure_upserts,
    "deletes": deletes.measure,
    "slow_catalog": slow_catalog.measure,
    "catalogs": catalogs.measure,
    "stores": stores.measure,
}


def main() -> None:
    """Measures, writes, and says whether the goals are met; never fails because of a time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure frazil beside bare Spark.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which: {', '.join(ALL)}; all when left out")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs; the numbers mean nothing")
    parser.add_argument("--out", type=Path, help="folder of the results; benchmarks/results, or with --quick a temporary one")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(ALL)):
        parser.error(f"unknown benchmark {', '.join(unknown)}; known: {', '.join(ALL)}")
    keeps = given.out is None and not given.quick
    out = given.out or (ROOT / "benchmarks" / "results" if keeps else Path(tempfile.mkdtemp(prefix="frazil-results-")))
    with tempfile.TemporaryDirectory(prefix="frazil-benchmarks-") as folder:
        lab = Lab(Path(folder), QUICK if given.quick else FULL)
        machine = summary.machine(lab.cores)
        entries = []
        for name in given.names or ALL:
            _tell(f"-- {name}")
            found = [finding.entry(machine) for finding in ALL[name](lab, _tell)]
            # At once: a run takes hours, and one that is cut short keeps what it has measured.
            written = summary.write(out, found)
            entries += found
        lab.spark.stop()
    picture = plot.draw(summary.read(out), ROOT / "docs" / "img" if keeps else out)
    if keeps:
        report.put(summary.read(out), ROOT / "docs" / "benchmarks.md")
    for entry in entries:
        print(
            f"{_verdict(entry['met'])}  {entry['goal']}: {entry['value']}" + (f" ({entry['target']})" if entry["target"] else "")
        )
    _tell(f"written: {written}, {picture}")


def _verdict(met: bool | None) -> str:
    return "      " if met is None else "met   " if met else "MISSED"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
