"""Upserts into tables of different sizes, and what reading costs after many of them.

Three ways for the same rows: frazil with deletes by key, Spark's MERGE (merge-on-read), and PyIceberg's upsert. Each has a
table of its own, which begins as the same files. Keys are spread over the whole table, which is the worst case for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from pyspark.sql import DataFrame

from benchmarks.lab import CATALOG, NAMESPACE, Lab, merge_statement, rounds, timed
from benchmarks.summary import Finding, ratio
from frazil.model.events import Settled

FRAZIL, MERGE, PYICEBERG = "frazil, deletes by key", "Spark's MERGE", "PyIceberg's upsert"
COLUMNS = ("id", "id % 97 AS kind", "concat('name-', id % 1000) AS name", "cast(id AS double) / 7 AS amount")
UNBOUNDED = {"upsert_strategy": "equality_delete", "max_equality_deletes": None, "max_delete_files": None}
PYICEBERG_LARGEST = 10_000_000
SECONDS_OF_A_SETTLEMENT = 6.0

Runs = Mapping[str, Sequence[float]]


class Tables:
    """Tables of one size, one for each contestant, all beginning as the same files."""

    def __init__(self, lab: Lab, rows: int, version: int, name: str = "first") -> None:
        self._lab = lab
        self.rows = rows
        self._turn = 0
        self._first = f"{CATALOG}.{NAMESPACE}.{name}_{rows}_v{version}"
        properties = (
            f"'format-version'='{version}', 'write.merge.mode'='merge-on-read', 'write.parquet.compression-codec'='snappy'"
        )
        lab.spark.sql(
            f"CREATE TABLE {self._first} (id BIGINT NOT NULL, kind BIGINT, name STRING, amount DOUBLE) USING iceberg "
            f"PARTITIONED BY (bucket(8, id)) TBLPROPERTIES ({properties})"
        )
        numbers = lab.spark.range(0, rows, 1, max(lab.cores, rows // 2_500_000))
        lab.sink(numbers.selectExpr(*COLUMNS), self._first).write()

    def copy(self, what: str, of: str | None = None) -> str:
        """Another table of the same files, or of those that another of the tables has."""
        name = f"{NAMESPACE}.{what}_{self._first.rpartition('.')[2]}"
        log = f"{of or self._first}.metadata_log_entries"
        newest = self._lab.spark.sql(f"SELECT file FROM {log} ORDER BY timestamp DESC").collect()[0]
        self._lab.spark.sql(f"CALL {CATALOG}.system.register_table('{name}', '{newest.file}')").collect()
        return f"{CATALOG}.{name}"

    def batch(self) -> DataFrame:
        """Rows with keys from all over the table, other ones each time, made before the clock runs."""
        self._turn += 1
        count = min(self._lab.sizes.upsert_rows, self.rows // 4)
        numbers = self._lab.spark.range(0, 2 * count, 1, 1).selectExpr(f"pmod(xxhash64(id, {self._turn}), {self.rows}) AS id")
        return numbers.distinct().limit(count).selectExpr(*COLUMNS).localCheckpoint()

    def upsert(self, name: str, frame: DataFrame, settled: list[Settled] | None = None, **options: int) -> float:
        """`frazil.sink(df).keys("id").mode("upsert").write()`; what it settled is noted."""
        sink = self._lab.sink(frame, name).keys("id").mode("upsert").options(**(UNBOUNDED | options))
        noted = [] if settled is None else settled
        return self._lab.timed(sink.listen(lambda event: noted.append(event) if isinstance(event, Settled) else None).write)

    def merge(self, name: str, frame: DataFrame) -> float:
        """`MERGE INTO`."""
        frame.createOrReplaceTempView("batch")
        return self._lab.timed(lambda: self._lab.spark.sql(merge_statement(name, "batch")))

    def compact(self, name: str) -> float:
        """Iceberg's own rewrite of everything."""
        call = f"CALL {CATALOG}.system.rewrite_data_files(table => '{name.partition('.')[2]}', "
        return self._lab.timed(lambda: self._lab.spark.sql(call + "options => map('rewrite-all', 'true'))").collect())

    def pyiceberg(self, name: str, frame: DataFrame) -> float:
        """`table.upsert(arrow)`, with the rows in memory already."""
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{self._lab.folder}/catalog.db")
        try:
            table = catalog.load_table(name.partition(".")[2])
            rows = frame.toArrow().cast(table.schema().as_arrow())
            return self._lab.timed(lambda: table.upsert(rows, join_cols=["id"]))
        finally:
            catalog.engine.dispose()


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """Upserts into tables of all sizes, then the cost of reading after many."""
    runs = {rows: _upserts(lab, rows, tell) for rows in lab.sizes.tables}
    return [_growth(lab, runs), *_faster(lab, runs), *_reading(lab, tell)]


def _upserts(lab: Lab, rows: int, tell: Callable[[str], None]) -> dict[str, list[float]]:
    tables = Tables(lab, rows, version=2)
    ways = {FRAZIL: tables.upsert, MERGE: tables.merge} | ({PYICEBERG: tables.pyiceberg} if rows <= PYICEBERG_LARGEST else {})
    names = {who: tables.copy(word) for who, word in zip(ways, ("frazil", "merge", "pyiceberg"), strict=False)}
    runs: dict[str, list[float]] = {who: [] for who in ways}
    for name, counted in rounds(lab.sizes, lab.sizes.upsert_rounds):
        frame = tables.batch()
        for who, way in ways.items():
            seconds = way(names[who], frame)
            tell(f"{name}  {rows:,} rows, {who}: {seconds:.3f}")
            if counted:
                runs[who].append(round(seconds, 4))
    return runs


def _growth(lab: Lab, runs: Mapping[int, Runs]) -> Finding:
    least, most = min(runs), max(runs)
    ours, other = f"{FRAZIL}, {most:,} rows", f"{FRAZIL}, {least:,} rows"
    return Finding(
        benchmark="upsert",
        case="growth",
        goal=f"upsert of {lab.sizes.upsert_rows:,} rows into {most:,}: time relative to a table of {least:,}",
        value=ratio(runs[most][FRAZIL], runs[least][FRAZIL]),
        at_most=1.3,
        against=other,
        unit="seconds",
        runs={ours: runs[most][FRAZIL], other: runs[least][FRAZIL]},
    )


def _faster(lab: Lab, runs: Mapping[int, Runs]) -> list[Finding]:
    """Goals stand for the two larger sizes only."""
    middle, largest = sorted(runs)[-2:]
    goals = {(middle, MERGE): 6.0, (largest, MERGE): 25.0, (middle, PYICEBERG): 15.0}
    return [
        Finding(
            benchmark="upsert",
            case=f"{rows:,}",
            goal=f"upsert of {lab.sizes.upsert_rows:,} rows into {rows:,}: speed relative to {other}",
            value=ratio(runs[rows][other], runs[rows][FRAZIL]),
            at_least=goals.get((rows, other)),
            against=other,
            unit="seconds",
            runs={FRAZIL: runs[rows][FRAZIL], other: runs[rows][other]},
        )
        for rows in runs
        for other in (MERGE, PYICEBERG)
        if other in runs[rows]
    ]


def _reading(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """A scan with the deletes of many upserts, as they are, settled, and compacted away; and what it takes to get there."""
    rows = sorted(lab.sizes.tables)[-2]
    tables = Tables(lab, rows, version=3)
    live = tables.copy("live")
    for number in range(1, lab.sizes.upserts):
        tell(f"upsert {number} of {lab.sizes.upserts}: {tables.upsert(live, tables.batch()):.3f}")
    last = tables.batch()
    settling, compacting = [], []
    for number, (name, counted) in enumerate(rounds(lab.sizes, lab.sizes.upsert_rounds)):
        settled, compacted = (tables.copy(f"{word}{number}", live) for word in ("settled", "compacted"))
        noted: list[Settled] = []
        tables.upsert(settled, last, noted, max_equality_deletes=0)
        tables.upsert(compacted, last)
        took = noted[-1].seconds, tables.compact(compacted)
        tell(f"{name}  settled in {took[0]:.3f}, compacted in {took[1]:.3f}")
        if counted:
            settling.append(round(took[0], 4))
            compacting.append(round(took[1], 4))
    tables.upsert(live, last)
    # In rounds of their own: what a scan looks up a million live deletes in would be cleaned up at the cost of the next.
    scans = scans_of(lab, {"settled": settled, "compacted": compacted}, tell) | scans_of(lab, {"live": live}, tell)
    text = f"scan of {rows:,} rows after {lab.sizes.upserts} upserts of {lab.sizes.upsert_rows:,}"
    return [
        scan_finding("upsert", f"{text}, settled", scans, "settled", 1.3),
        scan_finding("upsert", f"{text}, not settled", scans, "live", None),
        Finding(
            benchmark="upsert",
            case="settling",
            goal=f"settling {lab.sizes.upserts} upserts into {rows:,} rows: seconds",
            value=round(median(settling), 3),
            at_most=SECONDS_OF_A_SETTLEMENT,
            against="compaction",
            unit="seconds",
            runs={"frazil, settled": settling, "compaction": compacting},
        ),
    ]


def scans_of(lab: Lab, names: Mapping[str, str], tell: Callable[[str], None]) -> dict[str, list[float]]:
    """How long the same query takes of tables, by their states, in turns."""
    scans: dict[str, list[float]] = {state: [] for state in names}
    for turn, counted in rounds(lab.sizes, lab.sizes.scan_rounds):
        for state, name in names.items():
            query = lab.spark.sql(f"SELECT count(*), sum(kind), max(name), sum(amount) FROM {name}")
            seconds = timed(query.collect)
            tell(f"{turn}  scan, {state}: {seconds:.3f}")
            if counted:
                scans[state].append(round(seconds, 4))
    return scans


def scan_finding(benchmark: str, goal: str, scans: Runs, state: str, at_most: float | None) -> Finding:
    """How much longer the scans of a table take in a state than those of the same table, compacted."""
    return Finding(
        benchmark=benchmark,
        case=f"scan, {state}",
        goal=f"{goal}: time relative to the same table compacted",
        value=ratio(scans[state], scans["compacted"]),
        at_most=at_most,
        against="compacted",
        unit="seconds",
        runs={f"frazil, {state}": scans[state], "compacted": scans["compacted"]},
    )
