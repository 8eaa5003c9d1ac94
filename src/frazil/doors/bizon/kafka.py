"""From the Kafka source of a Bizon file to frazil's own: servers, logins, the registry, and settings of the client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from frazil.doors.bizon.source import KafkaAuth, KafkaEntry
from frazil.errors import ConfigError
from frazil.reading.document import Document, Path
from frazil.reading.explain import suggestion

# Bizon's client is librdkafka, frazil's is Java's. Names of the former that the latter has under another name.
_OTHER_NAMES = {"fetch.wait.max.ms": "fetch.max.wait.ms", "fetch.message.max.bytes": "max.partition.fetch.bytes"}

# What Java's client knows and has a use for when it is given the partitions to read.
_CLIENT = (
    "check.crcs", "client.dns.lookup", "client.id", "client.rack", "connections.max.idle.ms", "default.api.timeout.ms",
    "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "isolation.level", "max.partition.fetch.bytes", "max.poll.records",
    "metadata.max.age.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms",
    "retry.backoff.ms", "send.buffer.bytes", "socket.connection.setup.timeout.ms",
)  # fmt: skip

# What belongs to groups that share partitions among their members: frazil's readers do not.
_GROUP = (
    "group.instance.id",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "session.timeout.ms",
)

# What other keys of the source say.
_ELSEWHERE = {"bootstrap.servers": "bootstrap_servers", "group.id": "group_id"}

_BEGINNINGS = {"earliest": "earliest", "smallest": "earliest", "beginning": "earliest",
               "latest": "latest", "largest": "latest", "end": "latest"}  # fmt: skip
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_YES, _NO = "true", "false"
_TLS = {"ssl.ca.location": "ca_path", "ssl.certificate.location": "cert_path", "ssl.key.location": "key_path"}
_UNVERIFIED = "enable.ssl.certificate.verification"

# Settings that are one of a few words.
_WORDS: dict[str, tuple[str, ...]] = {
    "auto.offset.reset": tuple(_BEGINNINGS),
    "enable.auto.commit": (_YES, _NO),
    "security.protocol": _PROTOCOLS,
    "sasl.mechanism": _MECHANISMS,
    "sasl.mechanisms": _MECHANISMS,
    _UNVERIFIED: (_YES, _NO),
}

# The least time for an answer. In Bizon it is how long a call waits for messages, and may be next to nothing; here the client
# gives the connection up that has no answer by then, and asks again. One that the cluster had no chance to answer never ends.
_LEAST_ANSWER_MS = 1000

_AUTH: Path = ("source", "authentication")
_CONFIG: Path = ("source", "consumer_config")


@dataclass
class BizonCluster:
    """What the source says of the cluster: the options of frazil's source, and what a person should know."""

    options: dict[str, Any]
    registry: dict[str, Any] | None
    notices: list[tuple[Path, str]] = field(default_factory=list)


def cluster_of(document: Document, entry: KafkaEntry) -> BizonCluster:
    """The cluster; what is wrong is in the document then."""
    given = {name: _folded(name, value) for name, value in (entry.consumer_config or {}).items()}
    login = _login(document, entry.authentication, given)
    notices = [*_notices(given, entry)]
    document.problems.extend(_problems(document, given, login))
    options: dict[str, Any] = {
        "bootstrap_servers": entry.bootstrap_servers,
        "consumer_group": entry.group_id,
        "start_offset": _BEGINNINGS.get(given.get("auto.offset.reset", "earliest"), "earliest"),
        "tombstones": "ignore" if entry.skip_message_empty_value else "error",
        "empty_is_none": True,
        "options": _client_options(given, entry),
    }
    protocol = _protocol(given, login)
    if protocol.startswith("SASL") and login:
        options["security"] = login
    if protocol.endswith("SSL"):
        options["tls"] = {"enabled": True} | {ours: given[theirs] for theirs, ours in _TLS.items() if theirs in given}
        if given.get(_UNVERIFIED) == _NO:
            options["tls"]["insecure"] = True
    return BizonCluster(options, _registry(document, entry), notices)


def _folded(name: str, value: str) -> str:
    """The word that is meant, whichever of its letters are capitals; anything else as it is."""
    return next((word for word in _WORDS.get(name, ()) if word.lower() == value.lower()), value)


def _protocol(given: dict[str, str], login: dict[str, Any] | None) -> str:
    return given.get("security.protocol", "SASL_SSL" if login else "PLAINTEXT")


def _login(document: Document, auth: KafkaAuth | None, given: dict[str, str]) -> dict[str, Any] | None:
    """Who logs in; empty when nobody does, and None when that is not known, for half of it is missing."""
    user = (auth.given("username") if auth is not None else None) or given.get("sasl.username")
    password = (auth.given("password") if auth is not None else None) or given.get("sasl.password")
    if not _is_whole(document, {"username": user, "password": password}):
        return None
    if not user:
        return {}
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "PLAIN"
    return {"mechanism": mechanism, "user": user, "password": password}


def _is_whole(document: Document, login: dict[str, Any]) -> bool:
    """Whether both halves of a login are there, or none. Whoever has written one believes that somebody logs in."""
    there, lacking = ([name for name, value in login.items() if bool(value) is given] for given in (True, False))
    if not there or not lacking:
        return True
    places = ((*_AUTH, there[0]), (*_AUTH, "params", there[0]), (*_CONFIG, f"sasl.{there[0]}"))
    place = next((path for path in places if path in document.keys), _AUTH)
    message, fix = f"`{there[0]}` is half a login: `{lacking[0]}` is missing, or empty", f"Add `{lacking[0]}`."
    document.problems.append(ConfigError("missing-key", message, fix=fix, location=document.key_place(place)))
    return False


def _client_options(given: dict[str, str], entry: KafkaEntry) -> dict[str, str]:
    options = {f"kafka.{_OTHER_NAMES.get(name, name)}": value for name, value in given.items() if _is_client(name)}
    if entry.batch_size is not None:
        options.setdefault("kafka.max.poll.records", str(entry.batch_size))
    if entry.consumer_timeout is not None:
        # Both: the client refuses a time for a whole call that is shorter than the time for one request of it.
        for name in ("kafka.default.api.timeout.ms", "kafka.request.timeout.ms"):
            options.setdefault(name, str(max(_LEAST_ANSWER_MS, int(entry.consumer_timeout * 1000))))
    return options


def _is_client(name: str) -> bool:
    return _OTHER_NAMES.get(name, name) in _CLIENT


def _notices(given: dict[str, str], entry: KafkaEntry) -> Iterator[tuple[Path, str]]:
    for name in given:
        if name in _GROUP:
            yield (*_CONFIG, name), f"{name} has no effect: the partitions of a topic are not shared among members of a group"
    if entry.message_encoding is None and entry.encoding != "avro":
        words = "messages are read as JSON: neither message_encoding nor schema_registry_url is given, and avro needs both"
        yield ("source",), words
    user = entry.authentication.given("username") if entry.authentication is not None else None
    if user and given.get("security.protocol") in ("PLAINTEXT", "SSL"):
        yield _AUTH, f"nobody logs in: security.protocol is {given['security.protocol']}"


def _problems(document: Document, given: dict[str, str], login: dict[str, Any] | None) -> Iterator[ConfigError]:
    known = (*_CLIENT, *_OTHER_NAMES, *_GROUP, *_TLS, *_WORDS, "sasl.username", "sasl.password")
    for name in given:
        place = document.key_place((*_CONFIG, name))
        if name in _ELSEWHERE:
            words = f"`{name}` is said by `{_ELSEWHERE[name]}` of the source"
            yield ConfigError("unknown-key", words, fix=f"Put it under `{_ELSEWHERE[name]}`.", location=place)
        elif name not in known:
            fix = suggestion(name, known, f"Known settings: {', '.join(sorted(known))}.")
            yield ConfigError("unknown-key", f"Unknown setting `{name}` in `consumer_config`", fix=fix, location=place)
    if given.get("enable.auto.commit") == _YES:
        words = "enable.auto.commit: offsets are kept in the table, in the same commit as the rows"
        place = document.key_place((*_CONFIG, "enable.auto.commit"))
        yield ConfigError("invalid-value", words, fix="Write false, or leave it out.", location=place)
    for name, allowed in _WORDS.items():
        value = given.get(name)
        if value is not None and value not in allowed:
            fix = f"Known values: {', '.join(allowed)}."
            place = document.value_place((*_CONFIG, name))
            yield ConfigError("unknown-value", f"`{name}` cannot be `{value}`", fix=fix, location=place)
    if _protocol(given, login).startswith("SASL") and login == {}:
        words = f"security.protocol: {given['security.protocol']} needs authentication with username and password"
        yield ConfigError("missing-key", words, location=document.key_place((*_CONFIG, "security.protocol")))


def _registry(document: Document, entry: KafkaEntry) -> dict[str, Any] | None:
    auth = entry.authentication
    url = auth.given("schema_registry_url") if auth is not None else None
    if entry.encoding != "avro":
        return None
    if auth is None or not url:
        message = "message_encoding: avro needs a schema registry: authentication has no schema_registry_url"
        fix = "Add it; or write message_encoding: utf-8, when messages are JSON."
        place = document.key_place(("source", "message_encoding"))
        document.problems.append(ConfigError("missing-key", message, fix=fix, location=place))
        return None
    kind = auth.given("schema_registry_type") or "apicurio"
    api = "confluent" if "/apis/ccompat/" in url else kind
    user, password = auth.given("schema_registry_username"), auth.given("schema_registry_password")
    login = {"schema_registry_username": user, "schema_registry_password": password}
    both = _is_whole(document, login) and user
    return {"url": url.rstrip("/"), "api": api} | ({"user": user, "password": password} if both else {})
