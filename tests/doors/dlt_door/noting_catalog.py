"""A REST catalog that has one namespace and notes what clients send: who they say they are is seen as it arrives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from services.web import QuietHandler, served

TOKENS = "/elsewhere/tokens"
FETCHED = "fetched-token"


@dataclass(frozen=True)
class Noted:
    """A request: what it asked for, and with which headers and form."""

    path: str
    headers: dict[str, str]
    form: dict[str, str]


class NotingCatalog:
    """``uri`` is its address, ``requests`` are those of the catalog and ``logins`` those for tokens, in order of arrival.

    Whoever only looks whether somebody is there asks without a form, and is no login.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.requests: list[Noted] = []
        self.logins: list[Noted] = []

    def note(self, noted: Noted) -> dict[str, Any] | None:
        """The answer to a request."""
        if noted.path in (TOKENS, "/v1/oauth/tokens"):
            if noted.form:
                self.logins.append(noted)
            kind = "urn:ietf:params:oauth:token-type:access_token"
            return {"access_token": FETCHED, "token_type": "bearer", "expires_in": 3600, "issued_token_type": kind}
        self.requests.append(noted)
        if noted.path == "/v1/config":
            return {"defaults": {}, "overrides": {}}
        if noted.path.endswith("/tables"):
            return {"identifiers": []}
        return {"namespaces": [["default"]]} if noted.path == "/v1/namespaces" else {"namespace": ["default"], "properties": {}}


@contextmanager
def noting_catalog() -> Iterator[NotingCatalog]:
    """The catalog, as long as the block."""

    class Handler(QuietHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            content = json.dumps(catalog.note(Noted(urlsplit(self.path).path, headers, form))).encode()
            self.send_response(204 if self.command == "HEAD" else 200)
            if self.command != "HEAD":
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_POST = _answer

    with served(Handler) as address:
        catalog = NotingCatalog(address)
        yield catalog
