"""Who may look: every request passes here, whatever it asks for, and every answer leaves with headers that keep it safe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from frazil.ui.address import Access, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

STATIC = "/static/"
_COOKIE_SECONDS = 30 * 86_400

HEADERS = {
    # All that a page loads comes from here. Nothing within a page is run, and nobody else may frame it.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets through what comes from this machine by its own name, or with the token; and nothing else.

    A page of somebody else's can let a browser on this machine ask for 127.0.0.1 under a name of its own (DNS rebinding): the
    name is in the header Host.
    """

    def __init__(self, inner: ASGIApp, access: Access, refused: Callable[[Request], Response]) -> None:
        self._inner = inner
        self._access = access
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        answer = self._answer(request)
        await (self._inner if answer is None else answer)(scope, receive, send_safely)

    def _answer(self, request: Request) -> Response | None:
        """What is answered instead of what was asked for; None if it may be seen."""
        if self._access.is_local and not _is_own_name(request.headers):
            text = "This is frazil on 127.0.0.1, and it was asked for under another name. Open it as 127.0.0.1 or localhost.\n"
            return PlainTextResponse(text, 421)
        if self._access.token is None or request.scope["path"].startswith(STATIC):
            return None
        given = request.query_params.get("token")
        if given is not None and self._access.admits(given):
            return self._with_cookie(request)
        if given is None and (self._has_header(request.headers) or self._has_cookie(request.cookies.items())):
            return None
        return self._refused(request)

    def _has_header(self, headers: Headers) -> bool:
        kind, _, token = headers.get("authorization", "").partition(" ")
        return kind.casefold() == "bearer" and self._access.admits(token.strip())

    def _has_cookie(self, cookies: Iterable[tuple[str, str]]) -> bool:
        name, _ = self._access.cookie
        return any(given == name and self._access.knows(value) for given, value in cookies)

    def _with_cookie(self, request: Request) -> Response:
        """The same page without the token in its address, which browsers keep and show."""
        others = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        path = "/" + quote(request.scope["path"].lstrip("/\\"))  # two slashes would be the address of another host
        answer = RedirectResponse(f"{path}?{others}" if others else path, 303)
        name, value = self._access.cookie
        answer.set_cookie(name, value, max_age=_COOKIE_SECONDS, httponly=True, samesite="strict")
        return answer


def _is_own_name(headers: Headers) -> bool:
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)
