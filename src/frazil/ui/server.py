"""Serves the web application beside whatever else a process does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from frazil.errors import EnvironmentFault
from frazil.model.secrets import remember
from frazil.observe.serving import Servers, bind_all
from frazil.ui.address import Access
from frazil.ui.live import Live
from frazil.ui.watched import Watched

if TYPE_CHECKING:
    from starlette.types import ASGIApp


@contextmanager
def served_ui(access: Access, pipelines: Mapping[str, Watched], live: Live | None = None) -> Iterator[str]:
    """Serves pages about pipelines as long as the block, which gets their address."""
    require_packages()
    remember([access.token] if access.token is not None else [])
    (bound,) = bind_all([access.address])
    servers = Servers([bound], [partial(_application, access, pipelines, live)])
    servers.start()
    try:
        yield f"{access.address.url(bound)}/"
    finally:
        servers.stop()


def require_packages() -> None:
    """An :class:`EnvironmentFault` where the extra is not installed that brings what pages are made with."""
    if find_spec("jinja2") is None:
        raise EnvironmentFault.package("The web application", "jinja2", "ui")


def _application(access: Access, pipelines: Mapping[str, Watched], live: Live | None) -> ASGIApp:
    from frazil.ui.app import Site

    return Site(pipelines, live).application(access)
