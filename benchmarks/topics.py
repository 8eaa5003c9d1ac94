"""JSON from a Kafka topic into Iceberg, on one real broker: appended and upserted.

Appends: Spark's own stream (`from_json`, `writeStream.toTable`), frazil's pipeline, and Iceberg's sink of Kafka Connect. That one
commits by the clock and never ends, so that it is compared by the processor time that it takes for the same messages. Upserts:
frazil against `MERGE` in `foreachBatch`, as one writes it by hand. Spark and frazil read batches of the same size.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, functions

from benchmarks.lab import CATALOG, SPAN_US, Lab, Measure, cpu_seconds, events, interleaved, merge_statement, timed
from benchmarks.summary import Finding, ratio
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import Settings
from frazil.runtime.runner import SharedSpark, run_pipeline
from frazil.spark.jars import Jar, component_jars
from services.connect import Worker, locked, running_worker
from services.kafka import Kafka, running_kafka

SPARK, FRAZIL, CONNECT, MERGE = "Spark's stream", "frazil's pipeline", "Kafka Connect's sink", "MERGE in foreachBatch"
PARTITIONS = 2
LONGEST_SECONDS = 300
TEXT = "org.apache.kafka.connect.storage.StringConverter"
COLUMNS = {
    "id": "long", "ts": "timestamptz", "user_id": "long", "event_type": "string", "country": "string", "session_id": "string",
    "path": "string", "amount": "decimal(12, 2)", "seconds": "double",
}  # fmt: skip
# As Spark calls these types.
SPARK_TYPES = {"long": "bigint", "timestamptz": "timestamp"}
DDL = ", ".join(f"{name} {SPARK_TYPES.get(kind, kind)}" for name, kind in COLUMNS.items())


@dataclass(frozen=True)
class Bench:
    """One broker with two topics of the same size: in one every key comes once, in the other several times."""

    lab: Lab
    kafka: Kafka

    @property
    def batch(self) -> int:
        return self.lab.sizes.messages // self.lab.sizes.message_batches

    def fill(self, topic: str, keys: int) -> None:
        """Writes the messages with Spark."""
        self.kafka.create_topic(topic, PARTITIONS)
        rows = self.lab.sizes.messages
        numbers = self.lab.spark.range(0, rows, 1, PARTITIONS).withColumnRenamed("id", "value")
        made = events(numbers, SPAN_US // rows)
        if keys < rows:
            made = made.withColumn("id", functions.expr(f"pmod(xxhash64(id), {keys})"))
        text = functions.to_json(functions.struct(*made.columns)).alias("value")
        place = functions.pmod(functions.xxhash64("id"), functions.lit(PARTITIONS)).cast("int").alias("partition")
        sink = made.select(text, functions.col("id").cast("string").alias("key"), place).write.format("kafka")
        sink.option("kafka.bootstrap.servers", self.kafka.address()).option("topic", topic).save()

    def stream(self, topic: str) -> DataFrame:
        """The topic as Spark's stream has it."""
        reader = self.lab.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.kafka.address())
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        raw = reader.option("maxOffsetsPerTrigger", self.batch).load()
        return raw.select(functions.from_json(functions.col("value").cast("string"), DDL).alias("row"), "offset")

    def table(self) -> str:
        return self.lab.make_table("topic", self.lab.spark.createDataFrame([], DDL))

    def measured(self, work: Callable[[str, Path], float], rows: int | None = None) -> float:
        """Seconds of the work, into a fresh table that must hold as many rows in the end."""
        name, checkpoint = self.table(), self.lab.folder / "checkpoint-topics"
        try:
            seconds = work(name, checkpoint)
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
        if rows is not None:
            self.lab.drop_table(name, rows)
        else:
            self.lab.spark.sql(f"DROP TABLE {name}")
            shutil.rmtree(self.lab.table_folder(name))
        return seconds

    def spark(self, name: str, checkpoint: Path) -> float:
        """`writeStream.toTable`, until nothing is left."""
        writer = self.stream("once").select("row.*").writeStream.format("iceberg").option("checkpointLocation", str(checkpoint))
        return timed(lambda: _ended(writer.trigger(availableNow=True).toTable(name)))

    def merge(self, name: str, checkpoint: Path) -> float:
        """The last row of each key of a batch, merged."""

        def write(frame: DataFrame, _batch: int) -> None:
            frame.createOrReplaceTempView("topic_batch")
            latest = "SELECT max_by(row, offset) AS row FROM topic_batch GROUP BY row.id"
            frame.sparkSession.sql(merge_statement(name, f"(SELECT row.* FROM ({latest}))"))

        writer = self.stream("often").writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        return timed(lambda: _ended(writer.trigger(availableNow=True).start()))

    def frazil(self, topic: str, name: str, **options: object) -> float:
        """`frazil run --once`."""
        place = {"bootstrap_servers": self.kafka.address(), "topics": [topic], "start_offset": "earliest"}
        source = {"connector": "kafka", **place, "format": {"type": "json", "schema": COLUMNS}}
        sink = self.lab.sink(None, name).options(batch_size=self.batch, max_batch_size=self.batch, **options).spec
        given = {"name": "bench", "source_name": "topic", "source": source, "sink_name": "lake", "sink": sink}
        pipeline = PipelineSpec.model_validate(given)
        stop = threading.Event()
        spark = SharedSpark([pipeline], Settings())
        return timed(lambda: run_pipeline(pipeline, Settings(), spark, lambda _: None, stop, once=True))

    def connect(self, worker: Worker, name: str) -> float:
        """Processor seconds of the worker from the connector's start until all rows are committed."""
        connector = f"bench-{time.monotonic_ns()}"
        config = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": str(PARTITIONS),
            "topics": "once",
            "iceberg.tables": name.partition(".")[2],
            "iceberg.catalog": CATALOG,
            "iceberg.catalog.type": "jdbc",
            "iceberg.catalog.uri": f"jdbc:sqlite:{self.lab.folder}/catalog.db",
            "iceberg.catalog.jdbc.schema-version": "V1",
            "iceberg.catalog.warehouse": f"file://{self.lab.folder}/warehouse",
            "iceberg.control.topic": "control",
            "iceberg.control.commit.interval-ms": "2000",
            "consumer.override.auto.offset.reset": "earliest",
        }
        before = cpu_seconds(worker.child.pid)
        worker.create(connector, config)
        deadline = time.monotonic() + LONGEST_SECONDS
        while self._held(name) < self.lab.sizes.messages:
            if time.monotonic() > deadline or not worker.child.running:
                raise RuntimeError(f"Kafka Connect wrote {self._held(name)} rows:\n{worker.child.log_text()[-3000:]}")
            time.sleep(0.2)
        used = cpu_seconds(worker.child.pid) - before
        worker.delete(connector)
        return used

    def _held(self, name: str) -> int:
        # From the catalog and the newest metadata alone, which costs the contestant next to nothing.
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{self.lab.folder}/catalog.db")
        try:
            head = catalog.load_table(name.partition(".")[2]).current_snapshot()
        finally:
            catalog.engine.dispose()
        return int(head.summary["total-records"]) if head is not None and head.summary is not None else 0

    def frazil_cpu(self, name: str) -> float:
        """Processor seconds of this process and of Spark for the same."""
        before = self.lab.cpu_seconds()
        self.frazil("once", name)
        return self.lab.cpu_seconds() - before


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """Appends and upserts, interleaved; then the processor time of two sinks."""
    folder = lab.folder / "kafka"
    folder.mkdir()
    with running_kafka(folder) as kafka:
        bench = Bench(lab, kafka)
        messages = lab.sizes.messages
        keys = max(messages // 5, 1)
        kafka.create_topic("control")
        bench.fill("once", messages)
        bench.fill("often", keys)
        upserts = {"commit_mode": "upsert", "key_fields": ["id"]}
        appends: dict[str, Measure] = {
            SPARK: lambda: bench.measured(bench.spark, messages),
            FRAZIL: lambda: bench.measured(lambda name, _: bench.frazil("once", name), messages),
        }
        merges: dict[str, Measure] = {
            MERGE: lambda: bench.measured(bench.merge),
            FRAZIL: lambda: bench.measured(lambda name, _: bench.frazil("often", name, **upserts)),
        }
        tell("append")
        appended = interleaved(appends, lab.sizes, tell)
        tell("upsert")
        upserted = interleaved(merges, lab.sizes, tell)
        tell("processor time")
        jars, plugin = locked("connect-4.3.1"), (*locked("iceberg-connect-1.12.0"), *_sqlite_driver())
        settings = {
            "value_converter_schemas_enable": "false",
            "key_converter": "org.apache.kafka.connect.storage.StringConverter",
        }
        with running_worker(folder, kafka, jars, plugin, **settings, connector_client_config_override_policy="All") as worker:
            cpu: dict[str, Measure] = {
                CONNECT: lambda: bench.measured(lambda name, _: bench.connect(worker, name), messages),
                FRAZIL: lambda: bench.measured(lambda name, _: bench.frazil_cpu(name), messages),
            }
            spent = interleaved(cpu, lab.sizes, tell)
    return [
        _finding(lab, "append", f"append of {messages:,} JSON messages of a topic", appended, SPARK, 0.9),
        _finding(lab, "upsert", f"upsert of {messages:,} JSON messages with {keys:,} keys", upserted, MERGE, 0.9),
        _finding(lab, "append, processor time", f"append of {messages:,} JSON messages, for each core", spent, CONNECT, 1.0),
    ]


def _finding(lab: Lab, case: str, what: str, runs: Mapping[str, list[float]], other: str, at_least: float) -> Finding:
    return Finding(
        benchmark="topics",
        case=case,
        goal=f"{what}: speed relative to {other}",
        value=ratio(runs[other], runs[FRAZIL]),
        at_least=at_least,
        against=other,
        unit="seconds",
        runs={FRAZIL: runs[FRAZIL], other: runs[other]},
        details={
            "messages": lab.sizes.messages,
            "partitions": PARTITIONS,
            "messages_per_second": {name: round(lab.sizes.messages / min(each)) for name, each in runs.items()},
        },
    )


def _ended(query: object) -> None:
    query.awaitTermination()  # type: ignore[attr-defined]


def _sqlite_driver() -> list[Jar]:
    return [jar for jar in component_jars(["core"]) if "sqlite" in jar.module]
