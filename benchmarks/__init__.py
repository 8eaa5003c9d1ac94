"""Measures frazil beside bare Spark: ``python -m benchmarks [--quick] [append stream memory]``. See ``docs/benchmarks.md``."""

import sys
from pathlib import Path

# The services that are measured against are those of the tests.
sys.path.append(str(Path(__file__).parents[1] / "tests"))
