"""Reading positions out of the ledger, which another source may have written."""

from __future__ import annotations

import json
from typing import Any

from frazil.errors import Halted
from frazil.model.commit import Position


def fields_of(text: Position, source: str) -> dict[str, Any]:
    """The fields of a position. Halted when it has none."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise unknown_position(text, source)
    return value


def unknown_position(text: Position, source: str) -> Halted:
    """The error for a position that is not one of this source's."""
    return Halted(
        "position-unknown",
        f"The table's ledger holds a position that is not one of {source}: {text[:200]}",
        fix="Another source wrote it, or this one is not what it was. Give this pipeline a sink id of its own.",
    )
