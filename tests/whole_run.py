"""Writes down what a run of the tests found: ``--result=docs/test-results.md``, as ``make test-all`` does."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

_PREPARATION = ""  # what pytest calls setting a test up and taking it down
_OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed")
_began = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("frazil").addoption("--result", type=Path, help="the file in which to write what the run found")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    path: Path | None = config.getoption("result")
    if path is None or hasattr(config, "workerinput"):
        return
    reports = {outcome: terminalreporter.stats.get(outcome, []) for outcome in (*_OUTCOMES, _PREPARATION)}
    path.write_text("\n".join(_page(reports, config.rootpath)) + "\n")
    terminalreporter.write_line(f"written: {path}")


def _page(reports: dict[str, list[Any]], root: Path) -> Iterator[str]:
    counts = {outcome: len(found) for outcome, found in reports.items()}
    minutes = (time.monotonic() - _began) / 60
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()
    yield "# The last whole run of the tests"
    yield ""
    yield "`make test-all` writes this page: all tests, also those of which each change runs only a slice, and all examples of"
    yield "property tests. [Contributing](../CONTRIBUTING.md#test) says when it is run."
    yield ""
    summary = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in _OUTCOMES if counts[outcome])
    yield f"- {summary}, in {minutes:.0f} minutes."
    when, system = datetime.now(UTC).strftime("%Y-%m-%d"), f"{platform.system()} {platform.machine()}"
    yield f"- Commit {head}, {when}, Python {platform.python_version()}, {system}, {os.cpu_count()} cores."
    yield ""
    yield "| folder | passed | failed | skipped | minutes of one process |"
    yield "|---|---|---|---|---|"
    for folder, (by_outcome, seconds) in sorted(_by_folder(reports).items()):
        failed = by_outcome["failed"] + by_outcome["error"]
        yield f"| {folder} | {by_outcome['passed']:,} | {failed:,} | {by_outcome['skipped']:,} | {seconds / 60:.1f} |"
    for title, outcomes in (("Failed", ("failed", "error")), ("Skipped", ("skipped",))):
        if found := [report for outcome in outcomes for report in reports[outcome]]:
            yield from ("", f"## {title}", "")
            yield from (f"- `{report.nodeid.removeprefix('tests/')[:130]}`" for report in found)


def _by_folder(reports: dict[str, list[Any]]) -> dict[str, tuple[Counter[str], float]]:
    """The outcomes of the tests of each folder, and how long these took."""
    counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
    seconds: Counter[str] = Counter()
    for outcome, found in reports.items():
        for report in found:
            parts = report.nodeid.partition("::")[0].split("/")
            folder = parts[1] if len(parts) > 2 else parts[-1]
            counted[folder][outcome] += 1
            seconds[folder] += getattr(report, "duration", 0.0)
    return {folder: (counted[folder], seconds[folder]) for folder in counted}
