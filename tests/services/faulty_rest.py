"""A REST catalog whose commits and loads have faults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import urlsplit

import pytest

from services.between import Asked, Made
from services.faults import Status
from services.faulty import Exchange, Faulty
from services.rest_catalog import RestCatalog

ONE_TABLE = re.compile(r"^/v1/(?:[^/]+/)?namespaces/[^/]+/tables/[^/]+$")
TRANSACTION = re.compile(r"^/v1/(?:[^/]+/)?transactions/commit$")
ERROR_TYPES = {
    HTTPStatus.CONFLICT: "CommitFailedException",
    HTTPStatus.INTERNAL_SERVER_ERROR: "RuntimeException",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableException",
}


class FaultyRest(Faulty):
    """The proxy; ``on="commit"`` and ``on="load"`` (``GET`` of a table) are the kinds of requests."""

    @property
    def commits(self) -> tuple[Exchange, ...]:
        """The commits of the log."""
        return tuple(exchange for exchange in self.log if exchange.kind == "commit")

    @staticmethod
    def kind_of(asked: Asked) -> str | None:
        path = urlsplit(asked.target).path
        if asked.method == "POST" and (ONE_TABLE.match(path) or TRANSACTION.match(path)):
            return "commit"
        return "load" if asked.method == "GET" and ONE_TABLE.match(path) else None

    @staticmethod
    def own_error(status: Status) -> Made:
        phrase = HTTPStatus(status.code).phrase
        kind = ERROR_TYPES.get(HTTPStatus(status.code), phrase.replace(" ", "") + "Exception")
        error = {"error": {"message": f"injected: {phrase}", "type": kind, "code": status.code}}
        return Made(status.code, json.dumps(error).encode(), {"Content-Type": "application/json"})


@pytest.fixture
def faulty_rest(rest_catalog: RestCatalog) -> Iterator[FaultyRest]:
    """A proxy of this test alone in front of the REST catalog of the test run."""
    proxy = FaultyRest(rest_catalog.uri)
    yield proxy
    proxy.close()
