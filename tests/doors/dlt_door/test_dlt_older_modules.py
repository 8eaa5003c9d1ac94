"""The modules of the package dlt_iceberg that have something in them which a program of before imports."""

from __future__ import annotations

from pathlib import Path

import pytest

import frazil.dlt

COMPAT = Path(__file__).parents[3] / "compat" / "dlt_iceberg" / "src"


def test_errors_are_found_where_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(COMPAT))
    from dlt_iceberg.schema_casting import CastingError
    from dlt_iceberg.schema_evolution import SchemaEvolutionError

    assert CastingError is frazil.dlt.CastingError
    assert SchemaEvolutionError is frazil.dlt.SchemaEvolutionError
