"""Pauses pipelines, wherever they run, and lets them go on: they look at the table that they write to."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from frazil.errors import ConfigError
from frazil.model.pausing import Pause
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import Settings
from frazil.runtime.runner import open_pipeline, start_spark


@dataclass(frozen=True)
class Pausing:
    """What became of the pause of a pipeline: what there was before, and what there is now."""

    pipeline: str
    table: str
    before: Pause | None
    now: Pause | None


def set_pause(pipeline: PipelineSpec, settings: Settings, pause: Pause | None) -> Pausing:
    """Pauses a pipeline, or lets it go on. One that is paused already stays paused as it was."""
    spark = start_spark([pipeline], settings)
    writer, source = open_pipeline(pipeline, settings, spark, lambda _: None, threading.Event())
    try:
        if writer.open(claim=False, make=False) is None:
            raise ConfigError(
                "nothing-to-pause",
                f"The pipeline {pipeline.name!r} has not written anything yet: there is no table that could say that it waits.",
                fix="Do not start it, or set enabled: false in its file.",
            )
        before = writer.claimed.pause()
        if pause is None or before is None:
            writer.claimed.set_pause(pause)
        return Pausing(pipeline.name, pipeline.sink.full_name, before, before if pause is not None and before else pause)
    finally:
        source.close()
