"""Appends of many rows at once: frazil against Spark's bare Parquet write and Spark's own Iceberg sink.

Bare Parquet has no table, no metadata and no statistics of columns in it: it is what writing these rows costs at least. It
is written unpartitioned in all cases. Spark's own sink runs with its defaults, which shuffle the rows of a partitioned table;
on the bucketed one it also runs with the shuffle switched off by hand, as frazil does by itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

from benchmarks.lab import FRAZIL, Lab, Measure, interleaved, timed
from benchmarks.summary import Finding, ratio

PARQUET = "Spark's bare Parquet write"
ICEBERG = "Spark's Iceberg sink"
FAN_OUT = "Spark's Iceberg sink, told not to shuffle"

TABLES = {"unpartitioned": None, "bucket(8, id)": "bucket(8, id)", "day(ts)": "days(ts)"}


class Appends:
    """One append by each contestant, and how many files each made."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.files: dict[str, int] = {}

    def parquet(self) -> float:
        """`df.write.parquet`."""
        folder = self._lab.folder / "bare"
        frame = self._lab.source()
        seconds = timed(lambda: frame.write.parquet(str(folder)))
        self.files[PARQUET] = len(list(folder.glob("*.parquet")))
        shutil.rmtree(folder)
        return seconds

    def iceberg(self, key: str, partition: str | None, **options: str) -> float:
        """`df.writeTo(table).append()`."""
        return self._append(key, partition, lambda name: self._lab.source().writeTo(name).options(**options).append())

    def frazil(self, key: str, partition: str | None) -> float:
        """`frazil.sink(df).to(table).write()`: the claim of the sink, staging, and the commit with its ledger."""
        return self._append(key, partition, lambda name: self._lab.sink(self._lab.source(), name).write())

    def _append(self, key: str, partition: str | None, work: Callable[[str], object]) -> float:
        name = self._lab.make_table("appended", self._lab.source(), partition)
        seconds = timed(lambda: work(name))
        self.files[key] = self._lab.drop_table(name, self._lab.sizes.rows)
        return seconds


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """All appends, interleaved."""
    lab.source()
    appends = Appends(lab)
    contestants: dict[str, Measure] = {PARQUET: appends.parquet}
    for table, partition in TABLES.items():
        contestants[_key(table, ICEBERG)] = _bound(appends.iceberg, _key(table, ICEBERG), partition)
        contestants[_key(table, FRAZIL)] = _bound(appends.frazil, _key(table, FRAZIL), partition)
    bucket = "bucket(8, id)"
    options = {"distribution-mode": "none", "fanout-enabled": "true"}
    contestants[_key(bucket, FAN_OUT)] = _bound(appends.iceberg, _key(bucket, FAN_OUT), TABLES[bucket], **options)
    runs = interleaved(contestants, lab.sizes, tell)
    return [
        _finding(lab, runs, appends.files, "unpartitioned", PARQUET, 0.95),
        _finding(lab, runs, appends.files, bucket, ICEBERG, 1.5),
        _finding(lab, runs, appends.files, "unpartitioned", ICEBERG),
        _finding(lab, runs, appends.files, bucket, PARQUET),
        _finding(lab, runs, appends.files, bucket, FAN_OUT),
        _finding(lab, runs, appends.files, "day(ts)", ICEBERG),
        _finding(lab, runs, appends.files, "day(ts)", PARQUET),
    ]


def _finding(
    lab: Lab, runs: dict[str, list[float]], files: dict[str, int], table: str, other: str, at_least: float | None = None
) -> Finding:
    ours, theirs = _key(table, FRAZIL), other if other == PARQUET else _key(table, other)
    return Finding(
        benchmark="append",
        case=table,
        goal=f"append of {lab.sizes.rows:,} rows, {table}: speed relative to {other}",
        value=ratio(runs[theirs], runs[ours]),
        at_least=at_least,
        against=other,
        unit="seconds",
        runs={FRAZIL: runs[ours], other: runs[theirs]},
        details={"rows": lab.sizes.rows, "codec": "snappy", "files": {FRAZIL: files[ours], other: files[theirs]}},
    )


def _key(table: str, contestant: str) -> str:
    return f"{table}: {contestant}"


def _bound(method: Callable[..., float], key: str, partition: str | None, **options: str) -> Measure:
    return lambda: method(key, partition, **options)
