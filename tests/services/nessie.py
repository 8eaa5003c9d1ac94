"""Nessie as an Iceberg REST catalog, its branches in memory and its warehouse in an S3 store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from frazil.spark.jars import ensure_jars, read_lock
from services.processes import LOCALHOST, started
from services.registry import java_21
from services.s3proxy import REGION, S3Store

LOCK = Path(__file__).parent / "locks" / "nessie-0.99.0.txt"
READY_SECONDS = 120
MEMORY = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
WAREHOUSE = "ice"


@dataclass(frozen=True)
class Nessie:
    """Where the Iceberg REST catalog answers, and where it puts its tables."""

    uri: str
    location: str


@contextmanager
def running_nessie(folder: Path, store: S3Store, *, bucket: str = "nessie", issuer: str | None = None) -> Iterator[Nessie]:
    """A catalog of its own, as long as the block. With an issuer it lets nobody in who has no token of that."""
    location = store.create_bucket(bucket)
    files = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": LOCALHOST,
        "quarkus.http.port": "0",
        "quarkus.management.host": LOCALHOST,
        "quarkus.management.port": "0",
        "quarkus.otel.sdk.disabled": "true",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": WAREHOUSE,
        f"nessie.catalog.warehouses.{WAREHOUSE}.location": location,
        f"{files}.endpoint": store.endpoint,
        f"{files}.path-style-access": "true",
        f"{files}.region": REGION,
        # The clients have keys of their own: PyArrow does not have its requests signed elsewhere.
        f"{files}.request-signing-enabled": "false",
        f"{files}.access-key": "urn:nessie-secret:quarkus:store",
        "store.name": store.access_key_id,
        "store.secret": store.secret_access_key,
    }
    if issuer is not None:
        settings |= {
            "nessie.server.authentication.enabled": "true",
            "quarkus.oidc.auth-server-url": issuer,
            "quarkus.oidc.client-id": "nessie",
            "quarkus.oidc.token.issuer": "any",
            "quarkus.oidc.token.allow-jwt-introspection": "false",
            "quarkus.oidc.token.allow-opaque-token-introspection": "false",
        }
    file = folder / "application.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    (jar,) = ensure_jars(read_lock(LOCK))
    command = [java_21(), *MEMORY, f"-Dquarkus.config.locations={file}", "-jar", str(jar)]
    with started("Nessie", command, folder / "server.log") as server:
        port = server.await_line(rf"Listening on: http://{LOCALHOST}:(\d+)", READY_SECONDS)[1]
        yield Nessie(f"http://{LOCALHOST}:{port}/iceberg", location)


@pytest.fixture(scope="session")
def nessie(s3: S3Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    """One catalog for the test run. Tests share it, so that each uses a namespace of its own."""
    with running_nessie(tmp_path_factory.mktemp("nessie"), s3) as catalog:
        yield catalog
