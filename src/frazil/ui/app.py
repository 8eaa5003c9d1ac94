"""The application: four pages, and what they are made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from frazil.model.secrets import scrub
from frazil.ui.address import Access
from frazil.ui.guard import Guard
from frazil.ui.known import Known
from frazil.ui.live import Live
from frazil.ui.overview import href_of, overview_of
from frazil.ui.pipeline import page_of, since_batch
from frazil.ui.readings import Reading, Readings
from frazil.ui.tables import MOST_LETTERS, Tables
from frazil.ui.watched import Watched
from frazil.version import __version__

# What browsers may keep: the addresses of these files have the version in them.
_KEPT = {"Cache-Control": "public, max-age=604800, immutable"}


class Site:
    """Answers with pages about pipelines. ``live``: what this process knows of them, if it runs them."""

    def __init__(
        self, pipelines: Mapping[str, Watched], live: Live | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._pipelines = pipelines
        self._live = live
        self._clock = clock
        self._tables = Tables(Readings(clock))
        self._templates = Environment(
            loader=PackageLoader("frazil.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_without_secrets,
        )
        self._templates.globals |= {"version": __version__, "href_of": href_of}

    def application(self, access: Access) -> ASGIApp:
        """The application for those who have access."""
        routes = [
            Route("/", self._overview),
            Route("/pipelines/{key:path}", self._pipeline),
            Mount("/static", _Static(directory=Path(str(files("frazil.ui") / "static")))),
        ]
        failures: Any = {404: self._missing, _Missing: self._missing}
        made = Starlette(routes=routes, exception_handlers=failures)
        made.router.redirect_slashes = False
        return Guard(made, access, self._token_missing)

    def _overview(self, request: Request) -> Response:
        known = self._known(*self._pipelines.values())
        view = overview_of(known, request.query_params.get("q", "").strip(), request.query_params.get("state", ""))
        return self._page("overview.html", view=view)

    def _pipeline(self, request: Request) -> Response:
        key = request.path_params["key"]
        if key not in self._pipelines:
            raise _Missing(f"There is no pipeline {key} here.")
        (known,) = self._known(self._pipelines[key])
        spec = known.pipeline.spec
        # Neither is looked for where there is no table, or none that can be read.
        nothing: Reading[Any] = Reading(at=0.0 if known.table.is_done else None)
        has_table = known.facts is not None
        health = self._tables.health(spec) if has_table else nothing
        letters = self._tables.letters(spec, since_batch(known, MOST_LETTERS)) if has_table else nothing
        return self._page("pipeline.html", view=page_of(known, health, letters))

    def _known(self, *pipelines: Watched) -> list[Known]:
        live = self._live.facts() if self._live is not None else {}
        readings = self._tables.facts([one.spec for one in pipelines])
        now_ms = int(self._clock() * 1000)
        return [Known(one, reading, live.get(one.spec.name), now_ms) for one, reading in zip(pipelines, readings, strict=True)]

    def _token_missing(self, request: Request) -> Response:
        return self._page("token.html", 401, wrong="token" in request.query_params, path=request.scope["path"])

    def _missing(self, _: Request, error: Exception) -> Response:
        text = str(error) if isinstance(error, _Missing) else "There is no such page."
        return self._page("missing.html", 404, text=text)

    def _page(self, template: str, status: int = 200, **values: Any) -> Response:
        made = self._templates.get_template(template).render(**values, is_live=self._live is not None)
        return HTMLResponse(made, status)


class _Missing(Exception):
    """A page that there is not, and why."""


class _Static(StaticFiles):
    """Scripts and styles, which do not change as long as the version is the same."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        answer = super().file_response(*args, **kwargs)
        answer.headers.update(_KEPT)
        return answer


def _without_secrets(value: Any) -> Any:
    """Whatever a template shows, without secrets; parts of pages are made of such values."""
    return scrub(value) if isinstance(value, str) and not isinstance(value, Markup) else value
