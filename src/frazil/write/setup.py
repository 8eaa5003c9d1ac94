"""What a sink's writer is made of beside the sink itself."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from frazil.model.events import Listener
from frazil.model.settings import RetrySettings
from frazil.model.sink import SinkSpec
from frazil.model.transform import TransformSpec
from frazil.spark.cache import state_dir
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
    state_dir: Path = field(default_factory=state_dir)
    """Where on this machine the writer keeps what may be lost."""

    def index_folder(self, sink: SinkSpec) -> Path:
        """The folder of the sink's key index: each sink has one of its own for each of its tables."""
        whole = "\n".join([self.sink_id, sink.catalog.address, sink.full_name, sink.written_branch])
        return self.state_dir / "key-index" / f"{sink.full_name}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"

    @property
    def of_one_table(self) -> WriterSetup:
        """The setup for a table beside or below the sink, whose rows have been transformed."""
        return replace(self, transforms=(), post=None)
