"""Trino runs by itself, and on a Java that came by itself."""

from __future__ import annotations

import subprocess
from decimal import Decimal

import pytest

from services.java_25 import MODULES, unpacked
from services.trino import VERSION, Trino, TrinoError

pytestmark = pytest.mark.slow(seconds=30)


def test_the_java_that_is_fetched_is_whole() -> None:
    java = unpacked()
    version = subprocess.run([*java, "-version"], capture_output=True, text=True, check=True).stderr
    modules = subprocess.run([*java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    assert 'version "25' in version
    assert all(module in modules for module in MODULES)


def test_the_server_answers_in_types_of_python_and_refuses_by_name(trino: Trino) -> None:
    assert trino.run("select node_version, http_uri like 'http://127.0.0.1:%' from system.runtime.nodes") == [(VERSION, True)]
    values = "1, decimal '1.50', double '0.5', cast(row(null, array[date '2026-01-02']) as row(a int, b array(date))), x'00ff'"
    assert [repr(value) for value in trino.run(f"select {values}")[0]] == [
        "1",
        repr(Decimal("1.50")),
        "0.5",
        "{'a': None, 'b': [datetime.date(2026, 1, 2)]}",
        repr(b"\x00\xff"),
    ]
    with pytest.raises(TrinoError, match="TABLE_NOT_FOUND") as refused:
        trino.run("select * from system.runtime.nothing")
    assert refused.value.name == "TABLE_NOT_FOUND"
