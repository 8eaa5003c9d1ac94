"""What Kafka's clients and Spark's connector say when something fails, as errors for people."""

from __future__ import annotations

import re
import socket

from frazil.errors import ConfigError, FrazilError
from frazil.model.secrets import scrub
from frazil.sources.failures import whole_text
from frazil.sources.kafka.settings import tls_failed, unreachable

CONNECT_SECONDS = 2.0

_EXCEPTION = re.compile(r"(?P<name>[A-Z]\w*(?:Exception|Error)): (?P<text>[^\n]*)")

_LOGIN = ("SaslAuthenticationException", "UnsupportedSaslMechanismException", "IllegalSaslStateException")
_TLS = ("SslAuthenticationException", "SSLHandshakeException", "SSLException", "InvalidReceiveException")
_FORBIDDEN = ("TopicAuthorizationException", "GroupAuthorizationException", "ClusterAuthorizationException")
_LOST = ("OffsetOutOfRangeException", "KAFKA_DATA_LOSS", "failOnDataLoss", "UnknownTopicOrPartitionException")
_AWAY = (
    "TimeoutException",
    "DisconnectException",
    "NetworkException",
    "BrokerNotAvailableException",
    "LeaderNotAvailableException",
    "NotLeaderOrFollowerException",
    "No resolvable bootstrap urls",
)
_REFUSED = ("ConfigException", "InvalidConfigurationException")


def explain_kafka(error: Exception, servers: str) -> FrazilError | None:
    """What an error of the cluster means, or None when it is not the cluster's."""
    text = whole_text(error)
    if found := _first(text, _LOGIN):
        return login_refused(servers, found)
    if found := _first(text, _TLS):
        return tls_failed(servers, found)
    if found := _first(text, _FORBIDDEN):
        return not_allowed(servers, found)
    if _first(text, _AWAY):
        return unreachable(servers, _why_not(servers))
    if found := _first(text, _REFUSED):
        return ConfigError("source-option", f"Kafka's client refuses a setting: {found}", fix="Check `options` and `tls`.")
    return None


def login_refused(servers: str, reason: str) -> ConfigError:
    """The error for a user whom the cluster does not let in."""
    return ConfigError(
        "source-not-readable",
        f"Kafka at {servers} refused the login: {reason}",
        fix="Check security.user, security.password and security.mechanism.",
    )


def not_allowed(servers: str, reason: str) -> ConfigError:
    """The error for a user who may not see a topic or a group."""
    return ConfigError(
        "source-not-readable",
        f"Kafka at {servers} does not allow it: {reason}",
        fix="The user needs DESCRIBE and READ of the topics, and READ of the consumer_group where one is given.",
    )


def _why_not(servers: str) -> str:
    """What can be found out without Kafka's client, which only says that it waited in vain."""
    refused = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            refused.append(str(error))
        else:
            return "it takes connections, and then says nothing, or not what was expected."
    return f"{'; '.join(dict.fromkeys(refused))}."


def says_messages_lost(error: Exception) -> bool:
    """Whether messages were not there when they were read. That a partition is unknown may pass, when its leader changes."""
    text = whole_text(error)
    return any(sign in text for sign in _LOST)


def _first(text: str, signs: tuple[str, ...]) -> str | None:
    """What the deepest exception that bears one of the names says, or the sign itself."""
    if not (present := [sign for sign in signs if sign in text]):
        return None
    messages = [match["text"].strip() for match in _EXCEPTION.finditer(text) if match["name"] in present]
    return scrub(next((line for line in reversed(messages) if line), present[0]))
