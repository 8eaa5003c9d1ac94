"""The YAML door: a pipeline file becomes a :class:`frazil.model.pipeline.ProjectSpec`."""

from __future__ import annotations

from frazil.doors.yaml.load import load, load_text
from frazil.doors.yaml.schema import json_schema
from frazil.doors.yaml.template import template
from frazil.errors import ConfigErrors

__all__ = ["ConfigErrors", "json_schema", "load", "load_text", "template"]
