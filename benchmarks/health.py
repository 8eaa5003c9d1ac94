"""Tables that get thousands of small commits: what commits and scans cost then, and what is left on the disk.

One stream appends, another upserts rows of a table that is large already. frazil maintains both tables while it writes. Scans are
compared with the same rows in a table that was written at once, commits with those to a fresh table, and appends with Spark's own
and Iceberg's procedures, called now and then as a scheduler would.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.lab import CATALOG, NAMESPACE, Lab, events, rounds
from benchmarks.summary import Finding, ratio
from frazil.model.commit import position
from frazil.model.settings import RetrySettings
from frazil.write.part import Part
from frazil.write.setup import WriterSetup
from frazil.write.writer import SinkWriter

STEP_US = 1_000
FRESH, COMPACTED, EARLIER = "a fresh table", "the same rows, compacted", "a fifth of the commits"
BATCHES, INGEST = "its batches alone", "the rest of the ingest"
PROCEDURES = "Spark's appends and procedures"
# So long files of expired snapshots stay here: for a hundred commits, since there are eight a second. It is an hour usually.
GRACE_MINUTES = 0.25
# Snapshots stay longer than that, so that none is missed.
COMMITS_BETWEEN_LOOKS = 100
PAIRS = 40
CHECKPOINTS = 5

Tell = Callable[[str], None]
Runs = dict[str, list[float]]


@dataclass
class Stream:
    """A stream of small commits to one of frazil's tables."""

    lab: Lab
    name: str
    upsert: bool = False
    done: int = 0
    batches: int = 0
    loaded: frozenset[int] = frozenset()
    cpu: float = 0.0
    upkeep_cpu: float = 0.0
    written: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """What each snapshot added to the files, in bytes, and whether it was one of a batch."""

    def __post_init__(self) -> None:
        how = {"commit_mode": "upsert", "key_fields": ["id"], "format_version": 3} if self.upsert else {}
        sink = self.lab.sink(None, self.full_name).options(maintenance={"reader_grace_minutes": GRACE_MINUTES}, **how)
        setup = WriterSetup(self.lab.spark, self.name, self.name, RetrySettings(), lambda _: None)
        self.writer = SinkWriter(setup, sink.spec)
        self._measure_upkeep()
        self.writer.ensure(self.rows(0))
        if self.upsert:
            self._commit(events(self.lab.spark.range(self.lab.sizes.life_keys).withColumnRenamed("id", "value"), STEP_US))
            self.look()
            self.loaded = frozenset(self.written)

    @property
    def full_name(self) -> str:
        """The table's name in SQL."""
        return f"{CATALOG}.{NAMESPACE}.{self.name}"

    def commit(self) -> float:
        """Writes one more batch; the seconds that it took, with the maintenance that was due after it."""
        before, began = self.lab.cpu_seconds(), time.perf_counter()
        self._commit(self.rows(self.done))
        seconds = time.perf_counter() - began
        self.cpu += self.lab.cpu_seconds() - before
        self.done += 1
        if self.done % COMMITS_BETWEEN_LOOKS == 0:
            self.look()
        return seconds

    def _commit(self, rows: DataFrame) -> None:
        start = position(self.batches) if self.batches else None
        self.batches += 1
        self.writer.write(rows, Part("benchmark", start, position(self.batches)))

    def look(self) -> None:
        """Notes what the latest snapshots have written."""
        query = "SELECT snapshot_id, summary['added-files-size'], summary['frazil.kind'] FROM"
        for snapshot, size, kind in self.lab.spark.sql(f"{query} {self.full_name}.snapshots").collect():
            self.written[snapshot] = (int(size or 0), kind == "data")

    @property
    def megabytes_written(self) -> tuple[float, float]:
        """All data and delete files that were written since the table was filled, and those that batches wrote."""
        self.look()
        since = [found for snapshot, found in self.written.items() if snapshot not in self.loaded]
        return sum(size for size, _ in since) / 1e6, sum(size for size, batch in since if batch) / 1e6

    @property
    def metadata_megabytes(self) -> float:
        """What the folder of metadata takes on the disk, without the checksums that belong to the local file system."""
        files = [path for path in (self.lab.table_folder(self.full_name) / "metadata").iterdir() if path.suffix != ".crc"]
        return round(sum(path.stat().st_size for path in files) / 1e6, 3)

    def rows(self, batch: int) -> DataFrame:
        """What a batch writes."""
        size = self.lab.sizes.life_rows
        numbers = self.lab.spark.sql(f"SELECT explode(sequence({batch * size}L, {(batch + 1) * size - 1}L)) AS value")
        rows = events(numbers, STEP_US)
        return rows.withColumn("id", rows.id * 7919 % self.lab.sizes.life_keys) if self.upsert else rows

    def _measure_upkeep(self) -> None:
        upkeep = self.writer._upkeep
        after_commit = upkeep.after_commit

        def measured(files: int) -> None:
            before = self.lab.cpu_seconds()
            after_commit(files)
            self.upkeep_cpu += self.lab.cpu_seconds() - before

        upkeep.after_commit = measured  # type: ignore[method-assign]


def measure(lab: Lab, tell: Tell) -> list[Finding]:
    """The life of a table that is appended to."""
    return [*_life(lab, "append", lab.sizes.life_appends, tell), *_beside_procedures(lab, tell)]


def measure_upserts(lab: Lab, tell: Tell) -> list[Finding]:
    """The life of a table whose rows are upserted."""
    return _life(lab, "upsert", lab.sizes.life_upserts, tell)


def _beside_procedures(lab: Lab, tell: Tell) -> list[Finding]:
    """Both tables at the moment before the procedures are called again: what was spent so far, and what a scan costs."""
    every = lab.sizes.procedures_every
    commits = (CHECKPOINTS - 1) * every - 1
    stream = Stream(lab, "beside_procedures")
    theirs = f"{CATALOG}.{NAMESPACE}.with_procedures"
    stream.rows(0).limit(0).writeTo(theirs).using("iceberg").create()
    spent = 0.0
    for number in range(commits):
        stream.commit()
        before = lab.cpu_seconds()
        stream.rows(number).writeTo(theirs).append()
        if (number + 1) % every == 0:
            _call_procedures(lab, theirs)
        spent += lab.cpu_seconds() - before
    tell(f"{commits:,} commits: {stream.cpu:.0f} CPU s, with procedures {spent:.0f}")
    by_spark, by_duckdb = _both_scans(lab, {"frazil": stream.full_name, PROCEDURES: theirs}, tell)
    cpu = {"frazil": [round(stream.cpu, 2)] * CHECKPOINTS, PROCEDURES: [round(spent, 2)] * CHECKPOINTS}
    lived = f"after {commits:,} appends, maintained"
    return [
        _finding("procedures, processor", f"processor time {lived}", PROCEDURES, "seconds", cpu),
        _finding("procedures, scan by Spark", f"scan by Spark {lived}", PROCEDURES, "seconds", by_spark),
        _finding("procedures, scan by DuckDB", f"scan by DuckDB {lived}", PROCEDURES, "seconds", by_duckdb),
    ]


def _call_procedures(lab: Lab, name: str) -> None:
    table = name.partition(".")[2]
    for call in (
        f"rewrite_data_files(table => '{table}')",
        f"rewrite_manifests(table => '{table}')",
        f"expire_snapshots(table => '{table}', older_than => now(), retain_last => 100)",
    ):
        lab.spark.sql(f"CALL {CATALOG}.system.{call}").collect()


def _life(lab: Lab, mode: str, commits: int, tell: Tell) -> list[Finding]:
    stream = Stream(lab, f"life_{mode}", upsert=mode == "upsert")
    into = f" into {lab.sizes.life_keys:,} rows" if stream.upsert else ""
    scans: list[tuple[Runs, Runs]] = []
    shares: list[tuple[float, float]] = []
    written: list[tuple[float, float]] = []
    metadata: list[float] = []
    # Not at round numbers: the files that wait to be merged differ from commit to commit.
    for end in [commits * part // CHECKPOINTS - (7 * part) % 16 for part in range(1, CHECKPOINTS + 1)]:
        began = time.monotonic()
        times = [stream.commit() for _ in range(max(1, end - stream.done))]
        tell(f"{mode}: {stream.done:,} commits, {median(times):.3f} s each, {time.monotonic() - began:.0f} s for {len(times):,}")
        scans.append(_compacted_and_not(stream, tell))
        shares.append((round(stream.upkeep_cpu, 2), round(stream.cpu - stream.upkeep_cpu, 2)))
        written.append(stream.megabytes_written)
        metadata.append(stream.metadata_megabytes)
        tell(f"{mode}: maintenance {shares[-1]} CPU s, written {written[-1]} MB, metadata {metadata[-1]} MB")
    lived = f"after {stream.done:,} {mode}s{into}"
    by_spark, by_duckdb = (max(runs, key=_slowdown) for runs in zip(*scans, strict=True))
    compared = (
        ("scan by Spark", f"worst scan by Spark {lived}", COMPACTED, "seconds", by_spark, 1.3),
        ("scan by DuckDB", f"worst scan by DuckDB {lived}", COMPACTED, "seconds", by_duckdb, 1.3),
        ("bytes", f"bytes written {lived}", BATCHES, "megabytes", _sums(written, BATCHES), 4.0),
        ("processor", f"processor time of maintenance {lived}", INGEST, "seconds", _sums(shares, INGEST), 0.25),
    )
    return [
        _commit_times(lab, stream, mode, tell),
        *(_finding(f"{mode}, {case}", *rest) for case, *rest in compared),
        Finding(
            benchmark=_benchmark(mode),
            case=f"{mode}, metadata",
            goal=f"metadata on the disk {lived}: megabytes",
            value=metadata[-1],
            at_most=5.0,
            against=EARLIER,
            unit="megabytes",
            runs={"frazil": metadata[-1:] * CHECKPOINTS, EARLIER: metadata[:1] * CHECKPOINTS},
        ),
    ]


def _sums(pairs: Sequence[tuple[float, float]], against: str) -> Runs:
    """Sums over all commits: the last counts, and those before it are parts of it."""
    return {"frazil": [pairs[-1][0]] * len(pairs), against: [pairs[-1][1]] * len(pairs)}


def _slowdown(scans: Runs) -> float:
    return ratio(scans["frazil"], scans[COMPACTED])


def _benchmark(case: str) -> str:
    return "health_upserts" if case.startswith("upsert") else "health"


def _finding(case: str, what: str, against: str, unit: str, runs: Runs, at_most: float | None = None) -> Finding:
    goal, value = f"{what}: relative to {against}", ratio(runs["frazil"], runs[against])
    return Finding(_benchmark(case), case, goal, value, against, unit, runs, at_most=at_most)


def _commit_times(lab: Lab, stream: Stream, mode: str, tell: Tell) -> Finding:
    """Commits to the old table and to a fresh one, in turns; those that maintenance follows do not show in the medians."""
    fresh = Stream(lab, f"fresh_{mode}", upsert=stream.upsert)
    pairs = min(PAIRS, lab.sizes.life_upserts)
    for _ in range(min(10, pairs)):
        fresh.commit()
    times = [(stream.commit(), fresh.commit()) for _ in range(pairs)]
    size = max(1, pairs // CHECKPOINTS)
    parts = [times[first : first + size] for first in range(0, size * min(CHECKPOINTS, pairs), size)]
    runs = {who: [round(median(pair[turn] for pair in part), 4) for part in parts] for turn, who in enumerate(("frazil", FRESH))}
    tell(f"{mode}: commits {runs}")
    return _finding(f"{mode}, commits", f"time of a commit after {stream.done:,} {mode}s", FRESH, "seconds", runs, 1.15)


def _compacted_and_not(stream: Stream, tell: Tell) -> tuple[Runs, Runs]:
    """Scans of a table and of a copy that was written at once, by Spark and by DuckDB."""
    lab, name, copy = stream.lab, stream.full_name, f"{CATALOG}.{NAMESPACE}.compacted"
    lab.spark.sql(f"CREATE TABLE {copy} USING iceberg AS SELECT /*+ COALESCE(1) */ * FROM {name}")
    try:
        return _both_scans(lab, {"frazil": name, COMPACTED: copy}, tell)
    finally:
        lab.spark.sql(f"DROP TABLE {copy} PURGE")


def _both_scans(lab: Lab, tables: Mapping[str, str], tell: Tell) -> tuple[Runs, Runs]:
    """Scans by Spark, and by DuckDB, which reads the newest metadata files."""
    import duckdb

    by_spark = _scans(lab, "Spark", tables, lambda query: lab.spark.sql(query).collect(), tell)
    with duckdb.connect() as connection:
        for extension in ("avro", "httpfs", "iceberg"):
            connection.load_extension(str(_extension(extension)))
        read = {who: _by_metadata(lab, table) for who, table in tables.items()}
        return by_spark, _scans(lab, "DuckDB", read, lambda query: connection.sql(query).fetchall(), tell)


def _scans(lab: Lab, who: str, tables: Mapping[str, str], ask: Callable[[str], Sequence[Any]], tell: Tell) -> Runs:
    scans: Runs = {name: [] for name in tables}
    answers = {}
    for _, counted in rounds(lab.sizes, lab.sizes.scan_rounds):
        for name, table in tables.items():
            query = f"SELECT count(*), sum(user_id), max(path), count(distinct id) FROM {table}"
            began = time.perf_counter()
            answers[name] = tuple(ask(query)[0])
            if counted:
                scans[name].append(round(time.perf_counter() - began, 4))
    if len(set(answers.values())) > 1:
        raise RuntimeError(f"{who} reads other rows from the table than from its copy: {answers}")
    tell(f"scan by {who}: {', '.join(f'{name} {median(runs):.3f} s' for name, runs in scans.items())}")
    return scans


def _extension(name: str) -> Path:
    """Where a package has put an extension of DuckDB."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.rglob(f"{name}.duckdb_extension"))


def _by_metadata(lab: Lab, name: str) -> str:
    newest = lab.spark.sql(f"SELECT file FROM {name}.metadata_log_entries ORDER BY timestamp DESC LIMIT 1").collect()[0]
    return f"iceberg_scan('{newest.file.removeprefix('file://')}')"
