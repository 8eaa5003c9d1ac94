"""A reverse proxy in front of a REST catalog that injects faults into commits and loads, and keeps a log of both.

Everything else passes unharmed. A proxy belongs to one test: it is a thread, and starts at once.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest

from services.faults import Cut, Delivery, Fault, FromCatalog, Status
from services.processes import LOCALHOST
from services.rest_catalog import RestCatalog

Kind = Literal["commit", "load"]

BACKEND_SECONDS = 60
ONE_TABLE = re.compile(r"^/v1/(?:[^/]+/)?namespaces/[^/]+/tables/[^/]+$")
TRANSACTION = re.compile(r"^/v1/(?:[^/]+/)?transactions/commit$")
# Headers that concern one connection, not the message. The length is written anew.
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"}
ERROR_TYPES = {
    HTTPStatus.CONFLICT: "CommitFailedException",
    HTTPStatus.INTERNAL_SERVER_ERROR: "RuntimeException",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableException",
}


@dataclass(frozen=True)
class Request:
    """A request of a client."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def kind(self) -> Kind | None:
        """What faults it can have, if any."""
        path = urlsplit(self.target).path
        if self.method == "POST" and (ONE_TABLE.match(path) or TRANSACTION.match(path)):
            return "commit"
        return "load" if self.method == "GET" and ONE_TABLE.match(path) else None


@dataclass(frozen=True)
class Answer:
    """An answer of the catalog or of the proxy."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def accepted(self) -> bool:
        """Whether the request was done."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


@dataclass(frozen=True)
class Truncated:
    """An answer of which only the first half arrives."""

    whole: Answer


Outcome = Answer | Truncated | Cut


@dataclass(frozen=True)
class Exchange:
    """A commit or load that passed: which fault it had, what the catalog answered to each delivery, what the client was told."""

    kind: Kind
    request: Request
    fault: Fault | None
    from_catalog: tuple[Answer, ...]
    to_client: int | None
    """The status that the client got; none when the connection was cut."""

    @property
    def applied(self) -> bool:
        """Whether the catalog accepted one of the deliveries."""
        return any(answer.accepted for answer in self.from_catalog)

    @property
    def content(self) -> Any:
        """What the client sent."""
        return json.loads(self.request.body) if self.request.body else None


class FaultyRest:
    """The proxy: ``uri`` is its address, ``script`` and ``fault_next`` plan the faults, ``log`` tells what happened."""

    def __init__(self, backend: str) -> None:
        self._backend = urlsplit(backend).netloc
        self._lock = threading.Lock()
        self._planned: dict[Kind, deque[Fault | None]] = {"commit": deque(), "load": deque()}
        self._log: list[Exchange] = []
        self._late: list[tuple[threading.Thread, float | None]] = []
        self._wake = threading.Event()
        self._closed = False
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="faulty-rest", daemon=True)
        self._thread.start()

    @property
    def uri(self) -> str:
        """The address for clients, in place of the catalog's own."""
        return f"http://{LOCALHOST}:{self._server.server_port}"

    @property
    def backend_uri(self) -> str:
        """The catalog's own address, for clients that meet no faults."""
        return f"http://{self._backend}"

    @property
    def log(self) -> tuple[Exchange, ...]:
        """Every commit and load so far, in the order of arrival."""
        with self._lock:
            return tuple(self._log)

    @property
    def commits(self) -> tuple[Exchange, ...]:
        """The commits of the log."""
        return tuple(exchange for exchange in self.log if exchange.kind == "commit")

    @property
    def unused(self) -> tuple[Fault, ...]:
        """Planned faults that no request has met yet."""
        with self._lock:
            return tuple(fault for plan in self._planned.values() for fault in plan if fault)

    def script(self, faults: Iterable[Fault | None], on: Kind = "commit") -> None:
        """Plans the fault of each of the next requests of that kind in place of what was planned; none lets one pass."""
        with self._lock:
            self._planned[on] = deque(faults)

    def fault_next(self, fault: Fault, on: Kind = "commit") -> None:
        """Plans a fault of the very next request of that kind, before what was planned."""
        with self._lock:
            self._planned[on].appendleft(fault)

    def settle(self) -> None:
        """Waits until the late deliveries that have a delay are made."""
        for thread, after in self._late_deliveries():
            if after is not None:
                thread.join()

    def release(self) -> None:
        """Makes all late deliveries that are still to come, now, and waits for them."""
        self._wake.set()
        for thread, _ in self._late_deliveries():
            thread.join()
        self._wake.clear()

    def close(self) -> None:
        """Ends the proxy; late deliveries that are still to come are never made. Raises what a ``meanwhile`` raised."""
        self._closed = True
        self.release()
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()
        if self._server.failures:
            raise self._server.failures[0]

    def answer(self, request: Request) -> Outcome:
        """Does with a request what its fault says; called by the server's threads."""
        kind = request.kind
        if kind is None:
            return self._deliver(request)
        with self._lock:
            plan = self._planned[kind]
            fault = plan.popleft() if plan else None
            number = len(self._log)
            self._log.append(Exchange(kind, request, fault, (), None))
        return self._answer_with(fault or Fault("none"), request, number)

    def _answer_with(self, fault: Fault, request: Request, number: int) -> Outcome:
        deliveries = {Delivery.ONCE: 1, Delivery.TWICE: 2}.get(fault.delivery, 0)
        delivered = [self._deliver_logged(request, number) for _ in range(deliveries)]
        if fault.meanwhile:
            fault.meanwhile()
        if fault.pause:
            time.sleep(fault.pause)
        if fault.delivery is Delivery.LATER:
            self._deliver_later(request, number, fault.after)
        if fault.answer is Cut.TRUNCATED:
            return Truncated(delivered[0])
        if isinstance(fault.answer, Cut):
            return fault.answer
        answer = delivered[fault.answer.nth] if isinstance(fault.answer, FromCatalog) else made_up(fault.answer)
        with self._lock:
            self._log[number] = replace(self._log[number], to_client=answer.status)
        return answer

    def _deliver_logged(self, request: Request, number: int) -> Answer:
        answer = self._deliver(request)
        with self._lock:
            exchange = self._log[number]
            self._log[number] = replace(exchange, from_catalog=(*exchange.from_catalog, answer))
        return answer

    def _deliver_later(self, request: Request, number: int, after: float | None) -> None:
        def deliver() -> None:
            self._wake.wait(after)
            if not self._closed:
                self._deliver_logged(request, number)

        thread = threading.Thread(target=deliver, name="late-delivery", daemon=True)
        with self._lock:
            self._late.append((thread, after))
            thread.start()

    def _late_deliveries(self) -> tuple[tuple[threading.Thread, float | None], ...]:
        with self._lock:
            return tuple(self._late)

    def _deliver(self, request: Request) -> Answer:
        """Sends the request to the catalog; one that cannot be reached is answered for as a gateway would."""
        connection = http.client.HTTPConnection(self._backend, timeout=BACKEND_SECONDS)
        headers = {name: value for name, value in request.headers if name.lower() not in HOP_BY_HOP}
        try:
            connection.request(request.method, request.target, request.body or None, headers)
            response = connection.getresponse()
            kept = tuple((name, value) for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP)
            return Answer(response.status, kept, response.read())
        except OSError:
            return made_up(Status(HTTPStatus.BAD_GATEWAY, html=True))
        finally:
            connection.close()


def made_up(status: Status) -> Answer:
    """An error that the catalog did not send."""
    phrase = HTTPStatus(status.code).phrase
    hint = () if status.retry_after is None else (("Retry-After", str(status.retry_after)),)
    if status.html:
        page = f"<html><head><title>{status.code} {phrase}</title></head><body><h1>{phrase}</h1></body></html>\n"
        return Answer(status.code, (("Content-Type", "text/html"), *hint), page.encode())
    kind = ERROR_TYPES.get(HTTPStatus(status.code), phrase.replace(" ", "") + "Exception")
    error = {"error": {"message": f"injected: {phrase}", "type": kind, "code": status.code}}
    return Answer(status.code, (("Content-Type", "application/json"), *hint), json.dumps(error).encode())


class _Server(ThreadingHTTPServer):
    """Keeps the open connections, to end them, and the failures of its threads, to report them."""

    daemon_threads = True

    def __init__(self, proxy: FaultyRest) -> None:
        super().__init__((LOCALHOST, 0), _Handler)
        self.proxy = proxy
        self.failures: list[BaseException] = []
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Wakes the threads that wait for a next request on a kept connection."""
        for connection in tuple(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                # The client was faster.
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        failure = sys.exc_info()[1]
        # A client may give up on an answer; anything else is a defect of the test.
        if failure is not None and not isinstance(failure, ConnectionError):
            self.failures.append(failure)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, kept open over many requests as the catalog's own server does."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length")
        if length is None and self.headers.get("Transfer-Encoding"):
            self.send_error(HTTPStatus.LENGTH_REQUIRED)
            return
        request = Request(self.command, self.path, tuple(self.headers.items()), self.rfile.read(int(length or 0)))
        answer = self.server.proxy.answer(request)
        if isinstance(answer, Answer):
            self._send(answer, len(answer.body))
        else:
            self._cut(answer)

    do_GET = do_HEAD = do_DELETE = do_PUT = do_POST

    def _send(self, answer: Answer, length: int) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(answer.body)

    def _cut(self, how: Truncated | Cut) -> None:
        """Ends the connection: after half an answer, by a reset, or politely."""
        self.close_connection = True
        if isinstance(how, Truncated):
            length = len(how.whole.body)
            self._send(replace(how.whole, body=how.whole.body[: length // 2]), length)
        elif how is Cut.RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # The descriptor itself: the socket object would first say a polite goodbye.
            os.close(self.connection.detach())

    def log_message(self, *arguments: Any, **names: Any) -> None:
        """Says nothing: the proxy has its own log."""


@pytest.fixture
def faulty_rest(rest_catalog: RestCatalog) -> Iterator[FaultyRest]:
    """A proxy of this test alone in front of the REST catalog of the test run."""
    proxy = FaultyRest(rest_catalog.uri)
    yield proxy
    proxy.close()
