"""A service that gives every request the same answer: what a catalog or store says to somebody it does not like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.web import QuietHandler, served

S3_DENIED = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'


@contextmanager
def answering(
    status: int, body: bytes = b"", kind: str = "application/json", *, certificate: Path | None = None, **headers: str
) -> Iterator[str]:
    """The address of such a service, as long as the block."""

    class Handler(QuietHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content = b"" if self.command == "HEAD" else body
            self.send_response(status)
            self.send_header("Content-Type", kind)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    with served(Handler, certificate) as address:
        yield address
