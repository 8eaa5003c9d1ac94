"""A part of a source on its way into a table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from frazil.model.commit import Position, SinkState

SINGLE_WRITES = "python"
"""The source of data frames that are written one by one: nothing repeats one that was cut off."""


@dataclass(frozen=True)
class Part:
    """The part of a source that a data frame holds. ``home_batch``: the batch's number at home, for a table that follows another.

    ``named``: a user has named it, and may give it again. ``keys_differ``: each key is known to come once in it.
    """

    source: str
    start: Position | None
    end: Position
    rows: int | None = None
    home_batch: int | None = None
    named: bool = False
    keys_differ: bool = False

    def following(self, state: SinkState | None, home_batch: int) -> Part:
        """The part as a follower's batch: ``state`` is the follower's ledger, ``home_batch`` the batch's number in the home.

        Nothing repeats a single write that was cut off, and its number at home is given once more: the next one goes behind it.
        """
        if self.source == SINGLE_WRITES and state is not None and state.home_batch >= home_batch:
            home_batch = state.home_batch if state.is_of(self.source, self.start, self.end) else state.home_batch + 1
        return replace(self, home_batch=home_batch)

    def held_by(self, state: SinkState | None) -> bool:
        """Whether the last batch of a table that follows is this one."""
        return state is not None and state.home_batch == self.home_batch and state.is_of(self.source, self.start, self.end)
