"""A stand-in in front of a real service: it answers some requests itself, or changes them, and lets the others through.

For answers that are documented and that no server here gives, for servers that do less than they should, and for faults.
"""

from __future__ import annotations

import http.client
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from services.faults import Cut
from services.processes import LOCALHOST
from services.web import QuietHandler

BACKEND_SECONDS = 60
PIECES = 10
# Headers that concern one connection, not the message. The length is written anew.
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length", "expect"}


@dataclass(frozen=True)
class Asked:
    """A request of a client."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Made:
    """An answer of the service, or one that it did not give."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether the request was done."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


@dataclass(frozen=True)
class Truncated:
    """An answer of which only the first half arrives."""

    whole: Made


@dataclass(frozen=True)
class Trickled:
    """An answer that arrives in pieces, over so many seconds."""

    whole: Made
    seconds: float


Outcome = Made | Truncated | Trickled | Cut
Change = Callable[[Asked], Asked | Outcome]


def s3_error(status: int, code: str, message: str, more: str = "", **headers: str) -> Made:
    """An answer as Amazon documents the errors of S3."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>'
    return Made(status, body.encode(), {"Content-Type": "application/xml"} | headers)


@contextmanager
def between(backend: str, change: Change) -> Iterator[str]:
    """The address of the stand-in, as long as the block."""

    def answer(asked: Asked) -> Outcome:
        changed = change(asked)
        return passed_on(backend, changed) if isinstance(changed, Asked) else changed

    server = StandIn(answer)
    try:
        yield server.uri
    finally:
        server.close()


def passed_on(backend: str, asked: Asked) -> Made:
    """The service's own answer. It gets the host's name as the client wrote it, which is signed."""
    connection = http.client.HTTPConnection(urlsplit(backend).netloc, timeout=BACKEND_SECONDS)
    try:
        connection.putrequest(asked.method, asked.target, skip_host=True, skip_accept_encoding=True)
        for name, value in asked.headers.items():
            if name.lower() not in HOP_BY_HOP:
                connection.putheader(name, value)
        if asked.body or asked.method in ("POST", "PUT"):
            connection.putheader("Content-Length", str(len(asked.body)))
        connection.endheaders(asked.body or None)
        response = connection.getresponse()
        kept = {name: value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP}
        if asked.method == "HEAD" and (length := response.getheader("Content-Length")):
            kept["Content-Length"] = length
        return Made(response.status, response.read(), kept)
    finally:
        connection.close()


class StandIn:
    """The server, a thread of this process: ``uri`` is its address."""

    def __init__(self, answer: Callable[[Asked], Outcome]) -> None:
        self._server = _Server(answer)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="stand-in", daemon=True)
        self._thread.start()

    @property
    def uri(self) -> str:
        """The address for clients, in place of the service's own."""
        return f"http://{LOCALHOST}:{self._server.server_port}"

    def close(self) -> None:
        """Ends it. Raises what went wrong while it answered, but for clients that gave up."""
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()
        if self._server.failures:
            raise self._server.failures[0]


class _Server(ThreadingHTTPServer):
    """Keeps the open connections, to end them, and the failures of its threads, to report them."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, answer: Callable[[Asked], Outcome]) -> None:
        super().__init__((LOCALHOST, 0), _Handler)
        self.answer = answer
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


class _Handler(QuietHandler):
    """One connection of a client, kept open over many requests as services do."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        answer = self.server.answer(Asked(self.command, self.path, dict(self.headers.items()), self._content()))
        if isinstance(answer, Cut):
            self._cut(answer)
        elif isinstance(answer, Truncated):
            self.close_connection = True
            self._head(answer.whole)
            self.wfile.write(answer.whole.body[: len(answer.whole.body) // 2])
        elif isinstance(answer, Trickled):
            self._head(answer.whole)
            size = -(-len(answer.whole.body) // PIECES) or 1
            for start in range(0, len(answer.whole.body), size):
                self.wfile.write(answer.whole.body[start : start + size])
                time.sleep(answer.seconds / PIECES)
        else:
            self._head(answer)
            if self.command != "HEAD":
                self.wfile.write(answer.body)

    do_GET = do_HEAD = do_DELETE = do_PUT = do_PATCH = do_POST

    def _content(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _head(self, answer: Made) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != HTTPStatus.NO_CONTENT and "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()

    def _cut(self, how: Cut) -> None:
        """Ends the connection without an answer: by a reset, or politely."""
        self.close_connection = True
        if how is Cut.RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # The descriptor itself: the socket object would first say a polite goodbye.
            os.close(self.connection.detach())
