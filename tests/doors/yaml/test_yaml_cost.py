from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyspark", "py4j", "pyiceberg", "pyarrow", "numpy", "sqlalchemy", "typer", "rich", "jsonschema")

PROGRAM = """
import sys
from frazil.doors.yaml import load_text, template, json_schema
project = load_text(template("orders"), "p.yaml", {})
json_schema()
print(",".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_loading_a_file_needs_none_of_the_heavy_libraries() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    present = set(run.stdout.strip().split(","))
    assert "ruamel" in present
    assert present & set(HEAVY) == set()
