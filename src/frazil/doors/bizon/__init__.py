"""The Bizon door: a YAML file of Bizon's with an Iceberg destination becomes a :class:`frazil.model.pipeline.ProjectSpec`."""

from __future__ import annotations

from frazil.doors.bizon.load import is_bizon, load_text
from frazil.doors.bizon.source import STREAMS

__all__ = ["STREAMS", "is_bizon", "load_text"]
