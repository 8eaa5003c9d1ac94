"""Erases rows from a table for good, while a pipeline may be writing to it, and proves it.

1. Refuse what cannot be done: files that may belong to other tables, rows that a condition does not name for certain.
2. Look at everything: files of all snapshots, as if nothing in them were deleted, and other files of the folder.
3. Refuse as long as a tag or another branch needs some of the rows; ask the user.
4. Claim the maintainer's place in the ledger, so that no second erasure or maintenance goes on beside this one.
5. Commit until no file of the table, and no snapshot, has the rows: see `write/erase.py`.
6. Delete what nobody needs any longer, at once, and look at everything that is left in the folder: see `iceberg/sweep.py`.
7. Begin again with 5 if a writer has added some of the rows meanwhile; a few times.

A process that is killed leaves the table as it was or as it should be: each commit is a whole step, and files are put on a list
before the commit after which nobody needs them. The same command finishes the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.iceberg import IcebergTable, active
from frazil.iceberg.sweep import Sweep, Verdict
from frazil.model.events import Listener
from frazil.model.forget import Extent, Proof
from frazil.model.late import SUFFIX as TOMBSTONES
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec
from frazil.runtime.condition import Asked, rows_where, rows_with_keys
from frazil.runtime.maintain import MAINTAINER, require_own_files, require_own_folder
from frazil.runtime.places import Opened, opened
from frazil.write.claim import ClaimedSink, now_ms
from frazil.write.erase import Erasure, extent, require_free

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A writer that keeps adding the rows is not followed for ever.
ROUNDS, STEPS = 5, 40
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Order:
    """Which rows are to be forgotten, by a condition or by a file of keys, and from which age on orphans are deleted."""

    where: str | None = None
    keys: Path | None = None
    orphan_age_hours: int = 72


@dataclass(frozen=True)
class Forgotten:
    """What was found, and the proof of what was done then; without one, nothing was done."""

    table: str
    found: Extent
    proof: Proof | None = None


def forget(
    places: Sequence[SinkSpec],
    settings: Settings,
    order: Order,
    *,
    agree: Callable[[str, Extent], bool] | None,
    listen: Listener,
    say: Callable[[str], None],
) -> Forgotten:
    """Erases the rows from the table at the place where it is. Without ``agree``, which is asked first, it only looks."""
    # Whatever branch a sink writes to: rows are erased from all of the table.
    of_main = [sink.model_copy(update={"branch": None}) for sink in places]
    found_at = opened(of_main, settings, read_only=agree is None)
    session, sink, table = found_at.session, found_at.sink, found_at.table
    require_own_files(table, sink)
    require_own_folder(found_at.lake, table, sink)
    if agree is not None:
        table.care.require_clock(now_ms())
    with active(session):
        asked = _asked(session, table, order)
        remains = table.care.remains(asked.wanted)
        sweep = partial(Sweep, remains, order.orphan_age_hours * _HOUR_MS)
        reached = remains.reachable()
        remains.look_into(reached)
        found = extent(remains, reached, [one.path for one in sweep(now_ms()).orphans(reached, remains.listed())])
        remains.forget_loose()
        if agree is None or not agree(sink.full_name, found):
            return Forgotten(sink.full_name, found)
        require_free(remains, reached)
        claimed = ClaimedSink(
            session, sink, MAINTAINER, name=sink.full_name, retry=settings.retry, listen=listen, sleep=time.sleep
        )
        claimed.take(table, claim=True, make=False, followers=None)
        erasure = Erasure(claimed, remains, say)
        deleted: list[str] = []
        before: set[str] | None = None
        for _ in range(ROUNDS):
            for _ in range(STEPS):
                if not erasure.step():
                    break
            verdict = claimed.until_it_fits(lambda: sweep(now_ms(), deleted).run(lambda: claimed.retried(table.refresh)))
            paths = {one.path for one in verdict.left}
            if not paths or paths == before:
                break
            before = paths
        claimed.show()
        proof = _proof(found_at, asked, found, erasure.rows_deleted, verdict)
    return Forgotten(sink.full_name, found, proof)


def _asked(session: SparkSession, table: IcebergTable, order: Order) -> Asked:
    schema = session.table(table.sql_name).schema
    if order.keys is not None:
        return rows_with_keys(session, schema, order.keys)
    return rows_where(session, schema, order.where or "")


def _proof(opened: Opened, asked: Asked, found: Extent, rows_deleted: int, verdict: Verdict) -> Proof:
    table, sink = opened.table, opened.sink
    return Proof(
        table=sink.full_name,
        uuid=table.uuid,
        location=table.location,
        snapshot=table.base.head or 0,
        at_ms=now_ms(),
        asked=asked.named,
        found=found,
        rows_deleted=rows_deleted,
        scanned=tuple(sorted(verdict.scanned, key=lambda one: one.path)),
        metadata=tuple(sorted(verdict.metadata)),
        without_rows=tuple(sorted(verdict.without_rows)),
        later=tuple(sorted(verdict.later)),
        deleted=tuple(sorted(set(verdict.deleted))),
        left=tuple(verdict.left),
        not_covered=tuple(_not_covered(opened, asked)),
    )


def _not_covered(opened: Opened, asked: Asked) -> Iterator[str]:
    """Where values of the rows may be that this command does not look for, as far as that is known here."""
    sink, table = opened.sink, opened.table
    namespace, letters = sink.letters_name
    if opened.lake.load(tuple(namespace.split(".")), letters) is not None:
        yield f"The table of dead letters {namespace}.{letters}: records as they came. Run frazil forget for it, too."
    deleted = f"{sink.table}{TOMBSTONES}"
    if opened.lake.load(sink.namespace_levels, deleted) is not None:
        name = f"{sink.namespace}.{deleted}"
        yield f"The table of tombstones {name}: keys of deleted rows, and their order. Run frazil forget for it, too."
    if named := sorted({column for column, _ in table.partition} & set(asked.wanted.columns)):
        yield f"Names of folders, and of files in this proof: the table is partitioned by {', '.join(named)}."
    yield "The source, its backups, other tables made from this one, and versions of deleted objects that a store keeps."
