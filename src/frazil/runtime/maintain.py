"""Maintains a table in a process of its own, beside whoever writes to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext

from frazil.errors import ConfigError, Retryable
from frazil.iceberg import IcebergTable, Lake, require_z_order
from frazil.model.events import CommitFailed, Event, Listener, Maintained
from frazil.model.maintenance import (
    STATISTICS_ROWS,
    USUAL_TASKS,
    MaintenanceTask,
    Merge,
    Outlook,
    has_caretaker,
    plan_merges,
    read_amplification,
    statistics_due,
    too_many,
)
from frazil.model.manifests import Clustering
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec
from frazil.runtime.places import opened
from frazil.write.claim import ClaimedSink, now_ms
from frazil.write.maintenance import Upkeep

MAINTAINER = "frazil/maintenance"
"""The id of the maintainer in the ledger of a table. There is one at a time: the newest fences the others out."""
_HOUR_MS = 3_600_000

During = Callable[[str, str], AbstractContextManager[None]]
"""What a step of the work is done in, by the names of the table and of the step."""


def unseen(table: str, step: str) -> AbstractContextManager[None]:  # noqa: ARG001 - the shape of During
    """Shows nobody what is being done."""
    return nullcontext()


def maintainer_of(sink: SinkSpec) -> str:
    """The maintainer's id for the branch that the sink writes to: what it did to one branch is not in the others."""
    return MAINTAINER if sink.branch is None else f"{MAINTAINER}@{sink.branch}"


def maintain(
    sink: SinkSpec,
    settings: Settings,
    tasks: Collection[MaintenanceTask],
    *,
    dry_run: bool,
    orphan_age_hours: int,
    listen: Listener,
    during: During = unseen,
) -> Outlook:
    """Does the tasks for the sink's table, and returns what was to be done; with ``dry_run`` nothing is changed.

    Each step is done within what ``during`` makes of its name and the table's.
    """
    if sink.maintenance.statistics and set(USUAL_TASKS) <= set(tasks):
        tasks = (*tasks, MaintenanceTask.STATISTICS)
    found = opened([sink], settings, read_only=dry_run)
    table, name = found.table, sink.full_name
    require_own_files(table, sink)
    if MaintenanceTask.COMPACT in tasks:
        require_z_order(table.schema, sink.maintenance.z_order)
    if not dry_run:
        table.care.require_clock(now_ms())
    with during(name, "plan"):
        orphans = _orphans(found.lake, table, sink, orphan_age_hours) if MaintenanceTask.ORPHANS in tasks else ()
        outlook = _outlook(table, sink, tasks, orphans)
    if dry_run or outlook.nothing:
        return outlook
    failures: list[str] = []

    def heard(event: Event) -> None:
        if isinstance(event, CommitFailed) and event.kind == "upkeep":
            failures.append(event.message)
        listen(event)

    claimed = ClaimedSink(
        found.session, sink, maintainer_of(sink), name=name, retry=settings.retry, listen=heard, sleep=time.sleep
    )
    claimed.take(table, claim=True, make=False, followers=None)
    upkeep = Upkeep(claimed)
    for task in MaintenanceTask:
        if task in tasks and task is not MaintenanceTask.ORPHANS:
            with during(name, task):
                upkeep.do([task])
    if orphans:
        with during(name, MaintenanceTask.ORPHANS):
            began = time.monotonic()
            table.care.files_to_delete.delete(orphans)
            heard(Maintained(name, name, "delete_files", len(orphans), 0, time.monotonic() - began))
    if failures:
        raise Retryable(
            "not-all-maintained",
            f"Not all could be done for {name}: {failures[0]}",
            fix="Run it again. What was done stays done, and the table is as whole as before.",
        )
    return outlook


def require_own_files(table: IcebergTable, sink: SinkSpec) -> None:
    """Stops at a table whose files may not be deleted."""
    if (table.property_text("gc.enabled") or "true").lower() == "false":
        raise ConfigError(
            "files-not-own",
            f"{sink.full_name} has gc.enabled=false: its files may belong to other tables, and none of them may be deleted.",
            fix="Maintain the table that the files belong to.",
        )
    if has_caretaker(table.location) and sink.maintenance.enabled is None:
        raise ConfigError(
            "maintained-by-service",
            f"Amazon S3 Tables maintains {sink.full_name} by itself, and lets nobody else delete files.",
            fix="Leave it to the service, or set maintenance.enabled: true on the sink.",
        )


def _outlook(table: IcebergTable, sink: SinkSpec, tasks: Collection[MaintenanceTask], orphans: tuple[str, ...]) -> Outlook:
    spec, now = sink.maintenance, now_ms()
    merges: tuple[Merge, ...] = ()
    now_opened = after_opened = 1.0
    if MaintenanceTask.COMPACT in tasks:
        files, target = [one.files for one in table.care.small_files()], table.care.target_bytes
        merges = plan_merges(files, table.head_sequence, spec, target, finish=True)
        data, deletes, surplus = table.total("data-files"), table.total("delete-files"), too_many(files, target)
        fewer = sum(len(merge.files) - merge.files_after for merge in merges)
        now_opened = read_amplification(data, deletes, surplus)
        after_opened = read_amplification(data - fewer, deletes, max(0, surplus - fewer))
    plans: tuple[Clustering, ...] = ()
    if MaintenanceTask.MANIFESTS in tasks:
        plans = table.care.clusterings(list(table.care.manifests_worth_reading().values()))
    due = [one for one in table.care.files_to_delete.read() if one.due_ms <= now] if MaintenanceTask.DELETE in tasks else []
    return Outlook(
        merge_files=sum(len(merge.files) for merge in merges),
        merge_bytes=sum(merge.bytes for merge in merges),
        merge_files_after=sum(merge.files_after for merge in merges),
        rewrite_manifests=sum(len(plan.paths) for plan in plans),
        write_statistics=MaintenanceTask.STATISTICS in tasks
        and statistics_due(table.total("records"), table.property_text(STATISTICS_ROWS)),
        expire_snapshots=table.care.expirable(spec.retention, now) if MaintenanceTask.EXPIRE in tasks else 0,
        delete_files=len(due),
        settle_deletes=table.total("equality-deletes") if MaintenanceTask.SETTLE in tasks else 0,
        orphans=orphans,
        read_amplification=now_opened,
        read_amplification_after=after_opened,
        manifests_opened=max((plan.before for plan in plans), default=1.0),
        manifests_opened_after=max((plan.after for plan in plans), default=1.0),
    )


def _orphans(lake: Lake, table: IcebergTable, sink: SinkSpec, age_hours: int) -> tuple[str, ...]:
    """Old files of the table's folder that it does not know."""
    require_own_folder(lake, table, sink)
    return tuple(table.care.orphans(now_ms() - age_hours * _HOUR_MS))


def require_own_folder(lake: Lake, table: IcebergTable, sink: SinkSpec) -> None:
    """Stops at a table in whose folder another one is, or the other way round."""
    if others := lake.sharing_folder(sink.namespace_levels, table):
        raise ConfigError(
            "folders-nested",
            f"The folder of {sink.full_name} is also that of {', '.join(others)}: orphans of the one are files of the other.",
            fix="Move one of the tables to a folder of its own.",
        )
    table.care.require_own_folder()
