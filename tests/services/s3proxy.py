"""An S3 server: s3proxy over a folder, which checks signatures. Buckets are folders in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from frazil.spark.jars import ensure_jars, read_lock
from frazil.spark.java import java_command
from services.processes import LOCALHOST, answers, free_port, started, wait_until

LOCK = Path(__file__).parent / "locks" / "s3proxy-4.1.0.txt"
READY_SECONDS = 60
MEMORY = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
REGION = "us-east-1"
KEY, SECRET = "frazil", "the-0bject-store-alone-knows"


@dataclass(frozen=True)
class S3Store:
    """Where the store answers, its one pair of keys, and the folder behind it."""

    endpoint: str
    access_key_id: str
    secret_access_key: str
    folder: Path

    def create_bucket(self, name: str) -> str:
        """An empty bucket; its location."""
        (self.folder / name).mkdir()
        return f"s3://{name}"

    def file(self, location: str) -> Path:
        """The file that is behind the location of an object."""
        parts = urlsplit(location)
        return self.folder / parts.netloc / parts.path.lstrip("/")

    @property
    def files(self) -> set[str]:
        """Everything that the buckets hold, by paths below them."""
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}

    def left_in(self, bucket: str) -> set[str]:
        """The keys of all objects in a bucket, also of empty ones that stand for folders, as the store lists them."""
        with urlopen(f"{self.endpoint}/{bucket}", timeout=READY_SECONDS) as answer:
            return set(re.findall(r"<Key>([^<]*)</Key>", answer.read().decode()))

    @property
    def properties(self) -> dict[str, str]:
        """The store in the words of PyIceberg."""
        return properties_of(self.endpoint, self.access_key_id, self.secret_access_key)


def properties_of(endpoint: str, key: str, secret: str) -> dict[str, str]:
    """A store that speaks S3 in the words of PyIceberg."""
    return {
        "s3.endpoint": endpoint,
        "s3.access-key-id": key,
        "s3.secret-access-key": secret,
        "s3.region": REGION,
        "s3.force-virtual-addressing": "false",
    }


@contextmanager
def running_s3(folder: Path, domain: str | None = None) -> Iterator[S3Store]:
    """A store of its own in the folder, as long as the block. With a domain it takes the name of a host in it for a bucket's."""
    buckets = folder / "buckets"
    buckets.mkdir()
    port = free_port()
    store = S3Store(f"http://{LOCALHOST}:{port}", KEY, SECRET, buckets)
    settings = {
        "s3proxy.endpoint": store.endpoint,
        "s3proxy.authorization": "aws-v4",
        "s3proxy.identity": store.access_key_id,
        "s3proxy.credential": store.secret_access_key,
        # Session tokens mean nothing to it: without this it refuses requests that have one.
        "s3proxy.ignore-unknown-headers": "true",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(buckets),
    }
    if domain is not None:
        settings["s3proxy.virtual-host"] = domain
    file = folder / "s3proxy.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    (jar,) = ensure_jars(read_lock(LOCK))
    command = [java_command(), *MEMORY, "-jar", str(jar), "--properties", str(file)]
    with started("s3proxy", command, folder / "server.log") as server:
        wait_until(lambda: answers(port), READY_SECONDS, "its port", server)
        yield store


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    """One store for the test run. Tests share it, so that each makes a bucket of its own."""
    with running_s3(tmp_path_factory.mktemp("s3")) as store:
        yield store
