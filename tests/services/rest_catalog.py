"""An Iceberg REST catalog: the server that the Iceberg project tests its clients with, on SQLite and a local warehouse.

It asks for no credentials, rejects stale commits, and offers multi-table transactions. It listens on all interfaces: its
code makes the listener from the port alone. The free port that it takes lives only as long as the test run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from frazil.spark.jars import component_jars, ensure_jars, read_lock
from frazil.spark.java import java_command
from services.gcs import Gcs
from services.processes import LOCALHOST, started
from services.s3proxy import REGION, S3Store

LOCK = Path(__file__).parent / "locks" / "rest-fixture.txt"
READY_SECONDS = 60
MEMORY = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class RestCatalog:
    """Where the catalog answers and where it puts its tables."""

    uri: str
    warehouse: str


@contextmanager
def running_rest_catalog(folder: Path, store: S3Store | Gcs | None = None) -> Iterator[RestCatalog]:
    """A catalog of its own in the folder, as long as the block. Its tables are in the folder, too, or in a bucket of a store."""
    warehouse, files = _in_folder(folder) if store is None else _in_bucket(store)
    jars = component_jars(["gcp"]) if isinstance(store, Gcs) else ()
    environment = {
        # Port 0 lets the server take a free one. A chosen one would be shared silently with another server: it sets SO_REUSEPORT.
        "CATALOG_REST_PORT": "0",
        "CATALOG_URI": f"jdbc:sqlite:{folder / 'catalog.db'}?journal_mode=WAL&synchronous=OFF&busy_timeout=20000",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_WAREHOUSE": warehouse,
        **files,
    }
    classpath = os.pathsep.join(str(jar) for jar in ensure_jars((*read_lock(LOCK), *jars)))
    command = [java_command(), *MEMORY, "-cp", classpath, "org.apache.iceberg.rest.RESTCatalogServer"]
    with started("REST catalog", command, folder / "server.log", env=environment) as server:
        port = server.await_line(r"Started ServerConnector@.*:(\d+)}", READY_SECONDS)[1]
        yield RestCatalog(f"http://{LOCALHOST}:{port}", warehouse)


def _in_folder(folder: Path) -> tuple[str, dict[str, str]]:
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    return warehouse.as_uri(), {"CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO"}


def _in_bucket(store: S3Store | Gcs) -> tuple[str, dict[str, str]]:
    """The keys are the server's own: it hands them to nobody."""
    settings = {
        "CATALOG_IO__IMPL": "org.apache.iceberg.gcp.gcs.GCSFileIO",
        "CATALOG_GCS_SERVICE_HOST": store.endpoint,
        "CATALOG_GCS_NO__AUTH": "true",
    }
    if isinstance(store, S3Store):
        settings = {
            "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
            "CATALOG_S3_ENDPOINT": store.endpoint,
            "CATALOG_S3_PATH__STYLE__ACCESS": "true",
            "CATALOG_CLIENT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": store.access_key_id,
            "AWS_SECRET_ACCESS_KEY": store.secret_access_key,
        }
    return store.create_bucket("rest-catalog"), settings


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """One REST catalog for the test run. Tests share it, so that each uses a namespace of its own."""
    with running_rest_catalog(tmp_path_factory.mktemp("rest-catalog")) as catalog:
        yield catalog


@pytest.fixture(scope="session")
def rest_catalog_s3(s3: S3Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """One REST catalog for the test run whose tables are in a bucket."""
    with running_rest_catalog(tmp_path_factory.mktemp("rest-catalog-s3"), s3) as catalog:
        yield catalog


@pytest.fixture(scope="session")
def rest_catalog_gcs(gcs: Gcs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """One REST catalog for the test run whose tables are in a bucket of Google's."""
    with running_rest_catalog(tmp_path_factory.mktemp("rest-catalog-gcs"), gcs) as catalog:
        yield catalog
