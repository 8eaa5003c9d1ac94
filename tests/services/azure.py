"""Azure's blob storage as Azurite emulates it, in memory. It does not have all of what Data Lake Storage adds to that."""

from __future__ import annotations

import base64
import fcntl
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from frazil.spark.cache import cache_dir
from services.processes import LOCALHOST, ServiceFailed, answers, free_port, started, wait_until

VERSION = "3.37.0"
MAIN = Path("node_modules/azurite/dist/src/blob/main.js")
READY_SECONDS = 60
ACCOUNT = "frazil"


@dataclass(frozen=True)
class Azure:
    """Where the account's blobs are, and its key."""

    endpoint: str
    key: str
    account: str = ACCOUNT

    @property
    def connection_string(self) -> str:
        """The settings of Azure's own libraries for it."""
        return f"DefaultEndpointsProtocol=http;AccountName={self.account};AccountKey={self.key};BlobEndpoint={self.endpoint};"

    def create_bucket(self, name: str) -> str:
        """An empty container; its location."""
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient.from_connection_string(self.connection_string) as client:
            client.create_container(name)
        return f"abfss://{name}@{self.account}.dfs.core.windows.net"

    def left_in(self, container: str) -> list[str]:
        """The names of all blobs in a container."""
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient.from_connection_string(self.connection_string) as client:
            return list(client.get_container_client(container).list_blob_names())

    @property
    def properties(self) -> dict[str, str]:
        """The store in the words of PyIceberg, which reaches it by adlfs."""
        return {
            "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
            "adls.connection-string": self.connection_string,
            "adls.account-name": self.account,
            "adls.account-key": self.key,
        }


@contextmanager
def running_azure(folder: Path) -> Iterator[Azure]:
    """A store of its own, as long as the block."""
    program, node = installed(), shutil.which("node")
    port, key = free_port(), base64.b64encode(secrets.token_bytes(64)).decode()
    where = ["--blobHost", LOCALHOST, "--blobPort", str(port), "--inMemoryPersistence", "--disableTelemetry"]
    # It knows fewer versions of the protocol than clients ask for.
    command = [str(node), str(program), *where, "--skipApiVersionCheck", "--debug", str(folder / "requests.log")]
    with started("Azurite", command, folder / "server.log", env={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{key}"}) as server:
        wait_until(lambda: answers(port), READY_SECONDS, "its port", server)
        yield Azure(f"http://{LOCALHOST}:{port}/{ACCOUNT}", key)


def installed() -> Path:
    """The program, installed once into the cache beside the jars. Skips the test where there is no npm to install it with."""
    folder = cache_dir() / "npm" / f"azurite-{VERSION}"
    if (folder / MAIN).is_file():
        return folder / MAIN
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Azurite is installed by npm and run by Node.js, and they are not on the search path")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            making = folder.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            command = [npm, "install", "--prefix", str(making), "--no-fund", "--no-audit", f"azurite@{VERSION}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise ServiceFailed(f"npm install azurite failed:\n{done.stderr[-2000:]}")
            making.rename(folder)
    return folder / MAIN


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azure]:
    """One store for the test run. Tests share it, so that each makes a container of its own."""
    with running_azure(tmp_path_factory.mktemp("azure")) as store:
        yield store
