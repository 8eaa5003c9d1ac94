"""HTTP servers beside whatever else a process does: ports that are bound at once, and a thread that answers.

Ports are bound by the caller's thread, so that a busy one is an error at once; everything else, the import of the web
libraries too, happens in a daemon thread while the run goes on. A request that comes earlier waits in the socket's queue.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp


@dataclass(frozen=True)
class Address:
    """Where to listen, and what users call that.

    ``asked_by`` is the setting or option that asks for it, ``host_by`` and ``port_by`` what gives its parts, in words such as
    `Set settings.health.port to`, and ``otherwise`` what else can be done, such as to switch it off.
    """

    host: str
    port: int
    asked_by: str
    host_by: str
    port_by: str
    otherwise: str = ""

    @property
    def place(self) -> str:
        """Host and port, as in an address of the web."""
        return f"{self._host}:{self.port}"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def url(self, bound: socket.socket) -> str:
        """The address of the web, with the port that a bound socket really has."""
        return f"http://{self._host}:{bound.getsockname()[1]}"


def bind_all(addresses: Sequence[Address]) -> list[socket.socket]:
    """Listening sockets for all addresses. If one cannot be had, that is a :class:`ConfigError`, and none is kept."""
    with ExitStack() as undo:
        sockets = [undo.enter_context(_bind(address)) for address in addresses]
        undo.pop_all()
    return sockets


def _bind(address: Address) -> socket.socket:
    try:
        family, kind, proto, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise ConfigError(
            "unknown-host",
            f"{address.asked_by} is to listen on {address.host}, which is no address of this machine: {error.strerror}.",
            fix=f"{address.host_by} 127.0.0.1, or 0.0.0.0 for every interface{address.otherwise}.",
        ) from error
    bound = socket.socket(family, kind, proto)
    try:
        # A port whose last connections are still in TIME_WAIT can be bound again; one that somebody listens on cannot.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
        bound.listen()
    except OSError as error:
        bound.close()
        raise _bind_error(error, address) from error
    return bound


def _bind_error(error: OSError, address: Address) -> ConfigError:
    match error.errno:
        case errno.EADDRINUSE:
            return ConfigError(
                "port-in-use",
                f"The port of {address.asked_by} is in use: {address.place}.",
                fix=f"{address.port_by} another port, or 0 for any free one{address.otherwise}.",
            )
        case errno.EACCES:
            return ConfigError(
                "port-not-permitted",
                f"This user may not listen on {address.place} ({address.asked_by}).",
                fix=f"{address.port_by} a port above 1023{address.otherwise}.",
            )
        case _:
            return ConfigError(
                "cannot-listen",
                f"Cannot listen on {address.place} ({address.asked_by}): {error.strerror}.",
                fix=f"{address.host_by} an address of this machine, such as 127.0.0.1{address.otherwise}.",
            )


class Servers:
    """Answers on bound sockets, each with an application of its own, from :meth:`start` until :meth:`stop`."""

    def __init__(self, sockets: Sequence[socket.socket], applications: Sequence[Callable[[], ASGIApp]]) -> None:
        self._sockets = sockets
        self._applications = applications
        self._built = threading.Event()
        self._servers: list[uvicorn.Server] = []
        self._thread = threading.Thread(target=self._serve, name="frazil-web", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the servers and frees the ports."""
        self._built.wait()
        for server in self._servers:
            server.should_exit = True
        self._thread.join()

    def _serve(self) -> None:
        import asyncio

        with ExitStack() as closing:
            for bound in self._sockets:
                closing.enter_context(bound)
            try:
                servers = [_server(made()) for made in self._applications]
                self._servers = servers
            finally:
                self._built.set()

            async def serve_all() -> None:
                await asyncio.gather(*(server.serve([bound]) for server, bound in zip(servers, self._sockets, strict=True)))

            asyncio.run(serve_all())


def _server(application: ASGIApp) -> uvicorn.Server:
    import uvicorn

    config = uvicorn.Config(
        application,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
