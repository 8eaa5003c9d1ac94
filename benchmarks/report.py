"""The table of results in the documentation, written by a run and never by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

BEGIN = "<!-- results: written by a run -->"
END = "<!-- end of results -->"


def table(entries: Sequence[Mapping[str, Any]]) -> str:
    """One line a comparison: medians of both, their ratio, the goal."""
    lines = ["| what | frazil | against | ratio | goal | |", "|---|---|---|---|---|---|"]
    for entry in entries:
        other = entry["against"]
        (ours,) = [name for name in entry["runs"] if name != other]
        cells = [
            entry["goal"].partition(":")[0],
            _shown(entry["runs"][ours], entry["unit"]),
            f"{_shown(entry['runs'][other], entry['unit'])} ({other})",
            f"{entry['value']:.2f}" if "relative" in entry["goal"] else "",
            entry["target"] or "none",
            {True: "met", False: "**missed**", None: ""}[entry["met"]],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_runs(entries)])


def _runs(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """When and on what the benchmarks were measured: one line for each run, as parts can be run by themselves."""
    parts: dict[str, list[str]] = {}
    for entry in entries:
        parts.setdefault(_measured(entry["machine"]), []).append(entry["benchmark"])
    return [f"- {', '.join(dict.fromkeys(names))}: {words}" for words, names in parts.items()]


def _measured(machine: Mapping[str, Any]) -> str:
    words = ", ".join(f"{name} {machine[name]}" for name in ("frazil", "pyspark", "iceberg", "java", "python"))
    return (
        f"measured {machine['when']} on {machine['system']} with {machine['cores']} cores and {machine['memory_gb']} GB;\n"
        f"  load before the run {machine['load_before'][0]}; {words}."
    )


def put(entries: Sequence[Mapping[str, Any]], document: Path) -> None:
    """Replaces what stands between the two marks."""
    before, _, rest = document.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n{table(entries)}\n{END}{after}")


def _shown(runs: Sequence[float], unit: str) -> str:
    value = median(runs)
    if unit == "changes a second":
        return f"{value:,.0f}/s"
    if unit == "megabytes":
        return f"{value:,.0f} MB"
    if unit == "bytes":
        return f"{value:.1f} bytes"
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"
