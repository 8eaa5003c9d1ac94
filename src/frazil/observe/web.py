"""The HTTP endpoints: ``/metrics``, ``/health``, ``/ready``, ``/live``.

Ports are bound by the caller's thread, so that a busy one is an error at once; everything else, the import of the web
libraries too, happens in a daemon thread while the run goes on. A request that comes earlier waits in the socket's queue.
"""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from frazil.errors import ConfigError
from frazil.model.settings import Settings
from frazil.observe.health import Health
from frazil.observe.metrics import Metrics

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_NO_STORE = {"Cache-Control": "no-store"}


@dataclass(frozen=True)
class Listening:
    """One address and the paths that it answers, by what they are for. ``setting`` names it in messages."""

    setting: str
    host: str
    port: int
    paths: dict[str, str]


def addresses_of(settings: Settings) -> list[Listening]:
    """Where to listen: one address when health and metrics ask for the same, else one for each that is enabled."""
    health, metrics = settings.health, settings.metrics
    found: list[Listening] = []
    if health.enabled:
        paths = {"health": health.path, "ready": "/ready", "live": "/live"}
        found.append(Listening("health", health.host, health.port, paths))
    if metrics.enabled:
        paths = {"metrics": "/metrics"}
        if found and (health.host, health.port) == (metrics.host, metrics.port):
            found[0].paths.update(paths)
        else:
            found.append(Listening("metrics", metrics.host, metrics.port, paths))
    for listening in found:
        if len(set(listening.paths.values())) < len(listening.paths):
            raise ConfigError(
                "health-path-taken",
                f"settings.health.path is {health.path}, and that path has another answer.",
                fix="Choose another path, such as /health.",
            )
    return found


def application(paths: dict[str, str], metrics: Metrics, health: Health) -> Starlette:
    """The ASGI application for these paths."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def show_metrics(_: Request) -> Response:
        return Response(metrics.exposition(), media_type=metrics.content_type)

    async def show_health(_: Request) -> Response:
        report = health.report()
        return JSONResponse(report.to_json(), 200 if report.healthy else 503, _NO_STORE)

    async def show_ready(_: Request) -> Response:
        report = health.report()
        body = {"status": "ready" if report.ready else "not ready", "not_ready": report.not_ready}
        return JSONResponse(body, 200 if report.ready else 503, _NO_STORE)

    async def show_live(_: Request) -> Response:
        return JSONResponse({"status": "live"}, 200, _NO_STORE)

    answers = {"metrics": show_metrics, "health": show_health, "ready": show_ready, "live": show_live}
    return Starlette(routes=[Route(path, answers[purpose]) for purpose, path in paths.items()])


class Web:
    """Serves the endpoints of these settings while the context is open. ``urls`` has the actual addresses by purpose."""

    def __init__(self, settings: Settings, metrics: Metrics, health: Health) -> None:
        self._addresses = addresses_of(settings)
        self._metrics = metrics
        self._health = health
        self._built = threading.Event()
        self._servers: list[uvicorn.Server] = []
        self._thread: threading.Thread | None = None
        self.urls: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Binds the ports and begins to serve. Raises a ConfigError when a port cannot be had."""
        if not self._addresses:
            return
        with ExitStack() as undo:
            sockets = [undo.enter_context(_bind(listening)) for listening in self._addresses]
            undo.pop_all()
        for listening, bound in zip(self._addresses, sockets, strict=True):
            host = f"[{listening.host}]" if ":" in listening.host else listening.host
            base = f"http://{host}:{bound.getsockname()[1]}"
            self.urls |= {purpose: base + path for purpose, path in listening.paths.items()}
        self._thread = threading.Thread(target=self._serve, args=(sockets,), name="frazil-web", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the servers and frees the ports."""
        if self._thread is None:
            return
        self._built.wait()
        for server in self._servers:
            server.should_exit = True
        self._thread.join()
        self._thread = None

    def _serve(self, sockets: list[socket.socket]) -> None:
        import asyncio

        try:
            servers = [self._server(listening) for listening in self._addresses]
            self._servers = servers
        finally:
            self._built.set()

        async def serve_all() -> None:
            await asyncio.gather(*(server.serve([bound]) for server, bound in zip(servers, sockets, strict=True)))

        with ExitStack() as closing:
            for bound in sockets:
                closing.enter_context(bound)
            asyncio.run(serve_all())

    def _server(self, listening: Listening) -> uvicorn.Server:
        import uvicorn

        config = uvicorn.Config(
            application(listening.paths, self._metrics, self._health),
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


def _bind(listening: Listening) -> socket.socket:
    """A listening socket, or an error that names the setting."""
    setting = f"settings.{listening.setting}"
    place = f"{listening.host}:{listening.port}"
    off = f"or switch it off with {setting}.enabled: false"
    try:
        family, kind, proto, _, address = socket.getaddrinfo(listening.host, listening.port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise ConfigError(
            "unknown-host",
            f"{setting}.host is {listening.host}, which is no address of this machine: {error.strerror}.",
            fix=f"Set {setting}.host to 127.0.0.1, or to 0.0.0.0 for every interface, {off}.",
        ) from error
    bound = socket.socket(family, kind, proto)
    try:
        # A port whose last connections are still in TIME_WAIT can be bound again; one that somebody listens on cannot.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except OSError as error:
        bound.close()
        raise _bind_error(error, setting, place, off) from error
    return bound


def _bind_error(error: OSError, setting: str, place: str, off: str) -> ConfigError:
    match error.errno:
        case errno.EADDRINUSE:
            return ConfigError(
                "port-in-use",
                f"The port of {setting} is in use: {place}.",
                fix=f"Set {setting}.port to another port, or to 0 for any free one, {off}.",
            )
        case errno.EACCES:
            return ConfigError(
                "port-not-permitted",
                f"This user may not listen on {place} ({setting}.port).",
                fix=f"Set {setting}.port to a port above 1023, {off}.",
            )
        case _:
            return ConfigError(
                "cannot-listen",
                f"Cannot listen on {place} ({setting}): {error.strerror}.",
                fix=f"Set {setting}.host to an address of this machine, such as 127.0.0.1, {off}.",
            )
