"""The YAML door: a pipeline file becomes a :class:`frazil.model.pipeline.ProjectSpec`.

Delivery: exactly once, however often a run is cut off: the table says how far it is. What that asks of a source stands with it.
Unit of parallelism: a pipeline; `settings.parallel` of them run at a time.
"""

from __future__ import annotations

from frazil.doors.yaml.load import load, load_text
from frazil.doors.yaml.schema import json_schema
from frazil.doors.yaml.template import template
from frazil.errors import ConfigErrors

__all__ = ["ConfigErrors", "json_schema", "load", "load_text", "template"]
