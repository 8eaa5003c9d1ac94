"""The fixes that doors have for errors belong to errors that there are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.doors.bizon import cures as bizon
from frazil.doors.bytewax import cures as bytewax
from frazil.doors.sql import cures as sql

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import error_codes


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
