"""An S3 store whose requests have faults, and what is known of each fault of a store."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from services.between import Asked, Made, s3_error
from services.faults import Cut, Fault, Status, applied_then, applied_then_cut_off, cut_off, refused, slow, slowly
from services.faulty import Exchange, Faulty
from services.s3proxy import S3Store

CODES = {
    HTTPStatus.FORBIDDEN: "AccessDenied",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
    HTTPStatus.BAD_GATEWAY: "BadGateway",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
    HTTPStatus.GATEWAY_TIMEOUT: "GatewayTimeout",
}

KINDS = ("write data", "write metadata", "read data", "read metadata", "look", "list", "delete")

PASSING: tuple[Fault, ...] = (
    refused(429),
    refused(500),
    refused(502, html=True),
    refused(503),
    refused(503, name="SlowDown"),
    refused(504, html=True),
    cut_off(Cut.CLOSED),
    cut_off(Cut.RESET),
    slow(0.2),
)
"""Faults of any request that a second try does not meet."""

LOST_ANSWERS: tuple[Fault, ...] = (
    applied_then(500),
    applied_then(503, name="SlowDown"),
    applied_then(504, html=True),
    applied_then_cut_off(Cut.CLOSED),
    applied_then_cut_off(Cut.RESET),
    applied_then_cut_off(Cut.TRUNCATED),
)
"""Faults after which the store has done what it was asked for, and the client does not know."""

BODIES: tuple[Fault, ...] = (applied_then_cut_off(Cut.TRUNCATED), slowly(0.3))
"""Faults of answers that have a body."""


class FaultyS3(Faulty):
    """The proxy; the kinds of requests are those of ``KINDS``."""

    @staticmethod
    def kind_of(asked: Asked) -> str | None:
        parts = urlsplit(asked.target)
        if asked.method == "DELETE" or "delete" in parse_qs(parts.query, keep_blank_values=True):
            return "delete"
        if asked.method == "HEAD":
            return "look"
        if asked.method == "GET" and not key_of(asked):
            return "list"
        what = "data" if "/data/" in key_of(asked) else "metadata"
        return f"{'read' if asked.method == 'GET' else 'write'} {what}"

    @staticmethod
    def own_error(status: Status) -> Made:
        return s3_error(status.code, status.name or CODES[HTTPStatus(status.code)], "injected")

    def of_kind(self, kind: str) -> list[Exchange]:
        """The requests of one kind."""
        return [exchange for exchange in self.log if exchange.kind == kind]

    def tries(self, exchange: Exchange) -> list[Exchange]:
        """All requests for the same thing as one of them."""
        wanted = (exchange.request.method, exchange.request.target)
        return [other for other in self.log if (other.request.method, other.request.target) == wanted]


def key_of(asked: Asked) -> str:
    """The key of the object that is asked for."""
    return unquote(urlsplit(asked.target).path).strip("/").partition("/")[2]


@pytest.fixture
def faulty_s3(s3: S3Store) -> Iterator[FaultyS3]:
    """A proxy of this test alone in front of the store of the test run."""
    proxy = FaultyS3(s3.endpoint)
    yield proxy
    proxy.close()
