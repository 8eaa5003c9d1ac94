"""Upserts that find rows by the key index, beside equality deletes, MERGE and PyIceberg's upsert, and what the index costs.

As in ``upsert``, each way has a table of its own that begins as the same files, here of format version 3. Keys are spread over
the whole table. PyIceberg writes no tables of version 3: its table is one of version 2 with the same rows, and the smallest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, functions

from benchmarks.lab import Lab, Measure, interleaved
from benchmarks.summary import Finding, ratio
from benchmarks.upsert import COLUMNS, PYICEBERG, Tables, scan_finding, scans_of

POSITION, EQUALITY, MERGE = "frazil, by position", "frazil, deletes by key", "Spark's MERGE"
AFTER_MERGE = "frazil, by position, after a MERGE"
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


def _by_position(lab: Lab, tables: Tables, name: str, frame: DataFrame | None = None, *, maintained: bool = False) -> float:
    sink = lab.sink(frame or tables.batch(), name).keys("id").mode("upsert")
    return lab.timed(sink.options(upsert_strategy="position", maintenance={"enabled": maintained}).write)


def _upserts(lab: Lab, tables: Tables, name: str, tell: Tell) -> Runs:
    """One after the other, as those of a stream: what was read of an index stays in the system's cache.

    A MERGE reads and writes gigabytes, and takes that place: it has rounds of its own, in which what follows it is measured.
    """
    others = {EQUALITY: tables.copy("equality"), MERGE: tables.copy("merge")}
    by_key: dict[str, Measure] = {
        POSITION: lambda: _by_position(lab, tables, name),
        EQUALITY: lambda: tables.upsert(others[EQUALITY], tables.batch()),
    }
    with_merge: dict[str, Measure] = {
        MERGE: lambda: tables.merge(others[MERGE], tables.batch()),
        AFTER_MERGE: lambda: _by_position(lab, tables, name),
    }
    if tables.rows == min(lab.sizes.tables):
        with_merge[PYICEBERG] = _pyiceberg(lab, tables.rows)

    def noted(text: str) -> None:
        tell(f"{tables.rows:,} rows, {text}")

    return interleaved(by_key, lab.sizes, noted) | interleaved(with_merge, lab.sizes, noted)


def _pyiceberg(lab: Lab, rows: int) -> Measure:
    """PyIceberg's upsert. It leaves rows alone that are as they were: those that it gets have another value than the table's."""
    tables = Tables(lab, rows, version=2, name="beside")
    name = tables.copy("pyiceberg")
    return lambda: tables.pyiceberg(name, tables.batch().withColumn("amount", functions.rand()))


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
    rest = [_warm_start(runs[most]), _after_merge(f"{text} {most:,}", runs[most])]
    return [*slower, *faster, _beside_pyiceberg(text, min(runs), runs[min(runs)]), *rest]


def _after_merge(text: str, runs: Runs) -> Finding:
    return Finding(
        benchmark="positions",
        case="cold index",
        goal=f"{text} after a MERGE: time relative to a usual one",
        value=ratio(runs[AFTER_MERGE], runs[POSITION]),
        against=POSITION,
        unit="seconds",
        runs={AFTER_MERGE: runs[AFTER_MERGE], POSITION: runs[POSITION]},
    )


def _beside_pyiceberg(text: str, rows: int, runs: Runs) -> Finding:
    return Finding(
        benchmark="positions",
        case=f"{rows:,}",
        goal=f"{text} {rows:,}, beside a table of format version 2: speed relative to {PYICEBERG}",
        value=ratio(runs[PYICEBERG], runs[POSITION]),
        against=PYICEBERG,
        unit="seconds",
        runs={POSITION: runs[POSITION], PYICEBERG: runs[PYICEBERG]},
    )


def _warm_start(runs: Runs) -> Finding:
    """How much longer a write takes that opens the index, as each write of a data frame does, than one that needs none."""
    longer = [round(mine - other, 4) for mine, other in zip(runs[POSITION], runs[EQUALITY], strict=True)]
    return Finding(
        benchmark="positions",
        case="warm start",
        goal="a write that opens the largest index, longer than one that needs none: seconds",
        value=round(median(longer), 4),
        at_most=1.0,
        against=EQUALITY,
        unit="seconds",
        runs={POSITION: longer, EQUALITY: runs[EQUALITY]},
    )


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
    """Scans after many upserts: of a table that is maintained, as those that frazil makes are, and of one that is left alone."""
    rows = sorted(lab.sizes.tables)[-2]
    tables = Tables(lab, rows, version=3, name="read")
    maintained, alone = tables.copy("maintained"), tables.copy("alone")
    for number in range(1, lab.sizes.upserts + 1):
        frame = tables.batch()
        took = _by_position(lab, tables, maintained, frame, maintained=True), _by_position(lab, tables, alone, frame)
        tell(f"upsert {number} of {lab.sizes.upserts}: {took[0]:.3f} with maintenance, {took[1]:.3f} without")
    compacted = tables.copy("compacted", alone)
    tables.compact(compacted)
    scans = scans_of(lab, {"maintained": maintained, "left alone": alone, "compacted": compacted}, tell)
    text = f"scan of {rows:,} rows after {lab.sizes.upserts} upserts of {lab.sizes.upsert_rows:,} by position"
    return [
        scan_finding("positions", f"{text}, maintained", scans, "maintained", 1.3),
        scan_finding("positions", f"{text}, left alone", scans, "left alone", None),
    ]
