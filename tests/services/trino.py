"""Trino: a server that is coordinator and worker at once, a client of its protocol, and catalogs that last as long as a block.

Trino's release is not published as a whole, but as single jars. They are put together here as in the release: a server, and the
Iceberg connector in a folder of plugins. The class that starts the release is not among them, and is a few lines of Java.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4
from zipfile import ZipFile

import pytest

from frazil.spark.jars import Jar, component_jars, ensure_jars, read_lock
from services.java_25 import java_25
from services.processes import LOCALHOST, free_port, started, wait_until

VERSION = "483"
LOCKS = Path(__file__).parent / "locks"
READY_SECONDS = 180
ANSWER_SECONDS = 60
MEMORY = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
MODULES = ("--add-modules=jdk.incubator.vector", "--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow")
START = f"""class Start {{
    public static void main(String[] arguments) {{
        new io.trino.server.Server().start("{VERSION}");
    }}
}}
"""
# The release has it in a jar of its own, by which the server finds the connector.
SERVICE = ("META-INF/services/io.trino.spi.Plugin", "io.trino.plugin.iceberg.IcebergPlugin")
# Drivers of databases that Trino does not bring. Its users put them into the connector's folder, too.
DRIVERS = ("sqlite-jdbc", "mariadb-java-client")
# There are hundreds of jars. They are fetched in parts: those that came are kept, should the whole take too long for a test.
FETCHED_AT_ONCE = 50


class TrinoError(Exception):
    """Trino refused a statement. ``name`` is the kind of its reason, such as ``NOT_SUPPORTED``."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.name = str(error["errorName"])
        super().__init__(f"{self.name}: {error.get('message')}")


@dataclass(frozen=True)
class Trino:
    """Where the server answers."""

    address: str

    @property
    def ready(self) -> bool:
        """Whether it takes statements."""
        with suppress(OSError), urlopen(f"{self.address}/v1/info", timeout=5) as answer:
            return not json.load(answer)["starting"]
        return False

    def run(self, statement: str, catalog: str = "") -> list[tuple[Any, ...]]:
        """The rows that a statement returns. Tables that are named without a catalog are of the given one."""
        # The last one lets times keep all their digits.
        headers = {"X-Trino-User": "frazil", "X-Trino-Time-Zone": "UTC", "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
        if catalog:
            headers["X-Trino-Catalog"] = catalog
        answer = _asked(Request(f"{self.address}/v1/statement", statement.encode(), headers))
        rows: list[tuple[Any, ...]] = []
        while True:
            if "error" in answer:
                raise TrinoError(answer["error"])
            if "data" in answer:
                read = [_reader(column["typeSignature"]) for column in answer["columns"]]
                rows += [tuple(of(value) for of, value in zip(read, row, strict=True)) for row in answer["data"]]
            if "nextUri" not in answer:
                return rows
            answer = _asked(Request(answer["nextUri"], headers=headers))

    @contextmanager
    def catalog(self, properties: Mapping[str, str]) -> Iterator[TrinoCatalog]:
        """A catalog with properties that Trino otherwise reads from a file, as long as the block."""
        name, given = f"c{uuid4().hex[:8]}", dict(properties)
        connector = given.pop("connector.name")
        listed = ", ".join(f'"{key}" = {_literal(value)}' for key, value in given.items())
        self.run(f"create catalog {name} using {connector} with ({listed})")
        try:
            yield TrinoCatalog(self, name)
        finally:
            self.run(f"drop catalog {name}")


@dataclass(frozen=True)
class TrinoCatalog:
    """A catalog of the server."""

    server: Trino
    name: str

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows that a statement returns, whose tables have the names of schema and table."""
        return self.server.run(statement, self.name)

    def rows(self, table: str = "db.t", at: int | str | None = None) -> list[tuple[Any, ...]]:
        """The rows of a table in order: now, at a snapshot, or of a branch or a tag."""
        past = "" if at is None else f" for version as of {_literal(at) if isinstance(at, str) else at}"
        return sorted(self.run(f"select * from {table}{past}"), key=repr)


def _asked(request: Request) -> dict[str, Any]:
    with urlopen(request, timeout=ANSWER_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _reader(signature: Mapping[str, Any]) -> Callable[[Any], Any]:
    """How values of a type are read from JSON."""
    convert = _converter(signature["rawType"], [argument["value"] for argument in signature["arguments"]])
    return lambda value: None if value is None else convert(value)


def _converter(name: str, arguments: Sequence[Any]) -> Callable[[Any], Any]:
    match name:
        case "real" | "double":
            return float
        case "decimal":
            return Decimal
        case "date":
            return date.fromisoformat
        case "timestamp":
            return datetime.fromisoformat
        case "timestamp with time zone":
            return lambda value: datetime.fromisoformat(value.removesuffix(" UTC")).replace(tzinfo=UTC)
        case "varbinary":
            return base64.b64decode
        case "array":
            item = _reader(arguments[0])
            return lambda value: [item(each) for each in value]
        case "map":
            item = _reader(arguments[1])
            return lambda value: {key: item(each) for key, each in value.items()}
        case "row":
            fields = {field["fieldName"]["name"]: _reader(field["typeSignature"]) for field in arguments}
            return lambda value: {name: of(each) for (name, of), each in zip(fields.items(), value, strict=True)}
        case _:
            return lambda value: value


@contextmanager
def running_trino(folder: Path) -> Iterator[Trino]:
    """A server of its own in the folder, as long as the block."""
    plugin = folder / "plugin" / "iceberg"
    plugin.mkdir(parents=True)
    drivers = [jar for jar in component_jars(("core", "mysql")) if jar.module in DRIVERS]
    server = _fetched(read_lock(LOCKS / f"trino-main-{VERSION}.txt"))
    connector = _fetched((*read_lock(LOCKS / f"trino-iceberg-{VERSION}.txt"), *drivers))
    for jar in connector:
        (plugin / jar.name).symlink_to(jar)
    with ZipFile(plugin / "services.jar", "w") as services:
        services.writestr(*SERVICE)
    port = free_port()
    address = f"http://{LOCALHOST}:{port}"
    settings = {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "discovery.uri": address,
        "http-server.http.port": str(port),
        # Otherwise it writes one into the working folder.
        "http-server.log.enabled": "false",
        "plugin.dir": str(plugin.parent),
        "catalog.management": "dynamic",
        "catalog.store": "memory",
        "web-ui.enabled": "false",
    }
    (folder / "config.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    (folder / "Start.java").write_text(START)
    of_node = {"config": folder / "config.properties", "node.environment": "tests", "node.data-dir": folder / "data"}
    of_node |= {"node.bind-ip": LOCALHOST, "node.internal-address": LOCALHOST}
    given = [f"-D{key}={value}" for key, value in of_node.items()]
    command = [*java_25(), *MEMORY, *MODULES, *given, "-cp", os.pathsep.join(map(str, server)), str(folder / "Start.java")]
    with started("Trino", command, folder / "server.log") as child:
        trino = Trino(address)
        wait_until(lambda: trino.ready, READY_SECONDS, "an answer", child)
        yield trino


def _fetched(jars: Sequence[Jar]) -> list[Path]:
    parts = (jars[at : at + FETCHED_AT_ONCE] for at in range(0, len(jars), FETCHED_AT_ONCE))
    return [jar for part in parts for jar in ensure_jars(part)]


@pytest.fixture(scope="session")
def trino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    """One server for the test run. Tests share it, so that each makes a catalog of its own."""
    with running_trino(tmp_path_factory.mktemp("trino")) as server:
        yield server
