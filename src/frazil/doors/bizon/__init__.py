"""The Bizon door: a YAML file of Bizon's with an Iceberg destination becomes a :class:`frazil.model.pipeline.ProjectSpec`.

Delivery: exactly once, as of a pipeline file: the table keeps the position, and Bizon's own backend is not needed.
"""

from __future__ import annotations

from frazil.doors.bizon.classes import known_sources, streams_of
from frazil.doors.bizon.load import is_bizon, load_text

__all__ = ["is_bizon", "known_sources", "load_text", "streams_of"]
