"""From a description to the settings of Kafka's clients, the same for planning and for reading.

Certificates and keys are handed over as their text, not as names of files: executors on other machines need no copy.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from frazil.errors import ConfigError, Retryable, SourceAway
from frazil.model.secrets import remember
from frazil.model.source import KafkaCluster, KafkaSecurity, KafkaTls

PREFIX = "kafka."
CONNECT_SECONDS = 10.0

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def client_settings(spec: KafkaCluster) -> dict[str, str]:
    """All settings, without prefix; the user's own options win."""
    tls = spec.tls if spec.tls is not None and spec.tls.enabled else None
    settings = {
        "bootstrap.servers": spec.bootstrap_servers,
        "security.protocol": _protocol(spec.security, tls),
        # The messages of a transaction that was aborted never happened.
        "isolation.level": "read_committed",
        # What is read is there already. A consumer asks ahead for more, and at the end of a partition every task would wait
        # for that in vain: half a second each.
        "fetch.max.wait.ms": "10",
    }
    if spec.security is not None:
        settings |= {"sasl.mechanism": spec.security.mechanism, "sasl.jaas.config": _login(spec.security)}
    if tls is not None:
        settings |= _tls(tls, spec.bootstrap_servers)
    return settings | {name.removeprefix(PREFIX): value for name, value in spec.options.items()}


def _protocol(security: KafkaSecurity | None, tls: KafkaTls | None) -> str:
    if security is None:
        return "PLAINTEXT" if tls is None else "SSL"
    return "SASL_PLAINTEXT" if tls is None else "SASL_SSL"


def _login(security: KafkaSecurity) -> str:
    module = _LOGIN_MODULES[security.mechanism]
    user, password = _quoted(security.user), _quoted(security.password.get_secret_value())
    text = f"{module} required username={user} password={password};"
    remember([text, password.strip('"')])
    return text


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tls(tls: KafkaTls, servers: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    if tls.insecure or tls.server_name is not None:
        # Kafka's client can only ask for the name of the address. The certificates are checked here instead, and the
        # client trusts just these.
        settings |= {"ssl.endpoint.identification.algorithm": "", "ssl.truststore.type": "PEM"}
        settings["ssl.truststore.certificates"] = "".join(_shown_by(server, tls) for server in servers.split(","))
    elif tls.ca_path is not None:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _file(tls.ca_path, "ca_path")}
    if tls.cert_path is not None and tls.key_path is not None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.certificate.chain"] = _file(tls.cert_path, "cert_path")
        settings["ssl.keystore.key"] = _key(tls.key_path)
    return settings


def _shown_by(server: str, tls: KafkaTls) -> str:
    """The certificate that a server shows, verified under the name that is asked for unless nothing is to be verified."""
    host, _, port = server.strip().rpartition(":")
    context = tls_context(tls)
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=tls.server_name or host) as wrapped,
        ):
            shown = wrapped.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        raise tls_failed(server.strip(), str(reason)) from error
    except (OSError, ValueError) as error:
        raise unreachable(server.strip(), str(error)) from error
    return ssl.DER_cert_to_PEM_cert(shown) if shown else ""


def tls_context(tls: KafkaTls) -> ssl.SSLContext:
    """TLS for a connection that Python makes itself."""
    for path, option in ((tls.ca_path, "ca_path"), (tls.cert_path, "cert_path"), (tls.key_path, "key_path")):
        if path is not None:
            _file(path, option)
    context = ssl.create_default_context(cafile=tls.ca_path)
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_path is not None:
        context.load_cert_chain(tls.cert_path, tls.key_path)
    return context


def _file(path: str, option: str) -> str:
    try:
        return Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            "source-tls", f"The file {path} cannot be read: {reason}.", fix=f"Give the path of a PEM file in tls.{option}."
        ) from error


def _key(path: str) -> str:
    text = _file(path, "key_path")
    if "BEGIN PRIVATE KEY" not in text:
        raise ConfigError(
            "source-tls",
            f"The file {path} holds no private key of the form that Kafka's client reads.",
            fix="Convert that of tls.key_path: openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW.",
        )
    remember([text])
    return text


def tls_failed(servers: str, reason: str) -> ConfigError:
    """The error for a connection that cannot be encrypted."""
    return ConfigError(
        "source-tls",
        f"The encrypted connection to Kafka at {servers} failed: {reason}",
        fix="Check tls.ca_path and the name in the server's certificate, and that this port expects TLS.",
    )


def unreachable(servers: str, reason: str) -> Retryable:
    """The error for a cluster that does not answer."""
    return SourceAway(
        "source-unreachable",
        f"Kafka at {servers} did not answer: {reason}",
        fix="Check bootstrap_servers, that the cluster runs, and that this port expects what `tls` and `security` say.",
    )
