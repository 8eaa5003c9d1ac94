"""How far a part of the sink is, by the table and by Bytewax, and what follows when the two disagree. Pure logic.

A *run* begins when Bytewax starts without a state, and goes on through every resume from a state of it. Each time that a part
is built, a new *branch* of its run begins. Flushes are numbered through all branches of a run, and known by branch and number
(:data:`Place`). The table's ledger names the last flush (:class:`Mark`), Bytewax's snapshot the last one that it knows of
(:class:`State`); the table is never behind, since a snapshot is only given after its rows are committed. What the table has
more is what Bytewax will send again: it is taken back before anything is written.

Bytewax never deletes the snapshots of epochs that it repeats, and snapshots a part only in epochs that bring rows for it. One
of an execution that was set back can therefore come again later: a *stale* state, of a flush that was taken back. The ledger
remembers the branches that were left, so that such a state is known for what it is.
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

# Bytewax stores a snapshot shortly after it was taken. A run that went on for longer, or took more of them, before it was cut
# off, and of which Bytewax has none, was most likely run without recovery: what it wrote is then not sent again.
MOST_UNSTORED = 10
MOST_UNSTORED_SECONDS = 600

# A mark stays short enough to stand in the summary of its snapshot as it is.
BRANCHES_REMEMBERED = 12

Place = tuple[str, int]
"""A branch, and the number of a flush in it. In a list of branches that were left: the last one that stayed."""
NOTHING = -1
"""Stands for that number where nothing of the branch stayed."""


class FreshStart(StrEnum):
    """What becomes of the rows of the run before when Bytewax starts a part without a state.

    ``auto``: rows of a run that finished are kept. Those of a run that was cut off early, before Bytewax can have stored
    anything of it, are taken back, as they are sent again. Otherwise nobody can tell, and the sink stops: also after a run that
    was resumed, since its recovery store is gone, and a run that was stopped in a quiet moment looks finished, too. ``undo``:
    taken back. ``append``: kept. The same is asked when a stale state does not tell what Bytewax has stored.
    """

    AUTO = "auto"
    UNDO = "undo"
    APPEND = "append"


@dataclass(frozen=True)
class FlowMark:
    """One flush in the ledger, or the beginning of a branch.

    ``parent``: the flush that its branch began after; None: the branch began a run. ``left``: earlier branches, the oldest first,
    with the last flush of each that stayed. ``given``: the state that the branch was begun with, where that is not its parent.
    ``cut``: flushes of the part were taken back, so that there may be stale states. ``snapshots``: how many the branch gave to
    Bytewax. ``seconds``: how long after the run's beginning the flush was made. ``stored``: Bytewax is known to have stored
    something of the run. ``finished``: the flow ended after it, and had nothing more to write.
    """

    run: str
    branch: str
    seq: int = 0
    parent: Place | None = None
    left: tuple[Place, ...] = ()
    given: Place | None = None
    cut: bool = False
    snapshots: int = 0
    seconds: int = 0
    stored: bool = False
    finished: bool = False

    @property
    def position(self) -> Position:
        """As the ledger has it."""
        return position({name: value for name, value in asdict(self).items() if value})

    @classmethod
    def read(cls, text: Position | None) -> FlowMark | None:
        """From the ledger."""
        if text is None:
            return None
        try:
            raw = json.loads(text)
            places = {name: tuple(raw[name]) for name in ("parent", "given") if name in raw}
            left = tuple((str(branch), int(seq)) for branch, seq in raw.get("left", ()))
            return cls(**{**raw, **places, "left": left})
        except (ValueError, TypeError):
            raise Halted(
                "ledger-foreign",
                f"The ledger of this sink was not written from Bytewax: it ends at {text}.",
                fix="Give the sink another id: extra_options={'id': ...}.",
            ) from None

    @property
    def begin(self) -> int:
        """The number that the branch began after."""
        return self.parent[1] if self.parent is not None else 0

    @property
    def has_flushes(self) -> bool:
        """Whether there is a flush of this very branch."""
        return self.seq > self.begin

    @property
    def place(self) -> Place:
        """The last flush that the table has: one of the branch, or the one that it began after."""
        return self.parent if self.parent is not None and not self.has_flushes else (self.branch, self.seq)

    def next(self, *, snapshot: bool, seconds: int = 0) -> FlowMark:
        """The flush after this one, on its own or in a snapshot."""
        return replace(self, seq=self.seq + 1, snapshots=self.snapshots + snapshot, seconds=seconds, finished=False)


@dataclass(frozen=True)
class FlowState:
    """What Bytewax keeps of a part: which it is, of how many, and its last flush."""

    part: str
    parts: int
    run: str
    branch: str
    seq: int

    @classmethod
    def at(cls, mark: FlowMark, part: str, parts: int) -> FlowState:
        """After this mark."""
        return cls(part, parts, mark.run, *mark.place)

    @property
    def place(self) -> Place:
        """The last flush that Bytewax knows of."""
        return (self.branch, self.seq)

    @classmethod
    def read(cls, given: Any, part: str, parts: int) -> FlowState | None:
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
class Family:
    """The run that parts without a state belong to in an execution. ``resumed``: the runs that parts with a state go on with."""

    run: str
    resumed: frozenset[str] = frozenset()

    def with_resumed(self, run: str) -> Family:
        """A copy after one more part resumed a run. The first run that was resumed is also that of parts without a state."""
        return Family(self.run if self.resumed else run, self.resumed | {run})


@dataclass(frozen=True)
class Beginning:
    """Where a part goes on: the mark that its next flush follows, and which marks of the ledger may stay.

    ``keep``: the last flush that stays. Without it all does but the flushes of a run or a branch that is undone.
    ``announced``: the mark is to be in the ledger before anything else is, even when nothing is taken back.
    """

    mark: FlowMark
    keep: Place | None = None
    undone_run: str | None = None
    undone_branch: str | None = None
    announced: bool = False

    def kept(self, text: Position | None) -> bool:
        """Whether the ledger may stand at this position."""
        mark = FlowMark.read(text)
        if mark is None:
            return self.keep is None
        if self.keep is not None:
            return mark.place == self.keep
        undone = (mark.run == self.undone_run and mark.seq > 0) or (mark.branch == self.undone_branch and mark.has_flushes)
        return not undone


def beginning(
    ledger: FlowMark | None, state: FlowState | None, fresh_start: FreshStart, family: Family, branch: str
) -> Beginning:
    """Where to go on in a new branch, or a Halted when going on could lose or double rows."""
    return _fresh(ledger, fresh_start, family, branch) if state is None else _resumed(ledger, state, fresh_start, branch)


def taken_back(ledger: FlowMark | None, fresh_start: FreshStart, family: Family) -> bool:
    """Whether a start without a state takes back what the ledger has of its run; raises Halted if that is not known."""
    if ledger is None or ledger.seq == 0 or fresh_start is FreshStart.APPEND:
        return False
    # Other parts have states of the run, and each part that Bytewax has stored rows of has one: these rows were not stored.
    if fresh_start is FreshStart.UNDO or ledger.run in family.resumed:
        return True
    if ledger.finished and not ledger.stored:
        return False
    early = ledger.snapshots <= MOST_UNSTORED and ledger.seconds <= MOST_UNSTORED_SECONDS
    if not ledger.stored and (early or ledger.snapshots == 0):
        return True
    raise Halted(
        "state-missing",
        "Bytewax starts without a state, but the table has rows of a run of this flow that "
        f"{'was resumed before' if ledger.stored else 'was cut off'}: whether they will be sent again is not known.",
        fix="Start with the recovery store of that run. Without one, say what becomes of its rows: on_fresh_start='undo' takes "
        "them back, because the flow sends them again; on_fresh_start='append' keeps them.",
    )


def _fresh(ledger: FlowMark | None, fresh_start: FreshStart, family: Family, branch: str) -> Beginning:
    fresh = FlowMark(family.run, branch, stored=bool(family.resumed))
    if ledger is None:
        return Beginning(fresh)
    if taken_back(ledger, fresh_start, family):
        mark = replace(fresh, left=_without(_branches(ledger), 0), cut=True)
        return Beginning(mark, undone_run=ledger.run)
    gone = tuple(place for place in ledger.left if place[1] == NOTHING)
    return Beginning(replace(fresh, left=gone, cut=ledger.cut))


def _resumed(ledger: FlowMark | None, state: FlowState, fresh_start: FreshStart, branch: str) -> Beginning:
    if ledger is None:
        raise _ahead(state, "has no rows of this sink")
    if state.place == (ledger.given or ledger.parent):
        # Nothing that the ledger's branch wrote was stored: a snapshot of it would have come instead.
        return _from_its_beginning(ledger, state, branch)
    branches = _branches(ledger)
    known = dict(branches)
    stayed = known.get(state.branch)
    if stayed is None or (state.branch == ledger.branch and state.seq > stayed):
        raise _ahead(state, "was written by another run, or set back")
    if state.seq <= stayed:
        at = list(known).index(state.branch)
        left = _without((*branches[:at], state.place, *branches[at + 1 :]), at + 1)
        cut = ledger.cut or ledger.place != state.place
        mark = FlowMark(ledger.run, branch, state.seq, state.place, left, cut=cut, stored=True)
        return Beginning(mark, keep=state.place, announced=cut and ledger.has_flushes)
    return _after_a_stale(ledger, state, fresh_start, branch)


def _after_a_stale(ledger: FlowMark, state: FlowState, fresh_start: FreshStart, branch: str) -> Beginning:
    """The state is of a flush that was taken back. What Bytewax knows of the branch that the ledger is in, it does not say."""
    # Without a flush of this branch, or a snapshot after one, there is nothing that Bytewax could know of.
    if not ledger.has_flushes or not ledger.snapshots or fresh_start is FreshStart.UNDO:
        return _from_its_beginning(ledger, state, branch)
    if fresh_start is FreshStart.APPEND:
        # Its states say nothing any more of what comes after.
        left = _without(_branches(ledger), -1)
        mark = FlowMark(ledger.run, branch, ledger.seq, (ledger.branch, ledger.seq), left, state.place, cut=True, stored=True)
        return Beginning(mark, keep=mark.parent, announced=True)
    raise Halted(
        "state-stale",
        f"Bytewax resumes {state.part} from a state of an execution that was set back (flush {state.seq}). Whether it has stored "
        f"what the table got since (flushes {ledger.begin + 1} to {ledger.seq}), or sends it again, is not known.",
        fix="Compare the rows of these flushes with what the flow reads now, then say what becomes of them: "
        "on_fresh_start='undo' takes them back, because the flow sends them again; on_fresh_start='append' keeps them.",
    )


def _from_its_beginning(ledger: FlowMark, state: FlowState, branch: str) -> Beginning:
    """What the ledger's branch wrote is taken back."""
    left = _without(_branches(ledger), -1) if ledger.has_flushes else ledger.left
    given = state.place if state.place != ledger.parent else None
    cut = ledger.cut or ledger.has_flushes
    mark = FlowMark(ledger.run, branch, ledger.begin, ledger.parent, left, given, cut=cut, stored=True)
    return Beginning(mark, undone_branch=ledger.branch)


def _branches(ledger: FlowMark) -> tuple[Place, ...]:
    """The branches that were left, and the one that the ledger is in, when it has flushes."""
    return (*ledger.left, (ledger.branch, ledger.seq)) if ledger.has_flushes else ledger.left


def _without(branches: tuple[Place, ...], first: int) -> tuple[Place, ...]:
    """The branches, with nothing left of those from the first on; the newest only."""
    cut = range(len(branches))[first:]
    gone = tuple((name, NOTHING if number in cut else seq) for number, (name, seq) in enumerate(branches))
    return gone[-BRANCHES_REMEMBERED:]


def _ahead(state: FlowState, found: str) -> Halted:
    return Halted(
        "state-ahead",
        f"Bytewax resumes {state.part} after flush {state.seq}, but the table {found}.",
        fix="Use the table and the recovery store of the same run, or begin with an empty recovery store.",
    )
