"""What `frazil check` asks a Kafka cluster, without Kafka's Java client."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from frazil.errors import ConfigError, FrazilError, Retryable
from frazil.model.source import KafkaSource
from frazil.sources.kafka.probe import can_probe, check_cluster, check_topics
from services.kafka import OTHER_NAME, USER, Kafka
from services.processes import LOCALHOST


def source(kafka: Kafka, *topics: str, listener: str = "PLAINTEXT", **options: Any) -> KafkaSource:
    return KafkaSource.model_validate({"bootstrap_servers": kafka.address(listener), "topics": topics, **options})


def login(kafka: Kafka, mechanism: str, password: str | None = None) -> dict[str, str]:
    return {"mechanism": mechanism, "user": USER, "password": password or kafka.password}


def refusal(spec: KafkaSource) -> FrazilError:
    with pytest.raises(FrazilError) as caught:
        check_topics(spec)
    assert "\n" not in caught.value.message
    return caught.value


def test_names_and_patterns(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    check_topics(source(kafka, topic))
    check_topics(source(kafka, f"{topic[:-1]}*", topic))
    check_cluster(source(kafka, "any"))
    assert refusal(source(kafka, "no-such-*")).code == "source-missing"
    assert "no-such-one" in refusal(source(kafka, f"{topic[:-1]}*", "no-such-one")).message


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_it_logs_in(kafka: Kafka, mechanism: str) -> None:
    topic = kafka.create_topic()
    check_topics(source(kafka, topic, listener="SASL", security=login(kafka, mechanism)))
    wrong = refusal(source(kafka, topic, listener="SASL", security=login(kafka, mechanism, "not-the-password")))
    assert isinstance(wrong, ConfigError)
    assert (wrong.code, "refused the login" in wrong.message) == ("source-not-readable", True)
    assert "not-the-password" not in str(wrong)


def test_connections_are_encrypted(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    folder = kafka.certificates
    ca = {"enabled": True, "ca_path": str(folder / "ca.pem")}
    own = {"cert_path": str(folder / "client.pem"), "key_path": str(folder / "client.key")}
    for listener, tls in (
        ("TLS", ca),
        ("MUTUAL", ca | own),
        ("NAMED", ca | {"server_name": OTHER_NAME}),
        ("NAMED", {"enabled": True, "insecure": True}),
    ):
        check_topics(source(kafka, topic, listener=listener, tls=tls))
    check_topics(source(kafka, topic, listener="BOTH", tls=ca, security=login(kafka, "SCRAM-SHA-256")))
    for listener, tls in (
        ("TLS", {"enabled": True}),
        ("NAMED", ca),
        ("NAMED", ca | {"server_name": "another.test"}),
        ("MUTUAL", ca),
        ("TLS", {"enabled": True, "ca_path": str(folder / "no-such-file")}),
    ):
        assert refusal(source(kafka, topic, listener=listener, tls=tls)).code == "source-tls", (listener, tls)


@pytest.mark.parametrize(("listener", "options"), [("SASL", {}), ("TLS", {}), ("PLAINTEXT", {"tls": {"enabled": True}})])
def test_a_port_that_expects_something_else_is_reported(kafka: Kafka, listener: str, options: dict[str, Any]) -> None:
    found = refusal(source(kafka, "t", listener=listener, **options))
    assert isinstance(found, Retryable)
    assert "it takes connections, and then" in found.message


def test_servers_that_do_not_answer(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    with socket.create_server((LOCALHOST, 0)) as other:

        def answer() -> None:
            opened, _ = other.accept()
            with opened:
                opened.recv(100)
                opened.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        found = refusal(KafkaSource(bootstrap_servers=f"{LOCALHOST}:{other.getsockname()[1]}", topics=(topic,)))
        assert "says nothing, or not what was expected" in found.message
    nobody = "127.0.0.1:9"
    assert refusal(KafkaSource(bootstrap_servers=nobody, topics=(topic,))).code == "source-unreachable"
    check_topics(KafkaSource(bootstrap_servers=f"{nobody},{kafka.address()}", topics=(topic,)))


def test_settings_of_the_java_client_are_left_to_it() -> None:
    servers = {"bootstrap_servers": "h:1", "topics": ("t",)}
    assert can_probe(KafkaSource.model_validate(servers | {"options": {"kafka.fetch.max.bytes": "1"}}))
    assert not can_probe(KafkaSource.model_validate(servers | {"options": {"kafka.sasl.mechanism": "OAUTHBEARER"}}))
