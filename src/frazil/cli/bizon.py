"""`frazil source list` and `frazil stream list`: what a Bizon file can read here."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.call import Call, nearest
from frazil.cli.output import table
from frazil.errors import UsageError

MODES = {"incremental": "incremental and stream", "full_refresh": "full refresh only"}


def list_sources(call: Call) -> None:
    """List the sources that a Bizon file can name."""
    from frazil.doors.bizon import STREAMS

    if call.output.json:
        call.output.document([{"source": name, "streams": list(streams)} for name, streams in STREAMS.items()])
        return
    call.output.show(table("", ("source", "streams"), [(name, ", ".join(streams)) for name, streams in STREAMS.items()]))
    call.output.say("Sources of pipeline files in frazil's own form: frazil connectors", "dim")


def list_streams(
    call: Call, source: Annotated[str, typer.Argument(metavar="SOURCE", help="A source of Bizon's.", show_default=False)]
) -> None:
    """List the streams of a source that a Bizon file can name."""
    from frazil.doors.bizon import STREAMS

    if source not in STREAMS:
        raise UsageError("unknown-source", f"There is no source {source!r} for Bizon files.", fix=nearest(source, list(STREAMS)))
    streams = STREAMS[source]
    if call.output.json:
        call.output.document([{"stream": name, "mode": mode} for name, mode in streams.items()])
        return
    call.output.show(table("", ("stream", "how it is read"), [(name, MODES[mode]) for name, mode in streams.items()]))
