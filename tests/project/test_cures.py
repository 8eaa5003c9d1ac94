"""The fixes that doors have for errors belong to errors that there are, and nothing else depends on an error's code or words."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.doors.bizon import cures as bizon
from frazil.doors.bytewax import cures as bytewax
from frazil.doors.sql import cures as sql

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import error_codes

# Modules that compare a code or a message, and whose that is.
COMPARED = {
    "doors/dlt/errors.py": "the door's table of fixes",
    "iceberg/faults.py": "what Java says",
    "runtime/cases.py": "the code that a user's own test expects",
    "sources/decode/registry.py": "the status of an answer",
}


def tables() -> Iterator[tuple[str, set[str]]]:
    yield "bizon", {*bizon._TOPICS, *bizon._CATALOG, *bizon._CURES}
    yield "bytewax", {*bytewax._CURES}
    of_sql = [*sql._CONNECTIONS.values(), sql._KAFKA_SOURCE, sql._POSTGRES_SOURCE, sql._FILES_SOURCE, sql._SINK, sql._KEY]
    yield "sql", {*sql._PARTITION, *sql._RECORDS, *(code for table in of_sql for code in table)}


@pytest.mark.parametrize(("door", "codes"), [*tables()])
def test_every_code_with_a_fix_of_its_own_is_on_the_page_of_codes(door: str, codes: set[str]) -> None:
    known = {entry.code for entry in error_codes.entries()}
    # A code may stand for all that begin with its word.
    unknown = {code for code in codes if code not in known and not any(one.startswith(f"{code}-") for one in known)}
    assert not unknown, door


def test_nothing_is_decided_by_the_code_or_the_words_of_an_error() -> None:
    comparing = {
        str(path.relative_to(error_codes.SRC))
        for path in error_codes.SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Attribute) and side.attr in ("code", "message", "fix")
    }
    assert comparing == set(COMPARED)
