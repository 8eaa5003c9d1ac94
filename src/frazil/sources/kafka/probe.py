"""Asks a Kafka cluster for its topics without Kafka's Java client, and so without a JVM: for `frazil check`.

Four requests of Kafka's protocol are enough: which topics there are and who leads them, and for those that log in the two of
SASL. Everything else is left to Kafka's own client inside Spark.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from frazil.model.secrets import scrub
from frazil.model.source import KafkaCluster, KafkaSecurity, KafkaSource, KafkaTls
from frazil.sources.kafka.failures import login_refused, not_allowed
from frazil.sources.kafka.follow import nothing_matches
from frazil.sources.kafka.settings import CONNECT_SECONDS, PREFIX, tls_context, tls_failed, unreachable
from frazil.sources.kafka.topics import has_patterns, matches, named_topics

_METADATA, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = (3, 4), (17, 1), (36, 0)
"""Requests by number and version. All brokers since 1.0 know these versions."""
_UNKNOWN_TOPIC, _NO_LEADER, _NOT_AUTHORIZED = 3, 5, 29
_LARGEST_ANSWER = 100 << 20
_SILENT = "it takes connections, and then says nothing, or not what was expected."

# Settings of Kafka's Java client that decide how it connects: only that client knows what they mean.
_OF_JAVA = ("security.", "sasl.", "ssl.", "client.dns.", "socket.connection.")

Address = tuple[str, int]


@dataclass(frozen=True)
class Topics:
    """The topics that a user may see, with the brokers that lead their partitions, and those that were asked for in vain."""

    leaders: dict[str, frozenset[Address]]
    forbidden: frozenset[str]


def can_probe(spec: KafkaCluster) -> bool:
    """Whether the cluster can be asked without Kafka's Java client."""
    return not any(name.removeprefix(PREFIX).startswith(_OF_JAVA) for name in spec.options)


def check_topics(spec: KafkaSource) -> None:
    """The cluster must answer, have all topics that are named, and one for the patterns, and their leaders must answer, too."""
    named = named_topics(spec.topics)
    with _any_broker(spec) as broker:
        found = broker.topics(None if has_patterns(spec.topics) else sorted(named))
        if named - found.leaders.keys() and has_patterns(spec.topics):
            # A user who may not list a topic may still describe it by its name.
            asked = broker.topics(sorted(named))
            found = Topics({**found.leaders, **asked.leaders}, found.forbidden | asked.forbidden)
    if refused := sorted(found.forbidden & named):
        raise not_allowed(spec.bootstrap_servers, f"Not authorized to access topics: {', '.join(refused)}")
    if missing := sorted(named - found.leaders.keys()):
        raise nothing_matches(tuple(missing))
    wanted = {name: leaders for name, leaders in found.leaders.items() if matches(name, spec.topics)}
    if not wanted:
        raise nothing_matches(spec.topics)
    for leader in sorted({one for leaders in wanted.values() for one in leaders}):
        with _connected(spec, leader):
            pass


def check_cluster(spec: KafkaCluster) -> None:
    """One of the brokers must answer, and let the user in."""
    with _any_broker(spec) as broker:
        broker.topics([])


@contextmanager
def _any_broker(spec: KafkaCluster) -> Iterator[Broker]:
    """The first broker of the list that answers."""
    servers = [server.strip() for server in spec.bootstrap_servers.split(",")]
    reasons: list[str] = []
    for server in servers:
        host, _, port = server.rpartition(":")
        try:
            made = Broker.connect(spec, (host.strip("[]"), int(port)))
        except (_Away, ValueError) as error:
            reasons.append(str(error))
            continue
        with _closing(spec, made):
            yield made
        return
    raise unreachable(spec.bootstrap_servers, "; ".join(dict.fromkeys(reasons)))


@contextmanager
def _connected(spec: KafkaCluster, address: Address) -> Iterator[Broker]:
    """A broker that another one has named."""
    try:
        made = Broker.connect(spec, address)
    except _Away as error:
        name = f"{address[0]}:{address[1]}"
        raise unreachable(
            spec.bootstrap_servers, f"it says that partitions are at {name} (advertised.listeners), where {error}"
        ) from error
    with _closing(spec, made):
        yield made


@contextmanager
def _closing(spec: KafkaCluster, broker: Broker) -> Iterator[None]:
    try:
        yield
    except _Away as error:
        raise unreachable(spec.bootstrap_servers, str(error)) from error
    finally:
        broker.close()


class _Away(Exception):
    """A broker that does not answer, or not as a broker does."""


@dataclass
class Broker:
    """A connection to one broker, encrypted and logged in as the description says."""

    connection: socket.socket
    servers: str
    _count: int = field(default=0)

    @classmethod
    def connect(cls, spec: KafkaCluster, address: Address) -> Broker:
        """A ConfigError when certificates or the password are refused."""
        try:
            connection = socket.create_connection(address, CONNECT_SECONDS)
        except OSError as error:
            raise _Away(f"{error}.") from error
        try:
            tls = spec.tls if spec.tls is not None and spec.tls.enabled else None
            if tls is not None:
                connection = _encrypted(connection, tls, address[0], spec.bootstrap_servers)
            made = cls(connection, spec.bootstrap_servers)
            if spec.security is not None:
                made._log_in(spec.security)
        except BaseException:
            connection.close()
            raise
        return made

    def close(self) -> None:
        """Ends the connection."""
        self.connection.close()

    def topics(self, names: list[str] | None) -> Topics:
        """The topics of these names; without names all that the user may see, but for Kafka's internal ones."""
        body = struct.pack(">i", -1 if names is None else len(names)) + b"".join(map(_text, names or ())) + b"\x00"
        answer = self._ask(*_METADATA, body)
        answer.number(">i")  # throttle time
        brokers: dict[int, Address] = {}
        for _ in range(answer.number(">i")):
            broker, host, port = answer.number(">i"), answer.text() or "", answer.number(">i")
            answer.text()  # rack
            brokers[broker] = (host, port)
        answer.text()  # id of the cluster
        answer.number(">i")  # controller
        leaders: dict[str, frozenset[Address]] = {}
        forbidden = set()
        for _ in range(answer.number(">i")):
            error, name, internal = answer.number(">h"), answer.text() or "", answer.number(">b")
            leading = _leaders(answer)
            if error == _NOT_AUTHORIZED:
                forbidden.add(name)
            elif error in (0, _NO_LEADER) and not internal:
                leaders[name] = frozenset(brokers[broker] for broker in leading if broker in brokers)
            elif error not in (0, _NO_LEADER, _UNKNOWN_TOPIC):
                raise _Away(f"it answers with error {error} when it is asked for the topic {name}.")
        return Topics(leaders, frozenset(forbidden))

    def _log_in(self, security: KafkaSecurity) -> None:
        answer = self._ask(*_SASL_HANDSHAKE, _text(security.mechanism))
        if answer.number(">h"):
            offered = ", ".join(answer.text() or "" for _ in range(answer.number(">i")))
            raise login_refused(self.servers, f"{security.mechanism} is not enabled; the cluster offers: {offered}")
        password = security.password.get_secret_value()
        if security.mechanism == "PLAIN":
            self._authenticate(b"\0".join([b"", security.user.encode(), password.encode()]))
            return
        scram = Scram(security.mechanism.removeprefix("SCRAM-").replace("-", "").lower(), security.user, password)
        first = self._authenticate(scram.first())
        last = self._authenticate(scram.final(first))
        if not scram.is_of_server(last):
            raise login_refused(self.servers, "the server does not know the password either")

    def _authenticate(self, message: bytes) -> bytes:
        answer = self._ask(*_SASL_AUTHENTICATE, struct.pack(">i", len(message)) + message)
        error, reason = answer.number(">h"), answer.text()
        if error:
            raise login_refused(self.servers, scrub(reason or f"error {error}"))
        return answer.sized()

    def _ask(self, request: int, version: int, body: bytes) -> BrokerAnswer:
        self._count += 1
        header = struct.pack(">hhi", request, version, self._count) + _text("frazil-check")
        try:
            self.connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
            (size,) = struct.unpack(">i", self._receive(4))
            if not 4 <= size <= _LARGEST_ANSWER:
                raise _Away(_SILENT)
            answer = BrokerAnswer(self._receive(size))
        except ssl.SSLError as error:
            raise _refused(error, self.servers) from error
        except OSError as error:
            raise _Away(_SILENT) from error
        if answer.number(">i") != self._count:
            raise _Away(_SILENT)
        return answer

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.connection.recv(size - len(data))
            if not more:
                raise _Away(_SILENT)
            data += more
        return data


def _encrypted(connection: socket.socket, tls: KafkaTls, host: str, servers: str) -> socket.socket:
    try:
        return tls_context(tls).wrap_socket(connection, server_hostname=tls.server_name or host)
    except ssl.SSLError as error:
        raise _refused(error, servers) from error
    except OSError as error:
        raise _Away(_SILENT) from error


def _refused(error: ssl.SSLError, servers: str) -> Exception:
    """One side refuses the other's certificate, or it does not speak TLS at all."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return tls_failed(servers, error.verify_message)
    if "ALERT" in (error.reason or ""):
        return tls_failed(servers, str(error.reason).replace("_", " ").lower())
    return _Away(_SILENT)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _leaders(answer: BrokerAnswer) -> set[int]:
    """The leaders of a topic's partitions."""
    found = set()
    for _ in range(answer.number(">i")):
        answer.number(">h")
        answer.number(">i")
        found.add(answer.number(">i"))
        for _ in ("replicas", "in sync"):
            for _ in range(answer.number(">i")):
                answer.number(">i")
    return found


@dataclass
class BrokerAnswer:
    """Reads what a broker has sent, from the first byte on."""

    data: bytes
    _at: int = 0

    def number(self, form: str) -> int:
        """The next number of a form of ``struct``."""
        if self._at + struct.calcsize(form) > len(self.data):
            raise _Away(_SILENT)
        (value,) = struct.unpack_from(form, self.data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> str | None:
        """The next text, or null."""
        size = self.number(">h")
        return None if size < 0 else self._take(size).decode()

    def sized(self) -> bytes:
        """The next bytes, behind their number."""
        return self._take(max(0, self.number(">i")))

    def _take(self, size: int) -> bytes:
        taken = self.data[self._at : self._at + size]
        self._at += size
        return taken


@dataclass
class Scram:
    """One login by SCRAM (RFC 5802): neither side sends the password, and each proves that it knows it."""

    hash: str
    user: str
    password: str = field(repr=False)
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _server_key: bytes = b""
    _said: bytes = b""

    def first(self) -> bytes:
        """What the client says first."""
        return b"n,," + self._bare()

    def _bare(self) -> bytes:
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}".encode()

    def final(self, challenge: bytes) -> bytes:
        """The proof, after the server's salt."""
        values = dict(part.split("=", 1) for part in challenge.decode().split(","))
        if not values.get("r", "").startswith(self.nonce):
            raise _Away(_SILENT)
        salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), base64.b64decode(values["s"]), int(values["i"]))
        client_key = self._mac(salted, b"Client Key")
        without_proof = f"c=biws,r={values['r']}"
        self._said = b",".join([self._bare(), challenge, without_proof.encode()])
        self._server_key = self._mac(salted, b"Server Key")
        signature = self._mac(hashlib.new(self.hash, client_key).digest(), self._said)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def is_of_server(self, last: bytes) -> bool:
        """Whether the server knows the password, too."""
        expected = b"v=" + base64.b64encode(self._mac(self._server_key, self._said))
        return hmac.compare_digest(expected, last.split(b",")[0])

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.hash).digest()
