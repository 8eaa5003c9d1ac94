"""`settings.state_dir`: where the scratch of a Spark goes that frazil starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands import Frazil, sql_pipeline
from frazil.model.settings import Settings
from frazil.spark.session import SCRATCH, SUBMITTED, with_scratch

# In a process of its own: a Spark that runs already keeps the scratch that it has.
PROGRAM = """
import json, sys
from pathlib import Path
import frazil
from pyspark.sql import SparkSession

found = {}

def look(event):
    if isinstance(event, frazil.Committed):
        found["option"] = SparkSession.active().sparkContext.getConf().get("spark.local.dir")
        found["folders"] = [path.name.split("-")[0] for path in Path("state/scratch").iterdir()]

frazil.run(sys.argv[1], once=True, listeners=[look])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_run_puts_sparks_scratch_there(tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path, rows=10)
    file.write_text(f"{file.read_text()}settings: {{state_dir: state/scratch, spark: {{master: 'local[1]'}}}}\n")
    done = subprocess.run([sys.executable, "-c", PROGRAM, file], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["option"] == str(tmp_path / "state" / "scratch")
    assert "blockmgr" in found["folders"]


def test_a_relative_folder_is_that_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert with_scratch(Settings(state_dir="./state")).conf == {SCRATCH: str(tmp_path / "state")}
    assert with_scratch(Settings()).conf == {}
    assert not (tmp_path / "state").exists()


def test_an_option_of_sparks_own_wins() -> None:
    settings = Settings.model_validate({"state_dir": "/state", "spark": {"conf": {SCRATCH: "/a,/b"}}})
    assert with_scratch(settings).conf == {SCRATCH: "/a,/b"}


def test_under_spark_submit_the_command_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMITTED, "1")
    assert with_scratch(Settings(state_dir="/state")).conf == {}


def test_a_folder_that_cannot_be_made_is_told(frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    (tmp_path / "taken").write_text("a file")
    file = sql_pipeline(tmp_path)
    file.write_text(f"{file.read_text()}settings: {{state_dir: taken/state}}\n")
    result = frazil("run", "--once", "--json")
    assert (result.code, result.json["error"]["code"]) == (78, "scratch-folder")
    assert str(tmp_path / "taken" / "state") in result.json["error"]["message"]
