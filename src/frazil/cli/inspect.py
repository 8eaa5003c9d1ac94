"""`frazil inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.call import Call
from frazil.cli.output import facts, table
from frazil.cli.places import Target, targets
from frazil.model.publishing import MAIN
from frazil.model.words import ago, iso, seconds_since, several, short, size

if TYPE_CHECKING:
    from frazil.observe.lake import SnapshotFacts, TableFacts
    from frazil.observe.table_health import TableHealth


def inspect(
    call: Call,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[PIPELINE|NAMESPACE.TABLE]", help="All tables of the file when left out.", show_default=False),
    ] = None,
    snapshots: Annotated[int, typer.Option("--snapshots", "-n", min=1, help="How many of the newest snapshots.")] = 10,
) -> None:
    """Show a table: schema, partitioning, snapshots, and what the sinks wrote about themselves. Needs no Spark."""
    call, names = call.with_file_among([target] if target else [])
    project = call.project()
    from frazil.model.places import place_of

    asked = {place_of(target.places[0]): target for target in targets(project, names[0] if names else None)}
    found = [look(target) for target in asked.values()]
    if call.output.json:
        call.output.document({"tables": [to_json(one, snapshots) | {"health": asdict(health)} for one, health in found]})
        return
    for one, health in found:
        show(call, one, snapshots)
        show_health(call, health)


def look(target: Target) -> tuple[TableFacts, TableHealth]:
    """The facts of a table at the place where it is, and how healthy it is."""
    from frazil.model.places import only_place
    from frazil.observe.faults import translated
    from frazil.observe.lake import facts_of, open_table
    from frazil.observe.table_health import health_of

    sink, found = only_place(target.places, open_table)
    with translated(sink.catalog):
        return facts_of(found, sink.full_name, sink.written_branch), health_of(found, sink.maintenance, sink.written_branch)


def history(found: TableFacts, limit: int) -> Iterator[SnapshotFacts]:
    """The newest snapshots first."""
    yield from reversed(found.snapshots[-limit:])


def to_json(found: TableFacts, limit: int) -> dict[str, Any]:
    """A table as JSON."""
    head = found.current
    fields = asdict(found)
    del fields["ancestors"]
    return fields | {
        "rows": head.total_rows if head else 0,
        "files": head.total_files if head else 0,
        "bytes": head.total_bytes if head else 0,
        "snapshot_count": len(found.snapshots),
        "snapshots": [asdict(snapshot) for snapshot in history(found, limit)],
    }


def unpublished(found: TableFacts) -> str:
    """What main lacks of a branch, in words."""
    if found.unpublished is None:
        return "which has parted from main: it cannot be published"
    if not found.unpublished:
        return "all of it published"
    return f"{several(found.unpublished, 'snapshot')} not published"


def show(call: Call, found: TableFacts, limit: int) -> None:
    """A table for people."""
    head = found.current
    call.output.show(
        facts(
            [
                ("table", found.name),
                ("location", found.location),
                ("metadata", found.metadata_location),
                ("format version", found.format_version),
                ("branch", None if found.branch == MAIN else f"{found.branch}, {unpublished(found)}"),
                ("partitioned by", ", ".join(found.partition) or "nothing"),
                ("identifier fields", ", ".join(found.identifier_fields)),
                (
                    "rows",
                    f"{head.total_rows:,} in {several(head.total_files, 'file')}, {size(head.total_bytes)}" if head else "0",
                ),
            ]
        )
    )
    columns = [(c.id, c.name, c.type, "required" if c.required else "", c.doc) for c in found.columns]
    call.output.show(table("columns", ("id", "column", "type", "", "comment"), columns, right=("id",)))
    if found.properties:
        call.output.show(table("properties", ("property", "value"), sorted(found.properties.items())))
    if found.ledgers:
        call.output.show(table("ledger", ("sink", "batch", "epoch", "instance", "committed", "position"), _ledger_rows(found)))
    title = f"snapshots, the newest {min(limit, len(found.snapshots))} of {len(found.snapshots)}"
    names = ("", "snapshot", "time", "operation", "rows added", "rows", "files", "sink", "batch", "epoch", "kind")
    numbers = ("rows added", "rows", "files", "batch", "epoch")
    call.output.show(table(title, names, [_snapshot_row(one) for one in history(found, limit)], right=numbers))


def show_health(call: Call, health: TableHealth) -> None:
    """What readers and writers of a table pay, for people."""
    from frazil.observe.health_words import health_rows

    call.output.show(table("health", ("what", "how it is"), health_rows(health)))


def _ledger_rows(found: TableFacts) -> Iterator[tuple[object, ...]]:
    for sink_id, state in found.ledgers.items():
        committed = f"{iso(state.at_ms)} ({ago(seconds_since(state.at_ms))})"
        yield sink_id, state.batch, state.epoch, state.instance, committed, short(state.end)


def _snapshot_row(one: SnapshotFacts) -> tuple[object, ...]:
    own = [one.frazil.get(f"frazil.{key}", "") for key in ("sink", "batch", "epoch", "kind")]
    counts = (f"{one.added_rows:,}", f"{one.total_rows:,}", f"{one.total_files:,}")
    return ("*" if one.current else "", one.id, iso(one.at_ms), one.operation, *counts, *own)
