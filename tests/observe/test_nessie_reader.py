"""Nessie's own protocol, as it is asked without Spark.

A stand-in answers with what a Nessie 0.99 answered: what is shown here are the questions, and what is made of refusals, which
a server without logins does not have.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from frazil.errors import ConfigError, DataError, FrazilError
from frazil.model.sink import SinkSpec
from frazil.observe.check import check_catalog
from frazil.observe.lake import open_table

TOKEN = "tok-of-the-right-user"
NAMESPACES = [["db"], ["db", "inner"], ["other"]]


class StandIn(BaseHTTPRequestHandler):
    """One table, ``db.t``, on the branches main and team/dev. The namespaces come one to a page."""

    metadata = ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if self._refused():
            return
        if path == "/api/v2/config":
            self._answer(200, {"defaultBranch": "main", "specVersion": "2.2.0"})
            return
        page = int(query.rpartition("page-token=")[2]) if "page-token=" in query else 0
        entry = {"type": "NAMESPACE", "name": {"elements": NAMESPACES[page]}}
        self._answer(200, {"entries": [entry], "token": str(page + 1), "hasMore": page < len(NAMESPACES) - 1})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["requestedKeys"][0]["elements"]
        if self._refused():
            return
        if self.path not in ("/api/v2/trees/main/contents", "/api/v2/trees/team%2Fdev/contents"):
            self._answer(404, {"message": "Named reference 'nope' not found"})
            return
        found: dict[str, Any] | None = {"type": "NAMESPACE"} if asked in NAMESPACES else None
        if asked == ["db", "t"]:
            found = {"type": "ICEBERG_TABLE", "metadataLocation": self.metadata}
        self._answer(200, {"contents": [{"content": found}] if found else []})

    def log_message(self, *_args: object) -> None:
        """Nothing: the tests say what they asked."""

    def _refused(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return False
        self._answer(403 if "Authorization" in self.headers else 401, {"message": "no"})
        return True

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    made = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(tmp_path / "t"))
    file = tmp_path / "v1.metadata.json"
    file.write_text(made.model_dump_json())
    handler = type("Handler", (StandIn,), {"metadata": str(file)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/api/v2"
        server.shutdown()


def sink(address: str, namespace: str | None = "db", table: str | None = "t", **nessie: Any) -> SinkSpec:
    section = {"uri": address, "warehouse": "/lake", "token": TOKEN} | nessie
    return SinkSpec.model_validate({"catalog": {"type": "nessie", "nessie": section}, "namespace": namespace, "table": table})


@pytest.mark.parametrize("ref", [None, "team/dev"])
def test_a_table_is_read_from_the_branch(address: str, ref: str | None) -> None:
    table = open_table(sink(address, ref=ref))
    assert table is not None
    assert table.schema().column_names == ["id"]
    assert open_table(sink(address, table="absent", ref=ref)) is None


def test_check_looks_for_the_namespace_or_counts_them_all(address: str) -> None:
    assert "namespace db exists; server: Nessie, which speaks version 2.2.0 of its protocol" in check_catalog(sink(address))
    assert "namespace db.inner exists" in check_catalog(sink(address, namespace="db.inner"))
    assert "does not exist yet" in check_catalog(sink(address, namespace="absent"))
    assert "it has 3 namespaces" in check_catalog(sink(address, namespace=None))


@pytest.mark.parametrize(
    ("nessie", "kind", "words"),
    [
        ({"token": "of-somebody-else"}, DataError, "access denied"),
        ({"token": None}, ConfigError, "refused the credentials"),
        ({"ref": "nope"}, FrazilError, "Named reference 'nope' not found"),
    ],
)
def test_refusals_are_reported(address: str, nessie: dict[str, Any], kind: type[FrazilError], words: str) -> None:
    with pytest.raises(kind, match=words) as refused:
        check_catalog(sink(address, **nessie))
    assert "somebody-else" not in str(refused.value)
