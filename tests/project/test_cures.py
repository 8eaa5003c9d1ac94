"""The fixes that doors have for errors belong to errors that there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from frazil.doors.bizon import cures as bizon
from frazil.doors.bytewax import cures as bytewax
from frazil.doors.sql import cures as sql

SOURCES = Path(__file__).parents[2] / "src" / "frazil"


@cache
def raised() -> set[str]:
    """All texts in the code but for these tables themselves: a code is one of them."""
    files = [path for path in SOURCES.rglob("*.py") if path.name != "cures.py"]
    return {node.value for path in files for node in ast.walk(ast.parse(path.read_text())) if _is_text(node)}  # type: ignore[attr-defined]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def tables() -> Iterator[tuple[str, set[str]]]:
    yield "bizon", {*bizon._TOPICS, *bizon._CATALOG, *bizon._CURES}
    yield "bytewax", {*bytewax._CURES}
    of_sql = [*sql._CONNECTIONS.values(), sql._KAFKA_SOURCE, sql._POSTGRES_SOURCE, sql._FILES_SOURCE, sql._SINK, sql._KEY]
    yield "sql", {*sql._PARTITION, *sql._RECORDS, *(code for table in of_sql for code in table)}


@pytest.mark.parametrize(("door", "codes"), [*tables()])
def test_every_code_with_a_fix_of_its_own_is_raised_somewhere(door: str, codes: set[str]) -> None:
    texts = raised()
    # A code may stand for all that begin with its word.
    unknown = {code for code in codes if code not in texts and not any(text.startswith(f"{code}-") for text in texts)}
    assert not unknown, door
