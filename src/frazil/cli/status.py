"""`frazil status`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from frazil.cli.call import Call, pipelines_named
from frazil.cli.check import exit_code
from frazil.cli.inspect import unpublished
from frazil.cli.output import error_fields, error_text, table
from frazil.cli.run import Names
from frazil.model.words import ago, iso, seconds_since, short, size

if TYPE_CHECKING:
    from frazil.observe.status import Status


def status(call: Call, names: Names = None) -> None:
    """Show how far every pipeline is, as its table tells it. Needs no Spark and no running pipeline."""
    from frazil.observe.status import hints, look

    call, only = call.with_file_among(names or [])
    project = call.project()
    found = [look(pipeline) for pipeline in (pipelines_named(project, only) if only else project.pipelines)]
    if call.output.json:
        call.output.document({"pipelines": [to_json(one) for one in found]})
    else:
        columns = ("pipeline", "table", "last commit", "batch", "rows", "files", "size")
        call.output.show(table("", columns, [_row(one) for one in found], right=("batch", "rows", "files", "size")))
        for one in found:
            for line in (*_details(one), *hints(one)):
                call.output.show(f"{one.pipeline.name}: {line}")
            if one.error is not None:
                call.output.show(error_text(one.error))
    if code := exit_code(one.error for one in found if one.error is not None):
        raise typer.Exit(code)


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
