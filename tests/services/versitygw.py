"""A second S3 server: versitygw over a folder, which checks signatures. Buckets are folders in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.go_tools import built
from services.processes import LOCALHOST, answers, free_port, started, wait_until
from services.s3proxy import KEY, REGION, SECRET, S3Store

MODULE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "1.8.0"
READY_SECONDS = 60


@contextmanager
def running_versitygw(folder: Path) -> Iterator[S3Store]:
    """A store of its own in the folder, as long as the block."""
    buckets, beside = folder / "buckets", folder / "metadata"
    buckets.mkdir()
    beside.mkdir()
    port = free_port()
    settings = ["--access", KEY, "--secret", SECRET, "--region", REGION, "--port", f"{LOCALHOST}:{port}", "--quiet"]
    # Not every file system has the extended attributes that it would keep the metadata of objects in.
    command = [str(built(MODULE, VERSION)), *settings, "posix", "--sidecar", str(beside), str(buckets)]
    with started("versitygw", command, folder / "server.log") as server:
        wait_until(lambda: answers(port), READY_SECONDS, "its port", server)
        yield S3Store(f"http://{LOCALHOST}:{port}", KEY, SECRET, buckets)


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    """One such store for the test run. Tests share it, so that each makes a bucket of its own."""
    with running_versitygw(tmp_path_factory.mktemp("versitygw")) as store:
        yield store
