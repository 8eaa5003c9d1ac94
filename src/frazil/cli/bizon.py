"""`frazil source list` and `frazil stream list`: what a Bizon file can read here."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.call import Call, nearest
from frazil.cli.output import table
from frazil.errors import EnvironmentFault, UsageError


def list_sources(call: Call) -> None:
    """List the sources that a Bizon file can name."""
    from frazil.doors.bizon import known_sources, streams_of

    found: list[tuple[str, list[str], str]] = []
    for name in known_sources():
        try:
            found.append((name, list(streams_of(name)), ""))
        except EnvironmentFault as error:
            found.append((name, [], error.fix))
    if call.output.json:
        call.output.document([{"source": name, "streams": streams} for name, streams, _ in found])
        return
    call.output.show(table("", ("source", "streams"), [(name, ", ".join(streams) or lacks) for name, streams, lacks in found]))
    if len(found) == 1:
        call.output.say("More of them come with: pip install 'frazil[bizon]'", "dim")
    call.output.say("Sources of pipeline files in frazil's own form: frazil connectors", "dim")


def list_streams(
    call: Call, source: Annotated[str, typer.Argument(metavar="SOURCE", help="A source of Bizon's.", show_default=False)]
) -> None:
    """List the streams of a source that a Bizon file can name."""
    from frazil.doors.bizon import known_sources, streams_of

    known = known_sources()
    if source not in known:
        raise UsageError("unknown-source", f"There is no source {source!r} for Bizon files.", fix=nearest(source, known))
    streams = streams_of(source)
    if call.output.json:
        call.output.document([{"stream": name, "mode": mode} for name, mode in streams.items()])
        return
    rows = [(name, read_how(source, mode)) for name, mode in streams.items()]
    call.output.show(table("", ("stream", "how it is read"), rows))


def read_how(source: str, mode: str) -> str:
    """The modes that a stream can be read in, in words. Topics are never read as a whole."""
    if source == "kafka":
        return "incremental and stream"
    return "full refresh, incremental and stream" if mode == "incremental" else "full refresh and stream"
