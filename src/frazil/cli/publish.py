"""`frazil publish`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.call import Call, for_each, pipelines_named
from frazil.cli.output import AsItIs, facts, table
from frazil.cli.run import Names
from frazil.errors import UsageError
from frazil.model.words import several

if TYPE_CHECKING:
    from frazil.model.events import Event
    from frazil.model.pipeline import PipelineSpec, ProjectSpec
    from frazil.model.publishing import CheckResult, Publication


def publish(
    call: Call,
    names: Names = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only make the checks; main stays as it is.")] = False,
) -> None:
    """Check what pipelines wrote to their branches, and give it to main; also while they run."""
    call, chosen = call.with_file_among(names or [])
    project = call.project()
    pipelines = _with_branches(project, chosen)
    from frazil.runtime.publish import publish as give_to_main

    done = for_each(
        pipelines,
        lambda one: give_to_main(one, project.settings, dry_run=dry_run, listen=lambda event: _say(call, event)),
    )
    if call.output.json:
        call.output.document({"pipelines": [_to_json(one, dry_run=dry_run) for one in done]})
    else:
        for one in done:
            _show(call, one, dry_run=dry_run)
    if any(one.failed for one in done):
        raise typer.Exit(1)


def _with_branches(project: ProjectSpec, chosen: tuple[str, ...]) -> tuple[PipelineSpec, ...]:
    """The pipelines that were named, or all that write to a branch."""
    pipelines = pipelines_named(project, chosen)
    if chosen:
        return pipelines
    found = tuple(one for one in pipelines if one.sink.branch is not None)
    if not found:
        raise UsageError("usage", f"No pipeline of {project.file} writes to a branch.", fix="Give a sink a branch.")
    return found


def _say(call: Call, event: Event) -> None:
    from frazil.model.events import CommitFailed

    if isinstance(event, CommitFailed):
        call.output.say(f"{event.pipeline}: {event.message}", "dim")


def _to_json(one: Publication, *, dry_run: bool) -> dict[str, Any]:
    fields = asdict(one)
    fields["published"] = fields.pop("done")
    fields["checks"] = [
        {
            "name": check.name,
            "passed": check.passed,
            "rows": check.rows,
            "problem": check.problem or None,
            "sample": [AsItIs(dict(zip(check.columns, row, strict=True))) for row in check.sample],
        }
        for check in one.checks
    ]
    return fields | {"dry_run": dry_run, "nothing": one.nothing}


def _show(call: Call, one: Publication, *, dry_run: bool) -> None:
    call.output.show(
        facts(
            [
                ("pipeline", one.pipeline),
                ("table", one.table),
                ("branch", one.branch),
                (
                    "written since main",
                    f"{several(one.rows, 'row')} in {several(one.snapshots, 'snapshot')}" if one.snapshots else None,
                ),
                ("checks", _checks(one) if one.checks else None),
                ("result", _result(one, dry_run=dry_run)),
            ]
        )
    )
    for check in one.failed:
        call.output.show(f"The check {check.name!r} failed: {_failure(check)}")
        if check.sample:
            rows = [[repr(value) if isinstance(value, bytes) else value for value in row] for row in check.sample]
            call.output.show(table("", check.columns, rows, is_data=True))


def _checks(one: Publication) -> str:
    passed = len(one.checks) - len(one.failed)
    return f"{passed} of {len(one.checks)} passed"


def _failure(check: CheckResult) -> str:
    if check.problem:
        return check.problem
    more = f", of which these are {len(check.sample)}" if check.rows > len(check.sample) else ""
    return f"{several(check.rows, 'row')} must not be there{more}"


def _result(one: Publication, *, dry_run: bool) -> str:
    if one.nothing:
        return f"nothing to publish: main has snapshot {one.snapshot} already"
    if one.failed:
        return "not published: main is as it was"
    if dry_run:
        return f"would be published: main would move to snapshot {one.snapshot}"
    return f"published: main is at snapshot {one.snapshot}"
