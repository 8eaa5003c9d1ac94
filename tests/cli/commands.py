"""Calls of the command line: in this process for speed, or as a process of its own for signals and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FRAZIL = Path(sys.executable).with_name("frazil")

SQL_SINK = """\
version: "1.0"
sources:
  numbers:
    connector: generator
    config: {{rows: {rows}, rows_per_second: 1000}}
sinks:
  lake:
    connector: iceberg
    config:
      catalog:
        type: sql
        sql: {{uri: "sqlite:///{folder}/catalog.db", warehouse: "{folder}/warehouse"}}
      namespace: shop
      table: events
{options}
pipelines:
  load:
    source: numbers
    sink: lake
"""


@dataclass(frozen=True)
class Outcome:
    """What a call printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def text(self) -> str:
        """Everything that was printed."""
        return self.out + self.err


Frazil = Callable[..., Outcome]


def frazil_process(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Outcome:
    """The installed command as a process of its own."""
    done = subprocess.run([FRAZIL, *map(str, arguments)], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    return Outcome(done.returncode, done.stdout, done.stderr)


def without_java(folder: Path) -> tuple[dict[str, str], Path]:
    """An environment in which whoever starts a JVM, or looks for one, fails, and leaves a file."""
    java, started = folder / "java-home" / "bin" / "java", folder / "java-started"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch '{started}'\nexit 1\n")
    java.chmod(0o755)
    path = os.pathsep.join([str(java.parent), os.environ["PATH"]])
    return {**os.environ, "JAVA_HOME": str(java.parent.parent), "PATH": path}, started


def sql_pipeline(folder: Path, *options: str, rows: int = 1000, name: str = "frazil.yaml") -> Path:
    """A pipeline file from the generator into a SQLite catalog of the folder; options are lines of the sink."""
    file = folder / name
    file.write_text(SQL_SINK.format(folder=folder, rows=rows, options="\n".join(f"      {line}" for line in options)))
    return file


def sink_file(folder: Path, catalog: str, *options: str, name: str = "frazil.yaml") -> Path:
    """A file with one sink, `lake`, into `shop.events`, and nothing else; the catalog is YAML in one line."""
    lines = [f"catalog: {catalog}", "namespace: shop", "table: events", *options]
    body = "\n".join(f"      {line}" for line in lines)
    file = folder / name
    file.write_text(f'version: "1.0"\nsinks:\n  lake:\n    connector: iceberg\n    config:\n{body}\n')
    return file


def everything_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below a folder with its size and time of change."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))}
