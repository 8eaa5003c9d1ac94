"""`frazil rewind`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.call import Call, for_each, pipelines_named
from frazil.cli.output import facts
from frazil.errors import UsageError

if TYPE_CHECKING:
    from frazil.runtime.rewind import Place


def rewind(
    call: Call,
    pipeline: Annotated[str, typer.Argument(help="The pipeline to move.", show_default=False)],
    *,
    to_offset: Annotated[
        str | None, typer.Option(metavar="OFFSETS", help='`nearest`, or JSON: {"topic": {"0": 17}}.', show_default=False)
    ] = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="The first messages that are not older.", show_default=False)
    ] = None,
    to_snapshot: Annotated[
        int | None,
        typer.Option(metavar="ID", help="Where it was at a snapshot of its table; 0: the beginning.", show_default=False),
    ] = None,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="After everything that is there now.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this it is only shown.")] = False,
) -> None:
    """Let a pipeline read on from another place. Rows that are in the table stay there."""
    project = call.project()
    chosen = pipelines_named(project, [pipeline])
    place = _place(to_offset, to_time, to_snapshot, to_latest=to_latest)
    from frazil.runtime.rewind import rewind as move

    (moved,) = for_each(chosen, lambda one: move(one, project.settings, place, really=yes))
    if call.output.json:
        call.output.document(moved)
        return
    words = "reads on from" if moved.done else "would read on from"
    pairs = [
        ("pipeline", moved.pipeline),
        ("table", moved.table),
        ("was at", moved.before or "the beginning"),
        (words, moved.after or "the beginning"),
    ]
    call.output.show(facts(pairs))
    if not moved.done:
        call.output.say("Nothing was changed. Add --yes to do it.")


def _place(offset: str | None, moment: str | None, snapshot: int | None, *, to_latest: bool) -> Place:
    from frazil.runtime.rewind import ToLatest, ToOffsets, ToSnapshot, ToTime, read_offsets

    given = [
        name for name, used in (("--to-offset", offset), ("--to-time", moment), ("--to-snapshot", snapshot)) if used is not None
    ]
    given += ["--to-latest"] if to_latest else []
    if len(given) != 1:
        said = f"{' and '.join(given)} are given" if given else "none is given"
        raise UsageError("where-to", f"Say where to with one of --to-offset, --to-time, --to-snapshot and --to-latest; {said}.")
    if offset is not None:
        return ToOffsets(read_offsets(offset))
    if moment is not None:
        return ToTime(_ms(moment))
    return ToLatest() if snapshot is None else ToSnapshot(snapshot)


def _ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError("time-unreadable", f"Cannot read the time {text!r}.", fix="Write it as 2026-01-31T12:00:00Z.") from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
