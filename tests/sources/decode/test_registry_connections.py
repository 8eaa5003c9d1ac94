"""How a schema registry is spoken to: passwords, certificates, and what becomes of a batch when it does not answer."""

from __future__ import annotations

import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.errors import ConfigError, FrazilError, Retryable
from frazil.model.format import MessageOptions, RegistrySpec
from frazil.sources.decode import key_columns
from frazil.sources.decode.registry import Registry
from services.certificates import HERE, make_certificates
from services.processes import LOCALHOST
from services.registry import SchemaRegistry
from sources.decode.answering import answering, passed_on
from sources.decode.records import Decoded, decoded, decoder_of, records
from sources.decode.test_avro_format import ORDER, WIDER, framed, of_registry

ROW = {"id": 1, "name": "a", "price": Decimal("1.00")}


def client(url: str, **options: Any) -> Registry:
    return Registry(RegistrySpec.model_validate({"url": url, **options}))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = {"server": HERE, "named": "DNS:elsewhere.test", "client": "DNS:client"}
    return make_certificates(tmp_path_factory.mktemp("tls") / "certificates", names)


def shown(certificates: Path, name: str = "server", *, mutual: bool = False) -> ssl.SSLContext:
    """What a server shows of itself, and whether it asks for a certificate of the client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates / "ca.pem")
    return context


def test_passwords_and_tokens() -> None:
    with answering(lambda _: (200, []), "Basic dTpzZWNyZXRwYXNz") as server:
        for wrong in ({"user": "u", "password": "wrongpass"}, {"token": "wrongpass"}, {}):
            with pytest.raises(ConfigError, match="refuses the credentials") as caught:
                client(server.url, **wrong).check()
            assert "wrongpass" not in str(caught.value)
        client(server.url, user="u", password="secretpass").check()
    with answering(lambda _: (200, []), "Bearer tok-123") as server:
        client(server.url, token="tok-123").check()


def test_what_is_no_registry() -> None:
    with answering(lambda _: (404, {})) as server, pytest.raises(ConfigError, match="no schema registry"):
        client(server.url).check()
    with answering(lambda _: (500, {})) as server, pytest.raises(Retryable, match="status 500"):
        client(server.url).check()


@pytest.mark.slow
def test_a_registry_that_is_down_is_waited_for(spark: SparkSession, schema_registry: SchemaRegistry) -> None:
    message = framed(schema_registry.register("down", ORDER), ORDER, ROW)
    other = framed(schema_registry.register("down-other", WIDER), WIDER, {"id": 2, "name": None, "tags": [], "ratio": 0.5})
    with answering(passed_on(schema_registry)) as server:
        avro = decoder_of(spark, of_registry(server.url))
        avro.check()
        assert Decoded(avro.decode(records(spark, [message]))).rows[0]["id"] == 1
    assert Decoded(avro.decode(records(spark, [message]))).rows[0]["id"] == 1, "what is known needs no registry"
    with pytest.raises(Retryable, match="does not answer") as caught:
        avro.decode(records(spark, [message, other]))
    assert caught.value.code == "registry-unreachable"
    with answering(passed_on(schema_registry), port=server.server_port):
        assert [row["id"] for row in Decoded(avro.decode(records(spark, [message, other]))).rows] == [1, 2]


def test_the_columns_of_keys_are_those_of_the_newest_schema(schema_registry: SchemaRegistry) -> None:
    key = {"type": "record", "name": "k", "fields": [{"name": "id", "type": "long"}]}
    wider = key | {"fields": [*key["fields"], {"name": "shop", "type": "string", "default": ""}]}
    for topic, schemas in (("newest", (key, wider)), ("single", ({"type": "long"},))):
        for schema in schemas:
            schema_registry.register(f"{topic}-key", schema)
    avro = {"type": "avro", "schema_registry": {"url": schema_registry.url}}
    options = MessageOptions.model_validate({"format": avro, "key_format": avro})
    assert key_columns(options, "newest") == {"id", "shop"}
    assert key_columns(options.model_copy(update={"key_prefix": "k_"}), "single") == {"k_value"}
    assert key_columns(options, "unknown") is None


def test_an_encrypted_connection(spark: SparkSession, schema_registry: SchemaRegistry, certificates: Path) -> None:
    message = framed(schema_registry.register("encrypted", ORDER), ORDER, ROW)
    ca = {"ca_path": str(certificates / "ca.pem")}
    own = {"cert_path": str(certificates / "client.pem"), "key_path": str(certificates / "client.key")}
    with answering(passed_on(schema_registry), "Basic dTpzZWNyZXRwYXNz", shown(certificates, mutual=True)) as server:
        options = {"url": server.url, **ca, **own, "user": "u", "password": "secretpass"}
        found = decoded(spark, {"type": "avro", "schema_registry": options}, [message])
        assert (found.codes, found.rows[0]["id"]) == ([None], 1)
        together = {**ca, "cert_path": str(certificates / "client.both"), "user": "u", "password": "secretpass"}
        client(server.url, **together).check()


@pytest.mark.parametrize("options", [{"ca_path": "ca.pem"}, {"insecure": True}])
def test_a_certificate_of_an_own_authority(certificates: Path, options: dict[str, Any]) -> None:
    with answering(lambda _: (200, []), tls=shown(certificates)) as server:
        client(server.url, **in_folder(certificates, options)).check()


def in_folder(certificates: Path, options: dict[str, Any]) -> dict[str, Any]:
    return {name: str(certificates / value) if name.endswith("_path") else value for name, value in options.items()}


@pytest.mark.parametrize(
    ("name", "options", "words", "fix"),
    [
        ("server", {}, "is not trusted: unable to get local issuer certificate", "ca_path"),
        ("server", {"ca_path": "client.pem"}, "is not trusted: unable to get local issuer certificate", "ca_path"),
        ("named", {"ca_path": "ca.pem"}, "is not trusted: IP address mismatch", "ca_path"),
        ("server", {"ca_path": "none.pem"}, "cannot be read", "ca_path"),
        ("server", {"ca_path": "ca.pem", "cert_path": "client.pem"}, "cannot be read", "key_path"),
    ],
)
def test_a_connection_that_cannot_be_encrypted_is_reported(
    certificates: Path, name: str, options: dict[str, Any], words: str, fix: str
) -> None:
    with answering(lambda _: (200, []), tls=shown(certificates, name)) as server:
        with pytest.raises(ConfigError, match=words) as caught:
            client(server.url, **in_folder(certificates, options)).check()
        assert fix in caught.value.fix
        assert server.asked == []


def test_a_certificate_of_ours_that_is_missing(certificates: Path) -> None:
    # The server may cut the line before its reason has arrived.
    words = "refuses the encrypted connection: .*certificate required|does not answer as it should"
    with answering(lambda _: (200, []), tls=shown(certificates, mutual=True)) as server:
        with pytest.raises(FrazilError, match=words) as caught:
            client(server.url, ca_path=str(certificates / "ca.pem")).check()
        assert "cert_path" in caught.value.fix
        assert server.asked == []


def test_a_port_that_expects_something_else_is_reported(certificates: Path) -> None:
    with answering(lambda _: (200, []), tls=shown(certificates)) as server:
        with pytest.raises(Retryable, match="does not answer as it should") as caught:
            client(server.url.replace("https", "http")).check()
        assert "http or https" in caught.value.fix
    with answering(lambda _: (200, [])) as server, pytest.raises(Retryable, match="does not answer as it should"):
        client(server.url.replace("http", "https")).check()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_registry_that_never_answers(scheme: str) -> None:
    with socket.create_server((LOCALHOST, 0)) as silent:
        began = time.monotonic()
        with pytest.raises(Retryable, match=r"did not answer within 0\.2 s") as caught:
            client(f"{scheme}://{LOCALHOST}:{silent.getsockname()[1]}", timeout_secs=0.2).check()
    assert time.monotonic() - began < 5
    assert "timeout_secs" in caught.value.fix


def test_an_answer_that_is_cut_off() -> None:
    with socket.create_server((LOCALHOST, 0)) as server, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[")

        pool.submit(answer)
        with pytest.raises(Retryable, match="does not answer as it should"):
            client(f"http://{LOCALHOST}:{server.getsockname()[1]}").check()
