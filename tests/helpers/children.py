"""frazil in a process of its own, where the tests' shared Spark does not reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "import sys; from frazil.cli import main; sys.exit(main())"]
RUN_FILE = [sys.executable, "-c", "import sys, frazil; frazil.run(sys.argv[1], once=True)"]
TIMEOUT = 400


def write_project(folder: Path, project: Mapping[str, Any]) -> Path:
    """A pipeline file. JSON is YAML."""
    path = folder / "pipeline.yaml"
    path.write_text(json.dumps(project, indent=2))
    return path


def finished(command: list[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command, run to its end."""
    environment = {**os.environ, **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environment)
