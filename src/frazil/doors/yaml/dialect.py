"""What is particular to a pipeline file when it is read and explained."""

from __future__ import annotations

from pydantic import BaseModel

from frazil.doors.yaml.file import NAME_PATTERN, SOURCES
from frazil.model.sink import SinkSpec
from frazil.reading.anatomy import keys_of
from frazil.reading.document import Dialect, Document, Path

_TEST_ROWS = ("given", "expect")

# An empty name is a missing one, said in the words that users search for.
_EMPTY = {"namespace": "Namespace is required", "table": "Table name is required"}


def _is_data(path: Path) -> bool:
    """Whether a value is of a row of a test: its keys are names of columns, and any type may stand there."""
    return len(path) > 6 and path[0] == "pipelines" and path[2] == "tests" and path[4] in _TEST_ROWS


def _home_of(document: Document, path: Path) -> str | None:
    """Settings of a connector or table that stand beside `config` instead of in it."""
    if len(path) != 3 or path[0] not in ("sources", "sinks"):
        return None
    connector = document.at(path[:2]).get("connector")
    model: type[BaseModel] | None = SinkSpec if path[0] == "sinks" else SOURCES.get(str(connector))
    return "config" if model is not None and path[-1] in keys_of(model) else None


def _empty(base: Path, inner: Path) -> str | None:
    return _EMPTY.get(str(inner[0])) if base[:1] == ("sinks",) and len(inner) == 1 else None


DIALECT = Dialect(
    file="A pipeline file",
    any_type=("equals", "value"),
    is_data=_is_data,
    forms={NAME_PATTERN: "must be made of letters, digits, `_`, `-` and `.`, and not begin with `-` or `.`"},
    home_of=_home_of,
    empty=_empty,
)
