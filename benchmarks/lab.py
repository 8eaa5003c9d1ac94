"""The bench: one Spark, one SQLite catalog, the rows that everybody writes, tables that are thrown away, and a clock."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.sizes import Sizes
from frazil.doors.python.data_source import session
from frazil.doors.python.sink import Sink, sink
from frazil.model.settings import Settings, SparkSettings

CATALOG = "lake"
NAMESPACE = "bench"
CODEC = "snappy"

# 2025-01-01, and thirty days, in microseconds.
BEGIN_US = 1_735_689_600_000_000
SPAN_US = 30 * 86_400_000_000
LATE_US = 3 * 86_400_000_000

FRAZIL = "frazil"

Measure = Callable[[], float]


def events(numbers: DataFrame, step_us: int) -> DataFrame:
    """Nine columns of a shop's events, from the column ``value``: in order of time, but for one in fifty, which is late."""
    return numbers.selectExpr(
        "value AS id",
        f"timestamp_micros({BEGIN_US} + value * {step_us} - IF(value % 50 = 7, pmod(xxhash64(value), {LATE_US}), 0)) AS ts",
        "pmod(xxhash64(value, 1), 200000) AS user_id",
        "element_at(array('page_view', 'search', 'add_to_cart', 'purchase'), cast(pmod(xxhash64(value, 2), 4) AS int) + 1)"
        " AS event_type",
        "element_at(array('US', 'DE', 'GB', 'FR', 'IN', 'BR', 'JP'), cast(pmod(xxhash64(value, 3), 7) AS int) + 1) AS country",
        "lower(hex(xxhash64(value div 6))) AS session_id",
        "concat('/products/', pmod(xxhash64(value, 4), 5000), '?from=', pmod(value, 17)) AS path",
        "IF(value % 9 = 0, cast(pmod(xxhash64(value, 5), 50000) / 100 AS decimal(12, 2)), NULL) AS amount",
        "cast(pmod(xxhash64(value, 6), 100000) AS double) / 7 AS seconds",
    )


class Lab:
    """What every contestant uses alike."""

    def __init__(self, folder: Path, sizes: Sizes, **conf: str) -> None:
        self.folder = folder
        self.sizes = sizes
        self.cores = min(os.cpu_count() or 1, 8)
        spark_conf = {"spark.driver.memory": sizes.heap, "spark.sql.parquet.compression.codec": CODEC} | conf
        settings = SparkSettings(master=f"local[{self.cores}]", app_name="frazil-benchmarks", conf=spark_conf)
        self.spark: SparkSession = session(Settings(spark=settings), ("core", "kafka", "avro"))
        # A stream that is stopped in the middle of a batch says so as an error; what really fails is raised.
        self.spark.sparkContext.setLogLevel("FATAL")
        for name, value in self._catalog_conf().items():
            self.spark.conf.set(name, value)
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")

    def _catalog_conf(self) -> Mapping[str, str]:
        options = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": f"jdbc:sqlite:{self.folder}/catalog.db",
            ".jdbc.schema-version": "V1",
            ".warehouse": f"file://{self.folder}/warehouse",
            ".cache-enabled": "false",
        }
        return {f"spark.sql.catalog.{CATALOG}{name}": value for name, value in options.items()}

    def cpu_seconds(self) -> float:
        """Processor time of this process and of Spark's, so far."""
        return cpu_seconds(os.getpid()) + cpu_seconds(self._java)

    def timed(self, work: Callable[[], object]) -> float:
        """The seconds that the work takes, begun when neither the disk nor Java's garbage collector has work left of others."""
        jvm = self.spark._jvm
        assert jvm is not None, "Spark runs"
        jvm.System.gc()
        return timed(work)

    @cached_property
    def _java(self) -> int:
        return int(self.spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())

    def source(self) -> DataFrame:
        """The rows of an append: Parquet files on the local disk, written once, read anew by every contestant."""
        path = self.folder / "source"
        if not (path / "_SUCCESS").is_file():
            # Several files for each core, as a landing folder has them; the splits, and so the tasks, are equal for all.
            numbers = self.spark.range(0, self.sizes.rows, 1, 4 * self.cores).withColumnRenamed("id", "value")
            events(numbers, SPAN_US // self.sizes.rows).write.parquet(str(path))
        return self.spark.read.parquet(str(path))

    def make_table(self, table: str, like: DataFrame, partition: str | None = None, catalog: str = CATALOG) -> str:
        """A fresh table, the same for all who write to one; its full name."""
        name = f"{catalog}.{NAMESPACE}.{table}"
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in like.schema.fields)
        partitioned = f"PARTITIONED BY ({partition})" if partition else ""
        properties = f"'format-version'='2', 'write.parquet.compression-codec'='{CODEC}'"
        self.spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg {partitioned} TBLPROPERTIES ({properties})")
        return name

    def drop_table(self, name: str, rows: int) -> int:
        """Drops a table with its files, after a look whether it holds the rows; how many data files it had."""
        held, files = self.spark.sql(f"SELECT sum(record_count), count(*) FROM {name}.files").collect()[0]
        if held != rows:
            raise RuntimeError(f"{name} holds {held} rows, not {rows}: what was measured is not an append of these rows")
        self.spark.sql(f"DROP TABLE {name} PURGE")
        shutil.rmtree(self.table_folder(name), ignore_errors=True)
        return int(files)

    def table_folder(self, name: str) -> Path:
        """Where the files of a table are."""
        return self.folder / "warehouse" / NAMESPACE / name.rpartition(".")[2]

    def sink(self, frame: DataFrame | None, name: str) -> Sink:
        """frazil, with its defaults but for the codec's name, which is the same."""
        return sink(frame).to(name).options(compression=CODEC)


def merge_statement(table: str, rows: str) -> str:
    """`MERGE INTO` by `id`, as one writes it by hand: rows are updated or inserted."""
    actions = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    return f"MERGE INTO {table} t USING {rows} s ON t.id = s.id {actions}"


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def timed(work: Callable[[], object]) -> float:
    """The seconds that the work takes, begun when the disk has nothing left to do for those before it."""
    os.sync()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rounds(sizes: Sizes, count: int) -> Iterator[tuple[str, bool]]:
    """What to call each round, and whether it counts: the first ones, before it is warm, do not."""
    yield from (("warm-up", False) for _ in range(sizes.warm_up))
    yield from ((f"round {number}", True) for number in range(1, count + 1))


def interleaved(contestants: Mapping[str, Measure], sizes: Sizes, tell: Callable[[str], None]) -> dict[str, list[float]]:
    """Measures all contestants round after round, so that what disturbs the machine disturbs them alike."""
    runs: dict[str, list[float]] = {name: [] for name in contestants}
    for turn, counted in rounds(sizes, sizes.rounds):
        for name, measure in contestants.items():
            value = measure()
            tell(f"{turn}  {name}: {value:.3f}")
            if counted:
                runs[name].append(round(value, 4))
    return runs
