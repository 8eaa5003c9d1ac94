"""`frazil maintain`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.call import Call, nearest
from frazil.cli.inspect import candidates
from frazil.cli.output import facts
from frazil.cli.words import size
from frazil.errors import UsageError
from frazil.model.maintenance import USUAL_TASKS, MaintenanceTask

if TYPE_CHECKING:
    from frazil.model.events import Event
    from frazil.model.maintenance import Outlook

_NAMES = ", ".join(task.value for task in MaintenanceTask)


def maintain(
    call: Call,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[PIPELINE|NAMESPACE.TABLE]", help="All tables of the file when left out.", show_default=False),
    ] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="TASKS", help=f"Some of: {_NAMES}; when left out, all but statistics and orphans."),
    ] = None,
    orphan_age_hours: Annotated[
        int, typer.Option(min=24, help="How old a file must be that no metadata names before it is deleted.")
    ] = 72,
) -> None:
    """Merge small files, expire snapshots and delete what nobody needs, also while a pipeline writes."""
    call, names = call.with_file_among([target] if target else [])
    project = call.project()
    tasks = _tasks(only)
    from frazil.runtime.maintain import maintain as look_after

    done = []
    for sink, *_ in candidates(project, names[0] if names else None):
        outlook = look_after(
            sink,
            project.settings,
            tasks,
            dry_run=dry_run,
            orphan_age_hours=orphan_age_hours,
            listen=lambda event: _say(call, event),
        )
        done.append({"table": sink.full_name, "dry_run": dry_run, **asdict(outlook)})
        if not call.output.json:
            _show(call, sink.full_name, outlook, dry_run=dry_run)
    if call.output.json:
        call.output.document({"tables": done})


def _tasks(only: str | None) -> tuple[MaintenanceTask, ...]:
    if only is None:
        return USUAL_TASKS
    known = [task.value for task in MaintenanceTask]
    given = [name.strip() for name in only.split(",")]
    for name in given:
        if name not in known:
            raise UsageError("usage", f"--only has an unknown task {name!r}.", fix=nearest(name, known))
    return tuple(MaintenanceTask(name) for name in given)


def _say(call: Call, event: Event) -> None:
    """What happens, as it happens."""
    from frazil.model.events import CommitFailed, Maintained
    from frazil.observe.progress import MAINTAINED

    if isinstance(event, Maintained):
        call.output.say(f"{event.table}: {MAINTAINED[event.kind].format(event.count)} ({event.seconds:.1f} s)", "dim")
    elif isinstance(event, CommitFailed):
        call.output.say(f"{event.pipeline}: {event.message}", "dim")


def _merge(outlook: Outlook) -> str:
    return f"{outlook.merge_files:,} files into {outlook.merge_files_after:,}, {size(outlook.merge_bytes)} rewritten"


def _opened(outlook: Outlook) -> str:
    return f"{outlook.read_amplification:g} files for each that is needed, then {outlook.read_amplification_after:g}"


def _manifests(outlook: Outlook) -> str:
    opened = f"{outlook.manifests_opened:g} of them, then {outlook.manifests_opened_after:g}"
    return f"{outlook.rewrite_manifests:,} manifests; a scan of one partition opens {opened}"


def _show(call: Call, name: str, outlook: Outlook, *, dry_run: bool) -> None:
    if outlook.nothing:
        call.output.show(f"{name}: nothing to do")
        return
    would = "would be " if dry_run else ""
    pairs = [
        ("table", name),
        (f"{would}settled", f"{outlook.settle_deletes:,} equality deletes" if outlook.settle_deletes else None),
        (f"{would}merged", _merge(outlook) if outlook.merge_files else None),
        ("a full scan opens", _opened(outlook) if outlook.merge_files else None),
        (f"{would}rewritten by partition", _manifests(outlook) if outlook.rewrite_manifests else None),
        ("statistics", f"{would}written" if outlook.write_statistics else None),
        (f"{would}expired", f"{outlook.expire_snapshots:,} snapshots" if outlook.expire_snapshots else None),
        (f"{would}deleted", f"{outlook.delete_files:,} files of expired snapshots" if outlook.delete_files else None),
        (f"{would}deleted as orphans", f"{len(outlook.orphans):,} files" if outlook.orphans else None),
    ]
    call.output.show(facts(pairs))
    for path in outlook.orphans if dry_run else ():
        call.output.show(path)
