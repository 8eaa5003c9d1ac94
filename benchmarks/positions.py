"""Upserts that find rows by the key index, beside equality deletes and MERGE, and what the index costs.

As in ``upsert``, each way has a table of its own that begins as the same files, here of format version 3. Keys are spread over
the whole table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.lab import Lab, Measure, interleaved, timed
from benchmarks.summary import Finding, ratio
from benchmarks.upsert import COLUMNS, Tables, scan_finding, scans_of

POSITION, EQUALITY, MERGE = "frazil, by position", "frazil, deletes by key", "Spark's MERGE"
FOREIGN_COMMITS = 20
MEGABYTE = 1_000_000

Runs = Mapping[str, Sequence[float]]
Tell = Callable[[str], None]


def measure(lab: Lab, tell: Tell) -> list[Finding]:
    """Upserts into tables of all sizes, then the cost of reading after many; what the index takes at the largest."""
    os.environ["FRAZIL_STATE_DIR"] = str(lab.folder / "state")
    found: list[Finding] = []
    runs: dict[int, Runs] = {}
    largest = max(lab.sizes.tables)
    for rows in lab.sizes.tables:
        tables = Tables(lab, rows, version=3)
        name = tables.copy("position")
        built = _by_position(lab, tables, name)
        tell(f"first upsert into {rows:,} rows, which builds the index: {built:.3f}")
        runs[rows] = _upserts(lab, tables, name, tell)
        if rows == largest:
            found += _index(lab, tables, name, built, runs[rows], tell)
    return [_growth(lab, runs), *_beside(lab, runs), *found, *_reading(lab, tell)]


def _by_position(lab: Lab, tables: Tables, name: str) -> float:
    frame = tables.batch()
    return timed(lab.sink(frame, name).keys("id").mode("upsert").options(upsert_strategy="position").write)


def _upserts(lab: Lab, tables: Tables, name: str, tell: Tell) -> Runs:
    others = {EQUALITY: tables.copy("equality"), MERGE: tables.copy("merge")}
    ways: dict[str, Measure] = {
        POSITION: lambda: _by_position(lab, tables, name),
        EQUALITY: lambda: tables.upsert(others[EQUALITY], tables.batch()),
        MERGE: lambda: tables.merge(others[MERGE], tables.batch()),
    }
    return interleaved(ways, lab.sizes, lambda text: tell(f"{tables.rows:,} rows, {text}"))


def _growth(lab: Lab, runs: Mapping[int, Runs]) -> Finding:
    least, most = min(runs), max(runs)
    ours, other = f"{POSITION}, {most:,} rows", f"{POSITION}, {least:,} rows"
    return Finding(
        benchmark="positions",
        case="growth",
        goal=f"upsert of {lab.sizes.upsert_rows:,} rows into {most:,} by position: time relative to a table of {least:,}",
        value=ratio(runs[most][POSITION], runs[least][POSITION]),
        at_most=1.3,
        against=other,
        unit="seconds",
        runs={ours: runs[most][POSITION], other: runs[least][POSITION]},
    )


def _beside(lab: Lab, runs: Mapping[int, Runs]) -> list[Finding]:
    most = max(runs)
    text = f"upsert of {lab.sizes.upsert_rows:,} rows by position into"
    slower = [
        Finding(
            benchmark="positions",
            case=f"{rows:,}",
            goal=f"{text} {rows:,}: time relative to {EQUALITY}",
            value=ratio(one[POSITION], one[EQUALITY]),
            at_most=1.5,
            against=EQUALITY,
            unit="seconds",
            runs={POSITION: one[POSITION], EQUALITY: one[EQUALITY]},
        )
        for rows, one in runs.items()
    ]
    faster = [
        Finding(
            benchmark="positions",
            case=f"{rows:,}",
            goal=f"{text} {rows:,}: speed relative to {MERGE}",
            value=ratio(one[MERGE], one[POSITION]),
            at_least=15.0 if rows == most else None,
            against=MERGE,
            unit="seconds",
            runs={POSITION: one[POSITION], MERGE: one[MERGE]},
        )
        for rows, one in runs.items()
    ]
    return slower + faster


def _index(lab: Lab, tables: Tables, name: str, built: float, runs: Runs, tell: Tell) -> list[Finding]:
    """What the index of the largest table takes: to be built, on the disk, and to be brought up to date."""
    folder = Path(os.environ["FRAZIL_STATE_DIR"]) / "key-index"
    (index,) = folder.glob(f"*position_first_{tables.rows}_*")
    size = sum(file.stat().st_size for file in index.iterdir()) / tables.rows
    tell(f"bytes a key: {size:.1f}")
    for number in range(FOREIGN_COMMITS):
        rows = lab.spark.range(tables.rows + number * 1_000, tables.rows + number * 1_000 + 1_000).selectExpr(*COLUMNS)
        rows.writeTo(name).append()
    behind = _by_position(lab, tables, name)
    tell(f"upsert after {FOREIGN_COMMITS} commits of others: {behind:.3f}")
    usual = sorted(runs[POSITION])[len(runs[POSITION]) // 2]
    several = len(runs[POSITION])

    def one(case: str, goal: str, value: float, most: float, unit: str, beside: float) -> Finding:
        return Finding(
            benchmark="positions",
            case=case,
            goal=goal,
            value=round(value, 3),
            at_most=most,
            against="a usual upsert" if unit == "seconds" else "an entry",
            unit=unit,
            runs={
                POSITION: [round(value, 4)] * several,
                "a usual upsert" if unit == "seconds" else "an entry": [beside] * several,
            },
        )

    return [
        one("build", f"first upsert, with an index of {tables.rows:,} rows built for it: seconds", built, 60.0, "seconds", usual),
        one("behind", f"upsert after {FOREIGN_COMMITS} commits of others: seconds", behind, 5.0 + usual, "seconds", usual),
        one("disk", f"the index of {tables.rows:,} rows on the disk, for each: bytes", size, 40.0, "bytes", 24.0),
    ]


def _reading(lab: Lab, tell: Tell) -> list[Finding]:
    """A scan after many upserts as they are, and compacted away."""
    rows = sorted(lab.sizes.tables)[-2]
    tables = Tables(lab, rows, version=3, name="read")
    live = tables.copy("position")
    for number in range(1, lab.sizes.upserts + 1):
        tell(f"upsert {number} of {lab.sizes.upserts}: {_by_position(lab, tables, live):.3f}")
    compacted = tables.copy("compacted", live)
    tables.compact(compacted)
    scans = scans_of(lab, {"positions": live, "compacted": compacted}, tell)
    text = f"scan of {rows:,} rows after {lab.sizes.upserts} upserts of {lab.sizes.upsert_rows:,}, by position"
    return [scan_finding("positions", text, scans, "positions", 1.3)]
