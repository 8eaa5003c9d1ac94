"""What stands around pipelines that run: their metrics and health over HTTP, and logs. The same for every door."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from frazil.model.events import Listener
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import Settings
from frazil.observe import lineage, tracing
from frazil.observe.health import Health
from frazil.observe.logs import configure_where_asked, logger
from frazil.observe.metrics import Metrics
from frazil.observe.web import Web


@dataclass(frozen=True)
class Served:
    """The HTTP endpoints and what else listens: the listeners, and the addresses by purpose."""

    listeners: tuple[Listener, ...]
    urls: Mapping[str, str]


@contextmanager
def served(settings: Settings, pipelines: Iterable[PipelineSpec]) -> Iterator[Served]:
    """Metrics, health, traces and lineage of these pipelines, as the settings say, while the context is open."""
    known = tuple(pipelines)
    metrics, health = Metrics(), Health.watching(known)
    with ExitStack() as opened:
        listeners: list[Listener] = [metrics, health]
        if settings.tracing.enabled:
            listeners.append(opened.enter_context(tracing.exported()))
        if settings.lineage.enabled:
            listeners.append(opened.enter_context(lineage.reported(known, settings.lineage.namespace)))
        web = opened.enter_context(Web(settings, metrics, health))
        yield Served(tuple(listeners), web.urls)


def only_asked(settings: Settings) -> Settings:
    """The settings with those endpoints alone that they name themselves; the others are off, whatever the default is."""
    unasked = [name for name in ("health", "metrics") if name not in settings.model_fields_set]
    return settings.model_copy(update={name: getattr(settings, name).model_copy(update={"enabled": False}) for name in unasked})


@contextmanager
def surroundings(settings: Settings, pipelines: Iterable[PipelineSpec]) -> Iterator[tuple[Listener, ...]]:
    """What the user's program has around these pipelines, and the listeners that it needs.

    That is what the settings name themselves, and nothing else: a program has ports and logs of its own.
    """
    logs = configure_where_asked(settings)
    with served(only_asked(settings), pipelines) as web:
        for purpose in ("health", "metrics"):
            if purpose in web.urls:
                logger().info("serving", message=f"{purpose}: {web.urls[purpose]}")
        yield (*web.listeners, *logs)
