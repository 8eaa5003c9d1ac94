"""Kafka: one broker in KRaft mode, which is its own controller, on free ports of 127.0.0.1, gone after the test run.

It listens without a password, with one (PLAIN and SCRAM), encrypted, and encrypted for clients that show a certificate.
"""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from frazil.spark.jars import ensure_jars, read_lock
from frazil.spark.java import java_command
from services.certificates import HERE, make_certificates
from services.processes import LOCALHOST, Child, ServiceFailed, free_port, start, wait_until

LOCK = Path(__file__).parent / "locks" / "kafka-4.3.1.txt"
READY_SECONDS = 90
PORT_TRIES = 3
MEMORY = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info")

USER = "reader"
OTHER_NAME = "broker.frazil.test"

# Name of the listener, and its protocol. NAMED shows a certificate for another name than that of its address.
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SASL": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "NAMED": "SSL",
    "MUTUAL": "SSL",
    "BOTH": "SASL_SSL",
    "CONTROLLER": "PLAINTEXT",
}


@dataclass(frozen=True)
class Message:
    """A message to be written."""

    value: bytes | str | None
    key: bytes | str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int = 0
    timestamp_ms: int = 0


@dataclass
class Kafka:
    """A broker with its own folder. It can be stopped and started again on the same ports with the same data."""

    folder: Path
    password: str
    cluster_id: str
    ports: dict[str, int] = field(default_factory=dict)
    child: Child | None = None
    _starts: int = 0
    _admin: Any = None
    _producer: Any = None

    def address(self, listener: str = "PLAINTEXT") -> str:
        """Where clients of a listener connect to."""
        return f"{LOCALHOST}:{self.ports[listener]}"

    @property
    def certificates(self) -> Path:
        """The folder with ``ca.pem``, and a certificate and key each of ``server``, ``named`` and ``client``."""
        return self.folder / "certificates"

    @property
    def admin(self) -> Any:
        """A client that makes and deletes topics."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient  # type: ignore[import-untyped]

            self._admin = AdminClient({"bootstrap.servers": self.address(), "log_level": 0})
        return self._admin

    def create_topic(self, name: str | None = None, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Makes a topic, under a name that no other test has unless one is given, and returns the name."""
        from confluent_kafka.admin import NewTopic  # type: ignore[import-untyped]

        name = name or f"topic-{uuid.uuid4().hex[:8]}"
        self.admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))])[name].result(30)
        wait_until(lambda: name in self.topics(), 30, f"the topic {name}")
        return name

    def delete_topic(self, name: str) -> None:
        """Deletes a topic, and waits until the cluster has forgotten it."""
        self.admin.delete_topics([name])[name].result(30)
        wait_until(lambda: name not in self.topics(), 30, f"the end of the topic {name}")
        self._producer = None  # it remembers the topic

    def topics(self) -> frozenset[str]:
        """The names of all topics."""
        return frozenset(self.admin.list_topics(timeout=30).topics)

    def add_partitions(self, name: str, total: int) -> None:
        """Gives a topic more partitions."""
        from confluent_kafka.admin import NewPartitions  # type: ignore[import-untyped]

        self.admin.create_partitions([NewPartitions(name, total)])[name].result(30)
        wait_until(lambda: len(self.admin.list_topics(name, timeout=30).topics[name].partitions) == total, 30, "partitions")
        self._producer = None  # it remembers how many there were

    def delete_records(self, name: str, before: int, partition: int = 0) -> None:
        """Deletes the messages of a partition before an offset, as retention does."""
        from confluent_kafka import TopicPartition  # type: ignore[import-untyped]

        place = TopicPartition(name, partition, before)
        self.admin.delete_records([place])[place].result(30)

    def group_offset(self, group: str, topic: str, partition: int = 0) -> int | None:
        """How far the cluster believes a group to be."""
        from confluent_kafka import (  # type: ignore[import-untyped]
            ConsumerGroupTopicPartitions,
            KafkaException,
            TopicPartition,
        )

        def ask() -> Any:
            asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
            try:
                return self.admin.list_consumer_group_offsets([asked])[group].result(30).topic_partitions[0]
            except KafkaException:
                return None  # the coordinator of groups starts when it is first asked for

        found = wait_until(ask, 30, "the coordinator of groups")
        return int(found.offset) if found.offset >= 0 else None

    def produce(self, topic: str, messages: Iterable[Message | bytes | str | None], partition: int = 0) -> None:
        """Writes messages, and waits until the broker has them all."""
        if self._producer is None:
            self._producer = self.new_producer()
        write(self._producer, topic, messages, partition)
        if left := self._producer.flush(60):
            raise ServiceFailed(f"Kafka did not take {left} messages")

    def consume(self, topic: str, count: int, seconds: float = 30) -> list[Any]:
        """So many messages of the first partition, from its beginning."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.address(), "group.id": "tests", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        try:
            wait_until(lambda: found.extend(consumer.consume(count, 1)) or len(found) >= count, seconds, "the messages")
        finally:
            consumer.close()
        return found

    def new_producer(self, **settings: Any) -> Any:
        """A producer of its own, e.g. one with transactions."""
        from confluent_kafka import Producer  # type: ignore[import-untyped]

        # One request at a time: one that is sent again must not come after the next.
        own = {"bootstrap.servers": self.address(), "linger.ms": 1, "log_level": 0, "max.in.flight.requests.per.connection": 1}
        return Producer(own | settings)

    def start(self) -> None:
        """Starts the broker, and waits until it takes connections."""
        self._starts += 1
        command = [java_command(), *MEMORY, *LOGGING, "-cp", _classpath(), "kafka.Kafka", str(self.folder / "server.properties")]
        self.child = start("Kafka", command, self.folder / f"server-{self._starts}.log")
        self.child.await_line("Kafka Server started", READY_SECONDS)

    def stop(self) -> None:
        """Stops the broker in order; what it holds stays."""
        if self.child is not None:
            self.child.stop(timeout=30)
            self.child = None


def write(producer: Any, topic: str, messages: Iterable[Message | bytes | str | None], partition: int = 0) -> None:
    """Hands messages to a producer; a plain value goes to the partition given."""
    for message in messages:
        one = message if isinstance(message, Message) else Message(message, partition=partition)
        options = {"timestamp": one.timestamp_ms} if one.timestamp_ms else {}
        producer.produce(topic, one.value, one.key, one.partition, headers=list(one.headers), **options)
        producer.poll(0)


@contextmanager
def running_kafka(folder: Path) -> Iterator[Kafka]:
    """A broker of its own in the folder, as long as the block."""
    cluster_id = base64.urlsafe_b64encode(b"frazil" + secrets.token_bytes(10)).decode().rstrip("=")
    kafka = Kafka(folder, secrets.token_urlsafe(12), cluster_id)
    make_certificates(kafka.certificates, {"server": HERE, "named": f"DNS:{OTHER_NAME}", "client": "DNS:client"})
    _start_on_free_ports(kafka)
    try:
        yield kafka
    finally:
        kafka.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One broker for the test run. Tests share it, so that each makes topics of its own; one that stops it starts it again."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def _start_on_free_ports(kafka: Kafka) -> None:
    for _ in range(PORT_TRIES):
        kafka.ports = {name: free_port() for name in LISTENERS}
        if len(set(kafka.ports.values())) < len(LISTENERS):
            continue
        _write_properties(kafka)
        if kafka.child is None:
            _format(kafka)
        try:
            kafka.start()
        except ServiceFailed as failed:
            kafka.stop()
            if "Address already in use" not in str(failed):
                raise
            continue
        return
    raise ServiceFailed(f"Kafka found its ports taken {PORT_TRIES} times")


def _classpath() -> str:
    return os.pathsep.join(str(jar) for jar in ensure_jars(read_lock(LOCK)))


def _write_properties(kafka: Kafka) -> None:
    certificates = kafka.certificates
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{kafka.address('CONTROLLER')}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": ",".join(f"{name}://{kafka.address(name)}" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "log.dirs": str(kafka.folder / "data"),
        "auto.create.topics.enable": "false",
        "log.retention.ms": "-1",  # tests send messages of any time
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.backoff.ms": "100",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "server.both"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
        "listener.name.named.ssl.keystore.type": "PEM",
        "listener.name.named.ssl.keystore.location": str(certificates / "named.both"),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for listener in ("sasl", "both"):
        properties[f"listener.name.{listener}.plain.sasl.jaas.config"] = f'{plain} user_{USER}="{kafka.password}";'
        properties[f"listener.name.{listener}.scram-sha-256.sasl.jaas.config"] = scram
        properties[f"listener.name.{listener}.scram-sha-512.sasl.jaas.config"] = scram
    file = kafka.folder / "server.properties"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def _format(kafka: Kafka) -> None:
    if (kafka.folder / "data").exists():
        return
    command = [java_command(), *MEMORY, *LOGGING, "-cp", _classpath(), "kafka.tools.StorageTool", "format"]
    users = [f"--add-scram=SCRAM-SHA-{size}=[name={USER},password={kafka.password}]" for size in (256, 512)]
    place = [f"--cluster-id={kafka.cluster_id}", f"--config={kafka.folder / 'server.properties'}"]
    done = subprocess.run([*command, *place, *users], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceFailed(f"Kafka's storage could not be made:\n{done.stdout}{done.stderr}")
