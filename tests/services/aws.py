"""Amazon's Glue, S3 and STS as moto emulates them: it accepts every signature, and its Glue compares no versions of tables.

So it shows that requests are what Amazon's service takes, and neither permissions nor what happens to two writers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.processes import LOCALHOST, started
from services.s3proxy import REGION, properties_of

READY_SECONDS = 60


@dataclass(frozen=True)
class Aws:
    """Where all of the services answer, and keys that they take as they take any."""

    endpoint: str
    access_key_id: str = "testing"
    secret_access_key: str = "testing"

    def client(self, service: str) -> Any:
        """A client of Amazon's own library."""
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
        )

    def create_bucket(self, name: str) -> str:
        """An empty bucket; its location."""
        self.client("s3").create_bucket(Bucket=name)
        return f"s3://{name}"

    @property
    def properties(self) -> dict[str, str]:
        """The store in the words of PyIceberg."""
        return properties_of(self.endpoint, self.access_key_id, self.secret_access_key)

    @property
    def environment(self) -> dict[str, str]:
        """What Amazon's libraries take keys from when nobody gives them any."""
        return {"AWS_ACCESS_KEY_ID": self.access_key_id, "AWS_SECRET_ACCESS_KEY": self.secret_access_key}


@contextmanager
def running_aws(folder: Path) -> Iterator[Aws]:
    """Services of its own, all in memory, as long as the block."""
    command = [sys.executable, "-m", "moto.server", "-H", LOCALHOST, "-p", "0"]
    with started("moto", command, folder / "server.log") as server:
        port = server.await_line(rf"Running on http://{LOCALHOST}:(\d+)", READY_SECONDS)[1]
        yield Aws(f"http://{LOCALHOST}:{port}")


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """The services for the test run. Tests share them, so that each uses a namespace of its own."""
    with running_aws(tmp_path_factory.mktemp("aws")) as services:
        yield services
