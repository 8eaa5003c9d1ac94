"""Files with pipelines, in whichever form they are written: each goes through the door that knows it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from frazil.errors import ConfigError, UsageError
from frazil.model.arguments import functions, located_at_caller
from frazil.model.events import Listener
from frazil.model.pipeline import ProjectSpec
from frazil.reading.file import text_of


def load(file: str | Path, env: Mapping[str, str] | None = None, *, custom_source: str | Path | None = None) -> ProjectSpec:
    """Loads a pipeline file of frazil's own, or one of Bizon's.

    Variables come from ``env``, or from the process's environment. ``custom_source`` is a Python file with the source of a
    file of Bizon's, which is run. Everything that is wrong is raised at once, as
    :class:`frazil.errors.ConfigErrors`; a file that cannot be read at all is a :class:`frazil.errors.ConfigError`.
    """
    return load_text(text_of(file), str(file), env, custom_source=custom_source)


def load_text(
    text: str, name: str, env: Mapping[str, str] | None = None, *, custom_source: str | Path | None = None
) -> ProjectSpec:
    """Loads the text of such a file; ``name`` stands for it in messages."""
    from frazil.doors import bizon, yaml

    if bizon.is_bizon(text):
        return bizon.load_text(text, name, env, custom_source=None if custom_source is None else str(custom_source))
    if custom_source is not None:
        raise UsageError("usage", f"{name} is not a file of Bizon's: only those have a source in Python.")
    return yaml.load_text(text, name, env)


@located_at_caller
def run(
    file: str | Path,
    *,
    once: bool = False,
    only: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    listeners: Sequence[Listener] = (),
    stop: threading.Event | None = None,
) -> None:
    """Runs the enabled pipelines of a file (or those named) until each is done or ``stop`` is set.

    Health and metrics are served, and logs written, where the file's settings name them.
    """
    from frazil.observe.surroundings import surroundings
    from frazil.runtime.runner import run_project, selected

    if isinstance(only, str):
        raise ConfigError("run-option", f"only: it must be a list of names, not {only!r}.", fix=f"Write only=[{only!r}].")
    listening = functions("listeners", listeners, code="run-option")
    project = load(file, env)
    with surroundings(project.settings, selected(project, only)) as around:
        run_project(project, once=once, listeners=(*listening, *around), stop=stop, only=only)
