"""Where the web application listens, and who may look at it."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from ipaddress import ip_address

from frazil.errors import ConfigError
from frazil.observe.serving import Address

DEFAULT = "127.0.0.1:8282"
TOKEN_VARIABLE = "FRAZIL_UI_TOKEN"
# Whoever can reach the port can try as often as the network allows.
LEAST_TOKEN = 16
_HIGHEST_PORT = 65535
_NEW_TOKEN = "python3 -c 'import secrets; print(secrets.token_urlsafe(24))'"


@dataclass(frozen=True)
class Access:
    """Where to listen, and the token that a visitor must have: everybody on this machine may look where there is none."""

    address: Address
    token: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.address.host)

    @property
    def cookie(self) -> tuple[str, str]:
        """The name and the value of the cookie by which a browser shows that it has given the token. It does not tell it."""
        return f"frazil_ui_{self._digest('name')[:8]}", self._digest("cookie")

    def admits(self, token: str) -> bool:
        """Whether this is the token, found out in a time that does not depend on what differs."""
        return hmac.compare_digest(token.encode(), (self.token or "").encode())

    def knows(self, cookie: str) -> bool:
        """Whether this is the value of the cookie."""
        return hmac.compare_digest(cookie.encode(), self.cookie[1].encode())

    def _digest(self, purpose: str) -> str:
        return hmac.digest((self.token or "").encode(), f"frazil ui {purpose}".encode(), "sha256").hex()


def access(option: str, given: str, token: str | None) -> Access:
    """The access that an option of the command line asks for. Whatever is wrong with it is a :class:`ConfigError`."""
    host, port = _parts(option, given)
    made = Access(Address(host, port, option, f"Give {option} the host", f"Give {option}"), token)
    if token is not None and len(token) < LEAST_TOKEN:
        raise ConfigError(
            "token-too-short",
            f"The token of the web application has fewer than {LEAST_TOKEN} characters.",
            fix=f"Make a new one: {_NEW_TOKEN}",
        )
    if token is None and not made.is_local:
        raise ConfigError(
            "token-missing",
            f"{option} {given} can be reached from other machines, and there is no token that keeps strangers out.",
            fix=f"Set {TOKEN_VARIABLE} to a new token ({_NEW_TOKEN}), or listen on {DEFAULT}.",
        )
    return made


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, seen from itself."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _parts(option: str, given: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[::1]:port` or a port alone."""
    host, _, port = given.rpartition(":")
    host = host or DEFAULT.partition(":")[0]
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host != bare
    if not port.isdecimal() or int(port) > _HIGHEST_PORT or bracketed != (":" in bare) or not bare.strip():
        raise ConfigError(
            "address-invalid",
            f"{option} {given} is no address: it takes a host and a port, such as {DEFAULT}.",
            fix=f"Give {option} HOST:PORT, or a port alone for this machine; port 0 takes a free one.",
        )
    return bare, int(port)
