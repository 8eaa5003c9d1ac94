"""The first answer of a web service: whether somebody is there at all, who it is, and what time it has there.

Any answer will do, a refusal too. No credentials are sent.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from frazil.errors import FrazilError
from frazil.model import connections
from frazil.model.connections import Place
from frazil.model.secrets import scrub

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

CONNECT_SECONDS = 5
ANSWER_SECONDS = 10

# What OpenSSL says of a server that answers in another language than TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
# How it calls, by number, a certificate that another host or address has.
_WRONG_HOST = (62, 64)
# ... and one whose signer is unknown, or that signed itself.
_UNTRUSTED = (2, 18, 19, 20, 21)
# What servers answer to plain HTTP at a port for TLS.
_TLS_WANTED = ("sent to https port", "sent to an https server", "client sent an http request to an https")


@dataclass(frozen=True)
class Greeting:
    """What an answer says of who gave it."""

    server: str = ""
    here_ms: int = 0
    there_ms: int | None = None

    @classmethod
    def of(cls, answer: Response) -> Greeting:
        """Read from the headers of an answer that has just arrived."""
        here_ms = time.time_ns() // 1_000_000
        return cls(scrub(answer.headers.get("Server", "")), here_ms, _date_ms(answer))

    def require_same_time(self, place: Place) -> None:
        """Raises when the clock there is far from the one of this machine."""
        if self.there_ms is None:
            return
        if (error := connections.clocks_differ(place, self.here_ms, self.there_ms)) is not None:
            raise error

    @property
    def words(self) -> str:
        """The server's name and version, to be put behind a message."""
        return f"; server: {self.server}" if self.server else ""


def _date_ms(answer: Response) -> int | None:
    try:
        date, age = parsedate_to_datetime(answer.headers["Date"]), int(answer.headers.get("Age", "0"))
    except (KeyError, ValueError):
        return None
    return int(date.timestamp() * 1000) + age * 1000


def greet(url: str, place: Place, *, authorities: str | None = None, own: tuple[str, str] | None = None) -> Greeting:
    """Asks at an address for anything. Raises when nobody answers there, or not in this language.

    ``authorities`` is a file with the certificates that are trusted, ``own`` the files of this side's certificate and key.
    """
    from requests import RequestException, Session

    session = Session()
    if own is not None:
        session.cert = own
    wait = (CONNECT_SECONDS, ANSWER_SECONDS)
    trusted = True if authorities is None else authorities
    try:
        with session.get(url, auth=as_it_is, timeout=wait, allow_redirects=False, stream=True, verify=trusted) as answer:
            wants_tls = answer.status_code == 400 and _wants_tls(answer.raw.read(4096, decode_content=True))
            greeting = Greeting.of(answer)
    except RequestException as error:
        raise request_fault(error, url, place) from error
    if wants_tls:
        raise connections.tls_needed(place)
    return greeting


def as_it_is(request: PreparedRequest) -> PreparedRequest:
    """An authentication that adds nothing. Without one, a login of the user's `.netrc` would be put into the request."""
    return request


def request_fault(error: Exception, url: str, place: Place) -> FrazilError:
    """Why a request to an address had no answer."""
    if (known := connection_fault(error, place)) is not None:
        return known
    if urlsplit(url).scheme == "http" and _speaks_tls(url):
        return connections.tls_needed(place)
    return connections.unreachable(place, first_line(error))


def _wants_tls(body: bytes) -> bool:
    return any(mark in body.decode(errors="replace").lower() for mark in _TLS_WANTED)


def _speaks_tls(url: str) -> bool:
    """Whether a server begins a conversation in TLS. Whom its certificate is for does not matter: nothing is sent."""
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=CONNECT_SECONDS) as plain:
            context.wrap_socket(plain, server_hostname=parts.hostname).close()
    except OSError:
        return False
    return True


def connection_fault(error: BaseException, place: Place) -> FrazilError | None:  # noqa: PLR0911 - one for each cause
    """Why a connection failed, by the exceptions behind the one that was raised; None when they do not tell."""
    from requests import Timeout

    for part in causes(error):
        reason = first_line(part)
        match part:
            case socket.gaierror():
                return connections.host_not_found(place, reason)
            case ssl.SSLCertVerificationError() if part.verify_code in _WRONG_HOST:
                return connections.tls_wrong_host(place, part.verify_message)
            case ssl.SSLCertVerificationError() if part.verify_code in _UNTRUSTED:
                return connections.tls_untrusted(place, part.verify_message)
            case ssl.SSLError() if any(mark in (part.reason or "") for mark in _NO_TLS):
                return connections.tls_not_spoken(place, reason)
            case ConnectionRefusedError():
                return connections.connection_refused(place, reason)
            case TimeoutError() | Timeout():
                return connections.connection_timeout(place, reason)
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what is behind it. The libraries of the web keep that as an argument, or as a reason."""
    seen: list[BaseException] = []
    left = [error]
    while left:
        one = left.pop(0)
        if any(one is other for other in seen):
            continue
        seen.append(one)
        yield one
        behind = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
        left += [other for other in behind if isinstance(other, BaseException)]


def first_line(error: BaseException) -> str:
    """The message of an exception as one line, without secrets; its type's name when it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return scrub(lines[0]) if lines else type(error).__name__
