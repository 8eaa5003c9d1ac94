"""A stand-in in front of a real service: it answers some requests itself, or changes them, and lets the others through.

For answers that are documented and that no server here gives, and for servers that do less than they should.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from services.web import QuietHandler, served

BACKEND_SECONDS = 30
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True)
class Asked:
    """A request of a client."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Made:
    """An answer that the service did not give. ``length``: that of a body that is not sent."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None


Change = Callable[[Asked], Asked | Made]


def s3_error(status: int, code: str, message: str, more: str = "", **headers: str) -> Made:
    """An answer as Amazon documents the errors of S3."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>'
    return Made(status, body.encode(), {"Content-Type": "application/xml"} | headers)


@contextmanager
def between(backend: str, change: Change) -> Iterator[str]:
    """The address of the stand-in, as long as the block."""

    class Handler(QuietHandler):
        def answer(self) -> None:
            if self.headers.get("Expect", "").lower() == "100-continue":
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            length = int(self.headers.get("Content-Length") or 0)
            asked = change(Asked(self.command, self.path, dict(self.headers.items()), self.rfile.read(length)))
            made = asked if isinstance(asked, Made) else _passed_on(backend, asked)
            self.send_response_only(made.status)
            for name, value in made.headers.items():
                self.send_header(name, value)
            # The answer to a HEAD has the length of what a GET would bring.
            self.send_header("Content-Length", str(made.length if made.length is not None else len(made.body)))
            self.end_headers()
            with suppress(ConnectionError):  # a client may have read enough
                self.wfile.write(b"" if self.command == "HEAD" else made.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    with served(Handler) as address:
        yield address


def _passed_on(backend: str, asked: Asked) -> Made:
    """The service's own answer. It gets the host's name as the client wrote it, which is signed."""
    connection = http.client.HTTPConnection(urlsplit(backend).netloc, timeout=BACKEND_SECONDS)
    try:
        connection.putrequest(asked.method, asked.target, skip_host=True, skip_accept_encoding=True)
        for name, value in asked.headers.items():
            if name.lower() not in HOP_BY_HOP:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(asked.body)))
        connection.endheaders(asked.body)
        response = connection.getresponse()
        headers = {name: value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP}
        length = response.getheader("Content-Length") if asked.method == "HEAD" else None
        return Made(response.status, response.read(), headers, None if length is None else int(length))
    finally:
        connection.close()
