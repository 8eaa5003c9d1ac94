"""The Kafka broker is a real one: it keeps messages over a restart, and asks for the password."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition  # type: ignore[import-untyped]
from confluent_kafka.admin import AdminClient  # type: ignore[import-untyped]

from services.kafka import OTHER_NAME, USER, Kafka, running_kafka

pytestmark = pytest.mark.slow


def read_all(kafka: Kafka, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka.address(), "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


def test_messages_are_still_there_after_a_restart_on_the_same_port(tmp_path: Path) -> None:
    with running_kafka(tmp_path) as kafka:
        topic = kafka.create_topic()
        kafka.produce(topic, ["a", "b"])
        before = kafka.address()
        kafka.stop()
        kafka.start()
        kafka.produce(topic, ["c"])
        assert kafka.address() == before
        assert read_all(kafka, topic, 3) == [b"a", b"b", b"c"]


def topics_seen(kafka: Kafka, listener: str, **settings: str) -> frozenset[str]:
    ca = {"ssl.ca.location": str(kafka.certificates / "ca.pem")}
    client = AdminClient({"bootstrap.servers": kafka.address(listener), "log_level": 0, **ca, **settings})
    return frozenset(client.list_topics(timeout=4).topics)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("listener", "protocol"), [("SASL", "SASL_PLAINTEXT"), ("BOTH", "SASL_SSL")])
def test_the_password_is_asked_for(kafka: Kafka, mechanism: str, listener: str, protocol: str) -> None:
    topic = kafka.create_topic()
    login = {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.username": USER}
    assert topic in topics_seen(kafka, listener, **login, **{"sasl.password": kafka.password})
    with pytest.raises(KafkaException):
        topics_seen(kafka, listener, **login, **{"sasl.password": "wrong"})


def test_certificates_are_shown_and_asked_for(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    folder = kafka.certificates
    assert topic in topics_seen(kafka, "TLS", **{"security.protocol": "SSL"})
    with pytest.raises(KafkaException):
        topics_seen(kafka, "NAMED", **{"security.protocol": "SSL"})  # its name is another
    assert OTHER_NAME in (folder / "named.ext").read_text()
    own = {"ssl.certificate.location": str(folder / "client.pem"), "ssl.key.location": str(folder / "client.key")}
    assert topic in topics_seen(kafka, "MUTUAL", **{"security.protocol": "SSL", **own})
    with pytest.raises(KafkaException):
        topics_seen(kafka, "MUTUAL", **{"security.protocol": "SSL"})
