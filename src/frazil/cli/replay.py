"""`frazil replay`."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.call import Call, for_each, pipelines_named
from frazil.cli.output import facts, table


def replay(
    call: Call,
    pipeline: Annotated[str, typer.Argument(help="The pipeline whose dead letters are meant.", show_default=False)],
    *,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Only these letters: code = 'message-invalid'.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this they are only counted.")] = False,
) -> None:
    """Put dead letters through their pipeline again, each once: what fits now leaves the table of dead letters."""
    project = call.project()
    chosen = pipelines_named(project, [pipeline])
    from frazil.runtime.replay import replay as put_through

    (done,) = for_each(chosen, lambda one: put_through(one, project.settings, where, really=yes))
    if call.output.json:
        call.output.document(done)
        return
    pairs = [
        ("pipeline", done.pipeline),
        ("dead letters", done.table),
        ("replayed" if done.done else "letters", f"{done.letters}"),
    ]
    if done.counts is not None:
        counts = done.counts
        pairs += [("written", f"{counts.written}"), ("still dead letters", f"{counts.dead_lettered}")]
        others = counts.read - counts.written - counts.dead_lettered
        pairs += [("filtered, deleted or superseded", f"{others}")] if others else []
    call.output.show(facts(pairs))
    if done.done:
        return
    if done.codes:
        call.output.show(table("", ("code", "letters"), [(code, str(count)) for code, count in sorted(done.codes.items())]))
    call.output.say("Nothing was changed. Add --yes to replay them." if done.letters else "There is nothing to replay.")
