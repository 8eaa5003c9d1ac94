"""The ledger in a table's properties: how its entries are read, and whether the table still holds what they say.

The engine asks before each commit, and ``status`` asks without Spark: both get their answer here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from frazil.errors import DataError
from frazil.model.commit import STATE_PREFIX, SinkState, state_property


class Lineage(StrEnum):
    """Where the snapshot of the ledger's last entry is."""

    CURRENT = "current"
    """The head of the branch or one of its ancestors."""
    EXPIRED = "expired"
    """No longer to be found from the head, because snapshots expired; the property is what counts."""
    ABANDONED = "abandoned"
    """Not among the head's ancestors: somebody moved the branch back."""


@dataclass(frozen=True)
class Ancestor:
    """One snapshot of a branch, as the table's metadata lists it."""

    snapshot: int
    sequence: int
    parent: int | None


def lineage_of(state: SinkState, branch: Iterable[Ancestor]) -> Lineage:
    """Where the ledger's snapshot is, found in the branch: the head first, as far back as the table still has it.

    Sequence numbers grow from parent to child, so that a branch which passes the ledger's number without meeting its snapshot
    does not hold it, even when the snapshot itself has expired.
    """
    oldest: Ancestor | None = None
    for ancestor in branch:
        if ancestor.snapshot == state.snapshot:
            return Lineage.CURRENT
        if ancestor.sequence < state.sequence:
            return Lineage.ABANDONED
        oldest = ancestor
    if oldest is None or oldest.parent is None:
        return Lineage.ABANDONED
    no_room_between = state.sequence > 0 and oldest.sequence == state.sequence + 1
    if no_room_between and oldest.parent != state.snapshot:
        return Lineage.ABANDONED
    return Lineage.EXPIRED


def ledger_entry(properties: Mapping[str, str], sink_id: str) -> SinkState | None:
    """The last entry of one sink in a table's properties; None when it has never committed to the table."""
    text = properties.get(state_property(sink_id))
    return None if text is None else _read(text, state_property(sink_id))


def ledger_entries(properties: Mapping[str, str], beginning: str = "") -> dict[str, SinkState]:
    """The last entries of all sinks whose ids begin like this, by sink id."""
    found = {name: text for name, text in properties.items() if name.startswith(state_property(beginning))}
    return {name.removeprefix(STATE_PREFIX): _read(text, name) for name, text in found.items()}


def _read(text: str, name: str) -> SinkState:
    try:
        return SinkState.from_json(text)
    except ValueError as error:
        raise DataError(
            "ledger-unreadable",
            f"The table property {name} is no ledger entry that this frazil can read: {error}.",
            fix="If a newer frazil wrote it, use that one. If somebody changed it by hand, set it back to what an older metadata "
            "file of the table says.",
        ) from None
