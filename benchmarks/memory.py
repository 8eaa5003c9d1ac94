"""Peak memory of an append: each in a process of its own, with the same largest heap.

The peak is what the system counts for the JVM (`VmHWM`): heap, off-heap buffers and code together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.append import ICEBERG, TABLES, Appends
from benchmarks.lab import FRAZIL, Lab, Measure, interleaved
from benchmarks.sizes import Sizes
from benchmarks.summary import Finding, ratio


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """All appends, interleaved. The lab itself only lends them its rows."""
    lab.source()
    names = [(table, contestant) for table in lab.sizes.memory_tables for contestant in (ICEBERG, FRAZIL)]
    contestants: dict[str, Measure] = {f"{table}: {who}": _in_a_child(lab, table, who) for table, who in names}
    runs = interleaved(contestants, lab.sizes, tell)
    return [
        Finding(
            benchmark="memory",
            case=table,
            goal=f"append of {lab.sizes.rows:,} rows, {table}: peak memory relative to {ICEBERG}",
            value=ratio(runs[f"{table}: {FRAZIL}"], runs[f"{table}: {ICEBERG}"]),
            at_most=1.0,
            against=ICEBERG,
            unit="megabytes",
            runs={who: runs[f"{table}: {who}"] for who in (FRAZIL, ICEBERG)},
            details={"rows": lab.sizes.rows, "largest_heap": lab.sizes.heap},
        )
        for table in lab.sizes.memory_tables
    ]


def _in_a_child(lab: Lab, table: str, contestant: str) -> Measure:
    return in_a_child("benchmarks.memory", lab, table=table, contestant=contestant)


def in_a_child(module: str, lab: Lab, **order: object) -> Measure:
    """Runs a module in a process of its own, with an order and the lab's folder and sizes. It prints the number at its end."""

    def number() -> float:
        whole = order | {"folder": str(lab.folder), "sizes": asdict(lab.sizes)}
        command = [sys.executable, "-m", module, json.dumps(whole)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        return float(done.stdout.split()[-1])

    return number


def _child(order: str) -> None:
    given = json.loads(order)
    lab = Lab(Path(given["folder"]), Sizes(**given["sizes"]))
    appends = Appends(lab)
    run = appends.frazil if given["contestant"] == FRAZIL else appends.iceberg
    run("append", TABLES[given["table"]])
    print(peak_megabytes())
    lab.spark.stop()


def peak_megabytes() -> float:
    """The most memory that the JVM, a child of this process, has had."""
    status = {pid: _status(pid) for pid in Path("/proc").iterdir() if pid.name.isdigit()}
    own = [fields for fields in status.values() if fields.get("PPid") == str(os.getpid()) and fields.get("Name") == "java"]
    if len(own) != 1:
        raise RuntimeError("the JVM of this process was not found in /proc, which this benchmark needs")
    return int(own[0]["VmHWM"].split()[0]) / 1024


def _status(process: Path) -> dict[str, str]:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:  # ended meanwhile
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


if __name__ == "__main__":
    _child(sys.argv[1])
