"""The HTTP endpoints: ``/metrics``, ``/health``, ``/ready``, ``/live``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from frazil.errors import ConfigError
from frazil.model.settings import Settings
from frazil.observe.health import Health
from frazil.observe.metrics import Metrics
from frazil.observe.serving import Address, Servers, bind_all

if TYPE_CHECKING:
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

    @property
    def address(self) -> Address:
        """The same in the words of the file."""
        setting = f"settings.{self.setting}"
        off = f", or switch it off with {setting}.enabled: false"
        return Address(self.host, self.port, setting, f"Set {setting}.host to", f"Set {setting}.port to", off)


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
        self._servers: Servers | None = None
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
        sockets = bind_all([listening.address for listening in self._addresses])
        for listening, bound in zip(self._addresses, sockets, strict=True):
            self.urls |= {purpose: listening.address.url(bound) + path for purpose, path in listening.paths.items()}
        self._servers = Servers(sockets, [partial(self._application, listening) for listening in self._addresses])
        self._servers.start()

    def stop(self) -> None:
        """Ends the servers and frees the ports."""
        if self._servers is not None:
            self._servers.stop()
            self._servers = None

    def _application(self, listening: Listening) -> Starlette:
        return application(listening.paths, self._metrics, self._health)
