"""`frazil init`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from frazil.cli.call import DEFAULT_FILE, Call
from frazil.errors import EnvironmentFault, UsageError


def init(
    call: Call,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it.", show_default=False)] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Write a first frazil.yaml, and its JSON Schema for editors."""
    from frazil.doors.yaml import json_schema, template
    from frazil.doors.yaml.template import SCHEMA_FILE

    contents = {
        folder / DEFAULT_FILE: template("events_to_lake"),
        folder / SCHEMA_FILE: json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n",
    }
    present = [str(path) for path in contents if path.exists()]
    if present and not force:
        raise UsageError(
            "file-exists", f"Already there: {', '.join(present)}. Nothing was written.", fix="Use --force to replace."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(
            "cannot-write", f"Cannot write to {folder}: {error.strerror}.", fix="Choose another folder."
        ) from error
    if call.output.json:
        call.output.document({"written": [str(path) for path in contents]})
        return
    for path in contents:
        call.output.show(f"wrote {path}")
    config = "" if folder == Path() else f" -c {folder / DEFAULT_FILE}"
    call.output.say(f"Next: frazil validate{config}, frazil check{config}, frazil run{config}", "dim")
