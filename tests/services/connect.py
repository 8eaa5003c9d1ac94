"""Kafka Connect: a worker of its own process, which takes connectors over HTTP, on a free port of 127.0.0.1."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from frazil.spark.jars import Jar, ensure_jars, read_lock
from frazil.spark.java import java_command
from services.kafka import Kafka
from services.processes import LOCALHOST, Child, free_port, started, wait_until

LOCKS = Path(__file__).parent / "locks"
READY_SECONDS = 300
MEMORY = ("-Xmx512m", "-XX:+UseSerialGC")
LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.log.io.debezium.connector=info")
JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True)
class Worker:
    """A worker that runs, and where it takes connectors."""

    child: Child
    address: str

    @property
    def ready(self) -> bool:
        """Whether it takes connectors."""
        try:
            urllib.request.urlopen(f"{self.address}/connectors", timeout=5).close()
        except OSError:
            return False
        return True

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Starts a connector."""
        self._send("POST", "", json.dumps({"name": name, "config": dict(config)}).encode())

    def delete(self, name: str) -> None:
        """Ends a connector."""
        self._send("DELETE", f"/{name}", None)

    def _send(self, method: str, path: str, body: bytes | None) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}/connectors{path}", body, headers, method=method)
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{error}: {error.read().decode()}") from error


@contextmanager
def running_worker(
    folder: Path, kafka: Kafka, jars: Sequence[Jar], plugin: Sequence[Jar] = (), java: Sequence[str] = (), **settings: str
) -> Iterator[Worker]:
    """A worker with these jars, as long as the block; those of ``plugin`` are kept apart from its own.

    ``java`` are options of its Java, ``settings`` are the worker's, with underscores for dots.
    """
    name, port = f"worker-{uuid.uuid4().hex[:8]}", free_port()
    apart = folder / name
    for jar in ensure_jars(plugin):
        (apart / "plugin").mkdir(parents=True, exist_ok=True)
        (apart / "plugin" / jar.name).symlink_to(jar)
    properties = {
        "bootstrap.servers": kafka.address(),
        "key.converter": JSON,
        "value.converter": JSON,
        "offset.storage.file.filename": str(folder / f"{name}.offsets"),
        "offset.flush.interval.ms": "200",
        "listeners": f"http://{LOCALHOST}:{port}",
        # By what the jars say that they have: otherwise the worker looks into every class of every jar.
        **({"plugin.path": str(apart), "plugin.discovery": "service_load"} if plugin else {}),
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    file = folder / f"{name}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    path = os.pathsep.join(str(jar) for jar in ensure_jars(jars))
    command = [java_command(), *MEMORY, *java, *LOGGING, "-cp", path, "org.apache.kafka.connect.cli.ConnectStandalone", str(file)]
    with started("Kafka Connect", command, folder / f"{name}.log") as child:
        worker = Worker(child, f"http://{LOCALHOST}:{port}")
        wait_until(lambda: worker.ready, READY_SECONDS, "its answer", child)
        yield worker


def locked(name: str) -> tuple[Jar, ...]:
    """The jars of a lock."""
    return read_lock(LOCKS / f"{name}.txt")
