"""What keeps reads cheap between batches: deletes are settled and files compacted when there are more than the sink allows."""

from __future__ import annotations

import time
from collections.abc import Callable

from frazil.errors import FrazilError, Retryable
from frazil.iceberg import IcebergTable, Restage, fault_of
from frazil.iceberg.staging_faults import explain_staging
from frazil.model.changes import CommitMode
from frazil.model.events import CommitFailed, Settled
from frazil.write.claim import ClaimedSink
from frazil.write.modes import Settlement, compact, settle, too_many_files, too_many_keys


def keep_debt_bounded(claimed: ClaimedSink) -> None:
    """Settles the deletes that readers pay for, as soon as there are more than the sink allows."""
    sink, table = claimed.sink, claimed.table
    if sink.commit_mode not in (CommitMode.UPSERT, CommitMode.DELETE_INSERT):
        return
    if too_many_keys(table, sink):
        settled = _done(claimed, settle)
        # Deletes that compare other columns come next: those that were there, and not whatever others keep adding.
        for _ in range(settled.kinds_left if settled is not None else 0):
            if _done(claimed, settle) is None:
                break
    if too_many_files(table, sink):
        _done(claimed, compact)


def _done(claimed: ClaimedSink, prepare: Callable[[IcebergTable], Settlement | None]) -> Settlement | None:
    """What was settled; None when nothing was, or not now."""
    table, began = claimed.table, time.monotonic()
    try:
        settled = prepare(table)
    except FrazilError:
        raise
    except Exception as error:
        failed = explain_staging(fault_of(error))
        if not isinstance(failed, Retryable):
            raise failed from error
        # The batch itself is in the table; what is left to do is tried again after the next one.
        claimed.listen(CommitFailed(claimed.name, "upkeep", failed.message, 1, will_retry=True))
        return None
    if settled is None:
        return None
    try:
        claimed.run(claimed.intent(settled.change))
    except Restage:
        # Somebody else wrote meanwhile: the debt is still there, and is settled after the next batch.
        claimed.retried(table.refresh)
        return None
    kind = settled.change.summary["frazil.kind"]
    claimed.listen(Settled(claimed.name, claimed.sink.full_name, kind, settled.deletes, settled.rows, time.monotonic() - began))
    return settled
