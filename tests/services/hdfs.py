"""HDFS: a name node and a data node in one process, as Hadoop tests itself with them. The rest of Hadoop is in PySpark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from frazil.spark.jars import ensure_jars, read_lock
from frazil.spark.java import java_command
from services.processes import LOCALHOST, started, wait_until

LOCK = Path(__file__).parent / "locks" / "hadoop-minicluster-3.4.2.txt"
READY_SECONDS = 120
MEMORY = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class Hdfs:
    """Where the name node answers."""

    port: int

    @property
    def address(self) -> str:
        """The authority of its URIs."""
        return f"{LOCALHOST}:{self.port}"


@contextmanager
def running_hdfs(folder: Path) -> Iterator[Hdfs]:
    """A file system of its own in the folder, as long as the block."""
    details = folder / "details.json"
    jars = [*ensure_jars(read_lock(LOCK)), Path(pyspark.__file__).parent / "jars" / "*"]
    path = os.pathsep.join(str(jar) for jar in jars)
    ports = ["-nnport", "0", "-nnhttpport", "0"]
    settings = ["-D", f"hadoop.tmp.dir={folder / 'tmp'}", "-writeDetails", str(details)]
    command = [java_command(), *MEMORY, f"-Dtest.build.data={folder / 'data'}", "-cp", path]
    manager = ["org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-nomr", "-format", *ports, *settings]
    with started("HDFS", [*command, *manager], folder / "server.log") as server:
        wait_until(lambda: details.is_file() and details.read_text().endswith("}"), READY_SECONDS, "its address", server)
        yield Hdfs(int(json.loads(details.read_text())["namenode_port"]))


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """One file system for the test run. Tests share it, so that each uses a folder of its own."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as system:
        yield system
