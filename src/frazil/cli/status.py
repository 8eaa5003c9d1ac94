"""`frazil status`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.call import Call, pipelines_named
from frazil.cli.check import exit_code
from frazil.cli.inspect import unpublished
from frazil.cli.output import console_for_data, error_fields, error_text, table, text
from frazil.cli.run import Names
from frazil.cli.signals import interruptible_wait
from frazil.errors import UsageError
from frazil.model.words import ago, iso, seconds_since, short, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from frazil.model.pipeline import PipelineSpec
    from frazil.observe.status import Status


def status(
    call: Call,
    names: Names = None,
    *,
    watch: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.5, help="Show it again every so many seconds, until Ctrl-C.", show_default=False),
    ] = None,
) -> None:
    """Show how far every pipeline is, as its table tells it. Needs no Spark and no running pipeline."""
    from frazil.observe.status import look

    call, only = call.with_file_among(names or [])
    if watch is not None and call.output.json:
        raise UsageError("usage", "--watch and --json exclude each other.", fix="Call status --json as often as you like.")
    project = call.project()
    chosen = pipelines_named(project, only) if only else project.pipelines
    if watch is not None:
        _keep_showing(chosen, watch)
        return
    found = [look(pipeline) for pipeline in chosen]
    if call.output.json:
        call.output.document({"pipelines": [to_json(one) for one in found]})
    else:
        call.output.show(*_shown(found))
    if code := exit_code(one.error for one in found if one.error is not None):
        raise typer.Exit(code)


def _keep_showing(pipelines: Sequence[PipelineSpec], seconds: float) -> None:
    """On a terminal in one place; elsewhere one look after the other."""
    from rich.console import Group
    from rich.live import Live

    from frazil.observe.status import look

    console = console_for_data()
    with interruptible_wait() as wait, Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            seen = f"{datetime.now():%H:%M:%S}, every {seconds:g} s"
            shown = Group(text(seen, "dim"), *map(_as_text, _shown([look(pipeline) for pipeline in pipelines])))
            if console.is_terminal:
                live.update(shown, refresh=True)
            else:
                console.print(shown, soft_wrap=True)
            if wait(seconds):
                return


def _as_text(thing: RenderableType) -> RenderableType:
    return text(thing) if isinstance(thing, str) else thing


def _shown(found: Sequence[Status]) -> Iterator[RenderableType]:
    from frazil.observe.status import hints

    columns = ("pipeline", "table", "last commit", "batch", "rows", "files", "size")
    yield table("", columns, [_row(one) for one in found], right=("batch", "rows", "files", "size"))
    for one in found:
        yield from (f"{one.pipeline.name}: {line}" for line in (*_details(one), *hints(one)))
        if one.error is not None:
            yield error_text(one.error)


def to_json(one: Status) -> dict[str, Any]:
    """One pipeline's status as JSON."""
    from frazil.observe.status import hints

    state, head = one.ledger, one.facts.current if one.facts is not None else None
    return {
        "pipeline": one.pipeline.name,
        "enabled": one.pipeline.enabled,
        "sink_id": one.pipeline.sink_id,
        "catalog": one.pipeline.sink.catalog.address,
        "table": one.pipeline.sink.full_name,
        "branch": one.pipeline.sink.branch,
        "unpublished_snapshots": one.facts.unpublished if one.facts is not None and one.pipeline.sink.branch else None,
        "paused": one.facts.paused.get(one.pipeline.sink_id) if one.facts is not None else None,
        "table_exists": None if one.error is not None else one.facts is not None,
        "last_commit_at": iso(state.at_ms) if state else None,
        "age_seconds": seconds_since(state.at_ms) if state else None,
        "batch": state.batch if state else None,
        "epoch": state.epoch if state else None,
        "instance": state.instance if state else None,
        "position": json.loads(state.end) if state and state.end else None,
        "snapshot": head.id if head else None,
        "rows": head.total_rows if head else None,
        "files": head.total_files if head else None,
        "bytes": head.total_bytes if head else None,
        "snapshots": len(one.facts.snapshots) if one.facts is not None else None,
        "hints": list(hints(one)),
        "error": error_fields(one.error) if one.error is not None else None,
    }


def _row(one: Status) -> tuple[object, ...]:
    name, full_name = one.pipeline.name, one.pipeline.sink.full_name
    if one.facts is None:
        return name, full_name, "unreadable" if one.error else "never"
    state, head = one.ledger, one.facts.current
    committed = (ago(seconds_since(state.at_ms)), state.batch) if state else ("never", "")
    counts = (f"{head.total_rows:,}", f"{head.total_files:,}", size(head.total_bytes)) if head else ("0", "0", "0 B")
    return name, full_name, *committed, *counts


def _details(one: Status) -> Iterator[str]:
    state = one.ledger
    if one.facts is not None and one.pipeline.sink.branch is not None:
        yield f"branch {one.facts.branch}: {unpublished(one.facts)}"
    if state is not None:
        reached = short(state.end, 100) or "nothing yet"
        yield f"committed {iso(state.at_ms)} by instance {state.instance}, epoch {state.epoch}, up to {reached}"
