"""What `import frazil` gives: exactly the curated names, and nothing heavy before it is used."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import pytest

import frazil
import frazil.testing

NAMES = {
    "Committed", "ConfigError", "ConfigErrors", "DataError", "EnvironmentFault", "Event", "Fenced", "FrazilError", "Halted",
    "OutcomeUnknown", "Pipeline", "Retryable", "Sink", "SourceLocation", "UsageError", "__version__", "register", "run",
    "session", "sink",
}  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert set(frazil.__all__) == NAMES
    assert set(dir(frazil)) >= NAMES
    assert all(getattr(frazil, name) is not None for name in NAMES)


def test_the_names_for_tests_of_users_are_these() -> None:
    names = {"ABORT", "BATCH", "DELETE", "EOF", "Aborted", "ScriptedSource", "TemporaryLake"}
    assert set(frazil.testing.__all__) == names
    assert all(getattr(frazil.testing, name) is not None for name in names)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'snik'"):
        frazil.snik  # noqa: B018


def test_importing_and_describing_a_sink_loads_neither_spark_nor_arrow() -> None:
    code = (
        "import sys, frazil\n"
        "assert 'pydantic' not in sys.modules\n"
        "frazil.sink().to('lake.db.t').keys('id')\n"
        "assert 'frazil.testing' not in sys.modules\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & {'pyspark', 'pyiceberg', 'pyarrow', 'pandas', 'typer'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_the_package_is_typed() -> None:
    assert files("frazil").joinpath("py.typed").is_file()
