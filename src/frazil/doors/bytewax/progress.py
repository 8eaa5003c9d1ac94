"""How far a part of the sink is, by the table and by Bytewax, and what follows when the two disagree. Pure logic.

A *run* begins when Bytewax builds a part without a state, and goes on through every resume from a state of it. Its flushes are
numbered. The table's ledger names the last flush (:class:`Mark`), Bytewax's snapshot the last one that it knows of
(:class:`State`); the table is never behind, since a snapshot is only given after its rows are committed. What the table has
more is what Bytewax will send again: it is taken back before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from frazil.errors import ConfigError, Halted
from frazil.model.commit import Position, position

SOURCE = "bytewax"
"""The source of every flush in the ledger."""

# Bytewax stores a snapshot shortly after it was taken. A run that took more than so many before it was cut off, and of which
# Bytewax has none, was most likely run without recovery: what it wrote is then not sent again.
MOST_UNSTORED = 10


class FreshStart(StrEnum):
    """What becomes of the rows of the run before when Bytewax starts a part without a state.

    ``auto``: rows of a run that finished are kept. Those of a run that was cut off early, before Bytewax can have stored
    anything of it, are taken back, as they are sent again. Otherwise nobody can tell, and the sink stops: also after a run that
    was resumed, since its recovery store is gone, and a run that was stopped in a quiet moment looks finished, too. ``undo``:
    taken back. ``append``: kept.
    """

    AUTO = "auto"
    UNDO = "undo"
    APPEND = "append"


@dataclass(frozen=True)
class Mark:
    """One flush in the ledger. ``snapshots``: how many were given to Bytewax so far in the run. ``stored``: Bytewax is known to
    have kept one of them. ``finished``: the flow ended after it, and had nothing more to write."""

    run: str
    seq: int
    snapshots: int = 0
    stored: bool = False
    finished: bool = False

    @property
    def position(self) -> Position:
        """As the ledger has it."""
        return position({name: value for name, value in asdict(self).items() if value})

    @classmethod
    def read(cls, text: Position | None) -> Mark | None:
        """From the ledger."""
        if text is None:
            return None
        try:
            raw = json.loads(text)
            return cls(**{"seq": 0, **raw})
        except (ValueError, TypeError):
            raise Halted(
                "ledger-foreign",
                f"The ledger of this sink was not written from Bytewax: it ends at {text}.",
                fix="Give the sink another id: extra_options={'id': ...}.",
            ) from None

    def next(self, *, snapshot: bool) -> Mark:
        """The flush after this one, on its own or in a snapshot."""
        return replace(self, seq=self.seq + 1, snapshots=self.snapshots + snapshot, finished=False)


@dataclass(frozen=True)
class State:
    """What Bytewax keeps of a part: which it is, of how many, and its last flush."""

    part: str
    parts: int
    run: str
    seq: int
    snapshots: int

    @classmethod
    def read(cls, given: Any, part: str, parts: int) -> State | None:
        """From what Bytewax hands back."""
        if given is None:
            return None
        names = {field.name for field in fields(cls)}
        if not isinstance(given, Mapping) or set(given) != names:
            raise Halted(
                "state-foreign",
                f"The state that Bytewax has kept of {part} was not written by this sink.",
                fix="Give the step another id, or begin with an empty recovery store.",
            )
        state = cls(**given)
        if state.parts != parts:
            raise ConfigError(
                "parts-changed",
                f"num_partitions: it was {state.parts} when Bytewax stored its state, and is {parts} now; "
                "rows would be sent to other parts than those that have them already.",
                fix=f"Set num_partitions={state.parts} again, or begin with an empty recovery store and another sink id.",
            )
        return state

    def to_bytewax(self) -> dict[str, Any]:
        """Plain values: they outlive this class."""
        return asdict(self)


@dataclass(frozen=True)
class Beginning:
    """Where a part goes on: the mark that its next flush follows, and which marks of the ledger may stay.

    ``keep``: the run and the last flush of it that stays; None: nothing of the ``undone`` run does, or all stays without one.
    """

    mark: Mark
    keep: tuple[str, int] | None = None
    undone: str | None = None

    def kept(self, text: Position | None) -> bool:
        """Whether the ledger may stand at this position."""
        mark = Mark.read(text)
        if self.keep is not None:
            return mark is not None and (mark.run, mark.seq) == self.keep
        return mark is None or mark.run != self.undone


def beginning(ledger: Mark | None, state: State | None, fresh_start: FreshStart, new_run: str) -> Beginning:
    """Where to go on, or a Halted when going on could lose or double rows."""
    if state is not None:
        return _resumed(ledger, state)
    fresh = Mark(new_run, 0)
    if ledger is None or fresh_start is FreshStart.APPEND:
        return Beginning(fresh)
    if fresh_start is FreshStart.UNDO:
        return Beginning(fresh, undone=ledger.run)
    if ledger.finished and not ledger.stored:
        return Beginning(fresh)
    if not ledger.stored and ledger.snapshots <= MOST_UNSTORED:
        return Beginning(fresh, undone=ledger.run)
    raise Halted(
        "state-missing",
        "Bytewax starts without a state, but the table has rows of a run of this flow that "
        f"{'was resumed before' if ledger.stored else 'was cut off'}: whether they will be sent again is not known.",
        fix="Start with the recovery store of that run. Without one, say what becomes of its rows: on_fresh_start='undo' takes "
        "them back, because the flow sends them again; on_fresh_start='append' keeps them.",
    )


def _resumed(ledger: Mark | None, state: State) -> Beginning:
    if ledger is None or ledger.run != state.run or ledger.seq < state.seq:
        found = "has no rows of this sink" if ledger is None else "was written by another run, or set back"
        raise Halted(
            "state-ahead",
            f"Bytewax resumes {state.part} after flush {state.seq}, but the table {found}.",
            fix="Use the table and the recovery store of the same run, or begin with an empty recovery store.",
        )
    return Beginning(Mark(state.run, state.seq, state.snapshots, stored=True), keep=(state.run, state.seq))
