"""Runs the public tests of dlt's destinations against frazil: `python scripts/dlt_suite CLONE [arguments of pytest]`.

They are in no package of dlt's: CLONE is a clone of its repository. Without further arguments those are run that are for every
destination with SQL.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from _addons import NAME

FOR_ALL = ["tests/load/test_job_client.py", "tests/load/pipeline"]


def main(clone: Path, *arguments: str) -> int:
    """What pytest returns."""
    with tempfile.TemporaryDirectory() as folder:
        # Without the dlt of the clone: the installed one is under test.
        shutil.copytree(clone / "tests", f"{folder}/suite/tests")
        shutil.copy(clone / "pyproject.toml", f"{folder}/suite")
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "ACTIVE_DESTINATIONS": json.dumps([NAME]),
            "DESTINATION__CATALOG_URI": f"sqlite:///{folder}/catalog.db",
            "DESTINATION__WAREHOUSE": f"{folder}/warehouse",
            "DESTINATION__NAMESPACE": "{dataset_name}",
            "RUNTIME__DLTHUB_TELEMETRY": "false",
        }
        # The suite keeps dlt's data in a folder of its own, and looks for it there.
        env.pop("DLT_DATA_DIR", None)
        # Not `python -m pytest`: dlt names a pipeline after the program that runs, and the suite expects it to be called pytest.
        command = [str(Path(sys.executable).with_name("pytest")), "-p", "no:cacheprovider", "-k", NAME, *(arguments or FOR_ALL)]
        return subprocess.run(command, cwd=f"{folder}/suite", env=env, check=False).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python scripts/dlt_suite", description="Run dlt's own tests against frazil.")
    parser.add_argument("clone", type=Path, help="a clone of dlt's repository")
    given, others = parser.parse_known_args()
    if not (given.clone / "tests" / "load").is_dir():
        parser.error(f"{given.clone} has no tests/load: it is not a clone of dlt's repository")
    sys.exit(main(given.clone.resolve(), *others))
