"""Stand-ins for logins: a token service that knows one secret, and a guard before a catalog that lets its tokens through.

The tokens are opaque, as those of many services are, so that a client knows when they end from `expires_in` alone.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from services.between import Asked, Made, between
from services.web import QuietHandler, served

CLIENT, SECRET = "frazil", "c4nary-of-the-client"
JSON = {"Content-Type": "application/json"}
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"

# Asked about each request with a good token; may answer in the catalog's place.
Meanwhile = Callable[[Asked], Made | None]


@dataclass
class TokenService:
    """Tokens for one client.

    ``lifetime``: seconds; None says nothing of it, and lets them live on. ``exchanges``: whether a token is renewed for another
    token, as some services do. ``down``: it fails.
    """

    lifetime: float | None = None
    exchanges: bool = True
    down: bool = False
    uri: str = ""
    grants: list[str] = field(default_factory=list)
    """How each token was got."""
    ends: dict[str, float] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """The tokens that were shown when they were no good."""

    def accepts(self, authorization: str) -> bool:
        """Whether a header has a token that is good now."""
        return self.ends.get(authorization.removeprefix("Bearer "), 0) > time.monotonic()

    def revoke(self) -> None:
        """No token that was given out so far is good any longer."""
        self.ends.clear()

    def new_token(self, grant: str) -> str:
        """A token that is good from now on."""
        token = f"t0ken-{uuid.uuid4()}"
        self.grants.append(grant)
        self.ends[token] = time.monotonic() + (self.lifetime or 3600)
        return token

    def answer(self, form: dict[str, str]) -> Made:
        """The answer to a request for a token."""
        grant = form["grant_type"]
        if self.down:
            return Made(503)
        if grant == EXCHANGE and not self.exchanges:
            return _said(400, {"error": "unsupported_grant_type"})
        if grant != EXCHANGE and (form.get("client_id"), form.get("client_secret")) != (CLIENT, SECRET):
            return _said(401, {"error": "invalid_client", "error_description": "Invalid client or Invalid client credentials"})
        ends = {} if self.lifetime is None else {"expires_in": int(self.lifetime)}
        kind = {"token_type": "bearer", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
        return _said(200, {"access_token": self.new_token(grant)} | kind | ends)


def _said(status: int, content: object) -> Made:
    return Made(status, json.dumps(content).encode(), JSON)


def refusal(status: int = 401) -> Made:
    """A catalog's answer to a token that is no good: 401, or 419 where it says that the token has expired."""
    kind = "AuthenticationTimeoutException" if status == 419 else "NotAuthorizedException"
    return _said(status, {"error": {"message": "The token is not valid", "type": kind, "code": status}})


@contextmanager
def token_service(**settings: object) -> Iterator[TokenService]:
    """A token service, as long as the block."""
    service = TokenService(**settings)  # type: ignore[arg-type]

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            made = service.answer({name: values[0] for name, values in parse_qs(body).items()})
            self.send_response_only(made.status)
            for name, value in {**made.headers, "Content-Length": str(len(made.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(made.body)

        def do_GET(self) -> None:
            self.send_error(405)

    with served(Handler) as address:
        service.uri = f"{address}/tokens"
        yield service


@contextmanager
def guarded(catalog: str, tokens: TokenService, meanwhile: Meanwhile = lambda _: None, status: int = 401) -> Iterator[str]:
    """The address of a catalog that lets nobody in without a token, as long as the block."""
    lock = threading.Lock()

    def change(asked: Asked) -> Asked | Made:
        with lock:
            authorization = asked.headers.get("Authorization", "")
            made = meanwhile(asked) if tokens.accepts(authorization) else None
            if made is not None:
                return made
            if not tokens.accepts(authorization):
                tokens.refused.append(authorization)
                return refusal(status)
        return asked

    with between(catalog, change) as uri:
        yield uri


def is_commit(asked: Asked) -> bool:
    """Whether a request is a commit to a table."""
    return asked.method == "POST" and "/tables/" in asked.target and asked.target.rpartition("/")[2] != "metrics"
