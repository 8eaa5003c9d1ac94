"""Tables that are in folders of this machine, whether the catalog knows them or not."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path

from frazil.spark.catalogs import warehouse_uri

# Stands in a location for the name of a table; nobody has it in a name.
ANY_TABLE = "\ue000"

_NUMBER = re.compile(r"^v?(\d+)")


def newest_metadata(location: str) -> Iterator[tuple[str, str]]:
    """The tables at a location that ``ANY_TABLE`` stands in, each with the location of its newest metadata."""
    path = "/" + warehouse_uri(location).removeprefix("file:").lstrip("/")
    parts = path.split(ANY_TABLE)
    name = re.compile(re.escape(parts[0]) + "([^/]+)" + r"\1".join(map(re.escape, parts[1:])))
    for folder in sorted(glob.glob("*".join(map(glob.escape, parts)))):
        files = sorted((Path(folder) / "metadata").glob("*.metadata.json"), key=_age)
        if files and (found := name.fullmatch(folder)):
            yield found[1], warehouse_uri(str(files[-1]))


def _age(path: Path) -> tuple[int, str]:
    number = _NUMBER.match(path.name)
    return (int(number[1]) if number else -1, path.name)
