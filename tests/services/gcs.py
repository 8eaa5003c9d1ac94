"""Google Cloud Storage as fake-gcs-server emulates it, in memory: it asks for no credentials."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from services.go_tools import built
from services.processes import LOCALHOST, answers, free_port, started, wait_until

MODULE, VERSION = "github.com/fsouza/fake-gcs-server", "1.56.1"
READY_SECONDS = 60


@dataclass(frozen=True)
class Gcs:
    """Where the store answers."""

    endpoint: str

    def create_bucket(self, name: str) -> str:
        """An empty bucket; its location."""
        self._call("POST", "/storage/v1/b?project=frazil", {"name": name})
        return f"gs://{name}"

    def left_in(self, bucket: str) -> list[str]:
        """The names of all objects in a bucket."""
        with urlopen(f"{self.endpoint}/storage/v1/b/{bucket}/o", timeout=READY_SECONDS) as answer:
            return [item["name"] for item in json.loads(answer.read()).get("items", [])]

    def _call(self, method: str, path: str, content: object) -> None:
        headers = {"Content-Type": "application/json"}
        request = Request(f"{self.endpoint}{path}", json.dumps(content).encode(), headers, method=method)
        urlopen(request, timeout=READY_SECONDS).close()

    @property
    def properties(self) -> dict[str, str]:
        """The store in the words of PyIceberg, which reaches it by gcsfs."""
        return {
            "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
            "gcs.service.host": self.endpoint,
            "gcs.oauth2.token": "anon",
        }


@contextmanager
def running_gcs(folder: Path) -> Iterator[Gcs]:
    """A store of its own, as long as the block."""
    port = free_port()
    gcs = Gcs(f"http://{LOCALHOST}:{port}")
    # Clients go on with an upload at the address that the store says it has.
    where = ["-scheme", "http", "-host", LOCALHOST, "-port", str(port), "-external-url", gcs.endpoint]
    command = [str(built(MODULE, VERSION)), "-backend", "memory", "-public-host", f"{LOCALHOST}:{port}", *where]
    with started("fake-gcs-server", command, folder / "server.log") as server:
        wait_until(lambda: answers(port), READY_SECONDS, "its port", server)
        yield gcs


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcs]:
    """One store for the test run. Tests share it, so that each makes a bucket of its own."""
    with pytest.MonkeyPatch.context() as environment, running_gcs(tmp_path_factory.mktemp("gcs")) as store:
        # gcsfs asks Google's own store for the kind of each bucket otherwise, and a server of Google's for the end of its token.
        environment.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        environment.setenv("FETCH_RAW_TOKEN_EXPIRY", "false")
        yield store
