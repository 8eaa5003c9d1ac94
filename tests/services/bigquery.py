"""BigQuery's tables and datasets as far as external tables need them: a small server that speaks those calls.

BigQuery itself cannot be had in tests, and Google has no emulator of it. What is asked of this server is what BigQuery's
reference says: which calls there are, what they carry, and that a table asks for its dataset.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.web import QuietHandler, served

_PATH = re.compile(r"/bigquery/v2/projects/(?P<project>[^/]+)/datasets(?:/(?P<dataset>[^/]+)/tables(?:/(?P<table>[^/?]+))?)?")


@dataclass
class BigQuery:
    """What the server holds, and how it was asked. ``failures`` are statuses that the next calls get instead of an answer."""

    address: str
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def metadata_of(self, table: str) -> str:
        """The metadata file that a table shows, by `dataset.table`."""
        (uri,) = self.tables[table]["externalDataConfiguration"]["sourceUris"]
        return str(uri)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> int:
        """Does what is asked for; the status of the answer."""
        with self.lock:
            self.calls.append((method, path, body))
            if self.failures:
                return self.failures.pop(0)
            found = _PATH.match(path)
            if found is None:
                return 400
            dataset, table = found["dataset"], found["table"]
            if dataset is None:
                self.datasets[body["datasetReference"]["datasetId"]] = body
                return 200
            if dataset not in self.datasets:
                return 404
            name = f"{dataset}.{table or body['tableReference']['tableId']}"
            if method == "POST" and name in self.tables:
                return 409
            if method == "PATCH" and name not in self.tables:
                return 404
            self.tables[name] = self.tables.get(name, {}) | body
            return 200


@contextmanager
def running_bigquery() -> Iterator[BigQuery]:
    """The server, as long as the block."""

    class Handler(QuietHandler):
        def _do(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            status = held.answer(self.command, self.path, body)
            text = json.dumps({"error": {"message": f"told to answer {status}"}} if status >= 400 else {}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_PATCH = _do

    with served(Handler) as address:
        held = BigQuery(address)
        yield held


@pytest.fixture
def bigquery() -> Iterator[BigQuery]:
    """A server of its own for each test."""
    with running_bigquery() as server:
        yield server
