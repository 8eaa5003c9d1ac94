"""`frazil jars`."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.call import Call

Components = Annotated[
    list[str] | None, typer.Argument(help="Beyond `core`: avro, aws, azure, brotli, gcp, kafka, postgres.", metavar="COMPONENT")
]


def jars(call: Call, components: Components = None) -> None:
    """Print the jars that Spark needs, with commas between: `spark-submit --jars "$(frazil jars)" program.py`."""
    from frazil.spark.jars import needed_jars

    paths = [str(path) for path in needed_jars(components or (), report=lambda text: call.output.say(text, "dim"))]
    if call.output.json:
        call.output.document(paths)
        return
    call.output.show(",".join(paths))
