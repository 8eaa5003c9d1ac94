"""From a description to a source."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import TypeAdapter

from frazil.errors import ConfigError
from frazil.model.source import RUNNABLE, SourceSpec
from frazil.sources import open_source

SPECS: dict[str, dict[str, object]] = {
    "generator": {},
    "files": {"path": "/in", "format": "json"},
    "table": {"table": "a.b.c"},
    "query": {"query": "SELECT 1 AS a"},
    "kafka": {"bootstrap_servers": "localhost:9092", "topics": ["t"]},
    "postgres-cdc": {"host": "h", "database": "d", "user": "u"},
}


def spec(connector: str) -> SourceSpec:
    return TypeAdapter[SourceSpec](SourceSpec).validate_python({"connector": connector, **SPECS[connector]})


def test_every_connector_is_opened_or_refused_by_name() -> None:
    for connector in SPECS:
        described = spec(connector)
        if isinstance(described, RUNNABLE):
            assert open_source(described, None).fingerprint.startswith(f"{connector}:")  # type: ignore[arg-type]
            continue
        with pytest.raises(ConfigError, match=connector) as caught:
            open_source(described, None)  # type: ignore[arg-type]
        assert caught.value.code == "connector-not-available"
        assert "generator, files, table, query" in caught.value.fix


def test_the_package_is_imported_without_spark() -> None:
    program = "import sys, frazil.sources; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
