"""A real Kafka broker as a source, in slices."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from frazil.errors import ConfigError, Halted, Retryable
from frazil.model.secrets import is_secret_name
from frazil.model.source import KafkaSource
from frazil.sources.base import Slice
from frazil.sources.kafka import KafkaTopics
from services.kafka import OTHER_NAME, USER, Kafka, Message, running_kafka, write
from services.processes import LOCALHOST, free_port, wait_until

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
HIDDEN = [
    "__frazil_raw",
    "__frazil_key",
    "__frazil_at",
    "__frazil_order",
    "__frazil_lane",
    "__frazil_table",
    "__frazil_time",
    "__frazil_headers",
]


class Reader:
    """What a pipeline does with topics. The ledger is all that it remembers."""

    def __init__(self, spark: SparkSession, kafka: Kafka, *topics: str, **options: Any) -> None:
        given = {"bootstrap_servers": kafka.address(), "topics": topics, "start_offset": "earliest", **options}
        self.source = KafkaTopics(KafkaSource.model_validate(given), spark)
        self.ledger: str | None = None

    def plan(self, limit: int = 1000) -> Slice | None:
        return self.source.plan(self.ledger, limit)

    def rows(self, limit: int = 1000) -> list[Row] | None:
        part = self.plan(limit)
        if part is None:
            return None
        found = self.source.read(part).collect()
        self.ledger = part.end
        return sorted(found, key=lambda row: (row.topic, row.partition, row.offset))

    def values(self, limit: int = 1000) -> list[str | None] | None:
        found = self.rows(limit)
        return None if found is None else [None if row.value is None else row.value.decode() for row in found]

    def halted(self) -> Halted:
        with pytest.raises(Halted) as caught:
            self.plan()
        assert "frazil rewind PIPELINE --to-" in caught.value.fix
        return caught.value

    def offsets(self, topic: str) -> dict[str, int]:
        found: dict[str, int] = json.loads(self.ledger or "")["topics"][topic]["offsets"]
        return found


@pytest.fixture
def readers(spark: SparkSession, kafka: Kafka) -> Iterator[Any]:
    """Makes readers, and closes their connections in the end."""
    made: list[Reader] = []

    def make(*topics: str, **options: Any) -> Reader:
        made.append(Reader(spark, kafka, *topics, **options))
        return made[-1]

    yield make
    for reader in made:
        reader.source.close()


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


def test_a_message_comes_as_it_is_with_its_coordinates(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic()
    at_ms = 1_769_860_800_123
    kafka.produce(
        topic, [Message(b"\x00\xff", "k", (("h", b"1"), ("h", b"2")), 0, at_ms), Message(None, "gone"), Message("bare")]
    )
    reader = readers(topic)
    part = reader.plan()
    assert reader.source.read(part).columns == [*COLUMNS, *HIDDEN]
    whole, tombstone, bare = reader.rows()
    assert (whole.key, whole.value, whole.topic, whole.partition, whole.offset) == (b"k", b"\x00\xff", topic, 0, 0)
    assert [tuple(header) for header in whole.headers] == [("h", b"1"), ("h", b"2")]
    assert int(whole.timestamp.timestamp() * 1000) == at_ms
    assert (whole["__frazil_raw"], whole["__frazil_key"], whole["__frazil_table"]) == (
        b"\x00\xff",
        b"k",
        topic,
    )
    assert whole["__frazil_at"] == f'{{"topic":"{topic}","partition":0,"offset":0}}'
    assert tuple(bare["__frazil_order"]) == (2,)
    assert whole["__frazil_lane"] == bare["__frazil_lane"], "messages of one partition have an order"
    assert (tombstone.key, tombstone.value, tombstone["__frazil_raw"]) == (b"gone", None, None)
    assert (bare.key, bare.value, bare.headers) == (None, b"bare", None)


def test_it_goes_on_where_the_ledger_ends(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, numbers(1, 3))
    kafka.produce(topic, numbers(4, 5), partition=1)
    first = readers(topic)
    assert first.values() == numbers(1, 5)
    assert first.values() is None
    kafka.produce(topic, numbers(6, 7), partition=1)
    again = readers(topic)
    again.ledger = first.ledger
    assert again.source.lag(again.ledger).rows == again.source.total_rows(again.ledger) == 2
    assert again.values() == first.values() == numbers(6, 7)
    assert again.offsets(topic) == {"0": 3, "1": 4}
    assert not again.source.finished(again.ledger)


def test_the_limit_is_shared_by_the_partitions_and_a_slice_keeps_its_messages(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, numbers(1, 90))
    kafka.produce(topic, numbers(91, 100), partition=1)
    reader = readers(topic)
    part = reader.plan(20)
    assert (part.rows, part.full) == (20, True)
    kafka.produce(topic, ["later"])
    rows = reader.source.read(part).collect()
    assert sorted(row.partition for row in rows) == [0] * 18 + [1] * 2
    again = readers(topic).source
    assert sorted(again.read(again.between(None, part.end)).collect(), key=str) == sorted(rows, key=str)
    reader.ledger = part.end
    second = reader.plan(1000)
    assert (second.rows, second.full) == (81, False)
    between = again.between(part.end, second.end)
    assert between.rows == 81
    assert again.read(between).count() == 81


@pytest.mark.parametrize("start", ["latest", "timestamp"])
def test_a_beginning_that_depends_on_the_time_is_remembered_before_a_message_comes(
    kafka: Kafka, readers: Any, start: str
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["before"])
    options = {"start_offset": start} | ({"start_timestamp": "2999-01-01"} if start == "timestamp" else {})
    reader = readers(topic, **options)
    part = reader.plan()
    assert (part.rows, part.full) == (0, False)
    assert reader.source.read(part).columns == [*COLUMNS, *HIDDEN]
    kafka.produce(topic, ["after"])
    assert reader.source.read(reader.plan()).count() == 1, "what came since the first look belongs to the first slice"
    reader.ledger = part.end
    assert reader.values() == ["after"]


def test_reading_begins_at_a_time(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic(partitions=2)
    noon = 1_769_860_800_000
    kafka.produce(topic, [Message(f"{hour}", timestamp_ms=noon + hour * 3_600_000) for hour in range(-2, 3)])
    reader = readers(topic, start_offset="timestamp", start_timestamp="2026-01-31T12:00:00Z")
    assert reader.values() == ["0", "1", "2"]
    assert json.loads(reader.source.rewound_to_time(reader.ledger, noon + 3_600_000))["topics"][topic]["offsets"] == {
        "0": 3,
        "1": 0,
    }


def test_a_topic_that_is_not_read_now_goes_on_where_it_was_left(kafka: Kafka, readers: Any) -> None:
    topic, other = kafka.create_topic(), kafka.create_topic()
    for name in (topic, other):
        kafka.produce(name, ["a"])
    reader = readers(topic, other)
    reader.rows()
    alone = readers(topic)
    moved = alone.source.rewound_to_latest(reader.ledger), alone.source.rewound_to_time(reader.ledger, 0)
    kafka.produce(other, ["b"])
    for reader.ledger, values in zip(moved, (["b"], ["a", "b"]), strict=True):
        assert sorted(reader.values()) == values


def test_reading_begins_at_offsets(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, numbers(0, 4))
    kafka.produce(topic, ["other"], partition=1)
    assert readers(topic, start_offset="explicit", start_offsets={topic: {0: 3}}).values() == ["3", "4", "other"]
    beyond = readers(topic, start_offset="explicit", start_offsets={topic: {"0": 6}})
    with pytest.raises(ConfigError, match="has the offsets 0 to 5, and 6 is given"):
        beyond.plan()


def test_an_empty_topic_has_nothing_to_read(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic(partitions=3)
    reader = readers(topic)
    assert reader.plan() is None
    assert reader.source.total_rows(None) == 0
    kafka.produce(topic, ["first"], partition=2)
    assert reader.values() == ["first"]


def test_a_topic_and_a_partition_that_come_later_are_read_from_their_first_message(kafka: Kafka, readers: Any) -> None:
    name = uuid.uuid4().hex[:8]
    kafka.create_topic(f"{name}-1")
    kafka.produce(f"{name}-1", ["a"])
    by_star, by_expression = readers(f"{name}-*"), readers(rf"/{name}-\d/")
    assert by_star.values() == by_expression.values() == ["a"]
    kafka.create_topic(f"{name}-2")
    kafka.create_topic(f"{name}-x")
    kafka.add_partitions(f"{name}-1", 2)
    kafka.produce(f"{name}-1", ["b"], partition=1)
    kafka.produce(f"{name}-2", ["c"])
    kafka.produce(f"{name}-x", ["d"])
    by_star.source._looked = by_expression.source._looked = float("-inf")
    before = by_star.ledger
    assert by_star.values() == ["b", "c", "d"]
    assert by_expression.values() == ["b", "c"]
    again = by_star.source.between(before, by_star.ledger)
    assert by_star.source.read(again).count() == 3


def test_what_is_new_is_found_though_nothing_else_comes(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    reader = readers(topic)
    reader.rows()
    assert reader.plan() is None
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, ["b"], partition=1)
    wait_until(reader.plan, 30, "the new partition")
    assert reader.values() == ["b"]


def test_a_topic_made_again_stops(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, numbers(1, 3))
    reader = readers(topic)
    reader.rows()
    assert reader.plan() is None
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    kafka.produce(topic, numbers(11, 19))
    halted = reader.halted()
    assert halted.code == "kafka-topic-recreated"
    assert f"{topic}-0 up to 3" in halted.message
    reader.ledger = reader.source.rewound_to_offsets(reader.ledger, {})
    assert reader.values() == numbers(11, 19)


def test_messages_that_the_cluster_deleted_unread_stop(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, numbers(1, 3))
    reader = readers(topic)
    reader.rows()
    kafka.produce(topic, numbers(4, 9))
    kafka.delete_records(topic, 7)
    halted = reader.halted()
    assert halted.code == "kafka-messages-expired"
    assert "Up to 4 messages" in halted.message
    assert f"{topic}-0 begins at 7, and was read up to 3" in halted.message
    reader.ledger = reader.source.rewound_to_offsets(reader.ledger, {})
    assert reader.values() == numbers(8, 9)


def test_messages_that_are_deleted_between_planning_and_reading_stop(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    reader = readers(topic)
    reader.rows()
    kafka.produce(topic, numbers(1, 5))
    frame = reader.source.read(reader.plan())
    kafka.delete_records(topic, 4)
    with pytest.raises(Exception, match=r".") as caught:
        frame.collect()
    explained = reader.source.explain(caught.value)
    assert isinstance(explained, Halted)
    assert explained.code == "kafka-messages-expired"
    assert "Up to 3 messages" in explained.message


def test_a_topic_that_is_gone_stops(kafka: Kafka, readers: Any) -> None:
    topic, other = kafka.create_topic(), kafka.create_topic()
    kafka.produce(topic, ["a"])
    reader = readers(topic, other)
    reader.rows()
    kafka.delete_topic(topic)
    reader.source._looked = float("-inf")
    assert reader.halted().code == "kafka-topic-gone"
    reader.ledger = reader.source.rewound_to_offsets(reader.ledger, {})
    kafka.produce(other, ["b"])
    assert reader.values() == ["b"]


@pytest.mark.slow
def test_another_cluster_stops(kafka: Kafka, spark: SparkSession, readers: Any, tmp_path: Path) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    reader = readers(topic)
    reader.rows()
    with running_kafka(tmp_path) as second:
        second.create_topic(topic)
        second.produce(topic, ["b"])
        elsewhere = Reader(spark, second, topic)
        elsewhere.ledger = reader.ledger
        halted = elsewhere.halted()
        elsewhere.source.close()
    assert halted.code == "kafka-cluster-changed"
    assert kafka.cluster_id in halted.message
    assert second.cluster_id in halted.message


@pytest.mark.parametrize("topics", [["no-such-topic"], ["no-such-*"], ["/no-such-.*/"]])
def test_topics_that_are_not_there_are_reported(readers: Any, topics: list[str]) -> None:
    reader = readers(*topics)
    for ask in (reader.source.check, reader.plan):
        with pytest.raises(ConfigError, match="no-such") as caught:
            ask()
        assert caught.value.code == "source-missing"


def test_one_of_two_topics_that_is_not_there_is_reported(kafka: Kafka, readers: Any) -> None:
    reader = readers(kafka.create_topic(), "no-such-topic")
    with pytest.raises(ConfigError, match="matches, no-such-topic,"):
        reader.source.check()


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_may_answer_later(spark: SparkSession) -> None:
    given = {"bootstrap_servers": f"{LOCALHOST}:{free_port()}", "topics": ["t"]}
    source = KafkaTopics(KafkaSource.model_validate(given), spark)
    began = time.monotonic()
    with pytest.raises(Retryable, match=r"did not answer: .*Connection refused") as caught:
        source.check()
    assert caught.value.code == "source-unreachable"
    assert "\n" not in caught.value.message
    assert time.monotonic() - began < 20


def test_a_host_that_nobody_knows_is_reported(spark: SparkSession) -> None:
    given = {"bootstrap_servers": "no-such-host.invalid:9092", "topics": ["t"]}
    with pytest.raises(Retryable, match=r"no-such-host\.invalid"):
        KafkaTopics(KafkaSource.model_validate(given), spark).check()


def login(kafka: Kafka, mechanism: str, password: str | None = None) -> dict[str, str]:
    return {"mechanism": mechanism, "user": USER, "password": password or kafka.password}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_it_logs_in(kafka: Kafka, readers: Any, mechanism: str) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    reader = readers(topic, bootstrap_servers=kafka.address("SASL"), security=login(kafka, mechanism))
    reader.source.check()
    assert reader.values() == ["a"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_reported_without_the_password(kafka: Kafka, readers: Any, mechanism: str) -> None:
    reader = readers("t", bootstrap_servers=kafka.address("SASL"), security=login(kafka, mechanism, "not-the-password"))
    with pytest.raises(ConfigError, match="refused the login") as caught:
        reader.source.check()
    assert caught.value.code == "source-not-readable"
    assert "not-the-password" not in str(caught.value)


def test_connections_are_encrypted(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    folder = kafka.certificates
    ca = {"enabled": True, "ca_path": str(folder / "ca.pem")}
    own = {"cert_path": str(folder / "client.pem"), "key_path": str(folder / "client.key")}
    for listener, tls in (
        ("TLS", ca),
        ("MUTUAL", ca | own),
        ("NAMED", ca | {"server_name": OTHER_NAME}),
        ("NAMED", {"enabled": True, "insecure": True}),
    ):
        assert readers(topic, bootstrap_servers=kafka.address(listener), tls=tls).values() == ["a"], (listener, tls)
    both = {"tls": ca, "security": login(kafka, "SCRAM-SHA-256")}
    assert readers(topic, bootstrap_servers=kafka.address("BOTH"), **both).values() == ["a"]


@pytest.mark.parametrize(
    ("listener", "tls"),
    [
        ("TLS", {}),
        ("NAMED", {"ca_path": "ca.pem"}),
        ("NAMED", {"ca_path": "ca.pem", "server_name": "another.test"}),
        ("MUTUAL", {"ca_path": "ca.pem"}),
    ],
)
def test_a_connection_that_cannot_be_encrypted_is_reported(
    kafka: Kafka, readers: Any, listener: str, tls: dict[str, Any]
) -> None:
    given = tls | ({"ca_path": str(kafka.certificates / "ca.pem")} if "ca_path" in tls else {})
    reader = readers("t", bootstrap_servers=kafka.address(listener), tls={"enabled": True, **given})
    with pytest.raises(ConfigError, match="encrypted connection") as caught:
        reader.source.check()
    assert caught.value.code == "source-tls"
    assert "\n" not in caught.value.message


@pytest.mark.slow
@pytest.mark.parametrize(("listener", "options"), [("SASL", {}), ("TLS", {}), ("PLAINTEXT", {"tls": {"enabled": True}})])
def test_a_port_that_expects_something_else_is_reported(
    kafka: Kafka, readers: Any, listener: str, options: dict[str, Any]
) -> None:
    reader = readers("t", bootstrap_servers=kafka.address(listener), **options)
    with pytest.raises(Retryable, match="it takes connections, and then") as caught:
        reader.source.check()
    assert "what `tls` and `security` say" in caught.value.fix


def test_secrets_stay_out_of_sparks_plans(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    folder = kafka.certificates
    own = {"cert_path": str(folder / "client.pem"), "key_path": str(folder / "client.key")}
    tls = {"enabled": True, "ca_path": str(folder / "ca.pem"), **own}
    security = login(kafka, "SCRAM-SHA-256")
    reader = readers(topic, bootstrap_servers=kafka.address("BOTH"), tls=tls, security=security)
    frame = reader.source.read(reader.plan())
    assert frame.count() == 1
    plans = frame._jdf.queryExecution().toString()
    assert "KafkaScan" in plans
    assert kafka.password not in plans
    assert "PRIVATE KEY" not in plans
    assert is_secret_name("kafka.ssl.keystore.key")
    assert is_secret_name("kafka.sasl.jaas.config")


def test_messages_of_aborted_transactions_are_left_out_unless_they_are_asked_for(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic()
    producer = kafka.new_producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    for values, end in (("ab", "commit_transaction"), ("cd", "abort_transaction"), ("e", "commit_transaction")):
        producer.begin_transaction()
        write(producer, topic, values)
        producer.flush(30)
        getattr(producer, end)(30)
    kafka.produce(topic, ["f"])
    default, committed = readers(topic), readers(topic, options={"kafka.isolation.level": "read_committed"})
    everything = readers(topic, options={"kafka.isolation.level": "read_uncommitted"})
    wait_until(lambda: default.source.lag(None).rows == 6 + 3, 30, "the markers of the transactions")
    assert default.values() == committed.values() == ["a", "b", "e", "f"]
    assert everything.values() == ["a", "b", "c", "d", "e", "f"]
    assert default.ledger == everything.ledger
    in_twos = readers(topic)
    found: list[str | None] = []
    while (values := in_twos.values(2)) is not None:
        found += values
    assert found == ["a", "b", "e", "f"]


def test_an_open_transaction_is_waited_for(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    producer = kafka.new_producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    write(producer, topic, ["b"])
    producer.flush(30)
    kafka.produce(topic, ["c"])
    reader = readers(topic)
    assert reader.values() == ["a"]
    assert reader.values() is None
    producer.commit_transaction(30)
    wait_until(lambda: reader.source.lag(reader.ledger).rows == 3, 30, "the marker of the commit")
    assert reader.values() == ["b", "c"]


def test_the_gaps_of_a_compacted_topic_are_no_loss(kafka: Kafka, readers: Any) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    topic = kafka.create_topic(config=config)

    def kept() -> list[str | None] | None:
        kafka.produce(topic, [Message("end", "end")])  # a new segment, so that the old ones are compacted
        found = readers(topic).values()
        return found if found is not None and "old" not in found else None

    kafka.produce(topic, [Message("old", f"k{number}") for number in range(20)])
    kafka.produce(topic, [Message("new", f"k{number}") for number in range(20)])
    found = wait_until(kept, 60, "the compaction")
    assert found.count("new") == 20
    reader = readers(topic)
    pieces: list[str | None] = []
    while (values := reader.values(7)) is not None:
        pieces += values
    assert pieces.count("new") == 20


def test_the_cluster_gets_the_offsets_of_a_group(kafka: Kafka, readers: Any) -> None:
    topic, group = kafka.create_topic(), f"group-{uuid.uuid4().hex[:8]}"
    kafka.produce(topic, numbers(1, 4))
    reader = readers(topic, consumer_group=group)
    assert reader.source.fingerprint == f"kafka:{group}"
    assert reader.values(3) == numbers(1, 3)
    assert kafka.group_offset(group, topic) is None, "not before the ledger has it"
    reader.source.committed(reader.ledger)
    reader.plan()
    assert wait_until(lambda: kafka.group_offset(group, topic), 30, "the group's offset") == 3


def test_asking_again_takes_a_few_milliseconds(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic(partitions=4)
    kafka.produce(topic, ["a"])
    reader = readers(topic)
    reader.rows()
    assert reader.plan() is None
    taken = []
    for _ in range(30):
        began = time.perf_counter()
        assert reader.plan() is None
        taken.append(time.perf_counter() - began)
    assert sorted(taken)[15] < 0.05


@pytest.mark.slow(seconds=20)
def test_a_broker_that_comes_back_is_read_on(kafka: Kafka, readers: Any) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    reader = readers(topic)
    assert reader.values() == ["a"]
    kafka.stop()
    try:
        with pytest.raises(Retryable) as caught:
            reader.plan()
        assert caught.value.code == "source-unreachable"
    finally:
        kafka.start()
    kafka.produce(topic, ["b"])

    def once_more() -> list[str | None] | None:
        try:
            return reader.values()
        except Retryable:
            return None

    assert wait_until(once_more, 60, "the broker") == ["b"]
