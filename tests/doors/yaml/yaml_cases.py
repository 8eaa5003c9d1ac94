"""Small pipeline files for the tests of the YAML door."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent, indent

import pytest

from frazil.doors.yaml import load_text
from frazil.errors import ConfigError, ConfigErrors
from frazil.model.pipeline import ProjectSpec

ROOT = Path(__file__).parents[3]
DATA = Path(__file__).parent / "data"

CATALOG = """\
catalog:
  type: sql
  sql:
    uri: sqlite:///lake/catalog.db
    warehouse: lake/warehouse
"""


def file_text(config: str = "namespace: db\ntable: t\n", entry: str = "", source: str = "", top: str = "") -> str:
    """A generator and an Iceberg sink, with more keys for the sink's config, the sink, the source, and the file."""
    return "\n".join(
        [
            "sources:",
            "  events:",
            "    connector: generator",
            _indented(source, 4),
            "sinks:",
            "  lake:",
            "    connector: iceberg",
            _indented(entry, 4),
            "    config:",
            _indented(CATALOG, 6),
            _indented(config, 6),
            dedent(top),
        ]
    )


def _indented(text: str, columns: int) -> str:
    return indent(dedent(text), " " * columns)


def loaded(text: str, env: Mapping[str, str] | None = None) -> ProjectSpec:
    return load_text(text, "p.yaml", env or {})


def problems(text: str, env: Mapping[str, str] | None = None) -> tuple[ConfigError, ...]:
    with pytest.raises(ConfigErrors) as caught:
        load_text(text, "p.yaml", env or {})
    return caught.value.errors


def problem(text: str, env: Mapping[str, str] | None = None) -> ConfigError:
    """The only problem of a file."""
    found = problems(text, env)
    assert len(found) == 1, [str(each) for each in found]
    return found[0]


def place_of(text: str, part: str) -> tuple[int, int]:
    """Line and column of a part that stands once in a text."""
    assert text.count(part) == 1, f"{part!r} stands {text.count(part)} times"
    before = text[: text.index(part)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def stands_at(error: ConfigError) -> tuple[int, int]:
    assert error.location is not None
    assert error.location.file == "p.yaml"
    return error.location.line, error.location.column
