"""Kafka's own Java clients inside Spark's JVM: which topics there are, and how far their partitions reach.

Both clients stay open between questions, and a question is a handful of calls to the JVM: the offsets of all partitions come
back as one text. Nothing is read here; Spark's connector reads, with the same settings.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.errors import EnvironmentFault
from frazil.spark.running_java import java_class, java_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_MS = 10_000

Partition = tuple[str, int]

_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_UNKNOWN_TOPIC = "UnknownTopicOrPartitionException"


@dataclass(frozen=True)
class TopicInfo:
    """A topic as the cluster describes it. Its id is another one when it was deleted and made again under its name."""

    id: str
    partitions: int


class KafkaClient:
    """Asks a Kafka cluster. Opened by the first question, and again by the first one after :meth:`close`.

    Questions may come from several threads; one is answered at a time. What goes wrong is raised as it comes from the JVM.
    """

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self._spark = spark
        patience = {"default.api.timeout.ms": str(TIMEOUT_MS), "request.timeout.ms": str(TIMEOUT_MS)}
        self._settings = patience | dict(settings)
        self._lock = threading.RLock()
        self._clients: _Clients | None = None

    def cluster_id(self) -> str:
        """The id that a cluster has for as long as it lives."""
        with self._lock:
            return str(self._open().admin.describeCluster().clusterId().get())

    def topic_names(self) -> frozenset[str]:
        """All topics that the user may see, but for Kafka's internal ones."""
        with self._lock:
            text = str(self._open().admin.listTopics().names().get().toString())
        return frozenset(filter(None, text.strip("[]").split(", ")))

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """What is known of the topics that exist."""
        wanted = sorted(names)
        with self._lock:
            try:
                return self._describe(wanted)
            except Exception as error:
                # Why an answer did not come is the cause of what Java raises, of which Python sees the text alone.
                if _UNKNOWN_TOPIC not in str(error):
                    raise
                return self._describe(sorted(self.topic_names().intersection(wanted)))

    def _describe(self, names: list[str]) -> dict[str, TopicInfo]:
        if not names:
            return {}
        found = self._open().admin.describeTopics(names).allTopicNames().get()
        known = {name: found.get(name) for name in names}
        return {name: TopicInfo(str(one.topicId().toString()), int(one.partitions().size())) for name, one in known.items()}

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first offset that each partition still has."""
        with self._lock:
            clients = self._open()
            return _offsets(clients.consumer.beginningOffsets(clients.partitions(partitions)))

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset after the last one of each partition that may be read: no further than an open transaction allows."""
        with self._lock:
            clients = self._open()
            return _offsets(clients.consumer.endOffsets(clients.partitions(partitions)))

    def at_time(self, partitions: Iterable[Partition], time_ms: int) -> dict[Partition, int | None]:
        """The first offset of each partition whose message is not older; None where there is none."""
        with self._lock:
            clients = self._open()
            moment = clients.offset_spec.forTimestamp(time_ms)
            asked = clients.new_map()
            for partition in partitions:
                asked.put(clients.partition(partition), moment)
            result = clients.admin.listOffsets(asked)
            found = {one: int(result.partitionResult(clients.partition(one)).get().offset()) for one in partitions}
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def tell_group(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Lets the cluster know how far a group has come, for its own tools. The answer is not waited for: nothing needs it."""
        with self._lock:
            clients = self._open()
            values = clients.new_map()
            for partition, offset in offsets.items():
                values.put(clients.partition(partition), clients.new_offset(offset))
            clients.admin.alterConsumerGroupOffsets(group, values)

    def close(self) -> None:
        """Closes the connections at once."""
        with self._lock:
            clients, self._clients = self._clients, None
        if clients is not None:
            # The JVM may be gone already, and its connections with it.
            with suppress(Exception):
                clients.close()

    def _open(self) -> _Clients:
        if self._clients is None:
            self._clients = _Clients(self._spark, self._settings)
        return self._clients


class _Clients:
    """The two Java clients, and the Java values for requests."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        root = java_names(spark._jvm)
        kafka = root.org.apache.kafka
        if java_class(spark, "org.apache.kafka.clients.consumer.KafkaConsumer") is None:
            raise EnvironmentFault(
                "source-driver-missing",
                "The Spark session that is running was started without the jars for Kafka.",
                fix="Let frazil start Spark, or start it with spark-sql-kafka-0-10, its token provider and kafka-clients.",
            )
        self._new_partition = kafka.common.TopicPartition
        self._partitions: dict[Partition, Any] = {}
        self._new_list = root.java.util.ArrayList
        self._list: tuple[tuple[Partition, ...], Any] | None = None
        self._zero = root.java.time.Duration.ZERO
        self.new_offset = kafka.clients.consumer.OffsetAndMetadata
        self.new_map = root.java.util.HashMap
        self.offset_spec = kafka.clients.admin.OffsetSpec
        self.admin = kafka.clients.admin.AdminClient.create(dict(settings))
        try:
            reading = {"key.deserializer": _BYTES, "value.deserializer": _BYTES, "enable.auto.commit": "false"}
            self.consumer = kafka.clients.consumer.KafkaConsumer(dict(settings) | reading)
        except BaseException:
            self.admin.close(self._zero)
            raise

    def partition(self, partition: Partition) -> Any:
        """The `TopicPartition`, made once."""
        if partition not in self._partitions:
            self._partitions[partition] = self._new_partition(*partition)
        return self._partitions[partition]

    def partitions(self, partitions: Iterable[Partition]) -> Any:
        """A Java list of them; the last one is kept, since the same are asked for again and again."""
        wanted = tuple(partitions)
        if self._list is None or self._list[0] != wanted:
            made = self._new_list()
            for partition in wanted:
                made.add(self.partition(partition))
            self._list = wanted, made
        return self._list[1]

    def close(self) -> None:
        self.consumer.close(self._zero)
        self.admin.close(self._zero)


def _offsets(answer: Any) -> dict[Partition, int]:
    """Reads a Java map of partitions to offsets by its text, `{orders-0=17, orders-1=4}`: one call, however many there are."""
    found: dict[Partition, int] = {}
    for entry in filter(None, str(answer.toString()).strip("{}").split(", ")):
        partition, offset = entry.rsplit("=", 1)
        topic, number = partition.rsplit("-", 1)
        found[topic, int(number)] = int(offset)
    return found
