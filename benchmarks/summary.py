"""What was found, as values, and the file that keeps them."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

FILE = "summary.json"


@dataclass(frozen=True)
class Finding:
    """One comparison. Without a bound it is told for completeness, and no goal depends on it."""

    benchmark: str
    case: str
    goal: str
    value: float
    against: str
    unit: str
    runs: Mapping[str, Sequence[float]]
    at_least: float | None = None
    at_most: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> str | None:
        """The bound as text."""
        if self.at_least is not None:
            return f">= {self.at_least}"
        return f"<= {self.at_most}" if self.at_most is not None else None

    @property
    def met(self) -> bool | None:
        """Whether the value is within the bound."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return self.value <= self.at_most if self.at_most is not None else None

    def entry(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        """As it stands in the file."""
        return {
            "benchmark": self.benchmark,
            "case": self.case,
            "goal": self.goal,
            "value": self.value,
            "target": self.target,
            "met": self.met,
            "against": self.against,
            "unit": self.unit,
            "runs": {name: list(values) for name, values in self.runs.items()},
            "details": dict(self.details),
            "machine": dict(machine),
        }


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The ratio of two medians."""
    return round(median(above) / median(below), 3)


def machine(cores: int) -> dict[str, Any]:
    """On what it was measured."""
    import pyspark

    from frazil.spark.jars import component_jars
    from frazil.spark.java import java_command
    from frazil.version import __version__

    done = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=True).stderr
    java = re.search(r'"([^"]+)"', done)
    iceberg = next(jar.revision for jar in component_jars(["core"]) if jar.module.startswith("iceberg-spark-runtime"))
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "frazil": __version__,
        "pyspark": pyspark.__version__,
        "iceberg": iceberg,
        "java": java[1] if java else done.splitlines()[0],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3),
        "load_before": [round(value, 2) for value in os.getloadavg()],
    }


def write(folder: Path, entries: Sequence[Mapping[str, Any]]) -> Path:
    """Writes the entries; those of benchmarks that were not run this time stay as they are."""
    path = folder / FILE
    ran = {entry["benchmark"] for entry in entries}
    kept = [entry for entry in read(folder) if entry["benchmark"] not in ran]
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*entries, *kept], indent=1, ensure_ascii=False) + "\n")
    return path


def read(folder: Path) -> list[dict[str, Any]]:
    """The entries of the file; none when there is no file yet."""
    path = folder / FILE
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else []
    return found
