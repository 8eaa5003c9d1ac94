"""A Hive metastore on Derby, with databases in local folders or in the S3 store, which it reaches by Hadoop's S3A."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from frazil.spark.cache import cache_dir
from frazil.spark.jars import ensure_jars, read_lock
from frazil.spark.java import java_command
from services.processes import LOCALHOST, answers, free_port, started, wait_until
from services.s3proxy import REGION, S3Store

LOCK = Path(__file__).parent / "locks" / "hive-metastore-3.1.3.txt"
READY_SECONDS = 120
MEMORY = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PACKAGE = "org.apache.hadoop.hive.metastore"
# Makes the tables of locks, as Hive's own tests want them: DataNucleus, which makes the others, does not know them. The same
# setting refuses the locks of clients that are not of this version, so that a metastore that serves is without it.
LOCK_TABLES = "hive.in.tez.test"


DATABASE = "metastore"


@dataclass(frozen=True)
class HiveMetastore:
    """Where the metastore answers."""

    host: str
    port: int

    @property
    def uri(self) -> str:
        """Its address for clients."""
        return f"thrift://{self.host}:{self.port}"

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client that speaks its protocol, as long as the block."""
        from hive_metastore.ThriftHiveMetastore import Client
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.transport.TSocket import TSocket
        from thrift.transport.TTransport import TBufferedTransport

        transport = TBufferedTransport(TSocket(self.host, self.port))
        transport.open()
        try:
            yield Client(TBinaryProtocol(transport))
        finally:
            transport.close()


@contextmanager
def running_hive(folder: Path, store: S3Store | None = None, *, locks: bool = True) -> Iterator[HiveMetastore]:
    """A metastore of its own in the folder, as long as the block. Without ``locks`` it answers, and no table can be locked."""
    if locks:
        shutil.copytree(prepared(), folder / DATABASE)
    with _served(folder, {} if store is None else _files_in(store)) as metastore:
        yield metastore


def prepared() -> Path:
    """The database of an empty metastore that has tables for locks, made once and kept in the cache."""
    services = cache_dir() / "services"
    made = services / "hive-metastore-3.1.3"
    if not made.is_dir():
        services.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=services) as scratch:
            with _served(Path(scratch), {LOCK_TABLES: "true"}) as metastore, metastore.client() as client:
                client.get_open_txns()
            with suppress(OSError):  # another process was quicker
                (Path(scratch) / DATABASE).rename(made)
    return made


@contextmanager
def _served(folder: Path, more: Mapping[str, str]) -> Iterator[HiveMetastore]:
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{folder / DATABASE};create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "metastore.schema.verification": "false",
        "metastore.thrift.bind.host": LOCALHOST,
        "metastore.warehouse.dir": warehouse.as_uri(),
        "metastore.expression.proxy": f"{PACKAGE}.DefaultPartitionExpressionProxy",
        # The other tasks of the list need classes of Hive itself.
        "metastore.task.threads.always": f"{PACKAGE}.events.EventCleanerTask",
        **more,
    }
    (folder / "metastore-site.xml").write_text(_xml(settings))
    port = free_port()
    path = os.pathsep.join([str(folder), *(str(jar) for jar in ensure_jars(read_lock(LOCK)))])
    # Otherwise Derby writes its log into the working folder.
    command = [java_command(), *MEMORY, f"-Dderby.stream.error.file={folder / 'derby.log'}", "-cp", path]
    with started("Hive metastore", [*command, f"{PACKAGE}.HiveMetaStore", "-p", str(port)], folder / "server.log") as server:
        wait_until(lambda: answers(port), READY_SECONDS, "its port", server)
        yield HiveMetastore(LOCALHOST, port)


def _files_in(store: S3Store) -> dict[str, str]:
    """How Hadoop reaches the store: the metastore makes the folder of each database and each table."""
    return {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint": store.endpoint,
        "fs.s3a.endpoint.region": REGION,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.access.key": store.access_key_id,
        "fs.s3a.secret.key": store.secret_access_key,
    }


def _xml(settings: Mapping[str, str]) -> str:
    entries = (f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items())
    return f"<configuration>{''.join(entries)}</configuration>"


@pytest.fixture(scope="session")
def hive(s3: S3Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """One metastore for the test run. Tests share it, so that each uses a namespace of its own."""
    with running_hive(tmp_path_factory.mktemp("hive"), s3) as metastore:
        yield metastore
