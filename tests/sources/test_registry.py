"""From a description to a source."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest
from pydantic import TypeAdapter

from frazil.model.source import SourceSpec
from frazil.sources import open_source

SPECS: dict[str, dict[str, object]] = {
    "generator": {},
    "files": {"path": "/in", "format": "json"},
    "table": {"table": "a.b.c"},
    "query": {"query": "SELECT 1 AS a"},
    "kafka": {"bootstrap_servers": "localhost:9092", "topics": ["t"]},
    "postgres-cdc": {"host": "h", "database": "d", "user": "u"},
    "bizon": {"name": "dummy", "stream": "plants", "tables": ["plants"]},
}


def spec(connector: str) -> SourceSpec:
    return TypeAdapter[SourceSpec](SourceSpec).validate_python({"connector": connector, **SPECS[connector]})


@pytest.mark.parametrize("connector", SPECS)
def test_every_connector_is_opened(connector: str) -> None:
    assert open_source(spec(connector), lambda: None).fingerprint.startswith(f"{connector}:")  # type: ignore[arg-type]


def test_no_connector_is_left_out() -> None:
    assert set(SPECS) == {model.model_fields["connector"].default for model in get_args(get_args(SourceSpec)[0])}


def test_the_package_is_imported_without_spark() -> None:
    program = "import sys, frazil.sources; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
