"""Files with pipelines, in whichever form they are written: each goes through the door that knows it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from frazil.model.events import Listener
from frazil.model.pipeline import ProjectSpec
from frazil.reading.file import text_of


def load(file: str | Path, env: Mapping[str, str] | None = None) -> ProjectSpec:
    """Loads a pipeline file of frazil's own, or one of Bizon's.

    Variables come from ``env``, or from the process's environment. Everything that is wrong is raised at once, as
    :class:`frazil.errors.ConfigErrors`; a file that cannot be read at all is a :class:`frazil.errors.ConfigError`.
    """
    from frazil.doors import bizon, yaml

    text = text_of(file)
    load_text = bizon.load_text if bizon.is_bizon(text) else yaml.load_text
    return load_text(text, str(file), env)


def run(
    file: str | Path,
    *,
    once: bool = False,
    only: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    listeners: Sequence[Listener] = (),
    stop: threading.Event | None = None,
) -> None:
    """Runs the enabled pipelines of a file (or those named) until each is done or ``stop`` is set."""
    from frazil.engine.runner import run_project

    run_project(load(file, env), once=once, listeners=listeners, stop=stop, only=only)
