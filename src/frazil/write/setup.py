"""What a sink's writer is made of beside the sink itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from frazil.model.events import Listener
from frazil.model.settings import RetrySettings
from frazil.model.transform import TransformSpec
from frazil.write.deadletters import Post


@dataclass(frozen=True)
class WriterSetup:
    """The arguments that every writer of a sink takes. ``name`` is the pipeline's, for events and messages."""

    session: SparkSession
    sink_id: str
    name: str
    retry: RetrySettings
    listen: Listener
    sleep: Callable[[float], object] = time.sleep
    transforms: tuple[TransformSpec, ...] = ()
    post: Post | None = None
    """Where copies of dead letters are sent before they are committed."""

    @property
    def of_one_table(self) -> WriterSetup:
        """That of a table beside or below the sink, whose rows have been transformed."""
        return replace(self, transforms=(), post=None)
