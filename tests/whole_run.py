"""Writes down what the parts of all tests found: ``--result=docs/test-results.md``, as ``make test-all`` does.

The page has the last run of each part. A part that is run again takes the place of the run before it.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tiers import SLICES

_began = time.monotonic()


@dataclass(frozen=True)
class Part:
    """One part of all tests: when it was run and what it found, as it stands on the page."""

    number: int
    line: str
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "the page in which to write what one of the parts of all tests found (--tier=all --slice=N)"
    parser.getgroup("frazil").addoption("--result", type=Path, help=what)


def pytest_configure(config: pytest.Config) -> None:
    named = config.getoption("tier") == "all" and config.getoption("slice") is not None
    if config.getoption("result") is not None and not named:
        raise pytest.UsageError("--result is of one part of all tests: it needs --tier=all and --slice=N")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    path: Path | None = config.getoption("result")
    if path is None or hasattr(config, "workerinput"):
        return
    part = _found(terminalreporter.stats, config.getoption("slice"), config.rootpath)
    before = parts_of(path.read_text()) if path.exists() else []
    others = [one for one in before if one.number != part.number]
    path.write_text(page([*others, part]))
    terminalreporter.write_line(f"written: {path}")


def parts_of(text: str) -> list[Part]:
    """The parts that a page has."""
    lines = {int(found[1]): found[0] for found in re.finditer(r"^\| (\d+) \|.*$", text, re.MULTILINE)}
    failed, _, skipped = text.partition("## Skipped")
    return [Part(number, line, _tests(failed, number), _tests(skipped, number)) for number, line in lines.items()]


def _tests(text: str, part: int) -> tuple[str, ...]:
    return tuple(found[1] for found in re.finditer(rf"^- {part}: `(.*)`$", text, re.MULTILINE))


def page(parts: list[Part]) -> str:
    """The page of these parts."""
    return "\n".join(_lines(sorted(parts, key=lambda part: part.number))) + "\n"


def _lines(parts: list[Part]) -> Iterator[str]:
    yield "# The last run of all tests"
    yield ""
    yield f"`make test-all` runs all tests in {SLICES} parts, also those of which each change runs only a slice, with all"
    yield "examples of property tests, and writes this page. [Contributing](../CONTRIBUTING.md#test) says when."
    yield ""
    lacking = [str(number) for number in range(SLICES) if number not in {part.number for part in parts}]
    if lacking:
        yield f"Parts that were not run yet: {', '.join(lacking)}."
        yield ""
    yield "| part | commit | day | passed | failed | skipped | minutes on two cores |"
    yield "|---|---|---|---|---|---|---|"
    yield from (part.line for part in parts)
    for title, found in (
        ("Failed", [(part.number, test) for part in parts for test in part.failed]),
        ("Skipped", [(part.number, test) for part in parts for test in part.skipped]),
    ):
        if found:
            yield from ("", f"## {title}", "")
            yield from (f"- {number}: `{test}`" for number, test in found)


def _found(stats: dict[str, list[Any]], number: int, root: Path) -> Part:
    """What the run found that ends here."""
    failed, skipped = _names([*stats.get("failed", []), *stats.get("error", [])]), _names(stats.get("skipped", []))
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()
    day, minutes = datetime.now(UTC).strftime("%Y-%m-%d"), (time.monotonic() - _began) / 60
    counts = f"{len(stats.get('passed', [])):,} | {len(failed):,} | {len(skipped):,}"
    return Part(number, f"| {number} | {head} | {day} | {counts} | {minutes:.0f} |", failed, skipped)


def _names(reports: list[Any]) -> tuple[str, ...]:
    return tuple(report.nodeid.removeprefix("tests/")[:120] for report in reports)
