"""The configuration of a pipeline as text, without secrets."""

from __future__ import annotations

from io import StringIO
from typing import Any

from pydantic import BaseModel

from frazil.model.secrets import masked, scrub
from frazil.ui.watched import Watched

# What belongs to the file and not to the pipeline.
_LEFT_OUT = {"name", "source_name", "sink_name", "tests"}


def configuration_text(pipeline: Watched) -> str:
    """What the pipeline runs with where that is not the default, as YAML. Secrets are masked."""
    spec = pipeline.spec
    parts = {
        f"source {spec.source_name}": _plain(spec.source),
        f"sink {spec.sink_name}": _plain(spec.sink),
        "pipeline": {name: value for name, value in _plain(spec).items() if name not in {*_LEFT_OUT, "source", "sink"}},
        "settings": _plain(pipeline.settings),
    }
    return scrub(_yaml({name: value for name, value in parts.items() if value}))


def _plain(model: BaseModel) -> dict[str, Any]:
    shown: dict[str, Any] = masked(model.model_dump(mode="json", exclude_defaults=True, by_alias=True))
    if (connector := getattr(model, "connector", None)) is not None:
        shown = {"connector": connector} | shown
    return shown


def _yaml(value: dict[str, Any]) -> str:
    from ruamel.yaml import YAML

    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.width = 100
    text = StringIO()
    writer.dump(value, text)
    return text.getvalue()
