"""`frazil schema`."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.call import Call, nearest
from frazil.cli.connectors import all_connectors
from frazil.errors import UsageError


def schema(
    call: Call, connector: Annotated[str | None, typer.Argument(help="A connector; the whole file when left out.")] = None
) -> None:
    """Print the JSON Schema of the pipeline file, or of one connector's settings."""
    if connector is None:
        from frazil.doors.yaml import json_schema

        call.output.document(json_schema())
        return
    models = {known.name: known.model for known in all_connectors()}
    if connector not in models:
        raise UsageError("unknown-connector", f"There is no connector {connector!r}.", fix=nearest(connector, models))
    call.output.document(models[connector].model_json_schema(by_alias=True))
