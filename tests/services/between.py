"""A stand-in in front of a real service: it answers some requests itself, or changes them, and lets the others through.

For answers that are documented and that no server here gives, and for servers that do less than they should.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
    """An answer that the service did not give."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Change = Callable[[Asked], Asked | Made]


def s3_error(status: int, code: str, message: str, more: str = "", **headers: str) -> Made:
    """An answer as Amazon documents the errors of S3."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>'
    return Made(status, body.encode(), {"Content-Type": "application/xml"} | headers)


@contextmanager
def between(backend: str, change: Change) -> Iterator[str]:
    """The address of the stand-in, as long as the block."""

    class Handler(QuietHandler):
        # Connections are kept, and whoever asks whether to go on is told so.
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            asked = change(Asked(self.command, self.path, dict(self.headers.items()), self.content()))
            made = asked if isinstance(asked, Made) else passed_on(backend, asked)
            content = b"" if self.command == "HEAD" else made.body
            self.send_response_only(made.status)
            for name, value in made.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in made.headers:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def content(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    with served(Handler) as address:
        yield address


def passed_on(backend: str, asked: Asked) -> Made:
    """The service's own answer. It gets the host's name as the client wrote it, which is signed."""
    connection = http.client.HTTPConnection(urlsplit(backend).netloc, timeout=BACKEND_SECONDS)
    try:
        connection.putrequest(asked.method, asked.target, skip_host=True, skip_accept_encoding=True)
        for name, value in asked.headers.items():
            if name.lower() not in HOP_BY_HOP | {"expect"}:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(asked.body)))
        connection.endheaders(asked.body)
        response = connection.getresponse()
        headers = {name: value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP}
        if asked.method == "HEAD":
            headers["Content-Length"] = response.getheader("Content-Length") or "0"  # that of what is not sent
        return Made(response.status, response.read(), headers)
    finally:
        connection.close()
