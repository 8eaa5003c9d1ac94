"""What keeps reads cheap between batches: deletes are settled and files compacted when there are more than the sink allows."""

from __future__ import annotations

import time
from collections.abc import Callable

from frazil.engine.held import Held
from frazil.engine.iceberg import IcebergTable, Restage, fault_of
from frazil.engine.staging_faults import explain_staging
from frazil.engine.write import Settlement, compact, settle, too_many_files, too_many_keys
from frazil.errors import FrazilError, Retryable
from frazil.model.changes import CommitMode
from frazil.model.events import CommitFailed, Settled


def keep_debt_bounded(held: Held) -> None:
    """Settles the deletes that readers pay for, as soon as there are more than the sink allows."""
    sink, table = held.sink, held.table
    if sink.commit_mode not in (CommitMode.UPSERT, CommitMode.DELETE_INSERT):
        return
    if too_many_keys(table, sink):
        settled = _done(held, settle)
        # Deletes that compare other columns come next: those that were there, and not whatever others keep adding.
        for _ in range(settled.kinds_left if settled is not None else 0):
            if _done(held, settle) is None:
                break
    if too_many_files(table, sink):
        _done(held, compact)


def _done(held: Held, prepare: Callable[[IcebergTable], Settlement | None]) -> Settlement | None:
    """What was settled; None when nothing was, or not now."""
    table, began = held.table, time.monotonic()
    try:
        settled = prepare(table)
    except FrazilError:
        raise
    except Exception as error:
        failed = explain_staging(fault_of(error))
        if not isinstance(failed, Retryable):
            raise failed from error
        # The batch itself is in the table; what is left to do is tried again after the next one.
        held.listen(CommitFailed(held.name, "upkeep", failed.message, 1, will_retry=True))
        return None
    if settled is None:
        return None
    try:
        held.run(held.intent(settled.change))
    except Restage:
        # Somebody else wrote meanwhile: the debt is still there, and is settled after the next batch.
        held.patiently(table.refresh)
        return None
    kind = settled.change.summary["frazil.kind"]
    held.listen(Settled(held.name, held.sink.full_name, kind, settled.deletes, settled.rows, time.monotonic() - began))
    return settled
