"""A real Spark standalone cluster on 127.0.0.1: a master and two workers of one core and 1 GB each, as processes of their own."""

from __future__ import annotations

import importlib.util
import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from frazil.spark.java import java_home
from services.processes import LOCALHOST, Child, ServiceFailed, started, wait_until

READY_SECONDS = 90
WORKERS = 2


@dataclass(frozen=True)
class SparkCluster:
    """Where the master takes applications, and where it tells about itself."""

    master: str
    status_uri: str

    def alive_workers(self) -> int:
        """How many workers the master counts on."""
        with urllib.request.urlopen(f"{self.status_uri}/json/", timeout=10) as response:
            return int(json.load(response)["aliveworkers"])


@contextmanager
def running_spark_cluster(folder: Path, workers: int = WORKERS) -> Iterator[SparkCluster]:
    """A cluster whose workers are all registered, as long as the block."""
    with ExitStack() as processes:
        master = processes.enter_context(_daemon("master", "master.Master", ["--host", LOCALHOST, "--port", "0"], folder))
        url = master.await_line(r"Starting Spark master at (spark://[\d.:]+)", READY_SECONDS)[1]
        status_port = master.await_line(r"Successfully started service 'MasterUI' on port (\d+)", READY_SECONDS)[1]
        cluster = SparkCluster(url, f"http://{LOCALHOST}:{status_port}")
        for number in range(workers):
            place = ["--host", LOCALHOST, "--port", "0", "--work-dir", str(folder / f"work-{number}")]
            size = ["--cores", "1", "--memory", "1g"]
            processes.enter_context(_daemon(f"worker-{number}", "worker.Worker", [*place, *size, url], folder))
        wait_until(lambda: cluster.alive_workers() == workers, READY_SECONDS, f"{workers} workers", master)
        yield cluster


@contextmanager
def _daemon(name: str, main: str, arguments: list[str], folder: Path) -> Iterator[Child]:
    home = spark_home()
    environment = {
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(home),
        # Also the interface of the web pages, which would listen on all interfaces otherwise.
        "SPARK_LOCAL_IP": LOCALHOST,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        # The submission service has a fixed port, and the tests do not use it.
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", "--webui-port", "0", *arguments]
    with started(f"Spark {name}", command, folder / f"{name}.log", env=environment) as child:
        yield child


def spark_home() -> Path:
    """The folder of the installed PySpark, which holds a whole Spark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServiceFailed("PySpark is not installed")
    return Path(spec.origin).parent


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """One cluster for the test run. It has two cores in all: an application that holds them keeps the next one waiting."""
    with running_spark_cluster(tmp_path_factory.mktemp("spark-cluster")) as cluster:
        yield cluster
