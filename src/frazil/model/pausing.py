"""A pipeline that waits because somebody has asked it to: an entry beside its sink's place in the ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from frazil.errors import DataError
from frazil.model.words import iso

PREFIX = "frazil.paused."


@dataclass(frozen=True)
class Pause:
    """Who has asked a pipeline to wait, when, and why."""

    by: str
    at_ms: int
    reason: str = ""

    @property
    def words(self) -> str:
        """Since when, by whom, and why."""
        why = f": {self.reason}" if self.reason else ""
        return f"since {iso(self.at_ms)} by {self.by}{why}"

    def to_json(self) -> str:
        """The value as stored in the table's property."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def pause_property(sink_id: str) -> str:
    """The table property that says that this sink is paused."""
    return f"{PREFIX}{sink_id}"


def pause_in(text: str | None, sink_id: str) -> Pause | None:
    """The pause that a table's property says; None without one. One that cannot be read is an error: it was meant to stop."""
    if text is None:
        return None
    try:
        raw = json.loads(text)
        return Pause(by=str(raw["by"]), at_ms=int(raw["at_ms"]), reason=str(raw.get("reason", "")))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise DataError(
            "pause-unreadable",
            f"The table property {pause_property(sink_id)} says that the pipeline is paused, and cannot be read: {text[:200]}.",
            fix="Let it go on with: frazil resume PIPELINE.",
        ) from None


def pauses(properties: Mapping[str, str]) -> dict[str, Pause]:
    """All sinks of a table that are paused, by their ids."""
    ids = [name.removeprefix(PREFIX) for name in properties if name.startswith(PREFIX)]
    return {one: pause for one in ids if (pause := pause_in(properties[pause_property(one)], one)) is not None}
