"""Tables that are in a warehouse's folder, whether the catalog knows them or not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dlt.common.configuration.exceptions import ConfigurationValueError

from frazil.doors.dlt.configuration import IcebergRestConfiguration

_NUMBER = re.compile(r"^v?(\d+)")


def newest_metadata(config: IcebergRestConfiguration) -> Iterator[tuple[str, str]]:
    """The tables in the namespace's folder, each with the location of its newest metadata."""
    place = urlsplit(config.warehouse or "")
    if place.scheme not in ("", "file") or not config.warehouse:
        raise ConfigurationValueError(
            f"register_new_tables: only a warehouse in a folder of this machine can be looked through, not {config.warehouse!r}."
        )
    folder = Path(unquote(place.path)).joinpath(*config.namespace.split("."))
    for table in sorted(folder.iterdir()) if folder.is_dir() else ():
        if files := sorted((table / "metadata").glob("*.metadata.json"), key=_age):
            yield table.name, files[-1].resolve().as_uri()


def _age(path: Path) -> tuple[int, str]:
    number = _NUMBER.match(path.name)
    return (int(number[1]) if number else -1, path.name)
