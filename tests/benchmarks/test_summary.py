"""The results in the tree are what a run wrote, and a run still works. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SUMMARY = ROOT / "benchmarks" / "results" / "summary.json"

GOALS = {
    ("append", ">= 0.95"),
    ("append", ">= 1.5"),
    ("stream", "<= 1.15"),
    ("cold", "<= 1.2"),
    ("memory", "<= 1.0"),
    ("partitions", "<= 1.0"),
    ("upsert", "<= 1.3"),
    ("upsert", ">= 6.0"),
    ("upsert", ">= 25.0"),
    ("upsert", ">= 15.0"),
    ("upsert", "<= 6.0"),
    ("topics", ">= 0.9"),
    ("topics", ">= 1.0"),
    ("changes", ">= 60000"),
    ("changes", ">= 30000"),
    ("loads", "<= 1.2"),
    ("loads", "<= 1.5"),
    ("positions", "<= 1.3"),
    ("positions", "<= 1.5"),
    ("positions", ">= 15.0"),
    ("positions", "<= 60.0"),
    ("positions", "<= 40.0"),
    ("positions", "<= 1.0"),
    ("deletes", "<= 518.0"),
    ("slow_catalog", ">= 0.9"),
    ("stores", ">= 1.0"),
    *((name, goal) for name in ("health", "health_upserts") for goal in ("<= 1.15", "<= 1.3", "<= 4.0", "<= 0.25", "<= 5.0")),
}


def entries(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def value_of(goal: str, mine: float, theirs: float) -> float:
    """A goal is a speed or a cost beside another's, or, when it says so, a time by itself."""
    if goal.endswith((": seconds", ": megabytes", ": bytes", " a second")):
        return mine
    return theirs / mine if "speed" in goal else mine / theirs


def check_entry(entry: dict[str, Any]) -> None:
    assert {"goal", "value", "target", "met", "runs", "against", "machine"} <= entry.keys()
    assert entry["against"] in entry["runs"]
    (ours,) = entry["runs"].keys() - {entry["against"]}
    mine, theirs = entry["runs"][ours], entry["runs"][entry["against"]]
    assert len(mine) == len(theirs) >= 1
    assert entry["value"] == pytest.approx(value_of(entry["goal"], median(mine), median(theirs)), abs=0.001)
    if entry["target"] is None:
        assert entry["met"] is None
        return
    bound = float(entry["target"].split()[1])
    assert entry["met"] == (entry["value"] >= bound if entry["target"].startswith(">=") else entry["value"] <= bound)


def test_the_results_in_the_tree_have_every_goal_met_or_not_and_follow_from_their_runs() -> None:
    found = entries(SUMMARY)
    for entry in found:
        check_entry(entry)
        assert min(len(runs) for runs in entry["runs"].values()) >= 5
    assert {(entry["benchmark"], entry["target"]) for entry in found if entry["target"]} >= GOALS


def test_the_picture_belongs_to_the_results() -> None:
    assert (ROOT / "docs" / "img" / "benchmarks.svg").read_text().rstrip().endswith("</svg>")


# Those that start services take as long as all others.
WITH_SERVICES = ("slow_catalog", "catalogs", "stores")
OTHERS = tuple(sorted({name for name, _ in GOALS} - set(WITH_SERVICES)))


@pytest.mark.slow(seconds=250)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("names", [OTHERS, WITH_SERVICES], ids=["others", "services"])
def test_a_tiny_run_measures_everything_and_writes_where_it_is_reported(tmp_path: Path, names: tuple[str, ...]) -> None:
    before = SUMMARY.read_bytes()
    command = [sys.executable, "-m", "benchmarks", "--quick", "--out", str(tmp_path), *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = entries(tmp_path / "summary.json")
    for entry in found:
        check_entry(entry)
    goals = {goal for goal in GOALS if goal[0] in names}
    assert {(entry["benchmark"], entry["target"]) for entry in found if entry["target"]} >= goals
    assert all(entry["goal"] in done.stdout for entry in found)
    assert (tmp_path / "benchmarks.svg").is_file()
    assert SUMMARY.read_bytes() == before


def test_an_unknown_benchmark_is_refused_with_the_known_ones() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "apend"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "apend" in done.stderr
    assert "append, stream, cold, memory" in done.stderr
