"""A server that answers as a test wants it to, in the place of a schema registry or before one."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from services.processes import LOCALHOST
from services.registry import SchemaRegistry

Answer = Callable[[str], tuple[int, Any]]
"""The status and the answer for a path."""


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        wanted = server.authorization
        status, answer = (401, {}) if wanted and self.headers["Authorization"] != wanted else server.answer(self.path)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def answering(answer: Answer, authorization: str = "", tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[Any]:
    """A server as long as the block: its ``url``, and the paths that it was ``asked`` for."""
    server: Any = ThreadingHTTPServer((LOCALHOST, port), _Answers)
    server.answer, server.asked, server.authorization = answer, [], authorization
    server.url = f"{'http' if tls is None else 'https'}://{LOCALHOST}:{server.server_address[1]}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def passed_on(registry: SchemaRegistry) -> Answer:
    """What the registry answers."""

    def answer(path: str) -> tuple[int, Any]:
        try:
            with urlopen(registry.url + path, timeout=30) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)

    return answer
