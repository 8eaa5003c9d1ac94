"""What is done to a sink's table and ledger beside its batches: setting it back, and taking rows out, each in one commit."""

from __future__ import annotations

from collections.abc import Callable

from frazil.commit.protocol import Moved
from frazil.errors import ConfigError, Halted
from frazil.iceberg import TAKEN_BACK_TO, Append, Change, Removal, done_again
from frazil.model.commit import DIGEST, Position, short_range
from frazil.write.claim import ClaimedSink
from frazil.write.modes import deleted_where


def position_at(claimed: ClaimedSink, snapshot: int) -> Position | None:
    """Where the sink was when its table had a snapshot; None is the beginning, and so is snapshot 0."""
    if snapshot == 0:
        return None
    end = claimed.table.history.end_at(claimed.sink_id, snapshot)
    if end is None or end.startswith(DIGEST):
        raise ConfigError(
            "snapshot-unknown",
            f"Snapshot {snapshot} of {claimed.sink.full_name} does not say where the sink {claimed.sink_id!r} was.",
            fix="Choose one whose summary has `frazil.end` in full: frazil inspect shows them.",
        )
    return end


def restart(claimed: ClaimedSink, source: str) -> None:
    """Empties the table and lets the sink start from the beginning."""
    claimed.until_it_fits(
        lambda: claimed.move(Moved(source, None), Change(deleted_where(claimed.table, "true"), claimed.table.base))
    )
    claimed.show()


def remove(claimed: ClaimedSink, condition: str, among: str, cleared: Moved | None = None) -> None:
    """Takes those of some rows out for which a condition holds, whoever has put them there.

    ``cleared``: what the ledger says from the same commit on, also when there were none.
    """
    table = claimed.table
    claimed.retried(table.refresh)

    def attempt() -> None:
        operation = deleted_where(table, condition, among)
        change = Change(operation if operation.any else Append(), table.base, summary={"frazil.kind": "remove"})
        if cleared is not None:
            claimed.move(cleared, change)
        elif operation.any:
            claimed.run(claimed.intent(change))

    claimed.until_it_fits(attempt)


def undo(claimed: ClaimedSink, condition: str) -> None:
    """Takes the last batch of a follower back out: the rows that the condition names, and its place in the ledger."""
    before = claimed.state
    assert before is not None, "it has a batch"
    moved = Moved(before.source or "", before.start, before.home_batch - 1)

    def attempt() -> None:
        now = claimed.look()
        if now is not None and now.home_batch == moved.home_batch:
            return  # it was done, and only the answer was lost
        claimed.move(moved, Change(deleted_where(claimed.table, condition), claimed.table.base))

    claimed.until_it_fits(attempt)


def take_back(claimed: ClaimedSink, kept: Callable[[Position | None], bool], then: Position | None = None) -> int:
    """Takes the last batches of the sink out of the table, back to a position that is ``kept``; how many they were.

    Exactly the files that they added are removed, and the ledger is set back. For sources that are set back by somebody else,
    and that give no part twice in the same form. ``then``: another text for the position that is kept, which the ledger gets
    in its place.
    """
    table = claimed.table
    taken = 0

    def refused(why: str) -> Halted:
        return Halted(
            "batches-not-removable",
            f"The last batches of {claimed.sink_id!r} cannot be taken back out of {claimed.sink.full_name}: {why}.",
            fix="Their files were rewritten or expired since. Decide what the table should hold: roll it back to a snapshot "
            "before them, or give the sink another id to begin anew.",
        )

    def attempt() -> int:
        nonlocal taken
        state = claimed.look()
        if state is None or kept(state.end):
            return taken  # nothing to do, or it was done, and only the answer was lost
        added = table.history.added_since(claimed.sink_id, state.end, kept)
        if added is None:
            raise refused("their snapshots have expired, or they did more than add rows")
        # If it is refused a second time, the files are really gone.
        refusal = done_again if not taken else refused
        taken = added.batches
        summary = {"frazil.batches-taken-back": str(added.batches), TAKEN_BACK_TO: short_range(added.start)}
        change = Change(Removal(added.files, refusal), table.base, summary=summary)
        claimed.move(Moved(state.source, added.start if then is None else then), change)
        return taken

    return claimed.until_it_fits(attempt)
