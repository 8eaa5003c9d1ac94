"""Runs a pipeline file from Python, as `frazil run` does from the shell."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from frazil.doors.yaml.load import load
from frazil.model.events import Listener


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
